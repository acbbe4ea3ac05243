/*
 * Functions that begin with a load that reserves memory for a store: a stop between the two takes the reservation away, and the function begins
 * anew. `compare` leaves between the two where the value is another one.
 */
#include <pthread.h>
#include <stdio.h>

long add(long *to);
long compare(long *at, long old, long value);
__asm__(".text\n"
	".globl add, compare\n"
	".type add, %function\n"
	"add:\n"
	"	ldxr x1, [x0]\n"
	"	add x1, x1, #1\n"
	"	stxr w2, x1, [x0]\n"
	"	cbnz w2, add\n"
	"	mov x0, x1\n"
	"	ret\n"
	".size add, . - add\n"
	".type compare, %function\n"
	"compare:\n"
	"	ldaxr x3, [x0]\n"
	"	cmp x3, x1\n"
	"	b.ne 1f\n"
	"	stlxr w4, x2, [x0]\n"
	"	cbnz w4, compare\n"
	"1:	mov x0, x3\n"
	"	ret\n"
	".size compare, . - compare\n");

static long sum;

static void *adds(void *unused)
{
	for (int i = 0; i < 50; i++)
		add(&sum);
	return unused;
}

int main(void)
{
	long value = 0, right = 0;
	pthread_t other;

	pthread_create(&other, NULL, adds, NULL);
	adds(NULL);
	pthread_join(other, NULL);
	for (long i = 0; i < 10; i++)
		right += compare(&value, i, i + 1) == i && compare(&value, -1, 0) == i + 1;
	printf("sum=%ld right=%ld\n", sum, right);
	return 0;
}
