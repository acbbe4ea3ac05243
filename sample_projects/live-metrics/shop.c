#include "shop.h"

#include <string.h>

#include "shop_probes.h"

static const struct {
	const char *name;
	long cents;
} things[] = {{"apple", 40}, {"pear", 55}, {"melon", 310}};

long shop_order(const char *what, int count)
{
	long cents = -1;
	unsigned i;

	SHOP_ORDER_START(what, count);
	for (i = 0; i < sizeof things / sizeof *things; i++)
		if (!strcmp(things[i].name, what))
			cents = things[i].cents * count;
	SHOP_ORDER_DONE(what, cents);
	return cents;
}
