#include "module.h"

static __attribute__((constructor)) void begin(void)
{
	MODULE_TICK(-1);
}

int fire(int times)
{
	int i;

	for (i = 0; i < times; i++)
		MODULE_TICK(i);
	return times;
}
