/*
 * Tells DTrace about a module's probes when it is loaded, and takes that back when it goes.
 *
 * Compile this file with the module's own compiler and flags and link it into each program and shared library whose
 * objects carry DOF (DTrace's object format). One copy a module is enough; more do no harm. It needs nothing but libc.
 *
 * Every object brings its own DOF, in sections that the linker puts in a row:
 *
 *     .SUNW_dof:  DOF trailer | DOF trailer | marks | DOF trailer | ...
 *
 * A trailer is "UDOF" and the 32-bit size of the DOF before it; a mark is a trailer with size 0, and is how this file
 * finds the row. Kernels take 32 DOFs from a process, or one from a file, so what is registered is a single DOF,
 * made of all of them. No symbol or section of the linker's making is needed, no order of objects, no dynamic
 * relocation; a static program works like any other. DOFs without a trailer belong to somebody else (`dtrace -G` and
 * its drti.o) and are left to him.
 *
 * Where that one DOF lies: FreeBSD's and illumos' kernels copy it from anywhere. Oracle's daemon looks for the file
 * that is mapped at its address, and refuses anonymous memory; there the one DOF replaces the row that it is made of,
 * which is in the module's own data, writable because the loader relocates it, and long enough.
 *
 * Oracle's DTrace of the notes era (after 2.0.2) reads no DOF from programs. It is only told that there is a module
 * with `.note.usdt`, by an ioctl whose number stands in the header of an installed DTrace: this file uses it if
 * <sys/dtrace.h> or <dtrace/ioctl.h> is there when it is compiled, and the DOF if the ioctl fails.
 * USDT_DOF_WITHOUT_HEADER leaves the header out.
 *
 * Environment: DTRACE_DOF_INIT_DISABLE (do nothing), DTRACE_DOF_INIT_DEBUG (say what happens, on stderr),
 * DTRACE_DOF_INIT_DEVNAME (another device); a program that runs with more rights than its caller heeds none of them.
 * Where there is no device, one failed open is all that happens.
 *
 * USDT_DOF_PLATFORM chooses whose kernel interface is spoken: freebsd, illumos or oracle (Oracle's DTrace for Linux to
 * version 2.0.2). It follows from the system, except in tests.
 *
 * Licence: Apache-2.0, as the whole of usdtbuild.
 */

#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* dl_iterate_phdr */
#endif

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

/* In a unity build other files' headers came first, and _GNU_SOURCE too late: what it would have brought. */
#if defined(__GLIBC__) && !defined(__USE_GNU)
struct dl_phdr_info {
	ElfW(Addr) dlpi_addr;
	const char *dlpi_name;
	const ElfW(Phdr) *dlpi_phdr;
	ElfW(Half) dlpi_phnum; /* and what isn't asked for here */
};
extern int dl_iterate_phdr(int (*)(struct dl_phdr_info *, size_t, void *), void *);
extern ssize_t readlink(const char *, char *, size_t);
#endif
#if defined(__linux__) && !defined(MAP_ANON)
#include <linux/mman.h>
#define MAP_ANON MAP_ANONYMOUS
#endif
#if !defined(O_CLOEXEC) && defined(__O_CLOEXEC)
#define O_CLOEXEC __O_CLOEXEC
#endif
#if defined(__linux__)
#include <sys/auxv.h>
#endif

/* -- whose kernel ------------------------------------------------------------------------------------------------ */

#ifndef USDT_DOF_PLATFORM
#if defined(__FreeBSD__)
#define USDT_DOF_PLATFORM freebsd
#elif defined(__sun)
#define USDT_DOF_PLATFORM illumos
#elif defined(__linux__)
#define USDT_DOF_PLATFORM oracle
#else
#error "usdt_dof_register.c: it is not known how DTrace of this system takes DOF; leave this file out of the link"
#endif
#endif

#define USDT_SYSTEM_freebsd 1
#define USDT_SYSTEM_illumos 2
#define USDT_SYSTEM_oracle 3
#define USDT_JOIN2(a, b) a##b
#define USDT_JOIN(a, b) USDT_JOIN2(a, b)
#define USDT_SYSTEM USDT_JOIN(USDT_SYSTEM_, USDT_DOF_PLATFORM)

#define DEVICE "/dev/dtrace/helper"
#if USDT_SYSTEM == USDT_SYSTEM_freebsd
#define ADD_DOF 0xC0587A03UL
#define REMOVE_DOF 0x80047A02UL
#define ENABLED_VERSION 2 /* of DOF: what its is-enabled sites do */
#elif USDT_SYSTEM == USDT_SYSTEM_illumos
#define SECOND_DEVICE "/devices/pseudo/dtrace@0:helper"
#define ADD_DOF 0x64746803UL
#define REMOVE_DOF 0x64746802UL
#define ENABLED_VERSION 2
#elif USDT_SYSTEM == USDT_SYSTEM_oracle
#define ADD_DOF 0x4050D803UL
#define REMOVE_DOF 0x4004D802UL
#define ENABLED_VERSION 3
#define LOST_BY_FORK 1 /* the kernels of the others copy registrations to forked children */
#else
#error "USDT_DOF_PLATFORM is one of freebsd, illumos, oracle"
#endif

struct usdt_helper {
	char mod[64];
	uint64_t addr; /* what SETX relocations add */
	uint64_t dof;  /* where the DOF is */
#if USDT_SYSTEM == USDT_SYSTEM_freebsd
	pid_t pid;
	int gen;
#endif
};

#if USDT_SYSTEM == USDT_SYSTEM_oracle && defined(__has_include) && !defined(USDT_DOF_WITHOUT_HEADER)
#if __has_include(<sys/dtrace.h>)
#include <sys/dtrace.h>
#elif __has_include(<dtrace/ioctl.h>)
#include <dtrace/ioctl.h>
#endif
#endif

/*
 * Bytes of the module's data for the one DOF where the row has no room for it (Oracle only): where DOFs of others
 * stand between ours. DTRACE_DOF_INIT_DEBUG says how many it takes.
 */
#ifndef USDT_DOF_SPACE
#define USDT_DOF_SPACE 0
#endif

/* -- the format (docs/formats/dof.md); everything in it is naturally aligned ------------------------------------- */

