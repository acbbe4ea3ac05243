/*
 * What machines have in common: how numbers are spelled in operands, sites of one word, and what a machine does where its own file
 * says nothing else. Those are weak: a machine's file that has such a function replaces it. But a static library gives the linker
 * a file only for names that nobody has defined yet, and a weak one counts: so what a machine has in a file of which nothing
 * else is asked has no default there (SEPARATE).
 */

#include "internal.h"

#include <string.h>

#include "nops.h"

#define DEFAULT __attribute__((weak))
#if defined(__x86_64__) && !defined(__ILP32__)
#define SEPARATE 1 /* x86_64_mirrors.c, x86_64_jumps.c */
#else
#define SEPARATE 0
#endif

int live_number(const char **at, const char *end, int64_t *value)
{
	const char *digits;
	uint64_t sum = 0;
	int negative = *at < end && **at == '-';

	*at += negative;
	for (digits = *at; *at < end && **at >= '0' && **at <= '9'; ++*at) {
		unsigned digit = (unsigned)(**at - '0');

		if (sum > UINT64_MAX / 10 || sum * 10 + digit < digit)
			return 0;
		sum = sum * 10 + digit;
	}
	*value = (int64_t)(negative ? 0 - sum : sum);
	return *at != digits && (*at == end || *at - digits < 10);
}

int live_index(const char **at, const char *end, int64_t *offset)
{
	*offset = 0;
	if (*at < end && **at == ',') {
		for (++*at; *at < end && (**at == ' ' || **at == '#'); ++*at)
			;
		if (!live_number(at, end, offset))
			return 0;
	}
	return *at < end && *(*at)++ == ']';
}

int live_store_at(live_store *store, uintptr_t at, const void *old, const void *bytes, unsigned size)
{
	store->at = at;
	store->size = (uint8_t)size;
	store->expected = (uint8_t)(old ? size : 0);
	memcpy(store->old, old ? old : bytes, store->expected);
	memcpy(store->bytes, bytes, size);
	return 1;
}

int live_store_padding(live_store *store, uintptr_t at, const void *bytes, unsigned size)
{
	live_store_at(store, at, NULL, bytes, size);
	if (!memcmp((const void *)at, bytes, size))
		store->size = 0;
	return 1;
}

int live_word_step(const live_point *point, uint32_t off, uint32_t jump, int by_page, int on, int step, live_store *store)
{
	store->by_page = (uint8_t)by_page;
	return step == 0 && live_store_at(store, point->shown.address, on ? &off : &jump, on ? &jump : &off, 4);
}

void live_plain_entry(live_point *point)
{
	point->form = LIVE_ENTRY;
	point->resume = point->shown.address + point->nops;
	memcpy(point->original, (const void *)point->shown.address, sizeof point->original);
}

unsigned char *live_hook_mirror(uintptr_t at, const void *code, size_t size, void (*hook)(void))
{
	unsigned char *far = live_map_near(at, at + 4, live_page(), live_reach);

	if (!far)
		return NULL;
	memcpy(far, code, size);
	memcpy(far + size, &hook, sizeof hook);
	__builtin___clear_cache((char *)far, (char *)far + size + sizeof hook);
	return live_make_executable(far, live_page()) ? far : NULL;
}

/* -- what a machine needn't have -------------------------------------------------------------------------------- */

static unsigned length_of(const live_nop *form, const unsigned char *at, size_t left)
{
	for (; form->size; form++) {
		size_t i = 0, end;

		while (i < form->most && i < left && (at[i] == form->prefixes[0] || at[i] == form->prefixes[1]))
			i++;
		end = i + form->size + form->more;
		if (end <= left && end <= LIVE_LONGEST_NOP && !memcmp(at + i, form->code, form->size))
			return (unsigned)end;
	}
	return 0;
}

unsigned live_machine_nop(const unsigned char *at, size_t left)
{
	return length_of(live_nops, at, left);
}

unsigned live_machine_pad(const unsigned char *at, size_t left)
{
	return length_of(live_pads, at, left);
}

#if !SEPARATE
DEFAULT size_t live_machine_room(live_module *module)
{
	(void)module;
	return 0;
}
#endif

DEFAULT int live_machine_prepare(live_module *module, char *room, size_t size)
{
	(void)module;
	(void)room;
	(void)size;
	return 0;
}

DEFAULT void live_machine_entry(live_point *point)
{
	live_plain_entry(point);
}

DEFAULT const char *live_machine_entry_room(const live_point *point, const char **detail)
{
	if (point->nops >= 4)
		return NULL;
	*detail = "a patch needs one NOP at the entry";
	return "too-small";
}

DEFAULT unsigned live_machine_hotpatch(const unsigned char *at)
{
	(void)at;
	return 0;
}

DEFAULT int live_machine_rights(const live_module *module)
{
	(void)module;
	return 0;
}

DEFAULT int live_machine_hook(uintptr_t at, void (*hook)(void))
{
	(void)at;
	(void)hook;
	return 0;
}

#if !SEPARATE
DEFAULT void live_machine_jumps(const live_segment *code, live_guard *guard)
{
	(void)code;
	(void)guard;
}
#endif
