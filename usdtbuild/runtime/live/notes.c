/*
 * A module's probes, from the SDT notes of its file (docs/formats/stapsdt.md), with their types and names from the provider's description
 * (section .usdtbuild.provider).
 */

#include "internal.h"

#include <string.h>

#include "notes.h"

/* -- probes by name --------------------------------------------------------------------------------------------- */

live_probe *live_find_probe(live_probes *known, const char *provider, size_t provider_length, const char *name, size_t name_length)
{
	uint32_t hash = 5381;
	size_t i;
	live_probe *p;

	for (i = 0; i < provider_length; i++)
		hash = hash * 33 + (unsigned char)provider[i];
	for (i = 0; i < name_length; i++)
		hash = hash * 33 + (unsigned char)name[i];
	for (p = known->bucket[hash % LIVE_BUCKETS]; p; p = p->next)
		if (p->provider_length == provider_length && p->name_length == name_length && !memcmp(p->provider, provider, provider_length)
			&& !memcmp(p->name, name, name_length))
			return p;
	p = live_allocate(known->arena, sizeof *p);
	if (!p)
		return NULL;
	if (known->newest && known->newest->provider_length == provider_length && !memcmp(known->newest->provider, provider, provider_length))
		p->provider = known->newest->provider;
	else
		p->provider = live_copy(known->arena, provider, provider_length);
	p->name = live_copy(known->arena, name, name_length);
	if (!p->provider || !p->name)
		return NULL;
	known->newest = p;
	p->provider_length = provider_length;
	p->name_length = name_length;
	p->next = known->bucket[hash % LIVE_BUCKETS];
	known->bucket[hash % LIVE_BUCKETS] = p;
	return p;
}

/* The description: lines `provider TAB 1 TAB name TAB …` and `probe TAB name TAB code|type|name;… TAB …`, with NULs between pieces. */
static void read_description(live_probes *known, const char *text, size_t size)
{
	const char *end = text + size, *line, *provider = NULL;
	size_t provider_length = 0;

	for (line = text; line < end;) {
		const char *stop = memchr(line, '\n', (size_t)(end - line)), *field[5];
		int count = 0;

		if (!stop)
			return;
		while (line < stop && !*line)
			line++;
		for (field[0] = line; count < 4;) {
			const char *tab = memchr(field[count], '\t', (size_t)(stop - field[count]));

			if (!tab)
				break;
			field[++count] = tab + 1;
		}
		if (count >= 3 && !memcmp(line, "provider\t", 9)) {
			provider = field[2];
			provider_length = (size_t)(field[3] - field[2]) - 1;
		} else if (count >= 3 && provider && !memcmp(line, "probe\t", 6)) {
			live_probe *p = live_find_probe(known, provider, provider_length, field[1], (size_t)(field[2] - field[1]) - 1);

			if (p && !p->arguments) {
				p->arguments_length = (size_t)(field[3] - field[2]) - 1;
				p->arguments = live_copy(known->arena, field[2], p->arguments_length);
			}
		}
		line = stop + 1;
	}
}

/* -- arguments -------------------------------------------------------------------------------------------------- */

enum { MOST = 12 };

/* Names and types of the description: `s4|int|id;z|const char *|name`. */
static void name_arguments(live_arena *arena, const live_probe *p, usdt_live_argument_place *places, unsigned count)
{
	const char *at = p->arguments, *end = p->arguments + p->arguments_length;
	unsigned i;

	for (i = 0; at && i < count && at < end; i++) {
		const char *stop = memchr(at, ';', (size_t)(end - at)), *type, *name;

		stop = stop ? stop : end;
		type = memchr(at, '|', (size_t)(stop - at));
		for (name = stop; type && name > type && name[-1] != '|'; name--)
			;
		if (type && name > type + 1) {
			const char *t = live_copy(arena, type + 1, (size_t)(name - type) - 2);
			const char *n = live_copy(arena, name, (size_t)(stop - name));

			places[i].type = t ? t : "";
			places[i].name = n ? n : "";
		}
		at = stop + 1;
	}
}

