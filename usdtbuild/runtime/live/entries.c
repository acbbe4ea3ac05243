/*
 * A module's patchable functions: its file's tables of entries, held against its symbols and the bytes in memory.
 *
 * The reasons are those of `usdtbuild functions` (docs/functions.md), found in the same way: each entry is measured; the N,M that most
 * entries have is what all are held to; the first thing that is wrong is the reason. Then every branch of the code is looked at, for one
 * that goes into a padding or between an entry's NOPs. Functions without an entry are not points.
 */

#include "internal.h"

#include <string.h>

#include "symbols.h"

static const char standard[] = "__patchable_function_entries", relative[] = ".usdtbuild.functions";

/* -- tables ----------------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
enum { R_MOVED = 8, R_ADDRESS = 1 };
#elif defined(__aarch64__)
enum { R_MOVED = 1027, R_ADDRESS = 257 };
#elif defined(__riscv)
enum { R_MOVED = 3, R_ADDRESS = 2 };
#elif defined(__powerpc64__)
enum { R_MOVED = 22, R_ADDRESS = 38 };
#elif defined(__s390x__)
enum { R_MOVED = 12, R_ADDRESS = 22 };
#else
enum { R_MOVED = 23, R_ADDRESS = 2 };
#endif

#define UNKNOWN UINTPTR_MAX

#if UINTPTR_MAX > 0xffffffffu
#define TYPE_OF ELF64_R_TYPE
#define SYMBOL_OF ELF64_R_SYM
#else
#define TYPE_OF ELF32_R_TYPE
#define SYMBOL_OF ELF32_R_SYM
#endif

/* The address that one dynamic relocation of `section` will make; 0 if it makes none. */
static uintptr_t relocation(const live_module *module, const live_file *file, const ElfW(Shdr) *section, uintptr_t info, uintptr_t addend)
{
	const ElfW(Shdr) *symtab;
	const ElfW(Sym) *symbols;

	if (TYPE_OF(info) == R_MOVED)
		return module->bias + addend;
	if (TYPE_OF(info) != R_ADDRESS || section->sh_link >= file->section_count)
		return 0;
	symtab = &file->sections[section->sh_link];
	symbols = (const void *)live_content(file, symtab);
	if (!symbols || (uintptr_t)symbols % __alignof__(*symbols) || SYMBOL_OF(info) >= symtab->sh_size / sizeof *symbols
		|| !symbols[SYMBOL_OF(info)].st_shndx)
		return 0;
	return module->bias + symbols[SYMBOL_OF(info)].st_value + addend;
}

/* The addresses that dynamic relocations will make, read from the file: this may run before they are carried out. */
static void relocated(const live_module *module, const live_file *file, const ElfW(Shdr) *table, uintptr_t *values)
{
	const ElfW(Shdr) *section;
	uintptr_t low = table->sh_addr, high = low + table->sh_size;
	const unsigned char *content, *raw = live_content(file, table);
	size_t i, word = sizeof(uintptr_t);
	uintptr_t addend = 0;

	for (section = file->sections; section < file->sections + file->section_count; section++) {
		if (!(section->sh_flags & SHF_ALLOC) || !(content = live_content(file, section)))
			continue;
		if (section->sh_type == SHT_RELA || section->sh_type == SHT_REL) {
			size_t size = section->sh_type == SHT_RELA ? sizeof(ElfW(Rela)) : sizeof(ElfW(Rel));

			for (i = 0; i < section->sh_size / size; i++) {
				const ElfW(Rel) *one = (const void *)(content + i * size);

				if (one->r_offset < low || one->r_offset >= high)
					continue;
				if (section->sh_type == SHT_RELA)
					addend = (uintptr_t)((const ElfW(Rela) *)(const void *)one)->r_addend;
				else if (raw)
					memcpy(&addend, raw + (one->r_offset - low), word);
				values[(one->r_offset - low) / word] = relocation(module, file, section, one->r_info, addend);
			}
		} else if (section->sh_type == 19 /* SHT_RELR */) {
			uintptr_t place = 0, bits;
			size_t bit;

			for (i = 0; i < section->sh_size / word; i++) {
				memcpy(&bits, content + i * word, word);
				for (bit = 0; bit < 8 * word - 1; bit++) {
					uintptr_t at = bits & 1 ? place + bit * word : bits;

					if ((bits & 1 ? bits >> (bit + 1) & 1 : !bit) && at >= low && at < high) {
						if (raw) {
							memcpy(&values[(at - low) / word], raw + (at - low), word);
							values[(at - low) / word] += module->bias;
						}
					}
				}
				place = bits & 1 ? place + (8 * word - 1) * word : bits + word;
			}
		}
	}
}

/* -- measuring -------------------------------------------------------------------------------------------------- */

