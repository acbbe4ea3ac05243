/*
 * Sites that can't be switched now, or at all. Usage: guarded breakpoint|mdwe|no-execute|read-only|full. Prints what was on, why not, and whether the program went on.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
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

static int try_it(void)
{
	printf("on %d\n", usdt_live_probe_on("module:*", NULL, NULL));
	usdt_live_each(USDT_LIVE_PROBES, "module:*", say, NULL);
	printf("%d\n", fire(1));
	return 0;
}

/* From now on no memory becomes code, and no file can be opened: not /proc/self/mem, nor one without a name. */
static int confine(void)
{
	struct rlimit none = {0, 0};

	return prctl(PR_SET_MDWE, 1L, 0L, 0L, 0L) || setrlimit(RLIMIT_NOFILE, &none);
}

/* Take all free memory within 1.5 GB of this program's code. */
static void fill(void)
{
	static struct { uintptr_t start, end; } used[1000];
	uintptr_t here = (uintptr_t)fire, reach = (uintptr_t)3 << 29, last = here > reach ? here - reach : 65536;
	int count = 0, i;
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[4096];

	while (maps && count < 999 && fgets(line, sizeof line, maps))
		count += sscanf(line, "%lx-%lx", &used[count].start, &used[count].end) == 2;
	fclose(maps);
	used[count].start = UINTPTR_MAX;
	for (i = 0; i <= count && last < here + reach; i++) {
		uintptr_t end = used[i].start < here + reach ? used[i].start : here + reach;

		if (end > last)
			mmap((void *)(last & -4096), end - (last & -4096), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		last = used[i].end;
	}
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "full")) {
		fill();
		return try_it();
	}
	if (argc == 2 && !strcmp(argv[1], "no-execute")) { /* the file has been read, and nothing made */
		usdt_live_refresh();
		return confine() ? !puts("no such thing") : try_it();
	}
	if (argc == 2 && !strcmp(argv[1], "read-only")) { /* stubs are there */
		usdt_live_probe_on("module:*", NULL, NULL);
		usdt_live_probe_off("*");
		return confine() ? !puts("no such thing") : try_it();
	}
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
