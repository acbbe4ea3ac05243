/*
 * Rules that are said again and again: what a list of all of them would say must be what happens, however many there were. Usage: rules ROUNDS.
 *
 * Prints for each pair of patterns that is switched on and off in turns how many of the rounds were right, then how often points did
 * something else than the list of all rules says, in random order, and whether many rules that do have an effect fit, and none costs more for it.
 */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rules.h"
#include "usdt_live.h"

enum { POINTS = 5, ALL = 200, CALLS = 64 };

static const char *const points[POINTS][2] = {
	{"server", "tick"}, {"server", "request__start"}, {"server", "request__done"}, {"shop", "tick"}, {"shop", "request__done"}};
static const char *const patterns[] = {"*", "server:*", "shop:*", "*:tick", "tick", "server:tick", "ti?k", "*:request-*", "request__*", "s*:*done",
	"server:request-done", "!server:t*", "*!tick", "[st]*:tick", "ser*:*e*", "nothing:*", "*done", "server:request__start", "*__*"};
enum { PATTERNS = sizeof patterns / sizeof *patterns };

static struct said { int pattern, on, handler; } all[ALL];
static int all_count, calls[CALLS], call_count;

static void seen(const usdt_live_hit *hit, void *data)
{
	(void)hit;
	if (call_count < CALLS)
		calls[call_count++] = (int)(long)data;
}

__attribute__((noinline)) static void fire(int point)
{
	switch (point) {
	case 0: SERVER_TICK(); break;
	case 1: SERVER_REQUEST_START(); break;
	case 2: SERVER_REQUEST_DONE(); break;
	case 3: SHOP_TICK(); break;
	default: SHOP_REQUEST_DONE(); break;
	}
}

/* With fnmatch(), of a pattern without dashes, whose module, if any, is this program. */
static int fits(const char *pattern, int point)
{
	char text[64], both[64], *to = text;
	const char *mark = strchr(pattern, '!');

	for (pattern = mark ? mark + 1 : pattern; *pattern; pattern++) {
		if (*pattern == '-')
			*to++ = '_';
		*to++ = *pattern == '-' ? '_' : *pattern;
	}
	/* A set has no dash here. */
	*to = '\0';
	snprintf(both, sizeof both, "%s:%s", points[point][0], points[point][1]);
	return fnmatch(text, strchr(text, ':') ? both : points[point][1], 0) == 0;
}

static int say(int pattern, int on, int handler)
{
	if (!pattern && !on)
		all_count = 0; /* "*" takes out all that there was */
	all[all_count++] = (struct said){pattern, on, handler};
	if (!on)
		return usdt_live_probe_off(patterns[pattern]);
	return usdt_live_probe_on(patterns[pattern], handler ? seen : NULL, (void *)(long)handler);
}

/* What the list of all that was ever said says, against what happens. */
static int wrong_points(void)
{
	int point, i, j, wrong = 0;

	for (point = 0; point < POINTS; point++) {
		int on = 0, wanted[CALLS], count = 0;
		char name[64];
		unsigned long long before;

		for (i = 0; i < all_count; i++) {
			if (!fits(patterns[all[i].pattern], point))
				continue;
			on = all[i].on;
			if (!on)
				count = 0;
			for (j = 0; j < count && wanted[j] != all[i].handler; j++)
				;
			if (on && all[i].handler && j == count)
				wanted[count++] = all[i].handler;
		}
		snprintf(name, sizeof name, "%s:%s", points[point][0], points[point][1]);
		before = usdt_live_count(USDT_LIVE_PROBES, name);
		call_count = 0;
		fire(point);
		wrong += usdt_live_count(USDT_LIVE_PROBES, name) - before != (unsigned)on || call_count != count
			|| memcmp(calls, wanted, (size_t)count * sizeof *calls) != 0;
	}
	return wrong;
}

static void in_turns(const char *on, const char *off, int rounds)
{
	int i, right = 0;

	for (i = 0; i < rounds; i++) {
		int went_on = usdt_live_probe_on(on, NULL, NULL), went_off = usdt_live_probe_off(off);

		right += went_on > 0 && went_off > 0;
	}
	printf("%s %s %d\n", on, off, right);
	usdt_live_probe_off("*");
}

/* Of many names each is switched on, for a library that may come, and off, the first one first: nobody looks at all the others for it. */
static void many_names(void)
{
	enum { NAMES = 20000 };
	int on, i, failed = 0;
	char name[32];
	clock_t took[2];

	for (on = 1; on >= 0; on--) {
		clock_t start = clock();

		for (i = 0; i < NAMES; i++) {
			snprintf(name, sizeof name, "name_%d", i);
			failed += (on ? usdt_live_probe_on(name, NULL, NULL) : usdt_live_probe_off(name)) != 0;
		}
		took[on] = clock() - start;
	}
	printf("many failed %d slow %d\n", failed, took[0] > 4 * took[1]);
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 100, i, wrong = 0, failed = 0;
	unsigned long long before;
	char name[32];

	in_turns("server:request__done", "server:*", rounds);
	in_turns("server:request-done", "*:request__*", rounds);
	in_turns("server:tick", "server:ti*", rounds);
	in_turns("tick", "server:tick", rounds);
	in_turns("!server:tick", "tick", rounds);
	in_turns("s*r:*", "server:*", rounds);

	/* What matches nothing, yet. */
	usdt_live_probe_on("server:*", NULL, NULL);
	for (i = 0; i < rounds; i++) {
		snprintf(name, sizeof name, "later%d:*", i);
		failed += usdt_live_probe_off(name) < 0;
		snprintf(name, sizeof name, "later*:no%d*", i);
		failed += usdt_live_probe_on(name, NULL, NULL) < 0;
	}
	before = usdt_live_count(USDT_LIVE_PROBES, "server:tick");
	fire(0);
	failed += usdt_live_count(USDT_LIVE_PROBES, "server:tick") != before + 1;
	failed += usdt_live_probe_off("server:tick") != 1;
	fire(0);
	failed += usdt_live_count(USDT_LIVE_PROBES, "server:tick") != before + 1;
	failed += usdt_live_probe_off("*") < 0;
	printf("failed %d\n", failed);

	srand(1);
	for (i = failed = 0; i < 20 * rounds && all_count < ALL; i++) {
		int pattern = rand() % PATTERNS, now = say(pattern, !pattern || rand() % 5 < 3, rand() % 4);

		failed += now < 0;
		if (i % 100 == 99)
			failed += say(0, 0, 0) < 0;
		wrong += wrong_points();
	}
	usdt_live_get_statistics(NULL);
	printf("random failed %d wrong %d\n", failed, wrong);
	usdt_live_probe_off("*");
	many_names();
	return 0;
}