struct usdt_header {
	unsigned char ident[16]; /* magic, model, encoding, version, DIF version, registers */
	uint32_t flags, hdrsize, secsize, secnum;
	uint64_t secoff, loadsz, filesz, pad;
};
struct usdt_section {
	uint32_t type, align, flags, entsize;
	uint64_t offset, size;
};
struct usdt_provider {
	uint32_t strtab, probes, prargs, proffs, name, attributes[5], prenoffs; /* prenoffs: from version 2 on */
};
struct usdt_probe {
	uint64_t addr;
	uint32_t func, name, nargv, xargv, argidx, offidx;
	uint8_t nargc, xargc;
	uint16_t noffs;
	uint32_t enoffidx;
	uint16_t nenoffs, pad1;
	uint32_t pad2;
};
struct usdt_relocation {
	uint32_t name, type;
	uint64_t offset, data;
};
struct usdt_relocation_header {
	uint32_t strtab, relsec, tgtsec;
};
struct trailer {
	char magic[4];
	uint32_t size; /* of the DOF before it; 0 for a mark */
};

enum { STRTAB = 8, RELTAB = 10, URELHDR = 12, PROVIDER = 15, PROBES = 16, PRARGS = 17, PROFFS = 18, PRENOFFS = 26 };
enum { SETX = 1, DOFREL = 2, LOAD = 1, PROVIDER_SIZE_1 = 40, SECTIONS_EACH = 6 }; /* and one more for PRENOFFS */

#define MAX_OFFSETS 65535u
#define MAX_PADDING 64u         /* zeros between two pieces of a row */
#define MAX_FOREIGN (1u << 20)  /* of a DOF that isn't ours, in a row, before the mark */

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define ENCODING 2
#else
#define ENCODING 1
#endif

/* Who looks for the ends of the row reads a few bytes beyond them, where sanitizers may have forbidden ground. */
#if defined(__GNUC__)
#define BEYOND_THE_ROW __attribute__((no_sanitize_address))
#else
#define BEYOND_THE_ROW
#endif

/*
 * The mark: a piece of our own in the row, for each copy of this file. It has the flags of the DOFs that it is to stand
 * with, because mold makes an output section of each kind. There are eight in a row, for what alignment may cost when
 * the one DOF replaces the row (see space_for).
 */
#if USDT_SYSTEM == USDT_SYSTEM_oracle
#define ROW_FLAGS "aw"
#else
#define ROW_FLAGS "a"
#endif
__asm__(".pushsection .SUNW_dof,\"" ROW_FLAGS "\",%0x6ffffff4\n"
        "\t.balign 8\n"
        "\t.weak usdt_dof_mark\n"
        "\t.hidden usdt_dof_mark\n"
        "usdt_dof_mark:\n"
        "\t.rept 8\n"
        "\t.ascii \"UDOF\"\n"
        "\t.4byte 0\n"
        "\t.endr\n"
        "\t.popsection\n");

#ifdef __cplusplus
extern "C" {
#endif
extern const struct trailer usdt_dof_mark __attribute__((visibility("hidden")));
#if defined(__GLIBC__) /* has the function behind pthread_atfork in libc itself: no -lpthread is needed */
extern int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *);
extern void *__dso_handle __attribute__((visibility("hidden")));
#else
extern int pthread_atfork(void (*)(void), void (*)(void), void (*)(void));
#endif

/* What all copies of this file in one module share: whoever comes first registers. */
struct registration {
	int state; /* 0 none yet, 1 tried, 2 registered */
	int gen;   /* what the kernel calls it */
	struct usdt_helper helper;
	size_t size; /* of the memory that was mapped for the DOF; 0 if it is in the module's own */
};
extern struct registration usdt_dof_registration __attribute__((weak, visibility("hidden")));
struct registration usdt_dof_registration;
#ifdef __cplusplus
}
#endif

/* -- small things ------------------------------------------------------------------------------------------------ */

/* A program that runs with more rights than its caller doesn't do what the caller's environment says. */
static const char *get_variable(const char *name)
{
#if defined(__linux__)
	return getauxval(AT_SECURE) != 0 ? NULL : getenv(name);
#else
	return issetugid() ? NULL : getenv(name);
#endif
}

static void talk(const char *what, const char *detail)
{
	static const char before[] = "usdt_dof_register: ", between[] = ": ";

	if (get_variable("DTRACE_DOF_INIT_DEBUG") == NULL)
		return;
	if (write(2, before, sizeof(before) - 1) < 0 || write(2, what, strlen(what)) < 0)
		return;
	if (detail != NULL && (write(2, between, sizeof(between) - 1) < 0 || write(2, detail, strlen(detail)) < 0))
		return;
	if (write(2, "\n", 1) < 0)
		return;
}

static int open_device(void)
{
	const char *device = get_variable("DTRACE_DOF_INIT_DEVNAME");
	int fd;

	if (device != NULL) {
		fd = open(device, O_RDWR | O_CLOEXEC);
	} else {
		device = DEVICE;
		fd = open(device, O_RDWR | O_CLOEXEC);
#ifdef SECOND_DEVICE
		if (fd < 0) {
			device = SECOND_DEVICE;
			fd = open(device, O_RDWR | O_CLOEXEC);
		}
#endif
	}
	if (fd < 0)
		talk(device, strerror(errno));
	return fd;
}

