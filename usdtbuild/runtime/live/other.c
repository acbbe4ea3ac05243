/*
 * Machines without a protocol of their own here: every function of usdt_live.h works and says USDT_LIVE_BAD_MACHINE, and there are no points.
 */

#include "internal.h"

#if !LIVE_MACHINE

const unsigned live_stub_size = 0;
const intptr_t live_reach = 0, live_far_reach = 0;
const int live_has_leave = 0;

void live_machine_site(live_point *point)
{
	live_refuse(point, "machine", "nothing can be switched on this machine");
}

void live_machine_entry(live_point *point)
{
	live_machine_site(point);
}

int live_machine_operand(const char *text, size_t length, usdt_live_argument_place *place)
{
	(void)text;
	(void)length;
	(void)place;
	return 0;
}

int live_machine_parameter(unsigned index, usdt_live_argument_place *place)
{
	(void)index;
	(void)place;
	return 0;
}

size_t live_machine_room(live_module *module)
{
	(void)module;
	return 0;
}

int live_machine_prepare(live_module *module, char *room, size_t size)
{
	(void)module;
	(void)room;
	(void)size;
	return 0;
}

void live_machine_stub(live_point *point, unsigned char *stub)
{
	(void)point;
	(void)stub;
}

int live_machine_step(const live_point *point, int on, int step, live_store *store)
{
	(void)point;
	(void)on;
	(void)step;
	(void)store;
	return 0;
}

unsigned live_machine_nop(const unsigned char *at, size_t left)
{
	(void)at;
	(void)left;
	return 0;
}

unsigned live_machine_pad(const unsigned char *at, size_t left)
{
	(void)at;
	(void)left;
	return 0;
}

void live_machine_jumps(
	live_module *module, const live_segment *code, int (*wanted)(void *, uintptr_t),
	uintptr_t (*function)(void *, uintptr_t), void (*found)(void *, uintptr_t, uintptr_t), void *data)
{
	(void)module;
	(void)code;
	(void)wanted;
	(void)function;
	(void)found;
	(void)data;
}

int live_machine_rights(const live_module *module)
{
	(void)module;
	return 0;
}

int live_machine_hook(uintptr_t at, void (*hook)(void))
{
	(void)at;
	(void)hook;
	return 0;
}

unsigned live_machine_hotpatch(const unsigned char *at)
{
	(void)at;
	return 0;
}

const char *live_machine_entry_room(const live_point *point, const char **detail)
{
	(void)point;
	*detail = "nothing can be switched on this machine";
	return "machine";
}

#endif
