/*
 * 32-bit Arm: sites of Thumb whose halves lie in two pages, and every register at a site while a handler overwrites them. Prints how many of the sites lie
 * so, and what was counted, seen and kept.
 */
#include <stdio.h>
#include <string.h>

#define USDT_PROBES_BY_CALL
#include "stress.h"
#include "usdt_live.h"

/* Some of these have their sites in the last half of a page, whatever the compiler writes before. */
#define BOTH(n) \
	static __attribute__((noinline, aligned(4096))) long call_##n(long x) \
	{ \
		__asm__ volatile(".rept " #n "\n\tnop\n\t.endr"); \
		STRESS_HIT((int)x, x + 1); \
		return x + n; \
	} \
	static __attribute__((noinline, aligned(4096))) void tail_##n(long x, long *out) \
	{ \
		__asm__ volatile(".rept " #n "\n\tnop\n\t.endr"); \
		*out = x + n; \
		__dtrace_stress___tail((int)x, x + 1); \
	}
#define ALL(F) \
	F(2032) F(2033) F(2034) F(2035) F(2036) F(2037) F(2038) F(2039) F(2040) F(2041) F(2042) F(2043) F(2044) F(2045) F(2046) F(2047)
ALL(BOTH)
#define CALL(n) call_##n,
#define TAIL(n) tail_##n,
#define NUMBER(n) n,
static long (*const calls[])(long) = {ALL(CALL)};
static void (*const tails[])(long, long *) = {ALL(TAIL)};
static const int numbers[] = {ALL(NUMBER)};

static unsigned in[55], out[55]; /* r0 to r3, r12, lr; flags; d0 to d7, d16 to d31 */
static unsigned long wrong, seen;
static int spoils;

/* By itself: GCC takes each line of assembly for one instruction, and would branch across all these as if they were few, with cbz, too. */
static __attribute__((noinline)) void spoil(void)
{
	__asm__ volatile(
		".irp n,0,1,2,3,4,5,6,7,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n"
		"	vmov d\\n, r3, r3\n"
		".endr\n"
		"	mov r0, #0\n	mov r1, #0\n	mov r2, #0\n	mov r3, #0\n	mov r12, #0\n	mov lr, #0\n	cmp r12, r12\n"
		: : : "r0", "r1", "r2", "r3", "r12", "lr", "cc", "memory", "d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7", "d16", "d17", "d18", "d19",
		  "d20", "d21", "d22", "d23", "d24", "d25", "d26", "d27", "d28", "d29", "d30", "d31");
}

static void handler(const usdt_live_hit *hit, void *data)
{
	(void)data;
	seen++;
	wrong += !spoils && usdt_live_argument(hit, 1) != usdt_live_argument(hit, 0) + 1;
	spoil();
}

static __attribute__((noinline)) void all_registers(void)
{
	__asm__ volatile(
		"	push {r4, r5}\n"
		"	mov r4, %0\n	mov r5, %1\n"
		"	add r12, r4, #28\n	vldmia r12!, {d0-d7}\n	vldmia r12, {d16-d31}\n"
		"	ldr r0, [r4, #24]\n	msr apsr_nzcvq, r0\n"
		"	ldr r12, [r4, #16]\n	ldr lr, [r4, #20]\n	ldm r4, {r0-r3}\n"
		"	bl __dtrace_stress___hit\n"
		"	stm r5, {r0-r3}\n	str r12, [r5, #16]\n	str lr, [r5, #20]\n"
		"	mrs r0, apsr\n	and r0, r0, #0xf8000000\n	str r0, [r5, #24]\n"
		"	add r12, r5, #28\n	vstmia r12!, {d0-d7}\n	vstmia r12, {d16-d31}\n"
		"	pop {r4, r5}\n"
		: : "r"(in), "r"(out)
		: "r0", "r1", "r2", "r3", "r12", "lr", "cc", "memory", "d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7", "d16", "d17", "d18", "d19",
		  "d20", "d21", "d22", "d23", "d24", "d25", "d26", "d27", "d28", "d29", "d30", "d31");
}

static int is_divided(const usdt_live_point *point, unsigned long long count, void *data)
{
	(void)count;
	*(int *)data += point->address % 4096 == 4094 && point->is_on;
	return 0;
}

static void one_round(long x)
{
	unsigned i;
	long found;

	for (i = 0; i < 16; i++) {
		found = -1;
		tails[i](x, &found);
		wrong += calls[i](x) != x + numbers[i] || found != x + numbers[i];
	}
}

int main(void)
{
	static const unsigned flags[] = {0, 0x80000000, 0x40000000, 0x20000000, 0x10000000, 0x08000000, 0xa8000000};
	int divided = 0, on, kept = 0;
	unsigned i, j;

	for (i = 0; i < 10; i++) {
		on = usdt_live_probe_on("*", handler, NULL);
		if (!i)
			usdt_live_each(USDT_LIVE_PROBES, "*", is_divided, &divided);
		one_round((long)i);
		usdt_live_probe_off("*");
		one_round((long)i);
	}
	usdt_live_probe_on("hit", handler, NULL);
	spoils = 1;
	for (i = 0; i < sizeof flags / sizeof *flags; i++) {
		for (j = 0; j < 55; j++)
			in[j] = j * 0x01010101u + i;
		in[6] = flags[i];
		all_registers();
		kept += !memcmp(in, out, sizeof in);
	}
	printf("on %d divided %d counted %llu seen %lu wrong %lu kept %d\n", on, divided, usdt_live_count(USDT_LIVE_PROBES, "*"), seen, wrong, kept);
	return wrong != 0;
}
