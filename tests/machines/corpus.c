/* The corpus: each way in which a compiler may write a probe call, with arguments whose values are known.
 *
 * The program prints what it computes, so that a build with probes can be compared with one without. It needs nothing
 * of a C library: `put` and `finish` are in platform.c.
 */
#include <stdarg.h>
#include "corpus.h"

#define NOINLINE __attribute__((noinline))

void put(const char *what, long value);
void finish(void);

volatile int seed = 1; /* what no compiler can know */

NOINLINE static int work(int value)
{
	seed = value & 15;
	return value * 3 + 1;
}

NOINLINE int straight(int a)
{
	int b = work(a);
	CORPUS_ONE(b);
	return work(b) + a;
}

NOINLINE int constant(int a)
{
	CORPUS_ONE(5);
	return work(a);
}

NOINLINE void tail(int a)
{
	CORPUS_ONE(a + 1);
}

NOINLINE void tail_of_many(int a)
{
	CORPUS_ARGS12(a, a + 1, a + 2, a + 3, a + 4, a + 5, a + 6, a + 7, a + 8, a + 9, a + 10, a + 11);
}

/* Its own twelve arguments go on as they are, so that a compiler may make a tail call of it. */
NOINLINE void pass_on(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j, int k, int l)
{
	CORPUS_ARGS12(a, b, c, d, e, f, g, h, i, j, k, l);
}

NOINLINE void tail_with_frame(int a)
{
	volatile int local[6];
	int i;
	for (i = 0; i < 6; i++)
		local[i] = work(a + i);
	CORPUS_ARGS2(local[2], local[5]);
}

NOINLINE void conditional_tail(int a)
{
	if (a > 4)
		CORPUS_ONE(a);
}

NOINLINE void either_tail(int a)
{
	if (a == 4)
		CORPUS_NONE();
	else
		CORPUS_ARGS3(a, a - 1, a - 2);
}

NOINLINE int conditional_call(int a)
{
	if (a & 1)
		CORPUS_ONE(a);
	return work(a);
}

NOINLINE int nested_conditions(int a, int b)
{
	if (a == 1 && b == 2)
		CORPUS_ARGS2(a, b);
	work(b);
	if (b != 3 || a > 7)
		CORPUS_NONE();
	return work(a);
}

NOINLINE int loop(int count)
{
	int i, sum = 0;
	for (i = 0; i < count; i++) {
		CORPUS_ARGS2(i, sum);
		sum += work(i);
	}
	return sum;
}

NOINLINE void loop_of_nothing_else(int count)
{
	while (count-- > 0)
		CORPUS_NONE();
}

static inline int is_inlined(int a)
{
	CORPUS_INLINED(a);
	return a + 1;
}

NOINLINE int inlines_three(int a)
{
	return is_inlined(a) + is_inlined(a * 2) + is_inlined(work(a));
}

NOINLINE __attribute__((cold)) void cold(int a)
{
	CORPUS_COLD(a);
	work(a);
}

NOINLINE int rarely(int a)
{
	if (__builtin_expect(a == 77, 0)) {
		CORPUS_COLD(a);
		return work(a - 1);
	}
	if (__builtin_expect(a == 78, 0))
		cold(a);
	return a;
}

__attribute__((constructor)) void early(void)
{
	CORPUS_EARLY(7);
}

NOINLINE int varargs(int count, ...)
{
	va_list values;
	int i, sum = 0;
	va_start(values, count);
	for (i = 0; i < count; i++) {
		int value = va_arg(values, int);
		CORPUS_ARGS2(count, value);
		sum += value;
	}
	va_end(values);
	return sum;
}

NOINLINE int floating(double a, float b, int c)
{
	CORPUS_FLOATS(a * 2, b / 4, c);
	return (int)(a + b) + c;
}

NOINLINE int several(int a)
{
	CORPUS_ONE(a);
	CORPUS_ARGS2(a, 0);
	if (work(a) & 1)
		CORPUS_NONE();
	CORPUS_TEXT("several");
	return a;
}

NOINLINE int all_counts(int a)
{
	CORPUS_NONE();
	CORPUS_ONE(a);
	CORPUS_ARGS2(a, -1);
	CORPUS_ARGS3(a, -1, -2);
	CORPUS_ARGS4(a, -1, -2, -3);
	CORPUS_ARGS5(a, -1, -2, -3, -4);
	CORPUS_ARGS6(a, -1, -2, -3, -4, -5);
	CORPUS_ARGS7(a, -1, -2, -3, -4, -5, -6);
	CORPUS_ARGS8(a, -1, -2, -3, -4, -5, -6, -7);
	CORPUS_ARGS9(a, -1, -2, -3, -4, -5, -6, -7, -8);
	CORPUS_ARGS10(a, -1, -2, -3, -4, -5, -6, -7, -8, -9);
	CORPUS_ARGS11(a, -1, -2, -3, -4, -5, -6, -7, -8, -9, -10);
	CORPUS_ARGS12(a, -1, -2, -3, -4, -5, -6, -7, -8, -9, -10, -11);
	return work(a);
}

