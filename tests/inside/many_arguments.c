/* A probe with more arguments than registers for them. Prints each as a handler got it. */
#include <stdio.h>

#include "many.h"
#include "usdt_live.h"

/* Where `long` is short, its lower part. */
#define LONG(n) ((long)(n##LL))

static int right, seen;

static void check(const usdt_live_hit *hit, void *data)
{
	static const long want[10] = {-1, LONG(2000000000000), 3, -4, 5, 6, LONG(-7000000000), 8, 0, -10};
	unsigned i;

	seen++;
	right = hit->point->argument_count == 10;
	for (i = 0; i < 10; i++)
		right &= i == 8 ? usdt_live_argument(hit, i) == (uint64_t)(uintptr_t)data : (long)usdt_live_argument(hit, i) == want[i];
}

int main(int argc, char **argv)
{
	static char text[] = "text";
	char report[4096];

	(void)argv;
	if (usdt_live_probe_on("all", check, text) < 1) {
		usdt_live_report(report, sizeof report);
		puts(report);
		return 1;
	}
	MANY_ALL(argc - 2, LONG(2000000000000), argc + 2, -4, 5, 6, LONG(-7000000000), 8, text, -10);
	printf("seen %d right %d\n", seen, right);
	return seen != 1 || !right;
}
