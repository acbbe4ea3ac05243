/* Constants of every width, as a handler gets them: prints how many hits were counted, and what was not as passed. */
#include <stdio.h>
#include <string.h>

#include "constants.h"
#include "usdt_live.h"

static uint64_t got[3];

static void seen(const usdt_live_hit *hit, void *data)
{
	unsigned i;

	(void)data;
	for (i = 0; i < 3; i++)
		got[i] = usdt_live_argument(hit, i);
}

#define FIRE(s, u, d) \
	do { \
		double real = d; \
		uint64_t bits; \
		memcpy(&bits, &real, 8); \
		CONSTANTS_PASSED(s, u, d); \
		if (got[0] != (uint64_t)(s) || got[1] != (u) || got[2] != bits) \
			printf("%s %s %s\n", #s, #u, #d); \
	} while (0)

int main(void)
{
	usdt_live_probe_on("constants:passed", seen, NULL);
	FIRE(1000000000, 1000000000u, 2.5);
	FIRE(-2147483647 - 1, 4294967295u, -0.0);
	FIRE(9223372036854775807, 0xcbf29ce484222325u, 1e300);
	FIRE(-9223372036854775807 - 1, 0xffffffffffffffffu, -1.5);
	printf("counted %d\n", (int)usdt_live_count(USDT_LIVE_PROBES, "constants:*"));
	return 0;
}
