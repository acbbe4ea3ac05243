/*
 * Which files are loaded, and what can be switched in each.
 *
 * dl_iterate_phdr names the modules; each one's file is mapped, compared with memory by its build id, read, and unmapped. The dynamic
 * linker calls an empty function whenever its list has changed, for debuggers (r_debug.r_brk): a jump there tells us of libraries before
 * their constructors run, and of those that are gone. Static programs are one module.
 */

#include "internal.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "notes.h"

live_module *live_modules;
const char *const live_no_reach = "no free memory in reach of the code for a stub";

/* -- files ------------------------------------------------------------------------------------------------------ */

/* The next section of a name, or NULL. */
const ElfW(Shdr) *live_section(const live_file *file, const char *name, const ElfW(Shdr) *after)
{
	const ElfW(Shdr) *section = after ? after + 1 : file->sections;
	size_t length = strlen(name) + 1;

	for (; section < file->sections + file->section_count; section++)
		if (section->sh_name < file->names_size && file->names_size - section->sh_name >= length
			&& !memcmp(file->names + section->sh_name, name, length))
			return section;
	return NULL;
}

const ElfW(Phdr) *live_segment_of(const live_module *module, uintptr_t at, size_t size, unsigned flags)
{
	unsigned i;

	for (i = 0; i < module->header_count; i++) {
		const ElfW(Phdr) *h = &module->headers[i];
		uintptr_t start = module->bias + h->p_vaddr;

		if (h->p_type == PT_LOAD && (h->p_flags & flags) == flags && start <= at && at - start <= h->p_memsz
			&& size <= h->p_memsz - (at - start))
			return h;
	}
	return NULL;
}

int live_may_count(const live_module *module, uintptr_t at)
{
	const ElfW(Phdr) *segment = at & 1 ? NULL : live_segment_of(module, at, 2, PF_R | PF_W);
	unsigned i;

	if (!segment || segment->p_flags & PF_X)
		return 0;
	for (i = 0; i < module->header_count; i++) { /* what the dynamic linker makes read-only */
		const ElfW(Phdr) *h = &module->headers[i];
		uintptr_t start = module->bias + h->p_vaddr;

		if (h->p_type == PT_GNU_RELRO && start <= at && at - start < h->p_memsz)
			return 0;
	}
	return 1;
}

/* A section's bytes, or NULL if they aren't all in the file. */
const unsigned char *live_content(const live_file *file, const ElfW(Shdr) *section)
{
	if (section->sh_type == SHT_NOBITS || section->sh_offset > file->size || section->sh_size > file->size - section->sh_offset)
		return NULL;
	return file->data + section->sh_offset;
}

static int open_sections(live_file *file)
{
	const ElfW(Ehdr) *header = (const void *)file->data;
	const ElfW(Shdr) *names;
	unsigned index;

	if (file->size < sizeof *header || memcmp(file->data, ELFMAG, SELFMAG) || header->e_shentsize != sizeof *names
		|| header->e_shoff > file->size || file->size - header->e_shoff < sizeof *names || header->e_shoff % sizeof(uintptr_t))
		return 0;
	file->sections = (const void *)(file->data + header->e_shoff);
	file->section_count = header->e_shnum ? header->e_shnum : (unsigned)file->sections[0].sh_size;
	if (file->section_count > (file->size - header->e_shoff) / sizeof *names)
		return 0;
	index = header->e_shstrndx == SHN_XINDEX ? file->sections[0].sh_link : header->e_shstrndx;
	if (index >= file->section_count)
		return 0;
	names = &file->sections[index];
	file->names = (const char *)live_content(file, names);
	file->names_size = names->sh_size;
	return file->names != NULL && names->sh_size && file->names[names->sh_size - 1] == '\0';
}

/* The build id among notes, or NULL. */
static const unsigned char *build_id(const unsigned char *notes, size_t size, uint32_t *length)
{
	while (size >= 12) {
		uint32_t name, description, type;
		size_t padded;

		memcpy(&name, notes, 4);
		memcpy(&description, notes + 4, 4);
		memcpy(&type, notes + 8, 4);
		padded = 12 + (((size_t)name + 3) & ~(size_t)3);
		if (padded > size || description > size - padded)
			return NULL;
		if (type == NT_GNU_BUILD_ID && name == 4 && !memcmp(notes + 12, "GNU", 4)) {
			*length = description;
			return notes + padded;
		}
		padded += ((size_t)description + 3) & ~(size_t)3;
		if (padded > size)
			return NULL;
		notes += padded;
		size -= padded;
	}
	return NULL;
}

