/*
 * A plugin of QEMU's user mode that counts how often chosen instructions run: `usdtbuild trace --count --emulator`.
 *
 * It knows nothing of probes. When code of a file is about to be translated for the first time, it tells the tracer which
 * one, and waits for the answer: where in this file sites are, which counter belongs to each, and which semaphores are to be raised.
 * Its argument `folder` names a private folder with the tracer's socket (`link`), and a file of counters that both map (`counts`).
 *
 *     to the tracer    number of bytes (32 bits), the file's line of /proc/self/maps
 *     the answer       `answer_head`, then so many segments, sites (by their place in the file) and addresses of semaphores
 *
 * Which file code is of is what the kernel says: under user mode emulation a program's memory is this process' own, and its files
 * are mapped as a program maps them. So libraries that are loaded later, at any address, are known when their code first runs.
 *
 * Translations are made anew whenever their memory changes, so a translation's sites are those of the file that is there. A
 * mapping is looked for again behind each system call that may have made one.
 *
 * QEMU's header is not always installed with it; what is used of it is declared here, as its documentation has it.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

/* -- what QEMU has for plugins ("Writing plugins" in its developer documentation) ------------------------------------------------- */

#define PLUGIN_EXPORT __attribute__((visibility("default")))

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS };

extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
extern uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
extern void *qemu_plugin_insn_haddr(const struct qemu_plugin_insn *);
extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
extern void qemu_plugin_register_vcpu_insn_exec_cb(
	struct qemu_plugin_insn *, void (*)(unsigned, void *), enum qemu_plugin_cb_flags, void *);
extern void qemu_plugin_register_vcpu_syscall_ret_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, unsigned, int64_t, int64_t));

PLUGIN_EXPORT int qemu_plugin_version;
PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t, const void *, int, char **);

/* What is used here is the same in all versions of the interface. QEMU from 9.0 on wants 2 at least, and from there on lacks a function. */
__attribute__((constructor)) static void choose_version(void)
{
	qemu_plugin_version = dlsym(RTLD_DEFAULT, "qemu_plugin_n_vcpus") ? 1 : 2;
}

/* -- what the tracer tells ----------------------------------------------------------------------------------------------------------- */

enum { PAGE = 4096 };
static const uint64_t no_place = UINT64_MAX; /* of a site that is in memory only: the dynamic linker writes its code */

typedef struct answer_head {
	uint32_t segments, sites, semaphores, big_endian;
} answer_head;

typedef struct segment {
	uint64_t place, size, address; /* of code: in the file, and in memory without the load bias */
} segment;

typedef struct site {
	uint64_t place, address, counter;
} site;

typedef struct known_file {
	struct known_file *next;
	uint64_t device, inode;
	answer_head head;
	segment *segments;
	site *sites; /* by place */
	uint64_t *semaphores;
	uint64_t bias;      /* of the code that was seen last */
	bool placed, fixed; /* whether it is still there; fixed: always */
	bool seen;          /* since mappings may have changed */
} known_file;

/* The first page of `counts`; counters begin behind it. */
typedef struct header {
	uint64_t over;       /* the tracer's: what was raised is lowered, and nothing more is wanted */
	uint64_t cut_off;    /* the program has closed our descriptors: what was translated since is not counted */
	uint64_t not_raised; /* semaphores that couldn't be */
} header;

static header *shared;
static uint64_t *counters, counter_count;
static int link_fd = -1, maps_fd = -1;
static struct stat link_is, maps_is;
static bool is_child;

static bool same(int fd, const struct stat *was)
{
	struct stat is;

	return !fstat(fd, &is) && is.st_dev == was->st_dev && is.st_ino == was->st_ino;
}

static bool transfer(void *to, const void *from, size_t size)
{
	for (size_t done = 0; done < size;) {
		ssize_t more = to ? recv(link_fd, (char *)to + done, size - done, 0)
						  : send(link_fd, (const char *)from + done, size - done, MSG_NOSIGNAL);

		if (more < 0 && errno == EINTR)
			continue;
		if (more <= 0)
			return false;
		done += (size_t)more;
	}
	return true;
}

static void *received(size_t count, size_t size)
{
	void *found = calloc(count + 1, size);

	if (found && !transfer(found, NULL, count * size)) {
		free(found);
		return NULL;
	}
	return found;
}