static void *get_memory(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

/* -- where we are ------------------------------------------------------------------------------------------------ */

/* The module that holds the mark, and its program headers. */
struct module {
	uintptr_t base;
	const ElfW(Phdr) *headers;
	int count;
	const char *low, *high; /* the loaded segment that holds the mark */
	int is_writable;        /* that segment, and it stays so */
	char *first, *last;     /* what of the row around the mark is ours alone */
	char name[64];
};

static void set_name(struct module *module, const char *path)
{
	const char *slash;
	char buffer[4096];
	size_t length;

#if defined(__linux__)
	if (path == NULL || *path == '\0') { /* glibc and musl have no name for the program itself */
		ssize_t done = readlink("/proc/self/exe", buffer, sizeof(buffer) - 1);
		buffer[done < 0 ? 0 : done] = '\0';
		path = buffer;
	}
#elif defined(__sun)
	if (path == NULL || *path == '\0')
		path = getexecname();
#elif defined(__FreeBSD__)
	if (path == NULL || *path == '\0')
		path = getprogname();
#endif
	(void)buffer;
	if (path == NULL || *path == '\0')
		path = "a.out";
	slash = strrchr(path, '/');
	if (slash != NULL)
		path = slash + 1;
	length = strlen(path);
	memcpy(module->name, path, length < sizeof(module->name) ? length : sizeof(module->name) - 1);
}

/* Returns the mark's address, about whose neighbours the compiler must not draw conclusions. */
static uintptr_t mark_address(void)
{
	uintptr_t mark = (uintptr_t)&usdt_dof_mark;

	__asm__("" : "+r"(mark));
	return mark;
}

static int find_module(struct dl_phdr_info *info, size_t size, void *result)
{
	struct module *module = (struct module *)result;
	uintptr_t mark = mark_address();
	int i;

	(void)size;
	for (i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];
		uintptr_t start = (uintptr_t)info->dlpi_addr + (uintptr_t)header->p_vaddr;

		if (header->p_type != PT_LOAD || mark - start >= header->p_filesz)
			continue;
		module->base = (uintptr_t)info->dlpi_addr;
		module->headers = info->dlpi_phdr;
		module->count = info->dlpi_phnum;
		module->low = (const char *)((start + 7) & ~(uintptr_t)7);
		module->high = (const char *)start + header->p_filesz;
		module->is_writable = (header->p_flags & PF_W) != 0;
		set_name(module, info->dlpi_name);
		for (i = 0; i < info->dlpi_phnum; i++) {
			header = &info->dlpi_phdr[i];
			start = (uintptr_t)info->dlpi_addr + (uintptr_t)header->p_vaddr;
			if (header->p_type == PT_GNU_RELRO && mark - start < header->p_memsz)
				module->is_writable = 0;
		}
		return 1;
	}
	return 0;
}

static int is_code(const struct module *module, uintptr_t address)
{
	int i;

	for (i = 0; i < module->count; i++) {
		const ElfW(Phdr) *header = &module->headers[i];

		if (header->p_type == PT_LOAD && header->p_flags & PF_X && address - module->base - (uintptr_t)header->p_vaddr < header->p_memsz)
			return 1;
	}
	return 0;
}

/* -- the row of DOFs --------------------------------------------------------------------------------------------- */

typedef void visitor(const struct usdt_header *dof, void *data);

BEYOND_THE_ROW static int is_text(const void *p, char a, char b, char c, char d)
{
	const char *text = (const char *)p;

	return text[0] == a && text[1] == b && text[2] == c && text[3] == d;
}

/* Whether a DOF header stands at `p`; its size is then within the segment. */
BEYOND_THE_ROW static int is_dof(const struct module *module, const char *p)
{
	const struct usdt_header *dof = (const struct usdt_header *)p;
	size_t room = (size_t)(module->high - p);

	return room >= sizeof(*dof) && is_text(dof, '\177', 'D', 'O', 'F') && dof->hdrsize == sizeof(*dof) && dof->loadsz >= sizeof(*dof)
		&& dof->loadsz <= room;
}

BEYOND_THE_ROW static int is_trailer(const struct module *module, const char *p, uint64_t size)
{
	const struct trailer *trailer = (const struct trailer *)p;

	return p >= module->low && module->high - p >= (ptrdiff_t)sizeof(*trailer) && is_text(trailer, 'U', 'D', 'O', 'F')
		&& trailer->size == size;
}

static size_t rounded(uint64_t size)
{
	return (size_t)(size + 7) & ~(size_t)7;
}

BEYOND_THE_ROW static void walk_forward(struct module *module, const char *p, visitor *visit, void *data)
{
	size_t padding = 0;
	int is_ours_alone = 1;

	while (module->high - p >= (ptrdiff_t)sizeof(uint64_t) && padding <= MAX_PADDING) {
		if (is_dof(module, p)) {
			const struct usdt_header *dof = (const struct usdt_header *)p;

			p += rounded(dof->loadsz);
			if (is_trailer(module, p, dof->loadsz)) {
				visit(dof, data);
				p += sizeof(struct trailer);
			} else {
				is_ours_alone = 0;
			}
		} else if (is_trailer(module, p, 0)) {
			p += sizeof(struct trailer);
		} else if (*(const uint64_t *)p == 0) {
			p += sizeof(uint64_t);
			padding += sizeof(uint64_t);
			continue;
		} else {
			return;
		}
		padding = 0;
		if (is_ours_alone)
			module->last = (char *)p;
	}
}

/* Returns where the DOF that ends at `end` begins, if one does that bears no trailer; else NULL. */
BEYOND_THE_ROW static const char *find_foreign(const struct module *module, const char *end)
{
	const char *p;

	for (p = end; p - module->low >= 8 && end - p < (ptrdiff_t)MAX_FOREIGN;) {
		p -= 8;
		if (is_dof(module, p) && rounded(((const struct usdt_header *)p)->loadsz) == (size_t)(end - p))
			return p;
	}
	return NULL;
}

BEYOND_THE_ROW static void walk_backward(struct module *module, const char *p, visitor *visit, void *data)
{
	size_t padding = 0;
	int is_ours_alone = 1;

	while (p - module->low >= (ptrdiff_t)sizeof(struct trailer) && padding <= MAX_PADDING) {
		const struct trailer *trailer = (const struct trailer *)p - 1;
		const char *start = (const char *)trailer;
		size_t room = (size_t)(start - module->low);

		if (is_trailer(module, start, 0)) {
			p = start;
		} else if (is_trailer(module, start, trailer->size) && trailer->size <= room && trailer->size % 8 == 0
			&& is_dof(module, start - trailer->size) && ((const struct usdt_header *)(start - trailer->size))->loadsz == trailer->size) {
			p = start - trailer->size;
			visit((const struct usdt_header *)p, data);
		} else if (*(const uint64_t *)start == 0) {
			p = start;
			padding += sizeof(uint64_t);
			continue;
		} else {
			p = find_foreign(module, p);
			if (p == NULL)
				return;
			is_ours_alone = 0;
		}
		padding = 0;
		if (is_ours_alone)
			module->first = (char *)p;
	}
}

static void walk(struct module *module, visitor *visit, void *data)
{
	module->first = (char *)mark_address();
	module->last = module->first + sizeof(struct trailer);
	walk_backward(module, (const char *)mark_address(), visit, data);
	walk_forward(module, (const char *)mark_address() + sizeof(struct trailer), visit, data);
}

