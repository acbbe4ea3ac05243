/*
 * Machines without a protocol of their own here: every function of usdt_live.h works and says USDT_LIVE_BAD_MACHINE, and there are no
 * points.
 */

#include "internal.h"

#if !LIVE_MACHINE

const unsigned live_trampoline_size = 0;
const intptr_t live_reach = 0, live_far_reach = 0;
const uint8_t live_parameters[] = {0};

static const char no_protocol[] = "nothing can be switched on this machine";

void live_machine_site(live_point *point)
{
	live_refuse(point, "machine", no_protocol);
}

const char *live_machine_entry_room(const live_point *point, const char **detail)
{
	(void)point;
	*detail = no_protocol;
	return "machine";
}

int live_machine_operand(const char *text, size_t length, usdt_live_argument_place *place)
{
	(void)text;
	(void)length;
	(void)place;
	return 0;
}

void live_machine_trampoline(live_point *point, unsigned char *trampoline)
{
	(void)point;
	(void)trampoline;
}

int live_machine_step(const live_point *point, int on, int step, live_store *store)
{
	(void)point;
	(void)on;
	(void)step;
	(void)store;
	return 0;
}

#endif
