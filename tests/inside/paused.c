/*
 * A site and an entry that are on while others put a breakpoint over them and take it out again. Usage: paused PATTERN FUNCTION; a line of
 * input is what to do:
 *
 *     fire        100 times each
 *     break       write a breakpoint over the site and the entry, as a debugger does
 *     clear       take it out: the byte that the file has
 *     on, off     by the patterns
 *     refresh
 *
 * Prints after each line for the probe `server:tick` and the function `work` what each() says, what was counted, and how many are on by the report.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rules.h"
#include "usdt_live.h"

static uintptr_t places[2];
static unsigned char firsts[2];

__attribute__((noinline)) static void tick(void) { SERVER_TICK(); }
__attribute__((noinline)) static void done(void) { SERVER_REQUEST_DONE(); }
__attribute__((noinline, patchable_function_entry(7, 5))) int work(int x)
{
	__asm__ volatile("" : "+r"(x));
	return x + 1;
}

static int show(const usdt_live_point *point, unsigned long long count, void *data)
{
	int which = point->kind == USDT_LIVE_FUNCTIONS;

	if (data && !places[which]) {
		places[which] = point->address;
		firsts[which] = *(const unsigned char *)point->address;
	}
	if (!data)
		printf("%s %s %llu ", point->is_on ? "on" : "off", point->reason ? point->reason : "-", count);
	return 0;
}

static void write_over(int broken)
{
	int memory = open("/proc/self/mem", O_RDWR), i;
	unsigned char trap = 0xcc;

	for (i = 0; i < 2; i++)
		if (pwrite(memory, broken ? &trap : &firsts[i], 1, (off_t)places[i]) != 1)
			printf("failed ");
	close(memory);
}

int main(int argc, char **argv)
{
	char line[64], report[4096];
	int i, at = 0;

	if (argc < 3)
		return 2;
	usdt_live_each(USDT_LIVE_PROBES, "server:tick", show, places);
	usdt_live_each(USDT_LIVE_FUNCTIONS, "work", show, places);
	while (fgets(line, sizeof line, stdin)) {
		int result = 0;

		line[strcspn(line, "\n")] = '\0';
		for (i = 0; i < 100 && !strcmp(line, "fire"); i++) {
			tick();
			done();
			result = work(result);
		}
		if (!strcmp(line, "break") || !strcmp(line, "clear"))
			write_over(*line == 'b');
		if (!strcmp(line, "on"))
			result = usdt_live_probe_on(argv[1], NULL, NULL) + usdt_live_function_on(argv[2], NULL, NULL, NULL);
		if (!strcmp(line, "off"))
			result = usdt_live_probe_off(argv[1]) + usdt_live_function_off(argv[2]);
		if (!strcmp(line, "refresh"))
			usdt_live_refresh();
		printf("%s %d: ", line, result);
		usdt_live_each(USDT_LIVE_PROBES, "server:tick", show, NULL);
		usdt_live_each(USDT_LIVE_FUNCTIONS, "work", show, NULL);
		usdt_live_report(report, sizeof report);
		sscanf(report, "%*u points in %*u modules, %d on", &at);
		printf("%d\n", at);
		fflush(stdout);
	}
	return 0;
}
