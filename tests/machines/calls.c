/* What calls functions of a library, in all the ways that make stubs; needs no C library. */
int own_one(int);
int own_two(const char *, int);
int own_three(int);
int own_four(int);
extern int own_data;
__attribute__((weak)) int missing(int);

#ifdef IFUNC
static int chosen_body(int value) { return value + 1; }
static int (*choose(void))(int) { return chosen_body; }
__attribute__((visibility("hidden"))) int chosen(int) __attribute__((ifunc("choose")));
#else
__attribute__((noinline)) static int chosen(int value) { return value + 1; }
#endif

int (*volatile taken)(int) = own_one;
static int here;
int *volatile relative = &here; /* what -z pack-relative-relocs packs */
int tail(int value) { return own_one(value); }
int tail_of_tail(const char *text, int value) { return value > 5 ? own_two(text, value + 1) : own_three(value); }

void _start(void)
{
	int sum = own_one(1) + own_two("two", own_data) + tail(3);
	for (int i = 0; i < sum; i++)
		sum += own_three(i) + taken(i);
	if (missing)
		sum += missing(sum);
	own_four(sum + chosen(sum) + tail_of_tail("", sum));
	for (;;)
		own_one(0);
}
