// An exception, and values, out of a library's function, which has data of its own, as its caller has. Compiled twice: with LIBRARY what throws, else what
// catches, and switches the library's functions on.
#include <stdexcept>

#if defined(LIBRARY)
static volatile int own = 40;
extern "C" int g_gives(int value)
{
	if (value < 0)
		throw std::runtime_error("negative");
	return value + own;
}
extern "C" int g_passes(int value) { return g_gives(value) + own; }
#else
#include <cstdio>
#include "usdt_live.h"

extern "C" int g_gives(int value);
extern "C" int g_passes(int value);
static volatile int own = 2, left;
static void leave(const usdt_live_return *, void *) { left = left + 1; }

int main()
{
	int on = usdt_live_function_on("g_*", nullptr, leave, nullptr), sum = g_gives(0) + g_passes(1) + own, caught = 0;

	for (int i = 0; i < 100; i++)
		try {
			g_passes(-1);
		} catch (const std::runtime_error &) {
			caught += own;
		}
	printf("on %d sum %d left %d caught %d\n", on, sum, left, caught);
	return 0;
}
#endif
