/*
 * Fires probes of its own and of a library after the files of both can't be read any more. Usage: hidden deleted LIBRARY,
 * hidden replaced LIBRARY OTHER, or hidden chroot LIBRARY FOLDER. Prints what was on, seen, and said of the files.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hidden.h"
#include "usdt_live.h"

static void seen(const usdt_live_hit *hit, void *data)
{
	const usdt_live_argument_place *a = hit->point->arguments;

	(void)data;
	printf("%s:%s %s %s=%d\n", hit->point->provider, hit->point->name, a->type, a->name, (int)usdt_live_argument(hit, 0));
}

static __attribute__((noinline)) int work(int n)
{
	HIDDEN_STEP(n);
	if (HIDDEN_ASKED_ENABLED())
		HIDDEN_ASKED(n * 2);
	return n;
}

static int hide(const char *how, const char *library, const char *other)
{
	if (!strcmp(how, "deleted"))
		return unlink(library);
	if (!strcmp(how, "replaced"))
		return rename(other, library);
	if (geteuid() && unshare(CLONE_NEWUSER)) {
		puts("no chroot");
		exit(0);
	}
	return chroot(other) || chdir("/");
}

int main(int argc, char **argv)
{
	static char text[8192];
	int (*fire)(int);
	void *library;

	if (argc < 3 || !(library = dlopen(argv[2], RTLD_NOW)) || hide(argv[1], argv[2], argv[argc - 1]))
		return 1;
	fire = (int (*)(int))dlsym(library, "fire");
	printf("on %d of module, %d of hidden\n", usdt_live_probe_on("module:*", seen, NULL), usdt_live_probe_on("hidden:*", seen, NULL));
	fire(2);
	work(5);
	printf("off %d\n", usdt_live_probe_off("hidden:*"));
	fire(1);
	work(6);
	printf("hits %llu\n", usdt_live_count(USDT_LIVE_PROBES, "*"));
	usdt_live_report(text, sizeof text);
	puts(text);
	return 0;
}