/* -- reading one DOF --------------------------------------------------------------------------------------------- */

/* A probe of some DOF of the row, with everything it points to checked and its address made absolute. */
struct entry {
	uintptr_t address;
	const struct usdt_probe *probe;
	const uint32_t *attributes;
	const char *provider, *function, *name, *native, *translated; /* the last two: consecutive strings */
	const uint8_t *mapping;
	const uint32_t *offsets, *enabled;
	uint32_t enabled_count;
	int version;
};

struct entries {
	const struct module *module;
	struct entry *list; /* NULL while they are only counted */
	size_t count, offsets, enabled, mapping, strings;
	uint64_t skipped;
};

/* Returns section `index` if it has this type and lies within the DOF, with entries of at least `entsize` bytes. */
static const struct usdt_section *get_section(const struct usdt_header *dof, uint32_t index, uint32_t type, uint32_t entsize)
{
	const struct usdt_section *section;

	if (index >= dof->secnum)
		return NULL;
	section = (const struct usdt_section *)((const char *)dof + dof->secoff) + index;
	if (section->type != type || !(section->flags & LOAD) || section->entsize < entsize)
		return NULL;
	if (section->offset > dof->loadsz || section->size > dof->loadsz - section->offset || section->offset % 4)
		return NULL;
	return section;
}

static const char *content(const struct usdt_header *dof, const struct usdt_section *section)
{
	return (const char *)dof + section->offset;
}

/* Returns the first of `count` consecutive strings at `offset`, or NULL if they don't end within the table. */
static const char *get_strings(
	const struct usdt_header *dof, const struct usdt_section *table, uint32_t offset, unsigned count, size_t *total)
{
	const char *start = content(dof, table);
	uint64_t end = offset;

	if (count == 0)
		return "";
	while (count-- > 0) {
		const void *nul = end < table->size ? memchr(start + end, 0, (size_t)(table->size - end)) : NULL;

		if (nul == NULL)
			return NULL;
		end = (uint64_t)((const char *)nul - start) + 1;
	}
	*total += (size_t)(end - offset);
	return start + offset;
}

/* Whether `count` entries from number `first` lie within a table. */
static int in_table(const struct usdt_section *table, uint64_t first, uint64_t count)
{
	return count == 0 || (table != NULL && (first + count) * table->entsize <= table->size);
}

/* Returns the type of the DOF relocation that applies to the field at `place`, or 0. */
static uint32_t relocation_of(const struct usdt_header *dof, uint64_t place)
{
	uint32_t i;

	for (i = 0; i < dof->secnum; i++) {
		const struct usdt_section *header = get_section(dof, i, URELHDR, 0), *table, *target;
		const struct usdt_relocation_header *links;
		const struct usdt_relocation *relocation;
		uint64_t n;

		if (header == NULL || header->size < sizeof(*links))
			continue;
		links = (const struct usdt_relocation_header *)content(dof, header);
		table = get_section(dof, links->relsec, RELTAB, sizeof(*relocation));
		target = get_section(dof, links->tgtsec, PROBES, 0);
		if (table == NULL || target == NULL || place - target->offset >= target->size)
			continue;
		relocation = (const struct usdt_relocation *)content(dof, table);
		/* Relocations are as many as the probes, and in their order: try that place first. */
		n = (place - target->offset) / sizeof(struct usdt_probe);
		if ((n + 1) * sizeof(*relocation) <= table->size && relocation[n].offset == place - target->offset)
			return relocation[n].type;
		for (n = 0; (n + 1) * sizeof(*relocation) <= table->size; n++)
			if (relocation[n].offset == place - target->offset)
				return relocation[n].type;
	}
	return 0;
}

/* Returns the run-time address that a probe's address field means; 0 if the function isn't in the module. */
static uintptr_t get_address(const struct module *module, const struct usdt_header *dof, const struct usdt_probe *probe)
{
	uintptr_t value = (uintptr_t)probe->addr; /* on 32-bit machines a linker fills the low word only */

	switch (relocation_of(dof, (uint64_t)((const char *)probe - (const char *)dof))) {
	case DOFREL: /* the distance from the field itself */ value += (uintptr_t)&probe->addr; break;
	case SETX: /* the address as linked, or what the loader made of it already */
		if (!is_code(module, value))
			value += module->base;
		break;
	default: break;
	}
	return is_code(module, value) ? value : 0;
}

/* Fills in an entry from a probe's record; returns 0 if something in it is wrong. */
static int read_probe(struct entries *entries, const struct usdt_header *dof, const struct usdt_provider *provider,
	const struct usdt_probe *probe, struct entry *entry)
{
	const struct usdt_section *strings = get_section(dof, provider->strtab, STRTAB, 0);
	const struct usdt_section *arguments = get_section(dof, provider->prargs, PRARGS, 1);
	const struct usdt_section *offsets = get_section(dof, provider->proffs, PROFFS, 4), *enabled = NULL;

	entry->version = dof->ident[6];
	if (entry->version > 1 && provider->prenoffs != 0)
		enabled = get_section(dof, provider->prenoffs, PRENOFFS, 4);
	if (strings == NULL || !in_table(arguments, probe->argidx, probe->xargc) || !in_table(offsets, probe->offidx, probe->noffs))
		return 0;
	/* Is-enabled sites of another version than the kernel's wait for an answer that it wouldn't give. */
	entry->enabled_count = 0;
	if (enabled != NULL && in_table(enabled, probe->enoffidx, probe->nenoffs) && entry->version == ENABLED_VERSION)
		entry->enabled_count = probe->nenoffs;
	entry->provider = get_strings(dof, strings, provider->name, 1, &entries->strings);
	entry->function = get_strings(dof, strings, probe->func, 1, &entries->strings);
	entry->name = get_strings(dof, strings, probe->name, 1, &entries->strings);
	entry->native = get_strings(dof, strings, probe->nargv, probe->nargc, &entries->strings);
	entry->translated = get_strings(dof, strings, probe->xargv, probe->xargc, &entries->strings);
	entry->address = get_address(entries->module, dof, probe);
	if (entry->provider == NULL || entry->function == NULL || entry->name == NULL || entry->native == NULL || entry->translated == NULL
		|| entry->address == 0 || probe->noffs + entry->enabled_count == 0)
		return 0;
	entry->probe = probe;
	entry->attributes = provider->attributes;
	entry->mapping = probe->xargc ? (const uint8_t *)content(dof, arguments) + probe->argidx : NULL;
	entry->offsets = probe->noffs ? (const uint32_t *)content(dof, offsets) + probe->offidx : NULL;
	entry->enabled = entry->enabled_count ? (const uint32_t *)content(dof, enabled) + probe->enoffidx : NULL;
	return 1;
}

