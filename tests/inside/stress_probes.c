/*
 * Sites at every offset of a cache line, in leaf functions with data in the red zone and in vector registers, run by threads
 * while they are switched all the time. Usage: stress_probes SWITCHES THREADS [forks|others]; each thread does as many rounds. Prints one line of numbers, and exits 1 if anything was wrong.
 *
 * The probes of hit() are inline assembly: to the compiler every register is alive there, as with the header's own form.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define USDT_PROBES_BY_CALL /* or there were no tail calls */
#include "stress.h"
#include "usdt_live.h"

/* Tail sites can't be switched on all machines. */
#if defined(__x86_64__) || defined(__aarch64__) || defined(__riscv) || defined(__powerpc64__) || defined(__arm__)
#define SITES 128
#else
#define SITES 64
#endif

#define EACH8(F, b) F(b##0) F(b##1) F(b##2) F(b##3) F(b##4) F(b##5) F(b##6) F(b##7)
#define EACH64(F) EACH8(F, 00) EACH8(F, 01) EACH8(F, 02) EACH8(F, 03) EACH8(F, 04) EACH8(F, 05) EACH8(F, 06) EACH8(F, 07)

#if defined(USDT_LIVE) /* probes complete by their header */
#define FIRE(a, b) STRESS_HIT(a, b)
#define SKIP(k) __asm__ volatile(".rept " #k "\n\tnop\n\t.endr")
#elif defined(__x86_64__)
#define FIRE(a, b) \
	do { \
		register int a_ __asm__("edi") = (a); \
		register long b_ __asm__("rsi") = (b); \
		__asm__ volatile("call __dtrace_stress___hit" : : "r"(a_), "r"(b_)); \
	} while (0)
#define SKIP(k) __asm__ volatile(".rept " #k "\n\tnop\n\t.endr")
#elif defined(__aarch64__)
#define FIRE(a, b) \
	do { \
		register int a_ __asm__("w0") = (a); \
		register long b_ __asm__("x1") = (b); \
		__asm__ volatile("bl __dtrace_stress___hit" : : "r"(a_), "r"(b_)); \
	} while (0)
#define SKIP(k) __asm__ volatile(".rept (" #k ")/4\n\tnop\n\t.endr")
#else
#define FIRE(a, b) STRESS_HIT(a, b)
#define SKIP(k) (void)0
#endif

#define LEAF(k) \
	static __attribute__((noinline, aligned(64))) long leaf_##k(long x, const double *d) \
	{ \
		volatile long red[8] = {x, x + 1, x + 2, x + 3, x + 4, x + 5, x + 6, x + 7}; \
		double a = d[0] * 3, b = d[1] + 1, c = d[2] * d[0], e = d[3] - d[1]; \
		long p = x ^ 0x55, q = x * 3; \
		SKIP(k); \
		FIRE(k, x * 7 + k); \
		return red[0] + red[1] + red[2] + red[3] + red[4] + red[5] + red[6] + red[7] + p + q + (long)(a + b + c + e); \
	}
#if defined(USDT_LIVE)
#define TAIL_CALL STRESS_TAIL
#else
#define TAIL_CALL __dtrace_stress___tail /* the macro is no call, and so no tail call */
#endif
#define TAIL(k) \
	static __attribute__((noinline, aligned(64))) void tail_##k(long x, long *out) \
	{ \
		SKIP(k); \
		*out = x + k; \
		TAIL_CALL(k, x * 7 + k); \
	}
EACH64(LEAF)
EACH64(TAIL)

#define NAME_LEAF(k) leaf_##k,
#define NAME_TAIL(k) tail_##k,
static long (*const leaves[])(long, const double *) = {EACH64(NAME_LEAF)};
static void (*const tails[])(long, long *) = {EACH64(NAME_TAIL)};

/* What octal names stand for. */
#define NUMBER(k) k,
static const int numbers[] = {EACH64(NUMBER)};

static volatile int stop;
static volatile unsigned long long wrong_results, wrong_arguments, handled, rounds;

