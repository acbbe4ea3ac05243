/* What handlers and threads may do, a word for each: `threads N`, `deep N`, `jumps`, `callbacks`, `errors`. */
#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "usdt_live.h"

#define QUIET __attribute__((patchable_function_entry(0, 0)))

static unsigned long entered, left_, jumps;
static jmp_buf where;
static pthread_barrier_t barrier;
static volatile int stop;

QUIET static void enter(const usdt_live_hit *hit, void *data)
{
	(void)hit;
	__atomic_fetch_add(&entered, 1, __ATOMIC_RELAXED);
	if (data && ++jumps % 3 == 1)
		longjmp(where, 1);
}

QUIET static void leave(const usdt_live_return *ret, void *data)
{
	(void)ret;
	(void)data;
	__atomic_fetch_add(&left_, 1, __ATOMIC_RELAXED);
}

QUIET static void counts(const usdt_live_hit *hit, void *data)
{
	(void)hit;
	(void)data;
	usdt_live_count(USDT_LIVE_FUNCTIONS, "work");
	__atomic_fetch_add(&entered, 1, __ATOMIC_RELAXED);
}

__attribute__((noipa)) long work(long n) { return n; }
long deep(long n);
static long (*volatile deeper)(long) = deep; /* else it becomes a loop */
__attribute__((noipa)) long deep(long n) { return n ? deeper(n - 1) + 1 : 0; }

QUIET static void *many(void *data)
{
	int i;

	pthread_barrier_wait(&barrier);
	for (i = 0; i < 100; i++)
		work(i);
	pthread_barrier_wait(&barrier); /* all are there at once */
	return data;
}

QUIET static void threads(int count)
{
	pthread_t *all = calloc((size_t)count, sizeof *all);
	pthread_attr_t small;
	int i;

	usdt_live_function_on("work", enter, leave, NULL);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 << 10);
	pthread_barrier_init(&barrier, NULL, (unsigned)count);
	for (i = 0; i < count; i++)
		pthread_create(&all[i], &small, many, NULL);
	for (i = 0; i < count; i++)
		pthread_join(all[i], NULL);
}

QUIET static double seconds(long depth)
{
	struct timespec from, to;

	clock_gettime(CLOCK_MONOTONIC, &from);
	deep(depth);
	clock_gettime(CLOCK_MONOTONIC, &to);
	return (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9;
}

QUIET static int visit(struct dl_phdr_info *info, size_t size, void *data)
{
	(void)info;
	(void)size;
	(void)data;
	work(1);
	return 0;
}

QUIET static void *refreshes(void *data)
{
	while (!stop)
		usdt_live_refresh();
	return data;
}

QUIET int main(int argc, char **argv)
{
	usdt_live_statistics s;
	const char *what = argc > 1 ? argv[1] : "";
	volatile int number = argc > 2 ? atoi(argv[2]) : 0; /* GCC 16 takes vfork for what may clobber it */
	int i;

	alarm(60);
	if (!strcmp(what, "threads")) {
		threads(number);
	} else if (!strcmp(what, "deep")) {
		double few, all, least = 1e9;

		usdt_live_function_on("deep", enter, leave, NULL);
		for (i = 0; i < 5; i++) { /* whatever else the machine does, one of five is quick */
			few = seconds(3999) / 4000;
			all = seconds(number) / (number + 1);
			least = all / few < least ? all / few : least;
		}
		printf("times=%d\n", (int)least);
	} else if (!strcmp(what, "jumps")) {
		volatile int n;

		usdt_live_function_on("work", enter, NULL, &where);
		for (n = 0; n < number; n++)
			if (!setjmp(where))
				work(n);
	} else if (!strcmp(what, "callbacks")) {
		pthread_t other;

		usdt_live_function_on("work", counts, NULL, NULL);
		pthread_create(&other, NULL, refreshes, NULL);
		for (i = 0; i < number; i++)
			dl_iterate_phdr(visit, NULL);
		stop = 1;
		pthread_join(other, NULL);
	} else {
		unsigned long long bad = usdt_live_count(USDT_LIVE_FUNCTIONS, ""), good = usdt_live_count(USDT_LIVE_FUNCTIONS, "work");

		printf("bad=%d good=%d error=%s\n", USDT_LIVE_NO_COUNT(bad), USDT_LIVE_NO_COUNT(good), usdt_live_error((int)bad));
	}
	usdt_live_get_statistics(&s);
	printf("entered=%lu left=%lu too_deep=%llu skipped=%llu handlers_left=%llu\n", entered, left_, (unsigned long long)s.too_deep,
		(unsigned long long)s.skipped, (unsigned long long)s.handlers_left);
	return 0;
}