static void read_provider(struct entries *entries, const struct usdt_header *dof, const struct usdt_section *section)
{
	const struct usdt_provider *provider = (const struct usdt_provider *)content(dof, section);
	const struct usdt_section *probes;
	uint64_t place;

	if (section->size < (dof->ident[6] > 1 ? sizeof(*provider) : (size_t)PROVIDER_SIZE_1))
		return;
	probes = get_section(dof, provider->probes, PROBES, sizeof(struct usdt_probe));
	if (probes == NULL || probes->offset % 8)
		return;
	for (place = 0; place + sizeof(struct usdt_probe) <= probes->size; place += probes->entsize) {
		const struct usdt_probe *probe = (const struct usdt_probe *)(content(dof, probes) + place);
		struct entry entry;

		if (!read_probe(entries, dof, provider, probe, &entry)) {
			entries->skipped++;
			continue;
		}
		if (entries->list != NULL)
			entries->list[entries->count] = entry;
		entries->count++;
		entries->offsets += probe->noffs;
		entries->enabled += entry.enabled_count;
		entries->mapping += probe->xargc;
	}
}

static void read_dof(const struct usdt_header *dof, void *data)
{
	struct entries *entries = (struct entries *)data;
	uint32_t i;

	if (dof->ident[4] != (sizeof(void *) == 8 ? 2 : 1) || dof->ident[5] != ENCODING || dof->ident[6] < 1 || dof->ident[6] > 3
		|| dof->secsize != sizeof(struct usdt_section) || dof->secoff % 8 || dof->secoff > dof->loadsz
		|| dof->secnum > (dof->loadsz - dof->secoff) / sizeof(struct usdt_section)) {
		entries->skipped++;
		return;
	}
	for (i = 0; i < dof->secnum; i++) {
		const struct usdt_section *section = get_section(dof, i, PROVIDER, 0);

		if (section != NULL)
			read_provider(entries, dof, section);
	}
}

/* -- order, in which what belongs together stands together -------------------------------------------------------- */

static int compare_strings(const char *a, const char *b, unsigned count)
{
	while (count-- > 0) {
		int order = strcmp(a, b);

		if (order != 0)
			return order;
		a += strlen(a) + 1;
		b += strlen(b) + 1;
	}
	return 0;
}

static int compare_providers(const struct entry *a, const struct entry *b)
{
	int order = strcmp(a->provider, b->provider);

	return order != 0 ? order : memcmp(a->attributes, b->attributes, sizeof(uint32_t[5]));
}

/* Compares name and arguments. */
static int compare_signatures(const struct entry *a, const struct entry *b)
{
	const struct usdt_probe *p = a->probe, *q = b->probe;
	int order = strcmp(a->name, b->name);

	if (order == 0)
		order = (int)p->nargc - (int)q->nargc;
	if (order == 0)
		order = compare_strings(a->native, b->native, p->nargc);
	if (order == 0)
		order = (int)p->xargc - (int)q->xargc;
	if (order == 0)
		order = compare_strings(a->translated, b->translated, p->xargc);
	if (order == 0 && p->xargc > 0)
		order = memcmp(a->mapping, b->mapping, p->xargc);
	return order;
}

static int compare_entries(const void *left, const void *right)
{
	const struct entry *a = (const struct entry *)left, *b = (const struct entry *)right;
	int order = compare_providers(a, b);

	if (order == 0)
		order = compare_signatures(a, b);
	if (order == 0)
		order = strcmp(a->function, b->function);
	if (order == 0)
		order = a->address < b->address ? -1 : a->address > b->address;
	return order;
}

static int compare_offsets(const void *left, const void *right)
{
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;

	return a < b ? -1 : a > b;
}

/* Whether two neighbours are one probe: functions of one name (static ones, say) are told apart by nobody. */
static int is_same_probe(const struct entry *a, const struct entry *b)
{
	return compare_providers(a, b) == 0 && compare_signatures(a, b) == 0 && strcmp(a->function, b->function) == 0;
}

/* -- writing the one DOF ------------------------------------------------------------------------------------------ */

/* The DOF under construction: its tables, each filled from its start. All addresses lie in one mapping. */
struct output {
	char *start;
	struct usdt_section *sections;
	uint32_t section_count;
	struct usdt_probe *probes;
	struct usdt_relocation *relocations;
	struct usdt_provider *providers;
	struct usdt_relocation_header *relocation_headers;
	uint32_t *offsets, *enabled;
	uint8_t *mapping;
	char *strings;
	uint32_t *known; /* a hash table of what is in `strings`, by its place; 0 for a free slot */
	size_t known_size; /* slots, a power of two */
	size_t probe_count, provider_count, offset_count, enabled_count, mapping_count, string_size;
};

static uint32_t add_section(struct output *out, uint32_t type, uint32_t align, uint32_t entsize, const void *start, size_t size)
{
	struct usdt_section *section = &out->sections[out->section_count];

	section->type = type;
	section->align = align;
	section->flags = LOAD;
	section->entsize = entsize;
	section->offset = (uint64_t)((const char *)start - out->start);
	section->size = size;
	return out->section_count++;
}

/* Adds consecutive strings once, and returns their place. */
static uint32_t add_strings(struct output *out, const char *strings, unsigned count)
{
	size_t size = 0, slot;
	uint32_t hash = 2166136261u; /* FNV-1a */

	if (count == 0)
		return 0;
	while (count-- > 0)
		do
			hash = (hash ^ (unsigned char)strings[size]) * 16777619u;
		while (strings[size++] != '\0');
	for (slot = hash & (out->known_size - 1); out->known[slot] != 0; slot = (slot + 1) & (out->known_size - 1))
		if (size <= out->string_size - out->known[slot] && memcmp(out->strings + out->known[slot], strings, size) == 0)
			return out->known[slot];
	memcpy(out->strings + out->string_size, strings, size);
	out->known[slot] = (uint32_t)out->string_size;
	out->string_size += size;
	return out->known[slot];
}