static void ask_about(known_file *file, const char *line)
{
	uint32_t length = (uint32_t)strlen(line);

	memset(&file->head, 0, sizeof file->head);
	if (__atomic_load_n(&shared->over, __ATOMIC_RELAXED))
		return;
	if (!same(link_fd, &link_is)) {
		shared->cut_off = 1;
		return;
	}
	if (transfer(NULL, &length, sizeof length) && transfer(NULL, line, length) && transfer(&file->head, NULL, sizeof file->head)) {
		file->segments = received(file->head.segments, sizeof(segment));
		file->sites = received(file->head.sites, sizeof(site));
		file->semaphores = received(file->head.semaphores, sizeof(uint64_t));
	}
	if (!file->segments || !file->sites || !file->semaphores)
		memset(&file->head, 0, sizeof file->head); /* the tracer is gone */
}

/* -- what is mapped ------------------------------------------------------------------------------------------------------------------ */

typedef struct mapping {
	uintptr_t start, end;
	uint64_t place, device, inode;
	bool writable;
	known_file *file;
	size_t line; /* in `text` */
} mapping;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned generation = 1, read_generation;
static mapping *mappings;
static size_t mapping_count, mapping_room;
static char *text;
static size_t text_room;
static known_file *files;
static uintptr_t base; /* what QEMU adds to a program's addresses */

static size_t read_maps(void)
{
	size_t size = 0;

	if (!same(maps_fd, &maps_is)) {
		shared->cut_off = 1;
		return 0;
	}
	lseek(maps_fd, 0, SEEK_SET);
	for (;;) {
		ssize_t more;

		if (text_room - size < 2 * PAGE) {
			char *larger = realloc(text, text_room + (1 << 16));

			if (!larger)
				return 0;
			text = larger;
			text_room += 1 << 16;
		}
		more = read(maps_fd, text + size, text_room - size - 1);
		if (more < 0 && errno == EINTR)
			continue;
		if (more <= 0)
			break;
		size += (size_t)more;
	}
	text[size] = 0;
	return size;
}

static known_file *known(uint64_t device, uint64_t inode)
{
	for (known_file *file = files; file; file = file->next)
		if (file->device == device && file->inode == inode)
			return file;
	return NULL;
}

static bool is_placed(const known_file *file, const mapping *one)
{
	for (uint32_t i = 0; i < file->head.segments; i++)
		if (one->start - base == file->bias + file->segments[i].address + (one->place - file->segments[i].place))
			return true;
	return false;
}

static void look_again(void)
{
	size_t size = read_maps();

	mapping_count = 0;
	for (char *line = text, *end; line < text + size; line = end + 1) {
		unsigned long long start, stop, place, inode;
		unsigned major_number, minor_number;
		char rights[5];
		mapping *one;

		end = strchr(line, '\n');
		if (!end)
			break;
		*end = 0;
		if (sscanf(line, "%llx-%llx %4s %llx %x:%x %llu", &start, &stop, rights, &place, &major_number, &minor_number, &inode) < 7)
			continue;
		if (mapping_count == mapping_room) {
			mapping *larger = realloc(mappings, (mapping_room + 256) * sizeof *larger);

			if (!larger)
				break;
			mappings = larger;
			mapping_room += 256;
		}
		one = &mappings[mapping_count++];
		*one = (mapping){start, stop, place, makedev(major_number, minor_number), inode, rights[1] == 'w', NULL, (size_t)(line - text)};
		if (inode)
			one->file = known(one->device, inode);
	}
	for (known_file *file = files; file; file = file->next) {
		file->seen = false;
		file->placed = file->fixed;
	}
	for (size_t i = 0; i < mapping_count; i++)
		if (mappings[i].file && is_placed(mappings[i].file, &mappings[i]))
			mappings[i].file->placed = true;
}

