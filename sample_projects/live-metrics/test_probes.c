/* A test that the probes fire where they should, with the arguments that they should have. */
#include <stdio.h>
#include <string.h>

#include "shop.h"
#include "usdt_live.h"

static int starts, right_starts;
static long last_cents;

static void started(const usdt_live_hit *hit, void *expected)
{
	const char *what = (const char *)usdt_live_argument(hit, 0);

	starts++;
	right_starts += !strcmp(what, expected) && usdt_live_argument(hit, 1) == 3;
}

static void done(const usdt_live_hit *hit, void *data)
{
	(void)data;
	last_cents = (long)usdt_live_argument(hit, 1);
}

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			printf("%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			failures++; \
		} \
	} while (0)

int main(void)
{
	int failures = 0;
	char report[4096];

	CHECK(usdt_live_probe_on("shop:order-start", started, "pear") > 0);
	CHECK(usdt_live_probe_on("shop:order-done", done, NULL) > 0);
	shop_order("pear", 3);
	CHECK(starts == 1 && right_starts == 1);
	CHECK(last_cents == 165);
	shop_order("unknown", 1);
	CHECK(starts == 2 && right_starts == 1);
	CHECK(last_cents == -1);
	CHECK(usdt_live_probe_off("*") > 0);
	shop_order("pear", 3);
	CHECK(starts == 2);
	if (failures && usdt_live_report(report, sizeof report) > 0)
		puts(report);
	return failures != 0;
}
