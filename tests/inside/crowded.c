/*
 * More handlers at one point than there is room for. Usage: crowded LIBRARY.
 *
 * Prints what each call returns, and how many handlers were called.
 */
#include <dlfcn.h>
#include <stdio.h>

#include "rules.h"
#include "usdt_live.h"

static volatile int called; /* probes touch no memory, for the compiler */

static void seen(const usdt_live_hit *hit, void *data)
{
	(void)hit;
	(void)data;
	called++;
}

static void nine(const char *pattern)
{
	long i;

	for (i = 0; i < 9; i++)
		printf("%d ", usdt_live_probe_on(pattern, seen, (void *)i));
	printf("\n");
}

static void fire(void)
{
	called = 0;
	SERVER_TICK();
	printf("tick %d ", called);
	called = 0;
	SERVER_REQUEST_DONE();
	printf("done %d\n", called);
}

int main(int argc, char **argv)
{
	void *library;

	(void)argc;
	nine("server:tick");
	printf("counted %d\n", usdt_live_probe_on("server:*", NULL, NULL));
	printf("again %d\n", usdt_live_probe_on("server:tick", seen, NULL));
	printf("another %d\n", usdt_live_probe_on("server:*", seen, (void *)9));
	fire();
	printf("off %d\n", usdt_live_probe_off("server:tick"));
	printf("another %d\n", usdt_live_probe_on("server:*", seen, (void *)9));
	fire();

	nine("module:*");
	library = dlopen(argv[1], RTLD_NOW);
	called = 0;
	((int (*)(int))dlsym(library, "fire"))(1);
	printf("module %d\n", called);
	printf("counted %d\n", usdt_live_probe_on("s*:tick", NULL, NULL));
	printf("refreshed %d ", usdt_live_refresh());
	printf("%d\n", usdt_live_refresh() > 0);
	printf("more %d\n", usdt_live_probe_on("module:*", NULL, NULL) > 0);
	return 0;
}
