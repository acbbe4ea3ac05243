/*
 * x86-64: where a site's own bytes can jump to. Mirrors are mapped at a module's first use and stay as long as it does.
 */

#include "internal.h"

#if defined(__x86_64__) && !defined(__ILP32__)

#include <string.h>

#include "x86_64.h"

static uintptr_t mirror_of(const live_point *point, int high)
{
	const uint8_t *low = live_forms[point->form].low;
	uint32_t distance = low[0] | (uint32_t)low[1] << 8 | (uint32_t)low[2] << 16 | (uint32_t)(uint8_t)high << 24;

	return point->shown.address + 5 + (uintptr_t)(intptr_t)(int32_t)distance;
}

/* Mirrors of sorted points at one distance; 0 if something is in the way. */
static int make_mirrors(live_module *module, live_point **list, size_t count, int high)
{
	unsigned first = module->mirror_count;
	size_t i;

	for (i = 0; i < count; i++)
		list[i]->landing = mirror_of(list[i], high);
	if (!live_map_landings(module, list, count, 5))
		return 0;
	for (i = 0; i < count; i++) {
		unsigned char *at = (unsigned char *)list[i]->landing;

		at[0] = 0xe9;
		put32(at + 1, list[i]->trampoline - (uintptr_t)at - 5);
	}
	live_seal_landings(module, list, count, first);
	return 1;
}

/* Tails whose last three bytes are free land in rows of 256 bytes of our own, at the one byte of a row that their second byte allows. */
static size_t free_tails(const live_module *module, size_t *others)
{
	size_t i, count = 0, form_tails = 0;

	for (i = 0; i < module->probe_count; i++) {
		count += module->points[i].form == FORM_FREE_TAIL && !module->points[i].shown.reason;
		form_tails += !module->points[i].shown.reason;
	}
	*others = form_tails - count;
	return count;
}

size_t live_machine_room(live_module *module)
{
	size_t others, tails = free_tails(module, &others);

	/* Five bytes each; the worst case is that all want the same byte of a row. Rows are pages of memory only when they are written. */
	return tails ? 256 * (tails + 2) : 0;
}

static void land_tails(live_module *module, unsigned char *room, size_t size)
{
	uint16_t next[256]; /* the row to look at, by byte */
	uint32_t i;
	unsigned k;

	memset(next, 0, sizeof next);
	for (i = 0; i < module->probe_count; i++) {
		live_point *point = &module->points[i];
		unsigned byte = (unsigned)(point->shown.address + 5 + 0xc3 - (uintptr_t)room) & 255;
		unsigned char *at = NULL;

		if (point->form != FORM_FREE_TAIL || point->shown.reason)
			continue;
		for (; 256u * next[byte] + byte + 5 <= size && next[byte] < 65535; next[byte]++) {
			at = room + 256u * next[byte] + byte;
			for (k = 0; k < 5 && !at[k]; k++)
				;
			if (k == 5)
				break;
			at = NULL;
		}
		if (!at) {
			live_refuse(point, "no-memory", live_no_reach);
			continue;
		}
		/* The second jump's own displacement may have zero bytes; so mark with what no distance within 1 GB ends in. */
		at[0] = 0xe9;
		put32(at + 1, point->trampoline - (uintptr_t)at - 5);
		point->landing = (uintptr_t)at;
		next[byte]++;
	}
}

int live_machine_prepare(live_module *module, char *room, size_t size)
{
	/* In steps of 16 MB from the module: not beside it, where a program's heap grows, nor so far that a trampoline is out of reach. */
	static const int8_t highs[] = {0x20, -0x20, 0x30, -0x30, 0x28, -0x28, 0x38, -0x38, 0x18, -0x18, 0x10, -0x10, 0x14, -0x14, 0x3c, -0x3c,
		0x24, -0x24, 0x2c, -0x2c, 0x34, -0x34, 0x08, -0x08};
	live_point **list, **spare, **last;
	size_t count = 0, tails = 0, i;
	live_arena scratch = {0};

	if (size)
		land_tails(module, (unsigned char *)room, size);
	list = live_allocate(&scratch, 2 * module->probe_count * sizeof *list + 16);
	module->mirrors = live_allocate(&module->arena, (module->probe_count + 2) * sizeof *module->mirrors);
	if (!list || !module->mirrors) {
		live_free(&scratch);
		return USDT_LIVE_NO_MEMORY;
	}
	spare = last = list + module->probe_count;
	for (i = 0; i < module->probe_count; i++) {
		live_point *point = &module->points[i];

		if (!point->shown.reason && (point->form == FORM_NOPL4 || point->form == FORM_NOPL5))
			list[count++] = point;
		else if (!point->shown.reason && point->form == FORM_TAIL)
			*--last = point; /* from the list's end on; they are sorted below */
	}
	tails = (size_t)(spare - last);
	live_sort_points(list, spare, count);
	for (i = 0; count && i < sizeof highs && !make_mirrors(module, list, count, highs[i]); i++)
		;
	if (i == sizeof highs)
		for (i = 0; i < count; i++)
			live_refuse(list[i], "no-memory", live_no_reach);
	live_sort_points(last, spare, tails);
	if (!tails || !make_mirrors(module, last, tails, (int8_t)0xc3))
		for (i = 0; i < tails; i++)
			live_refuse(last[i], "no-memory", "the one place that this tail call's bytes can jump to isn't free");
	live_free(&scratch);
	return 0;
}

#endif
