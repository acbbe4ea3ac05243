/* Calls a library that it is linked with. */
int live_run(void);
int main(void)
{
    return live_run();
}
