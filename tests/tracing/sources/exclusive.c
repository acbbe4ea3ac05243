/*
 * Functions whose first instruction isn't simply followed by the next one. `add` and `compare` begin with a load that
 * reserves memory for a store: a stop between the two takes the reservation away, and the function begins anew.
 * `compare` leaves between the two where the value is another one. The others begin with jumps.
 */
#include <pthread.h>
#include <stdio.h>

long add(long *to);
long compare(long *at, long old, long value);
long minus(long number);
long hop(long number);
long through(long (*function)(long));
#define FUNCTION(name, code) \
	__asm__(".text\n.globl " #name "\n.type " #name ", %function\n" #name ":\n" code ".size " #name ", . - " #name "\n");

#if defined(__aarch64__)
FUNCTION(add,
		"ldxr x1, [x0]\n"
		"add x1, x1, #1\n"
		"stxr w2, x1, [x0]\n"
		"cbnz w2, add\n"
		"mov x0, x1\n"
		"ret\n")
FUNCTION(compare,
		"ldaxr x3, [x0]\n"
		"cmp x3, x1\n"
		"b.ne 1f\n"
		"stlxr w4, x2, [x0]\n"
		"cbnz w4, compare\n"
		"1: mov x0, x3\n"
		"ret\n")
FUNCTION(minus,
		"tbnz x0, #63, 1f\n"
		"mov x0, #0\n"
		"ret\n"
		"1: mov x0, #1\n"
		"ret\n")
FUNCTION(hop,
		"b 1f\n"
		"mov x0, #7\n"
		"1: ret\n")
FUNCTION(through,
		"br x0\n")
#elif defined(__riscv)
FUNCTION(add,
		"lr.d a1, (a0)\n"
		"addi a1, a1, 1\n"
		"sc.d a2, a1, (a0)\n"
		"bnez a2, add\n"
		"mv a0, a1\n"
		"ret\n")
FUNCTION(compare,
		"lr.d.aq a3, (a0)\n"
		"bne a3, a1, 1f\n"
		"sc.d.rl a4, a2, (a0)\n"
		"bnez a4, compare\n"
		"1: mv a0, a3\n"
		"ret\n")
FUNCTION(minus,
		"bltz a0, 1f\n"
		"li a0, 0\n"
		"ret\n"
		"1: li a0, 1\n"
		"ret\n")
FUNCTION(hop,
		"j 1f\n"
		"li a0, 7\n"
		"1: ret\n")
FUNCTION(through,
		"jr a0\n")
#else
FUNCTION(add,
		"ll.d $t0, $a0, 0\n"
		"addi.d $t0, $t0, 1\n"
		"move $t1, $t0\n"
		"sc.d $t1, $a0, 0\n"
		"beqz $t1, add\n"
		"move $a0, $t0\n"
		"jr $ra\n")
FUNCTION(compare,
		"ll.d $t0, $a0, 0\n"
		"bne $t0, $a1, 1f\n"
		"move $t1, $a2\n"
		"sc.d $t1, $a0, 0\n"
		"beqz $t1, compare\n"
		"1: move $a0, $t0\n"
		"jr $ra\n")
FUNCTION(minus,
		"blt $a0, $zero, 1f\n"
		"move $a0, $zero\n"
		"jr $ra\n"
		"1: li.w $a0, 1\n"
		"jr $ra\n")
FUNCTION(hop,
		"b 1f\n"
		"li.w $a0, 7\n"
		"1: jr $ra\n")
FUNCTION(through,
		"jr $a0\n")
#endif

static long sum;

static void *adds(void *unused)
{
	for (int i = 0; i < 50; i++)
		add(&sum);
	return unused;
}

static long one(long number)
{
	return number != 1;
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
	for (long i = -5; i < 5; i++)
		right += minus(i) == (i < 0) && hop(i) == i && through(one) == 1;
	printf("sum=%ld right=%ld\n", sum, right);
	return 0;
}
