/*
 * A library that is opened and closed again and again, after its probes were asked for. Usage: modules LIBRARY TIMES. Prints what was counted each
 * time, as a sum, and what the library itself fired.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "usdt_live.h"

static unsigned long long hits;

static void seen(const usdt_live_hit *hit, void *data)
{
	(void)hit;
	(void)data;
	hits++;
}

int main(int argc, char **argv)
{
	int times = atoi(argv[2]), i, fired = 0, first, before;

	(void)argc;
	before = usdt_live_refresh(); /* of the C library, for one */
	first = usdt_live_probe_on("module:*", seen, NULL);
	for (i = 0; i < times; i++) {
		void *library = dlopen(argv[1], RTLD_NOW);
		int (*fire)(int);

		if (!library) {
			printf("%s\n", dlerror());
			return 1;
		}
		fire = (int (*)(int))dlsym(library, "fire");
		fired += fire(10) + 1; /* and one in its constructor */
		dlclose(library);
		if (i % 7 == 3)
			free(malloc(100000 + (size_t)i * 5000)); /* let it come to lie elsewhere sometimes */
	}
	printf("first %d fired %d hits %llu more points %d\n", first, fired, hits, usdt_live_refresh() - before);
	return hits != (unsigned long long)fired;
}