static void check(const usdt_live_hit *hit, void *data)
{
	int id = (int)usdt_live_argument(hit, 0);
	long n = (long)usdt_live_argument(hit, 1);
	char text[64];

	(void)data;
	/* As a handler of a user's would, it uses memory functions and floating point. */
	snprintf(text, sizeof text, "%d %.1f", id, (double)n);
	if (id < 0 || id > 63 || (n - id) % 7 || atoi(text) != id)
		__atomic_fetch_add(&wrong_arguments, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
}

static USDT_LIVE_FAST_HANDLER void check_fast(const usdt_live_hit *hit, void *data)
{
	int id = (int)usdt_live_argument(hit, 0);
	long n = (long)usdt_live_argument(hit, 1);

	(void)data;
	if (id < 0 || id > 63 || (n - id) % 7)
		__atomic_fetch_add(&wrong_arguments, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
}

static unsigned long one_round(long x, const double *d)
{
	unsigned long wrong = 0;
	unsigned i;
	long out;

	for (i = 0; i < 64; i++) {
		long want = 8 * x + 28 + (x ^ 0x55) + x * 3 + (long)(d[0] * 3 + (d[1] + 1) + d[2] * d[0] + (d[3] - d[1]));

		wrong += leaves[i](x, d) != want;
		out = -1;
		tails[i](x, &out);
		wrong += out != x + numbers[i];
	}
	return wrong;
}

static void *work(void *data)
{
	const double d[4] = {1, 2, 3, 4};
	unsigned long wrong = 0;
	long x = (long)(size_t)data * 1000;

	while (!stop) {
		wrong += one_round(x++, d);
		__atomic_fetch_add(&rounds, 1, __ATOMIC_RELAXED);
	}
	__atomic_fetch_add(&wrong_results, wrong, __ATOMIC_RELAXED);
	return NULL;
}

static void on_signal(int number)
{
	const double d[4] = {4, 3, 2, 1};

	(void)number;
	wrong_results += one_round(77, d);
}

int main(int argc, char **argv)
{
	unsigned long wanted = argc > 1 ? strtoul(argv[1], NULL, 10) : 100;
	int count = argc > 2 ? atoi(argv[2]) : 4, forks = argc > 3 && !strcmp(argv[3], "forks"), i;
	int others = argc > 3 && !strcmp(argv[3], "others");
	pthread_t threads[64];
	unsigned long switches = 0, children = 0;
	unsigned long long before, after;
	const double d[4] = {1, 2, 3, 4};
	int failed = 0;

	signal(SIGUSR1, on_signal);
	if (usdt_live_probe_on("stress:*", NULL, NULL) != SITES && !others) {
		char text[4096];

		usdt_live_report(text, sizeof text);
		printf("not all are on\n%s", text);
		return 1;
	}
	for (i = 0; i < count; i++)
		pthread_create(&threads[i], NULL, work, (void *)(size_t)i);
	while (switches < wanted || (count && rounds < wanted)) {
		switch (switches++ % 8) {
		case 0: failed |= usdt_live_probe_on("stress:*", NULL, NULL) < 0; break;
		case 1: failed |= usdt_live_probe_on("hit", check, NULL) < 0; break;
		case 2: failed |= usdt_live_probe_on("tail", check_fast, NULL) < 0; break;
		case 3: failed |= usdt_live_probe_off("hit") < 0; break;
		case 4: failed |= usdt_live_probe_off("*") < 0; break;
		case 5: failed |= usdt_live_probe_on("hit", check_fast, NULL) < 0; break;
		case 6: failed |= usdt_live_probe_on("*", check, NULL) < 0; break;
		case 7: failed |= usdt_live_probe_off("*") < 0; break;
		}
		usleep(200);
		if (count)
			pthread_kill(threads[switches % (unsigned)count], SIGUSR1);
		if (forks && switches % 16 == 5) {
			int status;
			pid_t child = fork();

			if (!child) {
				int bad = usdt_live_probe_on("*", NULL, NULL) < 0;

				bad |= one_round(5, d) != 0;
				bad |= usdt_live_probe_off("*") < 0;
				bad |= one_round(6, d) != 0;
				_exit(bad);
			}
			waitpid(child, &status, 0);
			failed |= status != 0;
			children++;
		}
		if (!count)
			wrong_results += one_round((long)switches, d);
	}
	stop = 1;
	for (i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	usdt_live_probe_off("*");
	before = usdt_live_count(USDT_LIVE_PROBES, "*");
	usdt_live_probe_on("*", NULL, NULL);
	for (i = 0; i < 100; i++)
		wrong_results += one_round(i, d);
	after = usdt_live_count(USDT_LIVE_PROBES, "*");
	printf("switches %lu rounds %llu handled %llu counted %llu children %lu wrong-results %llu wrong-arguments %llu failed %d\n",
		switches, rounds, handled, after - before, children, wrong_results, wrong_arguments, failed);
	return failed || wrong_results || wrong_arguments || (after - before != 100 * SITES && !others);
}