NOINLINE int widths(int a, long b, long long c)
{
	CORPUS_NARROW((signed char)-a, (unsigned char)(a + 200), (short)(-a * 300), (unsigned short)(a + 60000), -a, 3000000000u + (unsigned)a);
	CORPUS_NARROW_STACK(a, 1, 2, 3, 4, 5, 6, 7, (signed char)(-a - 8), (unsigned short)(a + 60000), (unsigned char)(a + 200), (short)(-a * 300));
	CORPUS_WORDS(-b, (unsigned long)b * 2, (void *)(unsigned long)(b + 0x1000), (char *)0);
	CORPUS_WIDE(-c, a, (unsigned long long)c + 1, a + 1, c + 2, -c - 3, a + 2, (unsigned long long)c + 4, -c - 5);
	CORPUS_WIDE_ODD(a, c + 1, a + 1, a + 2, a + 3, a + 4, a + 5, -c - 6, a + 6, (unsigned long long)c + 7);
	return work(a);
}

/* Arguments that are the last thing computed before the call, for machines with delay slots. */
extern int table[8];
int table[8] = {10, 11, 12, 13, 14, 15, 16, 17};

NOINLINE int last_moment(int *from, int a)
{
	CORPUS_ARGS2(from[1], table[a & 7]);
	CORPUS_ONE(from[a & 1]);
	CORPUS_TEXT("in the delay slot");
	return from[0];
}

/* Leaf functions with much to keep across the site. */
NOINLINE long keeps(long a, long b, long c, long d, long e, long f)
{
	long x = a * b, y = c - d, z = e ^ f;
	CORPUS_ARGS2((int)x, (int)y);
	return x * 7 + y * 5 + z * 3 + a + b + c + d + e + f;
}

NOINLINE int recursive(int depth)
{
	CORPUS_ONE(depth);
	return depth <= 0 ? 1 : recursive(depth - 1) * 2 + depth;
}

NOINLINE int in_switch(int a)
{
	switch (a) {
	case 0: CORPUS_NONE(); break;
	case 1: CORPUS_ONE(100); break;
	case 2: CORPUS_ARGS2(100, 200); return 5;
	case 3: return 6;
	case 4: CORPUS_ONE(400); work(4); break;
	case 5: CORPUS_ARGS3(1, 2, 3); break;
	default: CORPUS_ONE(-1);
	}
	return work(a);
}

NOINLINE int enabled_in_if(int a)
{
	if (CORPUS_ONE_ENABLED()) {
		int costly = work(a) + work(a + 1);
		CORPUS_ONE(costly);
	}
	return work(a);
}

NOINLINE int enabled_stored(int a)
{
	int enabled = CORPUS_STORED_ENABLED();
	work(a);
	if (enabled)
		CORPUS_STORED(a * 2);
	return enabled ? 1000 : 2000;
}

NOINLINE int enabled_returned(void)
{
	return CORPUS_STORED_ENABLED();
}

NOINLINE int enabled_if(int a)
{
	return a == 7 ? CORPUS_STORED_ENABLED() : 3;
}

typedef __typeof__(__dtrace_corpus___by__pointer) by_pointer; /* i386's names its calling convention */
by_pointer *volatile in_data = __dtrace_corpus___by__pointer;

NOINLINE by_pointer *address(void)
{
	return __dtrace_corpus___by__pointer;
}

NOINLINE int through_pointer(int a)
{
	by_pointer *volatile found = address();
	found(a);
	in_data(a + 1);
	CORPUS_BY_POINTER(a + 2);
	return found == in_data;
}

NOINLINE void call_all(int a)
{
	int pair[2];
	put("straight", straight(a));
	put("constant", constant(a));
	tail(a);
	tail_of_many(a);
	pass_on(a, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
	tail_with_frame(a);
	conditional_tail(a);
	conditional_tail(a + 10);
	either_tail(a);
	either_tail(4);
	put("conditional_call", conditional_call(a) + conditional_call(a + 1));
	put("nested_conditions", nested_conditions(a, 2) + nested_conditions(a, 3));
	put("loop", loop(a + 3));
	loop_of_nothing_else(2);
	put("inlines_three", inlines_three(a));
	put("rarely", rarely(a) + rarely(a + 76) + rarely(a + 77));
	put("varargs", varargs(3, a, 20, 30));
	put("floating", floating(a + 0.5, (float)a + 0.25f, a));
	put("several", several(a) + several(a + 1));
	put("all_counts", all_counts(a));
	put("widths", widths(a, 1000000L + a, ((long long)a << 40) + 12345));
	pair[0] = a + 40;
	pair[1] = a + 50;
	put("last_moment", last_moment(pair, a));
	put("keeps", keeps(a, a + 1, a + 2, a + 3, a + 4, a + 5));
	put("recursive", recursive(3));
	put("in_switch", in_switch(0) + in_switch(a) + in_switch(2) + in_switch(3) + in_switch(4) + in_switch(5) + in_switch(60));
	put("enabled_in_if", enabled_in_if(a));
	put("enabled_stored", enabled_stored(a));
	put("enabled_returned", enabled_returned());
	put("enabled_if", enabled_if(a) + enabled_if(7));
	put("through_pointer", through_pointer(a));
	put("seed", seed);
}

int main(void)
{
	call_all(seed);
	finish();
	return 0;
}