static mapping *mapping_of(uintptr_t address)
{
	size_t low = 0, high = mapping_count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (mappings[middle].end <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low < mapping_count && mappings[low].start <= address ? &mappings[low] : NULL;
}

/* -- semaphores: 16 bits, in the program's byte order ----------------------------------------------------------------------------- */

typedef struct raised {
	struct raised *next;
	unsigned char *at;
	const known_file *file;
} raised;

static raised *all_raised;

static int value_of(const unsigned char *at, const known_file *file)
{
	int big = file->head.big_endian != 0;

	return at[1 - big] << 8 | at[big];
}

static void set_value(unsigned char *at, const known_file *file, int value)
{
	int big = file->head.big_endian != 0;

	at[1 - big] = (unsigned char)(value >> 8);
	at[big] = (unsigned char)value;
}

/* Only from zero, since a file's code is seen again and again; where a library is mapped anew, its semaphores are zero again. */
static void raise_semaphores(const known_file *file)
{
	for (uint32_t i = 0; i < file->head.semaphores; i++) {
		unsigned char *at = (unsigned char *)(base + file->bias + file->semaphores[i]);
		const mapping *there = mapping_of((uintptr_t)at);
		raised *one;

		if (!there || !there->writable) {
			shared->not_raised++;
		} else if (!value_of(at, file) && (one = malloc(sizeof *one))) {
			set_value(at, file, 1);
			*one = (raised){all_raised, at, file};
			all_raised = one;
		}
	}
}

static void lower_semaphores(void)
{
	look_again();
	for (raised *one = all_raised, *next; one; one = next) {
		const mapping *there = mapping_of((uintptr_t)one->at);

		/* A page of zeroes behind a file's has no file of its own. */
		if (there && there->writable && (!there->file || there->file == one->file) && value_of(one->at, one->file))
			set_value(one->at, one->file, value_of(one->at, one->file) - 1);
		next = one->next;
		free(one);
	}
	all_raised = NULL;
}

/* -- counting ------------------------------------------------------------------------------------------------------------------------ */

static void count(unsigned cpu, void *counter)
{
	(void)cpu;
	__atomic_fetch_add((uint64_t *)counter, 1, __ATOMIC_RELAXED);
}

static void watch(struct qemu_plugin_insn *insn, const site *one)
{
	if (one->counter < counter_count)
		qemu_plugin_register_vcpu_insn_exec_cb(insn, count, QEMU_PLUGIN_CB_NO_REGS, &counters[one->counter]);
}

static void see(known_file *file, uint64_t place, uint64_t address)
{
	for (uint32_t i = 0; i < file->head.segments; i++) {
		const segment *one = &file->segments[i];

		if (place - one->place < one->size) {
			uint64_t bias = address - (one->address + (place - one->place));

			if (!file->seen || file->bias != bias) {
				file->seen = file->placed = true;
				file->bias = bias;
				raise_semaphores(file);
			}
			return;
		}
	}
}

static void watch_in_file(struct qemu_plugin_insn *insn, const known_file *file, uint64_t place)
{
	uint32_t low = 0, high = file->head.sites;

	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (file->sites[middle].place < place)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < file->head.sites && file->sites[low].place == place; low++)
		watch(insn, &file->sites[low]);
}

/* What the dynamic linker writes behind the end of a file's content. Such sites are the last ones. */
static void watch_written(struct qemu_plugin_insn *insn, uint64_t address)
{
	for (const known_file *file = files; file; file = file->next)
		for (uint32_t i = file->head.sites; file->placed && i && file->sites[i - 1].place == no_place; i--)
			if (file->sites[i - 1].address + file->bias == address)
				watch(insn, &file->sites[i - 1]);
}

/* The end of a file where this machine's pages are smaller than the program's: QEMU makes a copy, which no file is mapped to. */
static void watch_copied(struct qemu_plugin_insn *insn, uint64_t address)
{
	for (const known_file *file = files; file; file = file->next)
		for (uint32_t i = 0; file->placed && i < file->head.segments; i++) {
			const segment *one = &file->segments[i];

			if (address - file->bias - one->address < one->size)
				watch_in_file(insn, file, one->place + (address - file->bias - one->address));
		}
}

/* A program that is nothing but such an end is in no mapping. Where it is QEMU tells, if it is new enough. */
static void learn_program(uint64_t address)
{
	const char *(*path_of)(void) = (const char *(*)(void))dlsym(RTLD_DEFAULT, "qemu_plugin_path_to_binary");
	uint64_t (*start_of)(void) = (uint64_t (*)(void))dlsym(RTLD_DEFAULT, "qemu_plugin_start_code");
	uint64_t (*end_of)(void) = (uint64_t (*)(void))dlsym(RTLD_DEFAULT, "qemu_plugin_end_code");
	const char *path;
	static bool done;
	struct stat is;
	char line[4200];
	known_file *file;

	if (done || !path_of || !start_of || !end_of || address - start_of() >= end_of() - start_of())
		return;
	done = true;
	path = path_of();
	if (!path || stat(path, &is))
		return;
	for (file = files; file; file = file->next)
		if (file->inode == is.st_ino)
			return; /* it has other pages */
	file = calloc(1, sizeof *file);
	if (!file || snprintf(line, sizeof line, "0-0 r--p 0 0:0 %llu %s", (unsigned long long)is.st_ino, path) >= (int)sizeof line) {
		free(file);
		return;
	}
	*file = (known_file){.next = files, .device = is.st_dev, .inode = is.st_ino};
	ask_about(file, line);
	files = file;
	if (file->head.segments) { /* the lowest comes first */
		file->bias = start_of() - file->segments[0].address;
		file->seen = file->placed = file->fixed = true;
		raise_semaphores(file);
	}
}

