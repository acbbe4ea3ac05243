/*
 * Sites that can't be switched now, or at all. Usage: guarded breakpoint|mdwe. Prints what was on, why not, and whether the program went on.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "module.h"
#include "usdt_live.h"

#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#endif

__attribute__((noinline)) int fire(int n)
{
	MODULE_TICK(n);
	return n + 1;
}

static unsigned char *site;

static int find(const usdt_live_point *point, unsigned long long count, void *data)
{
	(void)count;
	(void)data;
	site = (unsigned char *)point->address;
	return 0;
}

static int say(const usdt_live_point *point, unsigned long long count, void *data)
{
	(void)data;
	printf("%s on=%d count=%llu\n", point->reason ? point->reason : "free", point->is_on, count);
	return 0;
}

static void put(unsigned char byte)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *at = (void *)((size_t)site & ~(page - 1));

	mprotect(at, page, PROT_READ | PROT_WRITE | PROT_EXEC);
	*site = byte;
	mprotect(at, page, PROT_READ | PROT_EXEC);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "mdwe")) {
		if (prctl(PR_SET_MDWE, 1L, 0L, 0L, 0L)) {
			puts("no such thing");
			return 0;
		}
		printf("on %d\n", usdt_live_probe_on("module:*", NULL, NULL));
		usdt_live_each(USDT_LIVE_PROBES, "module:*", say, NULL);
		printf("%d\n", fire(1));
		usdt_live_each(USDT_LIVE_PROBES, "module:*", say, NULL);
		return 0;
	}
	usdt_live_each(USDT_LIVE_PROBES, "module:*", find, NULL);
	put(0xcc);
	printf("on %d\n", usdt_live_probe_on("module:*", NULL, NULL));
	usdt_live_each(USDT_LIVE_PROBES, "module:*", say, NULL);
	put(0x90);
	printf("on %d\n", usdt_live_probe_on("module:*", NULL, NULL));
	fire(1);
	usdt_live_each(USDT_LIVE_PROBES, "module:*", say, NULL);
	put(0xcc); /* a debugger puts its breakpoint over the jump, and takes it away by what the file has */
	printf("off %d\n", usdt_live_probe_off("*"));
	put(0x90);
	printf("on %d\n", usdt_live_probe_on("module:*", NULL, NULL));
	fire(1);
	usdt_live_each(USDT_LIVE_PROBES, "module:*", say, NULL);
	return 0;
}