/* Adds one list of offsets, moved by `distance`; keeps the list that begins at `first` sorted and free of doubles. */
static size_t add_offsets(uint32_t *table, size_t first, size_t end, const uint32_t *offsets, size_t count, uintptr_t distance)
{
	size_t i, kept = first;

	for (i = 0; i < count; i++)
		if ((uint64_t)offsets[i] + distance <= UINT32_MAX)
			table[end++] = offsets[i] + (uint32_t)distance;
	if (end > first)
		qsort(table + first, end - first, sizeof(*table), compare_offsets);
	for (i = first; i < end; i++)
		if (i == first || table[i] != table[kept - 1])
			table[kept++] = table[i];
	return kept - first > MAX_OFFSETS ? first + MAX_OFFSETS : kept;
}

/*
 * Writes the probe that the entries from `entry` up to `end` are; the first of them has the lowest address. `last` is
 * the probe before it if that has the same name and arguments.
 */
static void write_probe(struct output *out, const struct entry *entry, const struct entry *end, uintptr_t base,
	const struct usdt_probe *last, uint32_t first_argument, uint32_t first_offset, uint32_t first_enabled)
{
	struct usdt_probe *probe = &out->probes[out->probe_count];
	struct usdt_relocation *relocation = &out->relocations[out->probe_count++];
	size_t offsets = out->offset_count, enabled = out->enabled_count;
	const struct entry *each;

	for (each = entry; each < end; each++) {
		uintptr_t distance = each->address - entry->address;

		out->offset_count = add_offsets(out->offsets, offsets, out->offset_count, each->offsets, each->probe->noffs, distance);
		out->enabled_count = add_offsets(out->enabled, enabled, out->enabled_count, each->enabled, each->enabled_count, distance);
	}
	if (last != NULL) {
		*probe = *last;
	} else {
		probe->name = add_strings(out, entry->name, 1);
		probe->nargv = add_strings(out, entry->native, entry->probe->nargc);
		probe->xargv = add_strings(out, entry->translated, entry->probe->xargc);
		probe->nargc = entry->probe->nargc;
		probe->xargc = entry->probe->xargc;
		probe->argidx = (uint32_t)out->mapping_count - first_argument;
		if (entry->mapping != NULL)
			memcpy(out->mapping + out->mapping_count, entry->mapping, entry->probe->xargc);
		out->mapping_count += entry->probe->xargc;
	}
	probe->addr = entry->address - base;
	probe->func = add_strings(out, entry->function, 1);
	probe->offidx = (uint32_t)offsets - first_offset;
	probe->noffs = (uint16_t)(out->offset_count - offsets);
	probe->nenoffs = (uint16_t)(out->enabled_count - enabled);
	probe->enoffidx = probe->nenoffs ? (uint32_t)enabled - first_enabled : 0;
	relocation->name = probe->func;
	relocation->type = SETX;
}

/* Writes one provider, whose probes are the entries from `entry` up to `end`. */
static void write_provider(struct output *out, const struct entry *entry, const struct entry *end, uintptr_t base)
{
	struct usdt_provider *provider = &out->providers[out->provider_count];
	struct usdt_relocation_header *header = &out->relocation_headers[out->provider_count++];
	size_t probes = out->probe_count, offsets = out->offset_count, enabled = out->enabled_count;
	size_t arguments = out->mapping_count, count, i;
	const struct entry *first = entry, *next;

	provider->name = add_strings(out, entry->provider, 1);
	memcpy(provider->attributes, entry->attributes, sizeof(provider->attributes));
	for (; entry < end; entry = next) {
		const struct usdt_probe *last = NULL;

		for (next = entry + 1; next < end && is_same_probe(entry, next); next++)
			if ((next->address - entry->address) >> 31 != 0)
				break;
		if (entry > first && compare_signatures(entry - 1, entry) == 0)
			last = &out->probes[out->probe_count - 1];
		write_probe(out, entry, next, base, last, (uint32_t)arguments, (uint32_t)offsets, (uint32_t)enabled);
	}
	count = out->probe_count - probes;
	for (i = 0; i < count; i++)
		out->relocations[probes + i].offset = i * sizeof(struct usdt_probe);
	provider->probes = add_section(out, PROBES, 8, sizeof(struct usdt_probe), out->probes + probes, count * sizeof(struct usdt_probe));
	provider->prargs = add_section(out, PRARGS, 1, 1, out->mapping + arguments, out->mapping_count - arguments);
	provider->proffs = add_section(out, PROFFS, 4, 4, out->offsets + offsets, (out->offset_count - offsets) * sizeof(uint32_t));
	if (out->enabled_count > enabled)
		provider->prenoffs = add_section(out, PRENOFFS, 4, 4, out->enabled + enabled, (out->enabled_count - enabled) * sizeof(uint32_t));
	add_section(out, PROVIDER, 4, 0, provider, sizeof(*provider));
	header->relsec = add_section(
		out, RELTAB, 8, sizeof(struct usdt_relocation), out->relocations + probes, count * sizeof(struct usdt_relocation));
	header->tgtsec = provider->probes;
	add_section(out, URELHDR, 4, 0, header, sizeof(*header));
}

static void write_header(struct output *out, size_t size)
{
	struct usdt_header *header = (struct usdt_header *)out->start;

	memcpy(header->ident, "\177DOF", 4);
	header->ident[4] = sizeof(void *) == 8 ? 2 : 1;
	header->ident[5] = ENCODING;
	header->ident[6] = out->enabled_count > 0 ? ENABLED_VERSION : 2;
	header->ident[7] = 2; /* DIF version */
	header->ident[8] = 8; /* DIF registers: integers, tuples */
	header->ident[9] = 8;
	header->hdrsize = sizeof(*header);
	header->secsize = sizeof(struct usdt_section);
	header->secnum = out->section_count;
	header->secoff = sizeof(*header);
	header->loadsz = size;
	header->filesz = size;
}

