/*
 * A file's functions by address, from .symtab or, where that was stripped, .dynsym.
 */

#include "internal.h"

#include <string.h>

#include "sort.h"
#include "symbols.h"

static int before(const void *one, const void *other)
{
	const function *a = one, *b = other;

	return a->address != b->address ? a->address < b->address : a->rank <= b->rank;
}

static void sort(function *list, function *spare, size_t count)
{
	live_sort(list, spare, count, sizeof *list, before);
}

#if LIVE_ARM
/* The mapping symbols $a, $t and $d, perhaps with something behind a point (AAELF32, 5.5.5). */
static void read_marks(live_module *module, const ElfW(Sym) *symbols, size_t count, const char *names, size_t size, functions *found)
{
	function *spare = live_allocate(&found->scratch, count * sizeof *spare);
	size_t i;

	found->marks = live_allocate(&found->scratch, count * sizeof *found->marks);
	for (i = 0; found->marks && spare && i < count; i++) {
		const char *name = symbols[i].st_name < size ? names + symbols[i].st_name : "";

		if (ELF32_ST_TYPE(symbols[i].st_info) != STT_NOTYPE || symbols[i].st_shndx == SHN_UNDEF || *name != '$' || !name[1]
			|| !strchr("atd", name[1]) || (name[2] && name[2] != '.'))
			continue;
		found->marks[found->mark_count].address = module->bias + symbols[i].st_value;
		found->marks[found->mark_count++].mode = name[1] == 't' ? 1 : name[1] == 'd' ? 2 : 0;
	}
	if (spare)
		sort(found->marks, spare, found->mark_count);
}
#endif

int live_read_symbols(live_module *module, const live_file *file, functions *found)
{
	const ElfW(Shdr) *section, *table = NULL;
	const ElfW(Sym) *symbols;
	const char *names;
	size_t count, i, names_size, kept = 0;
	function *spare;

	for (section = file->sections; section < file->sections + file->section_count; section++)
		if (section->sh_type == SHT_SYMTAB || (section->sh_type == SHT_DYNSYM && !table))
			table = section;
	if (!table || table->sh_link >= file->section_count || table->sh_entsize != sizeof *symbols)
		return 0;
	symbols = (const void *)live_content(file, table);
	names = (const char *)live_content(file, &file->sections[table->sh_link]);
	names_size = file->sections[table->sh_link].sh_size;
	if (!symbols || (uintptr_t)symbols % __alignof__(*symbols) || !names || !names_size || names[names_size - 1])
		return 0;
	count = table->sh_size / sizeof *symbols;
#if LIVE_ARM
	read_marks(module, symbols, count, names, names_size, found);
#endif
	found->all = live_allocate(&found->scratch, count * sizeof *found->all);
	spare = live_allocate(&found->scratch, count * sizeof *spare);
	if (!found->all || !spare)
		return USDT_LIVE_NO_MEMORY;
	for (i = 0; i < count; i++) {
		unsigned type = ELF64_ST_TYPE(symbols[i].st_info), bind = ELF64_ST_BIND(symbols[i].st_info);
		function *f = &found->all[found->count];

		if ((type != STT_FUNC && type != STT_GNU_IFUNC) || symbols[i].st_shndx == SHN_UNDEF || symbols[i].st_name >= names_size)
			continue;
		f->local = LIVE_PPC64 ? (uint8_t)(1u << (symbols[i].st_other >> 5) & ~3u) : 0;
		f->mode = LIVE_ARM && symbols[i].st_value & 1;
		f->address = module->bias + (symbols[i].st_value - f->mode);
		f->name = names + symbols[i].st_name;
		f->size = (uint32_t)symbols[i].st_size;
		f->rank = bind == STB_GLOBAL ? 0 : bind == STB_WEAK ? 1 : 2;
		found->count++;
	}
	sort(found->all, spare, found->count);
	for (i = 0; i < found->count; i++)
		if (!kept || found->all[kept - 1].address != found->all[i].address)
			found->all[kept++] = found->all[i];
		else if (found->all[i].size > found->all[kept - 1].size)
			found->all[kept - 1].size = found->all[i].size;
	found->count = kept;
	return 0;
}

/* The first function at or after an address, or `count`. */
size_t live_at_or_after(const functions *found, uintptr_t address)
{
	size_t low = 0, high = found->count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (found->all[middle].address < address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}