/* The NOPs from `at` on that belong to the entry. Sets the first one's length. */
static unsigned nop_run(const unsigned char *at, size_t left, unsigned *first)
{
	unsigned sum = 0;

	*first = 0;
	while (sum < left && sum < 200) {
		unsigned length = live_machine_nop(at + sum, left - sum);

		if (!length || (*first && length != *first && *first < 2))
			break;
		if (!*first)
			*first = length;
#if !defined(__x86_64__)
		else if (length != *first)
			break;
#endif
		sum += length;
	}
	return sum;
}

static int all_nops(const unsigned char *at, size_t size)
{
	while (size) {
		unsigned length = live_machine_nop(at, size);

		if (!length)
			return 0;
		at += length;
		size -= length;
	}
	return 1;
}

static void measure(live_module *module, live_point *point, uintptr_t entry, const functions *found)
{
	size_t index = live_at_or_after(found, entry);
	const function *f = index < found->count ? &found->all[index] : NULL;
	uintptr_t start;
	unsigned first, nops;
	int segment;

	/* With M = 0 the entry is behind the landing pad, inside its function. */
	if (index && found->all[index - 1].address < entry && entry < found->all[index - 1].address + found->all[index - 1].size) {
		const function *inside = &found->all[index - 1];

		start = inside->address;
		f = live_machine_pad((const unsigned char *)start, entry - start) == entry - start ? inside : NULL;
		f = LIVE_PPC64 && entry - start == inside->local ? inside : f;
		if (!f) {
			live_refuse(point, "not-a-function", "the entry lies inside a function");
			return;
		}
		point->landing_pad = 0; /* it isn't between the padding and the entry */
		point->shown.address = entry;
	} else if (f && f->local && f->address - entry < 256) {
		point->shown.name = f->name;
		live_refuse(point, "toc", "the NOPs stand before the instructions that make the TOC pointer: compile with GCC 13 or newer");
		return;
	} else if (f && f->address - entry < 256) {
		start = f->address;
		point->padding = (uint8_t)(start - entry);
		if (!live_is_code(module, entry) || !all_nops((const unsigned char *)entry, point->padding)) {
			live_refuse(point, "padding-not-nops", "the padding has other instructions than NOPs");
			return;
		}
		if (f->mode && point->padding && live_machine_nop((const unsigned char *)entry, point->padding) == 4) {
			live_refuse(point, "padding-arm", "the padding is A32 code, the function Thumb: compile with -Wa,-mthumb too");
			return;
		}
		point->landing_pad = (uint8_t)live_machine_pad((const unsigned char *)start, 16);
		point->shown.address = start + point->landing_pad;
	} else {
		live_refuse(point, "not-a-function", "no function symbol follows the entry's NOPs");
		return;
	}
	point->shown.name = f->name;
	point->shown.size = f->size;
	segment = live_is_code(module, point->shown.address);
	if (!segment || live_code_left(module, (unsigned)segment - 1, point->shown.address) < 16) {
		live_refuse(point, "not-executable", "the entry is outside the executable segments");
		return;
	}
	point->segment = (uint8_t)(segment - 1);
	nops = nop_run((const unsigned char *)point->shown.address, f->size ? start + f->size - point->shown.address : 64, &first);
	point->nops = (uint8_t)nops;
	point->first_nop = (uint8_t)first;
}

/* -- judging ---------------------------------------------------------------------------------------------------- */

static unsigned unit_of(const live_point *point)
{
#if defined(__x86_64__)
	(void)point;
	return 1;
#elif defined(__riscv) || defined(__s390x__) || LIVE_ARM
	return point->first_nop ? point->first_nop : 2;
#else
	(void)point;
	return 4;
#endif
}

static void judge(live_point *point, unsigned n, unsigned m)
{
	unsigned unit = unit_of(point), padding = m * unit, nops = (n - m) * unit;
	const char *reason, *detail = "";

	if (point->shown.reason)
		return;
	if (!point->nops && nops)
		live_refuse(point, "entry-not-nops", "the entry does not start with a NOP");
	else if (point->padding != padding && point->nops != nops)
		live_refuse(point, "other-nm", "another N,M than most functions have, before and at the entry");
	else if (point->padding != padding)
		live_refuse(point, point->padding < padding ? "padding-short" : "padding-long", "other padding than most functions have");
	else if (point->nops != nops)
		live_refuse(point, point->nops < nops ? "entry-short" : "entry-long", "other NOPs at the entry than most functions have");
	else if ((reason = live_machine_entry_room(point, &detail)))
		live_refuse(point, reason, detail);
}

