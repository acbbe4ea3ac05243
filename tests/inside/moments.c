/*
 * Switching at moments when little is allowed: before main(), in a signal handler that interrupts switching, in the child of a process that had
 * other threads switching. Usage: moments ROUNDS. Prints how often each was done, and what was wrong.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "module.h"
#include "usdt_live.h"

static int before_main;
static volatile sig_atomic_t switched, busy, other;
static volatile int stop;
static unsigned long long seen;

__attribute__((noinline)) int fire(int n)
{
	MODULE_TICK(n);
	return n + 1;
}

static void handler(const usdt_live_hit *hit, void *data)
{
	(void)hit;
	(void)data;
	seen++;
}

static __attribute__((constructor(101))) void early(void)
{
	before_main = usdt_live_probe_on("module:tick", handler, NULL);
	fire(1);
}

static void on_signal(int number)
{
	static int on;
	int result;

	(void)number;
	on = !on;
	result = on ? usdt_live_probe_on("module:tick", NULL, NULL) : usdt_live_probe_off("module:tick");
	if (result >= 0)
		switched++;
	else if (result == USDT_LIVE_BUSY)
		busy++;
	else
		other++;
}

static void *toggles(void *data)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	while (!stop) {
		usdt_live_probe_on("module:*", NULL, NULL);
		fire(1);
		usdt_live_probe_off("*");
	}
	return data;
}

/* In a child: everything works, and its counts are its own from then on. */
static int in_child(void)
{
	unsigned long long before;
	int i;

	if (usdt_live_probe_off("*") < 0 || usdt_live_probe_on("module:*", NULL, NULL) < 1)
		return 1;
	before = usdt_live_count(USDT_LIVE_PROBES, "module:*");
	for (i = 0; i < 1000; i++)
		fire(i);
	return usdt_live_count(USDT_LIVE_PROBES, "module:*") - before != 1000;
}

int main(int argc, char **argv)
{
	struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
	int rounds = argc > 1 ? atoi(argv[1]) : 50, children = 0, wrong = 0, i, status;
	unsigned long long early_hits = seen;
	pthread_t thread;

	usdt_live_probe_off("*");
	signal(SIGALRM, on_signal);
	setitimer(ITIMER_REAL, &often, NULL);
	for (i = 0; i < rounds || !switched || !busy; i++) {
		usdt_live_probe_on("module:*", handler, NULL);
		fire(i);
		usdt_live_probe_off("*");
	}
	setitimer(ITIMER_REAL, &never, NULL);
	signal(SIGALRM, SIG_IGN);
	pthread_create(&thread, NULL, toggles, NULL);
	for (i = 0; i < rounds / 10; i++) {
		pid_t child = fork();

		if (child == 0)
			_exit(in_child());
		wrong += child < 0 || waitpid(child, &status, 0) != child || status != 0;
		children++;
	}
	stop = 1;
	pthread_join(thread, NULL);
	printf("early %d hits %llu signals %d children %d other %d wrong %d\n", before_main, early_hits, switched > 0 && busy > 0, children,
		other, wrong);
	return 0;
}
