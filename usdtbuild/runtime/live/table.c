/*
 * A module's probes from the table in its memory (usdtbuild cc --site-table), for when its file can't be read: it was
 * deleted or replaced, or the program has changed its root. usdtbuild/formats/site_table.py says what is where.
 *
 * The table is read as any file is: nothing outside the segment that it lies in, and no chunk that isn't whole.
 */

#include "internal.h"

#include <string.h>

#include "notes.h"

#define HEAD 0x31695355u /* USi1 */
#define FOOT 0x55536931u /* 1iSU */

enum { FIRST = 12, ENTRY = 8, SMALLEST = FIRST + 8 };
#define SEMAPHORE 0x80000000u

static uint32_t number(uintptr_t at)
{
	uint32_t value;

	memcpy(&value, (const void *)at, 4);
	return value;
}

/* Where the module's note says that a chunk is, or 0. Notes are padded to four bytes, in segments that are aligned to eight, too (mold). */
static uintptr_t find_chunk(const live_module *module)
{
	unsigned i;

	for (i = 0; i < module->header_count; i++) {
		const ElfW(Phdr) *h = &module->headers[i];
		uintptr_t at = module->bias + h->p_vaddr, end = at + h->p_memsz;

		if (h->p_type != PT_NOTE || !live_segment_of(module, at, h->p_memsz, PF_R))
			continue;
		while (end - at >= 12) {
			uint32_t name = number(at), description = number(at + 4);
			size_t whole = 12 + (((size_t)name + 3) & ~(size_t)3) + (((size_t)description + 3) & ~(size_t)3);

			if (name == 10 && description == 4 && end - at >= 28 && number(at + 8) == 1
				&& !memcmp((const void *)(at + 12), "usdtbuild", 10))
				return at + 24 + (uintptr_t)(intptr_t)(int32_t)number(at + 24);
			if (whole > end - at)
				break;
			at += whole;
		}
	}
	return 0;
}

/* The size of the chunk at `at`, which ends before `end`; 0 if there is none. */
static size_t chunk_at(uintptr_t at, uintptr_t end)
{
	uint32_t size;

	if (at > end || end - at < SMALLEST || number(at) != HEAD)
		return 0;
	size = number(at + 4);
	if (size < SMALLEST || size % 4 || size > end - at || number(at + 8) > (size - SMALLEST) / ENTRY || number(at + size - 8) != size
		|| number(at + size - 4) != FOOT)
		return 0;
	return size;
}

/* The first of the chunks that stand together with the one at `at`. */
static uintptr_t first_chunk(uintptr_t at, uintptr_t start)
{
	for (;;) {
		uintptr_t end = at;
		uint32_t size;

		while (end - start >= 4 && !number(end - 4))
			end -= 4;
		if (end - start < SMALLEST || number(end - 4) != FOOT)
			return at;
		size = number(end - 8);
		if (size % 4 || size > end - start || chunk_at(end - size, end) != size)
			return at;
		at = end - size;
	}
}

/* Text `index` of an entry, or NULL if the chunk ends before it does. */
static const char *text_of(uintptr_t chunk, size_t size, uint32_t offset, unsigned index)
{
	const char *at = (const char *)chunk + offset, *end = (const char *)chunk + size - 8;

	for (;; index--) {
		const char *stop = at < end ? memchr(at, '\0', (size_t)(end - at)) : NULL;

		if (!stop)
			return NULL;
		if (!index)
			return at;
		at = stop + 1;
	}
}

/* One chunk: its semaphores first, in one pass over all chunks, then its sites in another. */
static int read_chunk(live_module *module, live_list *list, live_probes *known, uintptr_t chunk, size_t size, int semaphores)
{
	uint32_t count = number(chunk + 8), i;

	for (i = 0; i < count; i++) {
		uintptr_t at = chunk + FIRST + (size_t)ENTRY * i, place = at + (uintptr_t)(intptr_t)(int32_t)number(at);
		uint32_t offset = number(at + 4) & ~SEMAPHORE;
		int is_semaphore = (number(at + 4) & SEMAPHORE) != 0, error;
		const char *provider = text_of(chunk, size, offset, 0), *name = text_of(chunk, size, offset, 1), *operands, *arguments;
		live_probe *p;

		if (is_semaphore != semaphores || !name)
			continue;
		p = live_find_probe(known, provider, strlen(provider), name, strlen(name));
		if (!p)
			return USDT_LIVE_NO_MEMORY;
		if (is_semaphore) {
			p->semaphore = place;
			continue;
		}
		operands = text_of(chunk, size, offset, 2);
		arguments = text_of(chunk, size, offset, 3);
		if (!arguments)
			continue;
		if (!p->arguments) {
			p->arguments = arguments;
			p->arguments_length = strlen(arguments);
		}
		error = live_add_site(module, list, p, place, p->semaphore, operands);
		if (error)
			return error;
	}
	return 0;
}

int live_read_table(live_module *module, live_list *list)
{
	uintptr_t at = find_chunk(module), end, first;
	const ElfW(Phdr) *segment = at ? live_segment_of(module, at, SMALLEST, PF_R) : NULL;
	live_arena scratch = {0};
	live_probes *known;
	int error = 0, semaphores;

	if (!segment)
		return 0;
	end = module->bias + segment->p_vaddr + segment->p_memsz;
	if (!chunk_at(at, end))
		return 0;
	first = first_chunk(at, module->bias + segment->p_vaddr);
	known = live_allocate(&scratch, sizeof *known);
	if (!known)
		return USDT_LIVE_NO_MEMORY;
	known->arena = &module->arena;
	for (semaphores = 1; semaphores >= 0; semaphores--)
		for (at = first; !error && end - at >= SMALLEST;) {
			size_t size = chunk_at(at, end);

			if (size)
				error = read_chunk(module, list, known, at, size, semaphores);
			else if (number(at))
				break;
			at += size ? size : 4;
		}
	live_free(&scratch);
	return error ? error : 1;
}
