/* Calls a library's functions by code that loads their slots itself, before and after a point in the middle.

   With a second argument it raises SIGUSR1 there, which whoever holds it sees and keeps; the first is how often the last loop
   runs. Printed is what the functions returned, which is right or wrong whatever a tracer does to the slots. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

int own_early(int);
int own_filled(int);
int own_late(int);
int own_again(int);
int own_outer(int);

#ifdef BY_HAND /* assembly that no pattern knows */
int call_own_early(int);
int call_own_filled(int);
int call_own_late(int);
#define own_early call_own_early
#define own_filled call_own_filled
#define own_late call_own_late
#endif

static unsigned all(int first, int times)
{
	unsigned sum = 0;
	for (int n = 0; n < times; n++) {
		sum += own_early(first + n);
		sum += (unsigned)own_filled(first + n) * (unsigned)own_late(first + n);
	}
	return sum + own_again(3) + own_outer(first);
}

int main(int argc, char **argv)
{
	unsigned sum = own_early(1) + own_early(2);
	if (argc > 2)
		raise(SIGUSR1);
	sum += all(100, 5);
	printf("%u\n", sum);
	fflush(stdout);
	sum += all(200, argc > 1 ? atoi(argv[1]) : 3);
	printf("%u\n", sum);
	return 0;
}