/* Cuts the next table of `size` bytes from the space at `*at`. */
static void *take(char **at, size_t size)
{
	void *start = *at;

	*at += rounded(size);
	return start;
}

static size_t count_providers(const struct entries *entries)
{
	size_t i, count = 0;

	for (i = 0; i < entries->count; i++)
		if (i == 0 || compare_providers(&entries->list[i - 1], &entries->list[i]) != 0)
			count++;
	return count;
}

static size_t count_sections(const struct entries *entries, size_t providers)
{
	size_t i, count = 1 + providers * SECTIONS_EACH;
	int has_enabled = 0;

	for (i = 0; i < entries->count; i++) {
		if (i == 0 || compare_providers(&entries->list[i - 1], &entries->list[i]) != 0)
			has_enabled = 0;
		if (entries->list[i].enabled_count > 0 && !has_enabled) {
			has_enabled = 1;
			count++;
		}
	}
	return count;
}

/* Lays out and writes the DOF into zeroed memory; returns its size. The list is sorted. */
static size_t write_dof(struct output *out, const struct entries *entries, size_t providers, uintptr_t base)
{
	const struct entry *entry = entries->list, *end = entry + entries->count, *next;
	char *at = out->start;
	size_t size;

	take(&at, sizeof(struct usdt_header));
	out->sections = (struct usdt_section *)take(&at, count_sections(entries, providers) * sizeof(*out->sections));
	out->probes = (struct usdt_probe *)take(&at, entries->count * sizeof(*out->probes));
	out->relocations = (struct usdt_relocation *)take(&at, entries->count * sizeof(*out->relocations));
	out->providers = (struct usdt_provider *)take(&at, providers * sizeof(*out->providers));
	out->relocation_headers = (struct usdt_relocation_header *)take(&at, providers * sizeof(*out->relocation_headers));
	out->offsets = (uint32_t *)take(&at, entries->offsets * sizeof(*out->offsets));
	out->enabled = (uint32_t *)take(&at, entries->enabled * sizeof(*out->enabled));
	out->mapping = (uint8_t *)take(&at, entries->mapping);
	out->strings = at;
	out->string_size = 1;
	add_section(out, STRTAB, 1, 0, out->strings, 0);
	for (; entry < end; entry = next) {
		for (next = entry + 1; next < end && compare_providers(entry, next) == 0; next++)
			;
		write_provider(out, entry, next, base);
	}
	out->sections[0].size = out->string_size;
	size = (size_t)(out->strings - out->start) + rounded(out->string_size);
	write_header(out, size);
	return size;
}

/*
 * An upper bound of what write_dof writes.
 *
 * It never writes more than the DOFs that it reads and the mark are together: header, sections, probes, relocations and
 * providers are no more than theirs, names and types no more (each object has each of its own once, as we have), offsets
 * fewer where some are the same. What alignment adds is less than the mark's 64 bytes. (Theirs are of version 2 or 3.
 * In version 1 a provider is 4 bytes shorter; `instrument` doesn't write it.)
 */
static size_t space_for(const struct entries *entries, size_t providers)
{
	return sizeof(struct usdt_header) + count_sections(entries, providers) * sizeof(struct usdt_section)
		+ entries->count * (sizeof(struct usdt_probe) + sizeof(struct usdt_relocation))
		+ providers * (sizeof(struct usdt_provider) + sizeof(struct usdt_relocation_header))
		+ (entries->offsets + entries->enabled) * sizeof(uint32_t) + entries->mapping + entries->strings + 128;
}

#if USDT_SYSTEM == USDT_SYSTEM_oracle
#if USDT_DOF_SPACE > 0
/* Not zero, or it would lie in .bss, which is no file's. */
static char own_space[USDT_DOF_SPACE] __attribute__((aligned(8))) = {1};
#endif

static void talk_of_room(const struct module *module, size_t size)
{
	char number[24], *digit = number + sizeof(number);

	*--digit = '\0';
	do
		*--digit = (char)('0' + size % 10);
	while ((size /= 10) > 0);
	talk(module->name,
		module->is_writable ? "others' DOF stands among ours, so that one of all finds no room there"
							: "its DOF can't be written to: its objects are for another system than Oracle's");
	talk("compile usdt_dof_register.c with at least -DUSDT_DOF_SPACE", digit);
}

/* Returns where in the module's own data, which a file is mapped at, the finished DOF is now; NULL for nowhere. */
static char *settle(const struct module *module, char *dof, size_t size)
{
	char *place = NULL;

	if (module->is_writable && size <= (size_t)(module->last - module->first)) {
		place = module->first;
		memset(place, 0, (size_t)(module->last - place)); /* nobody is to find the pieces beside the whole */
	}
#if USDT_DOF_SPACE > 0
	else if (size <= sizeof(own_space))
		place = own_space;
#endif
	if (place != NULL)
		memcpy(place, dof, size);
	else
		talk_of_room(module, size);
	return place;
}
#endif

/* Reads all of the row into a sorted list, in new memory of `*size` bytes; leaves it NULL if there is nothing. */
static void list_entries(struct entries *entries, struct module *module, size_t *size)
{
	memset(entries, 0, sizeof(*entries));
	entries->module = module;
	walk(module, read_dof, entries);
	if (entries->skipped > 0)
		talk(module->name, "some of its records make no sense and are left out");
	if (entries->count == 0)
		return;
	*size = entries->count * sizeof(*entries->list);
	entries->list = (struct entry *)get_memory(*size);
	if (entries->list == NULL)
		return;
	entries->count = entries->offsets = entries->enabled = entries->mapping = entries->strings = 0;
	walk(module, read_dof, entries);
	qsort(entries->list, entries->count, sizeof(*entries->list), compare_entries);
}

/*
 * Makes one DOF of all in the row; returns NULL if there is none to make. It is in new memory of `*space` bytes, or,
 * with `*space` 0, in the module's own data.
 */
static struct usdt_header *merge(struct module *module, size_t *space, uintptr_t base)
{
	struct entries entries;
	struct output out;
	size_t list_size = 0, providers, size;