/* The N,M that most entries have, of those that are large enough for a patch; the least if there are several. */
static void find_promise(live_point *points, size_t count, unsigned *n, unsigned *m)
{
	static const unsigned most = 64;
	uint32_t pairs[64][64];
	const char *reason, *detail;
	uint32_t best = 0;
	unsigned i, j;
	size_t k;

	memset(pairs, 0, sizeof pairs);
	for (k = 0; k < count; k++) {
		unsigned unit = unit_of(&points[k]), p = points[k].padding / unit, e = points[k].nops / unit;

		if (points[k].shown.reason || !points[k].nops)
			continue;
		reason = live_machine_entry_room(&points[k], &detail);
		if (reason && !strcmp(reason, "too-small"))
			continue;
		if (p < most && e < most)
			pairs[p][e]++;
	}
	*n = 7;
	*m = 5;
	for (i = 0; i < most; i++)
		for (j = 0; j < most; j++)
			if (pairs[i][j] > best) {
				best = pairs[i][j];
				*m = i;
				*n = i + j;
			}
}

/* -- branches --------------------------------------------------------------------------------------------------- */

struct live_guard {
	live_point **points; /* by address of the padding */
	size_t count;
	const functions *found;
	unsigned nops; /* promised, in bytes */
};

static uintptr_t low_of(const live_point *point)
{
	return point->shown.address - point->landing_pad - point->padding;
}

