/*
 * Many functions, switched under load. Usage: many_functions SWITCHES THREADS. The functions are in a file of their own, FUNCTIONS of them.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "usdt_live.h"

extern long (*const functions[])(long);

static volatile int stop;
static volatile unsigned long wrong, rounds, entered, left;

static USDT_LIVE_FAST_HANDLER void enter(const usdt_live_hit *hit, void *data)
{
	(void)data;
	if ((long)usdt_live_argument(hit, 0) < 0)
		__atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&entered, 1, __ATOMIC_RELAXED);
}

static void leave(const usdt_live_return *ret, void *data)
{
	char text[32];

	(void)data;
	snprintf(text, sizeof text, "%.1f", (double)(long)ret->value);
	__atomic_fetch_add(&left, 1, __ATOMIC_RELAXED);
}

static unsigned long one_round(long x)
{
	unsigned long bad = 0;
	long i;

	for (i = 0; i < FUNCTIONS; i++)
		bad += functions[i](x) != x * 3 + i;
	return bad;
}

static void *work(void *data)
{
	long x = (long)(size_t)data;

	while (!stop) {
		unsigned long bad = one_round(x++);

		__atomic_fetch_add(&wrong, bad, __ATOMIC_RELAXED);
		__atomic_fetch_add(&rounds, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned long wanted = strtoul(argv[1], NULL, 10), switches, failed = 0;
	int count = argc > 2 ? atoi(argv[2]) : 2, i;
	unsigned long long before, after;
	usdt_live_statistics s, again;
	pthread_t threads[64];

	if (usdt_live_function_on("g_*", NULL, NULL, NULL) != FUNCTIONS) {
		char text[4096];

		usdt_live_report(text, sizeof text);
		printf("not all are on\n%s", text);
		return 1;
	}
	usdt_live_get_statistics(&s);
	usdt_live_function_off("*");
	failed += usdt_live_function_on("g_*", NULL, NULL, NULL) != FUNCTIONS;
	usdt_live_get_statistics(&again);
	for (i = 0; i < count; i++)
		pthread_create(&threads[i], NULL, work, (void *)(size_t)i);
	/* On a busy machine the threads may sleep while a handler is on: until some were called. */
	for (switches = 0; switches < wanted || (count && (rounds < 10 || entered < 2000 || (WITH_LEAVE && left < 200))); switches++) {
		switch (switches % 6) {
		case 0: failed += usdt_live_function_on("g_*", enter, NULL, NULL) < 0; break;
		case 1: failed += usdt_live_function_off("g_*[02468]") < 0; break;
		case 2: failed += usdt_live_function_on_with("g_*", enter, NULL, NULL, USDT_LIVE_FAST, 0) < 0; break;
		case 3: failed += usdt_live_function_off("*") < 0; break;
		case 4: failed += WITH_LEAVE ? usdt_live_function_on("g_*", enter, leave, NULL) < 0 : 0; break;
		case 5: failed += usdt_live_function_off("*") < 0; break;
		}
		usleep(500);
	}
	stop = 1;
	for (i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	usdt_live_function_off("*");
	before = usdt_live_count(USDT_LIVE_FUNCTIONS, "g_*");
	usdt_live_function_on("g_*", NULL, NULL, NULL);
	wrong += one_round(5);
	after = usdt_live_count(USDT_LIVE_FUNCTIONS, "g_*");
	fprintf(stderr, "on %.3f ms (%.3f reading), again %.3f ms\n", (double)s.nanoseconds / 1e6,
		(double)s.reading_nanoseconds / 1e6, (double)again.nanoseconds / 1e6);
	printf("switches %lu rounds %lu entered %lu left %lu counted %llu wrong %lu failed %lu\n", switches, rounds, entered, left,
		after - before, wrong, failed);
	return wrong || failed || after - before != FUNCTIONS;
}