	list_entries(&entries, module, &list_size);
	if (entries.list == NULL)
		return NULL;
	providers = count_providers(&entries);
	*space = space_for(&entries, providers);
	memset(&out, 0, sizeof(out));
	/* A probe brings at most four pieces of text; the table is to stay half empty. */
	for (out.known_size = 16; out.known_size < 8 * entries.count + 2 * providers;)
		out.known_size *= 2;
	out.known = (uint32_t *)get_memory(out.known_size * sizeof(*out.known));
	out.start = out.known == NULL ? NULL : (char *)get_memory(*space);
	if (out.start != NULL) {
		size = write_dof(&out, &entries, providers, base);
		(void)size;
#if USDT_SYSTEM == USDT_SYSTEM_oracle
		{
			char *made = out.start;

			out.start = settle(module, made, size);
			munmap(made, *space);
			*space = 0;
		}
#endif
	}
	if (out.known != NULL)
		munmap(out.known, out.known_size * sizeof(*out.known));
	munmap(entries.list, list_size);
	return (struct usdt_header *)out.start;
}

/* -- registering --------------------------------------------------------------------------------------------------- */

/* Hands the DOF to the kernel; returns whether it took it. */
static int add_dof(struct registration *registration, int fd)
{
	int result;

#if USDT_SYSTEM == USDT_SYSTEM_freebsd
	registration->helper.pid = getpid();
#endif
	result = ioctl(fd, ADD_DOF, &registration->helper);
	if (result == -1) {
		talk("the kernel didn't take the DOF", strerror(errno));
		return 0;
	}
#if USDT_SYSTEM == USDT_SYSTEM_freebsd
	registration->gen = registration->helper.gen;
#else
	registration->gen = result;
#endif
	talk("registered", registration->helper.mod);
	return 1;
}

/* Tells a DTrace of the notes era that the module has notes; returns whether it wanted to know. */
static int add_notes(struct registration *registration, int fd)
{
#ifdef DTRACEHIOC_HASUSDT
	/* Any function of ours: DTrace finds the module's file by it. */
	int result = ioctl(fd, DTRACEHIOC_HASUSDT, (uintptr_t)&talk);

	if (result == -1) {
		talk("DTrace didn't take the notes", strerror(errno));
		return 0;
	}
	registration->gen = result;
	talk("registered notes", registration->helper.mod);
	return 1;
#else
	(void)registration;
	(void)fd;
	return 0;
#endif
}

#ifdef LOST_BY_FORK
/* Registers what there is; returns whether anything was taken. */
static int add(struct registration *registration, int fd)
{
	if (add_notes(registration, fd))
		return 1;
	return registration->helper.dof != 0 && add_dof(registration, fd);
}

static void register_in_child(void)
{
	struct registration *registration = &usdt_dof_registration;
	int saved = errno, fd;

	if (registration->state == 2) {
		registration->state = 1;
		fd = open_device();
		if (fd >= 0) {
			registration->state += add(registration, fd);
			close(fd);
		}
	}
	errno = saved;
}

static void watch_forks(void)
{
#if defined(__GLIBC__)
	__register_atfork(NULL, NULL, register_in_child, __dso_handle);
#else
	pthread_atfork(NULL, NULL, register_in_child);
#endif
}
#endif

/* What to say where there is nothing that could be registered. */
#if USDT_SYSTEM == USDT_SYSTEM_oracle && !defined(DTRACEHIOC_HASUSDT)
#define NO_DOF \
	"has no DOF that could be registered (DTrace's <sys/dtrace.h>, without which notes can't be announced, wasn't " \
	"there when usdt_dof_register.c was compiled)"
#else
#define NO_DOF "has no probes"
#endif

static void free_dof(struct registration *registration)
{
	if (registration->size > 0)
		munmap((void *)(uintptr_t)registration->helper.dof, registration->size);
	registration->size = 0;
}

static void register_module(struct registration *registration, int fd)
{
	struct module module;
	const struct usdt_header *dof;
	uintptr_t base;
	size_t space = 0;

	memset(&module, 0, sizeof(module));
	if (dl_iterate_phdr(find_module, &module) != 1) {
		talk("the module isn't among those that the loader knows", NULL);
		return;
	}
#if USDT_SYSTEM == USDT_SYSTEM_oracle
	base = 0; /* its addresses are final ones, as if the loader had relocated them */
#else
	base = module.base;
#endif
	memcpy(registration->helper.mod, module.name, sizeof(module.name));
	registration->helper.addr = base;
	/* Before the DOF is made: who reads notes needs none. */
	if (add_notes(registration, fd)) {
		registration->state = 2;
	} else {
		dof = merge(&module, &space, base);
		if (dof == NULL) {
			talk(module.name, NO_DOF);
			return;
		}
		registration->helper.dof = (uintptr_t)dof;
		registration->size = space;
		registration->state += add_dof(registration, fd);
	}
	/*
	 * The kernel has its own copy now, but the memory stays: the DOF's address is how FreeBSD and illumos tell a
	 * new DOF from one that they have, and another module's might come to lie at the same place.
	 */
	if (registration->state != 2)
		free_dof(registration);
#ifdef LOST_BY_FORK
	else
		watch_forks();
#endif
}

/* Before other constructors and after other destructors: their probes count too. */
#if defined(__sun)
#define FIRST_AND_LAST
#else
#define FIRST_AND_LAST (101)
#endif

__attribute__((constructor FIRST_AND_LAST)) static void usdt_dof_load(void)
{
	struct registration *registration = &usdt_dof_registration;
	int saved = errno, fd;

	if (registration->state != 0)
		return;
	registration->state = 1;
	if (get_variable("DTRACE_DOF_INIT_DISABLE") == NULL) {
		fd = open_device();
		if (fd >= 0) {
			register_module(registration, fd);
			close(fd);
		}
	}
	errno = saved;
}

__attribute__((destructor FIRST_AND_LAST)) static void usdt_dof_unload(void)
{
	struct registration *registration = &usdt_dof_registration;
	int saved = errno, fd, result;

	if (registration->state != 2)
		return;
	registration->state = 1;
	fd = open_device();
	if (fd >= 0) {
#if USDT_SYSTEM == USDT_SYSTEM_freebsd
		result = ioctl(fd, REMOVE_DOF, &registration->gen);
#else
		result = ioctl(fd, REMOVE_DOF, (long)registration->gen);
#endif
		talk(result == -1 ? "the kernel didn't take the removal" : "removed", registration->helper.mod);
		close(fd);
	}
	free_dof(registration);
	errno = saved;
}
