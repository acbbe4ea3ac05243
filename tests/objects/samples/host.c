/* The program around a sample: calls it once and prints what it computed. */
#include <stdio.h>

int sample_run(int rounds);

int main(int argc, char **argv)
{
    (void)argv;
    printf("%d\n", sample_run(argc + 4));
    return 0;
}