static void translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	(void)id;
	if (is_child)
		return;
	pthread_mutex_lock(&lock);
	unsigned now = __atomic_load_n(&generation, __ATOMIC_ACQUIRE);

	if (now != read_generation) {
		look_again();
		read_generation = now;
	}
	for (size_t i = 0, n = qemu_plugin_tb_n_insns(tb); i < n; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uintptr_t host = (uintptr_t)qemu_plugin_insn_haddr(insn);
		uint64_t address = qemu_plugin_insn_vaddr(insn);
		mapping *one = mapping_of(host);

		base = host - address;
		if (!one)
			continue;
		if (one->inode && !one->file) {
			known_file *file = known(one->device, one->inode);

			if (!file && (file = calloc(1, sizeof *file))) {
				*file = (known_file){.next = files, .device = one->device, .inode = one->inode};
				ask_about(file, text + one->line);
				files = file;
			}
			one->file = file;
		}
		if (one->file && one->file->head.sites) {
			see(one->file, one->place + (host - one->start), address);
			watch_in_file(insn, one->file, one->place + (host - one->start));
		}
		if (!one->inode) {
			learn_program(address);
			watch_copied(insn, address);
		}
		watch_written(insn, address);
	}
	pthread_mutex_unlock(&lock);
}

/* What maps returns an address of a page, whatever its number is on this machine; what else does so costs a look. */
static void after_system_call(qemu_plugin_id_t id, unsigned cpu, int64_t number, int64_t result)
{
	(void)id, (void)cpu, (void)number;
	if (result && !(result % PAGE))
		__atomic_fetch_add(&generation, 1, __ATOMIC_RELEASE);
	if (all_raised && !is_child && __atomic_load_n(&shared->over, __ATOMIC_ACQUIRE)) {
		pthread_mutex_lock(&lock);
		lower_semaphores();
		pthread_mutex_unlock(&lock);
	}
}

/* A child's hits go nowhere: into memory of its own, which nobody reads. */
static void in_child(void)
{
	is_child = true;
	mmap(shared, PAGE + counter_count * sizeof *counters, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE,
		-1, 0);
	if (same(link_fd, &link_is))
		close(link_fd);
	if (same(maps_fd, &maps_is))
		close(maps_fd);
}

/* -- the beginning ------------------------------------------------------------------------------------------------------------------- */

/* Descriptors are the program's too, which expects the lowest free number whenever it opens something. */
static int out_of_the_way(int fd, struct stat *is)
{
	int far = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 1000);

	if (far >= 0) {
		close(fd);
		fd = far;
	}
	return fd >= 0 && !fstat(fd, is) ? fd : -1;
}

static bool map_counters(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct stat is;

	if (fd < 0 || fstat(fd, &is))
		return false;
	shared = mmap(NULL, (size_t)is.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	counters = (uint64_t *)((char *)shared + PAGE);
	counter_count = ((uint64_t)is.st_size - PAGE) / sizeof *counters;
	return shared != MAP_FAILED;
}

static bool reach(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || strlen(path) >= sizeof address.sun_path)
		return false;
	strcpy(address.sun_path, path);
	if (connect(fd, (struct sockaddr *)&address, sizeof address))
		return false;
	link_fd = out_of_the_way(fd, &link_is);
	maps_fd = out_of_the_way(open("/proc/self/maps", O_RDONLY | O_CLOEXEC), &maps_is);
	return link_fd >= 0 && maps_fd >= 0;
}

int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv)
{
	const char *folder = NULL;
	char path[4096];

	(void)info;
	for (int i = 0; i < argc; i++)
		if (!strncmp(argv[i], "folder=", 7))
			folder = argv[i] + 7;
	if (!folder || snprintf(path, sizeof path, "%s/counts", folder) >= (int)sizeof path || !map_counters(path))
		return -1;
	snprintf(path, sizeof path, "%s/link", folder);
	if (!reach(path) || pthread_atfork(NULL, NULL, in_child))
		return -1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
	qemu_plugin_register_vcpu_syscall_ret_cb(id, after_system_call);
	return 0;
}