/* `-4@%edi 8@8(%rsp)`: size, negative if signed, and place. */
static void read_operands(live_arena *arena, live_point *point, const char *text, live_probe *p)
{
	usdt_live_argument_place read[MOST], *places;
	const char *all = text;
	unsigned count = 0;

	if (p->operands && !strcmp(p->operands, text)) { /* as most sites of a probe that was inlined have */
		point->shown.arguments = p->places;
		point->shown.argument_count = (uint8_t)p->count;
		return;
	}
	memset(read, 0, sizeof read);
	while (*text && count < MOST) {
		usdt_live_argument_place *place = &read[count];
		const char *end = strchr(text, ' ');
		size_t length;

		while (end && end[-1] == ',') /* [sp, 8] */
			end = strchr(end + 1, ' ');
		end = end ? end : text + strlen(text);
		place->type = place->name = "";
		if (*text == '-') {
			place->is_signed = 1;
			text++;
		}
		if (text[0] < '1' || text[0] > '8' || text[1] != '@') {
			live_refuse(point, "operand", "where an argument is can't be understood");
			break;
		}
		place->size = (uint8_t)(text[0] - '0');
		length = (size_t)(end - text) - 2;
		if (!live_machine_operand(text + 2, length, place)) {
			live_refuse(point, "operand", "an argument is in a place that a handler isn't given");
			break;
		}
		count++;
		text = *end ? end + 1 : end;
	}
	places = live_allocate(arena, (count + 1) * sizeof *places);
	if (!places)
		return;
	memcpy(places, read, count * sizeof *places);
	name_arguments(arena, p, places, count);
	point->shown.arguments = places;
	point->shown.argument_count = (uint8_t)count;
	if (*text) /* it wasn't understood to its end, which is to be said of the next one, too */
		return;
	p->operands = live_copy(arena, all, strlen(all));
	p->places = places;
	p->count = count;
}

/* -- sites ------------------------------------------------------------------------------------------------------ */

int live_add_site(live_module *module, live_list *list, live_probe *p, uintptr_t site, uintptr_t semaphore, const char *operands)
{
	int segment = live_is_code(module, site);
	live_point *point;

	if (!p || !(point = live_append(list)))
		return USDT_LIVE_NO_MEMORY;
	point->shown.provider = p->provider;
	point->shown.name = p->name;
	point->shown.address = site;
	point->shown.kind = USDT_LIVE_PROBES;
	if (semaphore && !live_may_count(module, semaphore)) {
		live_refuse(point, "semaphore", "the record names a semaphore outside the module's writable data");
		return 0;
	}
	point->semaphore = (uint16_t *)semaphore;
	if (!segment) {
		live_refuse(point, "not-code", "the record names a place outside the module's code");
		return 0;
	}
	point->segment = (uint8_t)(segment - 1);
	point->module = module;
	if (live_code_left(module, (unsigned)segment - 1, site) < 16)
		live_refuse(point, "not-code", "the record names the very end of the module's code");
	else
		live_machine_site(point);
	read_operands(&module->arena, point, operands, p);
	return 0;
}

static int read_notes(live_module *module, live_list *list, live_probes *known, const unsigned char *notes, size_t size, uintptr_t base)
{
	while (size >= 12) {
		uint32_t name, description, type;
		size_t whole;
		const char *text, *end;

		memcpy(&name, notes, 4);
		memcpy(&description, notes + 4, 4);
		memcpy(&type, notes + 8, 4);
		whole = 12 + (((size_t)name + 3) & ~(size_t)3) + (((size_t)description + 3) & ~(size_t)3);
		if (whole > size || name > size || description > size)
			return 0;
		if (type == 3 && name == 8 && !memcmp(notes + 12, "stapsdt", 8) && description > 3 * sizeof(uintptr_t)) {
			uintptr_t address[3];
			const char *field[3];
			int i;

			memcpy(address, notes + 20, sizeof address);
			text = (const char *)notes + 20 + sizeof address;
			end = (const char *)notes + 20 + description;
			for (i = 0; i < 3; i++) {
				const char *stop = memchr(text, '\0', (size_t)(end - text));

				field[i] = text;
				if (!stop)
					break;
				text = stop + 1;
			}
			if (i == 3 && address[0]) {
				uintptr_t move = module->bias + (base ? base - address[1] : 0);
				live_probe *p = live_find_probe(known, field[0], strlen(field[0]), field[1], strlen(field[1]));
				int error = live_add_site(module, list, p, address[0] + move, address[2] ? address[2] + move : 0, field[2]);

				if (error)
					return error;
			}
		}
		notes += whole;
		size -= whole;
	}
	return 0;
}

int live_read_probes(live_module *module, const live_file *file, live_list *list)
{
	const ElfW(Shdr) *section = live_section(file, ".stapsdt.base", NULL);
	uintptr_t base = section ? section->sh_addr : 0;
	live_arena scratch = {0};
	live_probes *known;
	const unsigned char *content;
	int error = 0;

	if (!live_section(file, ".note.stapsdt", NULL))
		return 0;
	known = live_allocate(&scratch, sizeof *known);
	if (!known)
		return USDT_LIVE_NO_MEMORY;
	known->arena = &module->arena;
	for (section = NULL; (section = live_section(file, ".usdtbuild.provider", section));)
		if ((content = live_content(file, section)))
			read_description(known, (const char *)content, section->sh_size);
	for (section = NULL; !error && (section = live_section(file, ".note.stapsdt", section));)
		if ((content = live_content(file, section)))
			error = read_notes(module, list, known, content, section->sh_size, base);
	live_free(&scratch);
	return error;
}