static live_point *guarded(const live_guard *g, uintptr_t address)
{
	size_t low = 0, high = g->count;

	while (low < high) { /* the last whose padding begins at or before the address */
		size_t middle = (low + high) / 2;

		if (low_of(g->points[middle]) <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low && address <= g->points[low - 1]->shown.address + g->points[low - 1]->nops ? g->points[low - 1] : NULL;
}

int live_is_guarded(const live_guard *g, uintptr_t address)
{
	const live_point *point = guarded(g, address);
	uintptr_t at;

	if (!point)
		return 0;
	at = point->shown.address;
	/* The function's own address, its landing pad, and the end of its promised NOPs are where branches may go. */
	return address < at - point->landing_pad || (address > at && address < at + point->nops)
		|| (address == at + point->nops && point->shown.reason);
}

uintptr_t live_function_of(const live_guard *g, uintptr_t address)
{
	functions marks = {g->found->marks, g->found->mark_count, NULL, 0, {0}};
	size_t index;

	if (marks.count) {
		index = live_at_or_after(&marks, address + 1);
		return !index || marks.all[index - 1].mode == 2 ? 0 : marks.all[index - 1].address | marks.all[index - 1].mode;
	}
	index = live_at_or_after(g->found, address + 1);
	return index && address - g->found->all[index - 1].address < 1 << 16 ? g->found->all[index - 1].address | g->found->all[index - 1].mode
																		 : address - 64;
}

void live_branch(const live_guard *g, uintptr_t source, intptr_t distance)
{
	uintptr_t target = source + (uintptr_t)distance, at;
	live_point *point = guarded(g, target);
	size_t index;

	if (!live_is_guarded(g, target))
		return;
	at = point->shown.address;
	index = live_at_or_after(g->found, source + 1);
	if (target == at + point->nops) { /* NOPs too many, that align a loop's head: the entry's own come before them */
		if (point->shown.reason && !strcmp(point->shown.reason, "entry-long") && target % 8 == 0) {
			point->shown.reason = point->shown.detail = NULL;
			point->nops = (uint8_t)g->nops;
		}
	} else if (target == low_of(point) && index && g->found->all[index - 1].address + g->found->all[index - 1].size == target) {
		return; /* behind its function's end, as compilers write it for what is never executed */
	} else if (target < at) {
		live_refuse(point, "jump-into-padding", "a branch goes into the padding");
	} else {
		live_refuse(point, "jump-into-entry", "a branch goes into the middle of the entry's NOPs");
	}
}

static void look_for_jumps(live_module *module, live_point *points, size_t count, live_guard *g)
{
	size_t i, j;
	unsigned k;

	g->points = live_allocate((live_arena *)&g->found->scratch, (count + 1) * sizeof *g->points);
	if (!g->points)
		return;
	for (i = 0; i < count; i++) {
		live_point *point = &points[i];

		if (point->shown.reason && strcmp(point->shown.reason, "entry-long"))
			continue;
		/* Tables are nearly sorted. */
		for (j = g->count++; j && low_of(g->points[j - 1]) > low_of(point); j--)
			g->points[j] = g->points[j - 1];
		g->points[j] = point;
	}
	for (k = 0; g->count && k < module->code_count; k++)
		live_machine_jumps(&module->code[k], g);
}

/* -- all of it -------------------------------------------------------------------------------------------------- */

static int add_entry(live_module *module, live_list *list, uintptr_t entry, const functions *found, usdt_live_argument_place *parameters,
	unsigned parameter_count)
{
	live_point *point = live_append(list);

	if (!point)
		return USDT_LIVE_NO_MEMORY;
	point->shown.provider = point->shown.name = "";
	point->shown.kind = USDT_LIVE_FUNCTIONS;
	point->shown.address = entry;
	point->shown.arguments = parameters;
	point->shown.argument_count = (uint8_t)parameter_count;
	if (!entry)
		live_refuse(point, "null-entry", "the table entry is null");
	else if (entry == UNKNOWN)
		live_refuse(point, "entry-not-relocated", "the table entry stays a link-time address in a program that is moved");
	else if (!live_is_code(module, entry))
		live_refuse(point, "not-executable", "the entry is outside the executable segments");
	else
		measure(module, point, entry, found);
	return 0;
}

static int read_table(live_module *module, const live_file *file, const ElfW(Shdr) *section, live_list *list, functions *found,
	usdt_live_argument_place *parameters, unsigned parameter_count)
{
	const unsigned char *content = live_content(file, section);
	const ElfW(Ehdr) *header = (const void *)file->data;
	int is_relative = section->sh_addr && !strcmp(file->names + section->sh_name, relative), error = 0;
	size_t size = is_relative ? 4 : sizeof(uintptr_t), count = section->sh_size / size, i;
	uintptr_t *values;

	if (!content || section->sh_size % size || !(section->sh_flags & SHF_ALLOC) || section->sh_addr % size)
		return 0;
	values = live_allocate(&found->scratch, count * sizeof *values + 16);
	if (!values)
		return USDT_LIVE_NO_MEMORY;
	for (i = 0; i < count; i++) {
		if (is_relative) {
			int32_t distance;

			memcpy(&distance, content + 4 * i, 4);
			values[i] = distance ? module->bias + section->sh_addr + 4 * i + (uintptr_t)(intptr_t)distance : 0;
		} else {
			memcpy(&values[i], content + size * i, size);
			if (header->e_type == ET_DYN && values[i])
				values[i] = UNKNOWN; /* unless a relocation makes it */
		}
	}
	if (!is_relative)
		relocated(module, file, section, values);
	for (i = 0; i < count && !error; i++)
		error = add_entry(module, list, values[i], found, parameters, parameter_count);
	return error;
}

int live_read_functions(live_module *module, const live_file *file, live_list *list)
{
	const char *const names[] = {standard, relative};
	const ElfW(Shdr) *section;
	functions found = {0};
	usdt_live_argument_place *parameters;
	size_t first = list->count, i, count;
	unsigned k, parameter_count = 0;
	int error = 0, any = 0;
	live_guard g = {0};

	for (k = 0; k < 2; k++)
		any |= live_section(file, names[k], NULL) != NULL;
	if (!any && !LIVE_HOTPATCH)
		return 0;
	parameters = live_allocate(&module->arena, 8 * sizeof *parameters);
	if (!parameters)
		return USDT_LIVE_NO_MEMORY;
	for (; parameter_count < live_parameters[0]; parameter_count++) {
		parameters[parameter_count].reg = live_parameters[parameter_count + 1];
		parameters[parameter_count].size = sizeof(uintptr_t);
		parameters[parameter_count].type = parameters[parameter_count].name = "";
	}
	error = live_read_symbols(module, file, &found);
	for (k = 0; k < 2 && !error; k++)
		for (section = NULL; !error && (section = live_section(file, names[k], section));)
			error = read_table(module, file, section, list, &found, parameters, parameter_count);
	for (i = 0; LIVE_HOTPATCH && i < found.count && !error; i++) {
		uintptr_t at = found.all[i].address;
		unsigned padding = live_is_code(module, at - 16) && live_is_code(module, at + 8) ? live_machine_hotpatch((const unsigned char *)at)
																						 : 0;

		if (padding)
			error = add_entry(module, list, at - padding, &found, parameters, parameter_count);
	}
	count = list->count - first;
	if (count && !error) {
		live_point *points = list->points + first;
		unsigned n, m;

		find_promise(points, count, &n, &m);
		for (i = 0; i < count; i++) {
			const function *f = NULL;
			size_t index;

			judge(&points[i], n, m);
			index = live_at_or_after(&found, points[i].shown.address - points[i].landing_pad);
			f = index < found.count && found.all[index].name == points[i].shown.name ? &found.all[index] : NULL;
			if (f && f->rank == 3)
				live_refuse(&points[i], "duplicate", "an earlier table entry names the same address");
			else if (f)
				((function *)f)->rank = 3;
		}
		g.found = &found;
		g.nops = (n - m) * unit_of(points);
		look_for_jumps(module, points, count, &g);
		for (i = 0; i < count; i++) {
			const char *name = points[i].shown.name;

			if (!points[i].shown.reason)
				live_machine_entry(&points[i]);
			points[i].shown.name = live_copy(&module->arena, name, strlen(name));
			if (!points[i].shown.name)
				points[i].shown.name = "";
		}
	}
	live_free(&found.scratch);
	return error;
}
