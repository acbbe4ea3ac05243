/* Functions that call each other in the ways a call tree must understand. Usage: calls LIBRARY [WAY]. */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEPT __attribute__((noinline))

static jmp_buf place;

KEPT long leaf(long x)
{
	__asm__ volatile("" : "+r"(x));
	return x * 2;
}

KEPT long middle(long x)
{
	return leaf(x) + leaf(x + 1);
}

KEPT long outer(long x)
{
	return middle(x) + 1;
}

/* Many bytes. */
KEPT long large(long x)
{
#define STEP __asm__ volatile("add $0x12345678, %0; sub $0x12345678, %0" : "+r"(x));
	STEP STEP STEP STEP STEP STEP STEP STEP STEP STEP STEP STEP STEP STEP STEP STEP STEP STEP STEP STEP
	return leaf(x);
}

KEPT long again(long n)
{
	return n ? again(n - 1) + 1 : leaf(0);
}

KEPT void jumps(long x)
{
	if (x)
		longjmp(place, 1);
	__asm__ volatile("");
}

KEPT long catches(long x)
{
	if (!setjmp(place))
		jumps(x);
	return leaf(x);
}

KEPT void *runs(void *times)
{
	long i, sum = 0;

	for (i = 0; i < (long)times; i++)
		sum += middle(i);
	return (void *)sum;
}

KEPT long threads(long count)
{
	pthread_t thread[8];
	long i;

	for (i = 0; i < count; i++)
		pthread_create(&thread[i], NULL, runs, (void *)1000L);
	for (i = 0; i < count; i++)
		pthread_join(thread[i], NULL);
	return count;
}

KEPT long forks(long x)
{
	pid_t child = fork();
	int status;

	if (!child)
		_exit((int)outer(x) & 1);
	waitpid(child, &status, 0);
	return x;
}

KEPT long deep(long x)
{
	return x ? deep(x - 1) + 1 : 0;
}

KEPT void ends(void)
{
	leaf(1);
	exit(3);
}

int main(int argc, char **argv)
{
	const char *way = argc > 2 ? argv[2] : "";
	void *library;
	long i;

	outer(1);
	large(2);
	again(3);
	for (i = 0; i < 3 && !strcmp(way, "jumps"); i++)
		catches(i);
	if (!strcmp(way, "threads"))
		threads(4);
	if (!strcmp(way, "forks"))
		forks(1);
	if (!strcmp(way, "deep"))
		deep(6000);
	if (!strcmp(way, "ends"))
		ends();
	if (!strcmp(way, "opens"))
		for (i = 0; i < 2; i++) {
			library = dlopen(argv[1], RTLD_NOW);
			((long (*)(long))dlsym(library, "in_library"))(i);
			dlclose(library);
		}
	return 0;
}