/* Whether the file is what is loaded: by build id, or where there is none by the program headers, the dynamic linker's own copy of them. */
static int is_loaded(const live_module *module, const live_file *file)
{
	const ElfW(Ehdr) *header = (const void *)file->data;
	const ElfW(Phdr) *headers;
	unsigned i;

	if (header->e_phentsize != sizeof *headers || header->e_phnum != module->header_count || header->e_phoff > file->size
		|| (file->size - header->e_phoff) / sizeof *headers < header->e_phnum)
		return 0;
	headers = (const void *)(file->data + header->e_phoff);
	if (memcmp(headers, module->headers, module->header_count * sizeof *headers))
		return 0;
	for (i = 0; i < module->header_count; i++) {
		const ElfW(Phdr) *h = &module->headers[i];
		const unsigned char *here, *there;
		uint32_t length = 0, other = 0;

		if (h->p_type != PT_NOTE || h->p_offset > file->size || h->p_filesz > file->size - h->p_offset)
			continue;
		here = build_id((const unsigned char *)(module->bias + h->p_vaddr), h->p_filesz, &length);
		there = build_id(file->data + h->p_offset, h->p_filesz, &other);
		if (here && there)
			return length == other && !memcmp(here, there, length);
	}
	return 1;
}

live_point *live_append(live_list *list)
{
	if (list->count == list->room) {
		size_t room = list->room ? 2 * list->room : 256;
		live_point *more = mmap(NULL, room * sizeof *more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (more == MAP_FAILED)
			return NULL;
		if (list->points) {
			memcpy(more, list->points, list->count * sizeof *more);
			munmap(list->points, list->room * sizeof *more);
		}
		list->points = more;
		list->room = room;
	}
	return &list->points[list->count++];
}

int live_is_code(const live_module *module, uintptr_t address)
{
	unsigned i;

	for (i = 0; i < module->code_count; i++)
		if (module->code[i].start <= address && address < module->code[i].end)
			return (int)i + 1;
	return 0;
}

/* Whole pages are mapped. */
size_t live_code_left(const live_module *module, unsigned segment, uintptr_t address)
{
	return ((module->code[segment].end + live_page() - 1) & ~(live_page() - 1)) - address;
}

void live_refuse(live_point *point, const char *reason, const char *detail)
{
	if (!point->shown.reason) {
		point->shown.reason = reason;
		point->shown.detail = detail;
	}
}

/* -- one module ------------------------------------------------------------------------------------------------- */

/* Points go to memory near the code, because trampolines refer to them: trampolines, what the machine needs beside them, points, counts. */
static void place_points(live_module *module, const live_list *list)
{
	size_t page = live_page(), count = list->count, trampolines, points, counts, i;
	uintptr_t low = UINTPTR_MAX, high = 0;
	char *region;

	module->points = list->points; /* for live_machine_room */
	module->point_count = (uint32_t)count;
	trampolines = count * live_trampoline_size;
	module->room = live_machine_room(module);
	trampolines = (trampolines + module->room + 255 + page) & ~(page - 1);
	points = (count * sizeof(live_point) + page - 1) & ~(page - 1);
	counts = (count * 64 + page - 1) & ~(page - 1);
	for (i = 0; i < module->code_count; i++) {
		low = module->code[i].start < low ? module->code[i].start : low;
		high = module->code[i].end > high ? module->code[i].end : high;
	}
	region = live_map_near(low, high, trampolines + points + counts, live_reach);
	if (!region && live_far_reach)
		region = live_map_near(low, high, trampolines + points + counts, live_far_reach);
	if (region) {
		module->region = region;
		module->region_size = trampolines + points + counts;
		module->points = (live_point *)(region + trampolines);
	} else {
		module->points = live_allocate(&module->arena, count * sizeof(live_point));
	}
	if (!module->points) {
		module->point_count = module->probe_count = 0;
		module->trouble = "no memory";
		return;
	}
	memcpy(module->points, list->points, count * sizeof(live_point));
	module->counts = region ? region + trampolines + points : NULL;
	if (region && !live_map_counts(module->counts, counts, &module->counts_offset))
		region = NULL;
	module->cells = region && !live_is_shared() ? live_take_cells((uint32_t)count) : 0;
	for (i = 0; i < count; i++) {
		live_point *point = &module->points[i];

		point->module = module;
		point->key = live_key(point->shown.name);
		if (!region) {
			live_refuse(point, "no-memory", live_no_reach);
			point->count = live_allocate(&module->arena, 64);
			continue;
		}
		point->trampoline = (uintptr_t)region + i * live_trampoline_size;
		point->count = (uint64_t *)(void *)(region + trampolines + points + 64 * i);
		point->cell = module->cells ? module->cells + 8 * (uint32_t)i : 0;
	}
}

static void read_module(live_module *module)
{
	live_file file = {0};
	live_list list = {0};
	struct stat status;
	int fd = open(module->path, O_RDONLY | O_CLOEXEC), known = 0;
	void *data = MAP_FAILED;

	if (fd >= 0 && !fstat(fd, &status) && S_ISREG(status.st_mode) && status.st_size > 0)
		data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (data != MAP_FAILED) {
		file.data = data;
		file.size = (size_t)status.st_size;
		if (!open_sections(&file))
			module->trouble = "the file has no section headers, or damaged ones";
		else if (!is_loaded(module, &file))
			module->trouble = "the file isn't the one that is loaded";
		else
			known = 1;
	} else {
		module->trouble = "the file can't be read";
	}
	if (fd >= 0)
		close(fd);
	if (known)
		live_read_probes(module, &file, &list);
	if (!list.count) /* a file may have lost its notes, too */
		module->from_memory = live_read_table(module, &list) == 1;
	module->probe_count = (uint32_t)list.count;
	if (known)
		live_read_functions(module, &file, &list);
	if (data != MAP_FAILED)
		munmap(data, (size_t)status.st_size);
	if (list.count)
		place_points(module, &list);
	if (list.points)
		munmap(list.points, list.room * sizeof *list.points);
}

/* Addresses of a module may be those of another one a moment later: its mirrors must be free then. */
static void forget(live_module *module)
{
	live_arena arena = module->arena;
	unsigned i;

	for (i = 0; i < module->mirror_count; i++)
		munmap(module->mirrors[i].at, module->mirrors[i].size);
	if (module->region)
		munmap(module->region, module->region_size);
	live_return_cells(module->cells, module->point_count);
	live_free(&arena); /* the module itself lies there */
}

/* -- all of them ------------------------------------------------------------------------------------------------ */

static uint32_t digest(const struct dl_phdr_info *info)
{
	uint32_t value = 2166136261u;
	unsigned i, j;

	for (i = 0; i < info->dlpi_phnum; i++) {
		const unsigned char *at = (const unsigned char *)&info->dlpi_phdr[i];
		size_t size = sizeof *info->dlpi_phdr;

		for (j = 0; j < size; j++)
			value = (value ^ at[j]) * 16777619u;
		if (info->dlpi_phdr[i].p_type == PT_NOTE) { /* the build id */
			at = (const unsigned char *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
			for (j = 0; j < info->dlpi_phdr[i].p_memsz && j < 256; j++)
				value = (value ^ at[j]) * 16777619u;
		}
	}
	return value;
}

/* How many libraries were closed before this look, and before the last one. */
static unsigned long long closed, closed_before;

/*
 * Whether the module was closed and opened again at the same place, unseen: all that was switched on there is as it was at first. Where
 * nothing was closed, the kernel has taken out breakpoints, which gives back the file's bytes.
 */
static int is_fresh(const live_module *module)
{
	uint32_t i, on = 0;

	if (module == live_modules || closed == closed_before)
		return 0;
	for (i = 0; i < module->point_count; i++) {
		const live_point *point = &module->points[i];

		if (point->state != LIVE_ON)
			continue;
		/* Of x86-64's sites the fifth byte says where a jump would lead; breakpoints leave that one. */
		if (memcmp((const void *)point->shown.address, point->original, 5))
			return 0;
		on++;
	}
	return on != 0;
}

static const char itself[] = "/proc/self/exe";

typedef struct scan {
	int (*try_lock)(void);
	int locked, changed;
} scan;

static int visit(struct dl_phdr_info *info, size_t size, void *data)
{
	scan *s = data;
	/* The first is the program, which has no name, or with musl the one that it was started by. Others without one are the kernel's. */
	const char *path;
	live_module *module, **end;
	live_arena arena = {0};
	char target[4096];
	unsigned i, has_memory = 0;
	ssize_t got;
	uint32_t identity;

	if (!s->locked) {
		if (!s->try_lock())
			return 1;
		s->locked = 1;
		for (module = live_modules; module; module = module->next)
			module->seen = 0;
	}
	path = info->dlpi_name && *info->dlpi_name ? info->dlpi_name : live_modules ? "" : itself;
	closed = size < offsetof(struct dl_phdr_info, dlpi_subs) + sizeof info->dlpi_subs ? closed_before + 1 : info->dlpi_subs;
	identity = digest(info);
	for (end = &live_modules; (module = *end); end = &module->next)
		if (module->bias == info->dlpi_addr && module->identity == identity && module->header_count == info->dlpi_phnum
			&& !is_fresh(module)) {
			module->seen = 1;
			module->headers = info->dlpi_phdr;
			return 0;
		}
	module = live_allocate(&arena, sizeof *module);
	if (!module)
		return 0;
	module->bias = info->dlpi_addr;
	module->identity = identity;
	module->headers = info->dlpi_phdr;
	module->header_count = info->dlpi_phnum;
	module->seen = 1;
	for (i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *h = &info->dlpi_phdr[i];
		uintptr_t start = info->dlpi_addr + h->p_vaddr;

		if (h->p_type != PT_LOAD)
			continue;
		has_memory = 1;
		if (h->p_flags & PF_X && module->code_count < 8) {
			live_segment *code = &module->code[module->code_count++];

			code->start = start;
			code->end = start + h->p_memsz;
			code->protection = PROT_EXEC | (h->p_flags & PF_R ? PROT_READ : 0) | (h->p_flags & PF_W ? PROT_WRITE : 0);
		}
	}
	for (i = 0; i < module->code_count; i++)
		module->code[i].protection |= live_machine_rights(module);
	module->path = live_copy(&arena, path, strlen(path));
	module->arena = arena;
	*end = module;
	s->changed = 1;
	if (!has_memory || !module->path)
		return 0;
	read_module(module);
	if (module == live_modules && module->trouble && !module->point_count && path != itself) {
		module->trouble = NULL;
		module->path = path = itself;
		read_module(module);
	}
	if (path == itself && (got = readlink(path, target, sizeof target)) > 0) {
		char *name = live_copy(&module->arena, target, (size_t)got);

		if (name)
			module->path = name;
	}
	for (i = 0; i < module->point_count; i++)
		module->points[i].shown.module = module->path;
	return 0;
}

/* Look for modules that came or went, and keep the lock. Returns 1 if any did. */
int live_scan(int (*try_lock)(void))
{
	live_module *module, **from;
	scan s = {try_lock, 0, 0};

	dl_iterate_phdr(visit, &s);
	if (!s.locked)
		return -1;
	closed_before = closed;
	for (from = &live_modules; (module = *from);)
		if (!module->seen) {
			*from = module->next;
			forget(module);
			s.changed = 1;
		} else {
			from = &module->next;
		}
	return s.changed;
}

/* -- the dynamic linker ----------------------------------------------------------------------------------------- */

static void hook(void)
{
	live_linker_changed();
}

/*
 * From now on, hear of every dlopen and dlclose, if this machine and this dynamic linker allow: glibc's may be asked for its list while it
 * calls the empty function, because its lock knows its owner; musl's would wait for itself.
 */
void live_watch_linker(void)
{
	static int done;
	const live_module *module;
	unsigned i;

	if (done || !live_has_glibc())
		return;
	done = 1;
	for (module = live_modules; module; module = module->next)
		for (i = 0; i < module->header_count; i++) {
			const ElfW(Dyn) *dynamic;

			if (module->headers[i].p_type != PT_DYNAMIC)
				continue;
			for (dynamic = (const void *)(module->bias + module->headers[i].p_vaddr); dynamic->d_tag != DT_NULL; dynamic++)
				if (dynamic->d_tag == DT_DEBUG && dynamic->d_un.d_ptr) {
					const struct r_debug *debug = (const void *)dynamic->d_un.d_ptr;

					if (debug->r_version >= 1 && debug->r_brk)
						live_machine_hook(debug->r_brk, hook);
					return;
				}
		}
}
