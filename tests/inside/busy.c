/*
 * Hits probes as fast as it can: in threads, in a child that it forks, in a handler of signals that interrupts these (from 10,000 rounds on), and in a library's constructor
 * (-DLIBRARY) if one is named. Prints what of `tick` it has hit: how often with bytes < 2048, and the sum of bytes.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "busy.h"

static const char *const names[] = {"get", "put", NULL, "a longer name than these"};

static void hit(long i, unsigned long *few, unsigned long *sum)
{
	unsigned long bytes = (unsigned long)(i * 7 % 4096);

	BUSY_BEGIN((int)(i % 3));
	BUSY_TICK((int)(i % 100), bytes, names[i & 3]);
	BUSY_END((int)(i % 3));
	__atomic_fetch_add(few, bytes < 2048, __ATOMIC_RELAXED);
	__atomic_fetch_add(sum, bytes, __ATOMIC_RELAXED);
}

#ifdef LIBRARY
static __attribute__((constructor)) void loaded(void)
{
	unsigned long few = 0, sum = 0;
	long i;

	for (i = 0; i < 200000; i++)
		hit(i, &few, &sum);
	printf("%lu %lu\n", few, sum);
}
#else
static unsigned long *told;
static long rounds;

static void interrupted(int number)
{
	(void)number;
	hit(5, &told[0], &told[1]);
}

static void *work(void *unused)
{
	long i;

	for (i = 0; i < rounds; i++)
		hit(i, &told[0], &told[1]);
	return unused;
}

int main(int argc, char **argv)
{
	struct itimerval often = {{0, 300}, {0, 300}};
	pthread_t threads[2];
	char byte;
	int i;

	if (argc > 2) { /* wait for a word, then load the library */
		if (read(0, &byte, 1) != 1 || !dlopen(argv[2], RTLD_NOW))
			return 1;
		return 0;
	}
	rounds = atol(argv[1]);
	told = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	signal(SIGALRM, interrupted);
	if (rounds >= 10000)
		setitimer(ITIMER_REAL, &often, NULL);
	for (i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	if (fork() == 0) {
		if (rounds >= 10000)
			setitimer(ITIMER_REAL, &often, NULL);
		work(NULL);
		_exit(0);
	}
	for (i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	while (wait(NULL) < 0)
		;
	signal(SIGALRM, SIG_IGN);
	printf("%lu %lu\n", told[0], told[1]);
	return 0;
}
#endif
