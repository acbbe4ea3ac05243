/*
 * Functions that a patcher may and may not touch; prints each with the runtime's reason, and whether a count came of calling it.
 */
#include <stdio.h>

#include "usdt_live.h"

#define N(n, m) __attribute__((noinline, patchable_function_entry(n, m)))

int plain(int x) { return x + 1; }
N(3, 1) int short_padding(int x) { return x + 2; }
N(9, 7) int long_padding(int x) { return x + 3; }
N(6, 5) int short_entry(int x) { return x + 4; }
N(9, 5) int long_entry(int x) { return x + 5; }
N(2, 0) int no_padding(int x) { return x + 6; }
N(0, 0) int no_entry(int x) { return x + 7; }
int plain_too(int x) { return plain(x) + no_entry(x); }
int a_loop(int x)
{
	do
		x += 3;
	while (x < 1000);
	return x;
}

/* A branch between the two NOPs of an entry, and one into a padding. */
__asm__(
	".macro entry label\n"
	".pushsection __patchable_function_entries,\"awo\",@progbits,.text\n"
	".balign 8\n	.quad \\label\n	.popsection\n"
	".endm\n"
	".text\n"
	"entry 1f\n"
	"1: .rept 5\n nop\n .endr\n"
	".globl jumped_into\n.type jumped_into,@function\n"
	"jumped_into: nop\n2: nop\n lea 1(%rdi),%eax\n test %edi,%edi\n js 2b\n ret\n"
	".size jumped_into,.-jumped_into\n"
	"entry 3f\n"
	"3: nop\n4: .rept 4\n nop\n .endr\n"
	".globl padding_jumped_into\n.type padding_jumped_into,@function\n"
	"padding_jumped_into: nop\n nop\n lea 1(%rdi),%eax\n test %edi,%edi\n js 4b\n ret\n"
	".size padding_jumped_into,.-padding_jumped_into\n"
	/* What looks like such a branch, and is a constant. */
	"entry 5f\n"
	"5: .rept 5\n nop\n .endr\n"
	".globl looks_like_it\n.type looks_like_it,@function\n"
	"looks_like_it: nop\n nop\n mov $0x00fd78eb,%eax\n mov $0x90fcebeb,%eax\n ret\n"
	".size looks_like_it,.-looks_like_it\n");
int jumped_into(int), padding_jumped_into(int), looks_like_it(int);

static int show(const usdt_live_point *point, unsigned long long count, void *data)
{
	(void)data;
	printf("%s %s %d %llu\n", point->name, point->reason ? point->reason : "yes", point->is_on, count);
	return 0;
}

int main(void)
{
	int sum = 0;

	usdt_live_function_on("*", NULL, NULL, NULL);
	sum += plain(1) + short_padding(1) + long_padding(1) + short_entry(1) + long_entry(1) + no_padding(1) + plain_too(1);
	sum += a_loop(1) + jumped_into(1) + padding_jumped_into(1) + (looks_like_it(1) != 0);
	usdt_live_each(USDT_LIVE_FUNCTIONS, "*", show, NULL);
	usdt_live_function_off("*");
	return sum != 2 + 3 + 4 + 5 + 6 + 7 + 10 + 1000 + 2 + 2 + 1;
}
