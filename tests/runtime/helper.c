/*
 * A stand-in for DTrace's helper device: takes over open, ioctl and close of a program, by LD_PRELOAD or, compiled with
 * -DWRAPPED into a static program, by the linker's --wrap.
 *
 * HELPER_LOG names a file that gets a line for each call about the device; the DOF of the n-th registration is written
 * to HELPER_LOG.n. HELPER_MODE is `present`, `absent` (the device can't be opened), `second` (only the second name of
 * the device works), `refuse` (the ioctl fails) or `notes` (DTrace of the notes era, which takes no DOF).
 *
 * Oracle's daemon looks up the file that is mapped at the DOF (or, for notes, at the function), and answers EINVAL
 * where there is none, to an ioctl that it doesn't know, to a second DOF of one file, and to one without a probe.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#ifdef WRAPPED
#define NAME(name) __wrap_##name
#else
#define NAME(name) name
#endif

static int device = -1;

static void say(const char *format, ...)
{
	char line[512];
	va_list arguments;
	long fd, length;

	va_start(arguments, format);
	length = vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	fd = syscall(SYS_openat, AT_FDCWD, getenv("HELPER_LOG"), O_WRONLY | O_CREAT | O_APPEND, 0666);
	if (fd < 0 || syscall(SYS_write, fd, line, length) != length)
		abort();
	syscall(SYS_close, fd);
}

static int is_mode(const char *mode)
{
	const char *chosen = getenv("HELPER_MODE");
	return strcmp(chosen ? chosen : "present", mode) == 0;
}

static int open_it(const char *path, int flags, mode_t mode)
{
	const char *other = getenv("DTRACE_DOF_INIT_DEVNAME");

	if (strcmp(path, "/dev/dtrace/helper") == 0 || strcmp(path, "/devices/pseudo/dtrace@0:helper") == 0 ||
	    (other && strcmp(path, other) == 0)) {
		int absent = is_mode("absent") || (is_mode("second") && path[4] == '/');
		say("open %s %d %s\n", path, flags & O_ACCMODE, absent ? "absent" : "present");
		if (absent) {
			errno = ENOENT;
			return -1;
		}
		return device = syscall(SYS_openat, AT_FDCWD, "/dev/null", flags, 0);
	}
	return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int NAME(open)(const char *path, int flags, ...)
{
	va_list arguments;
	mode_t mode;

	va_start(arguments, flags);
	mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
	va_end(arguments);
	return open_it(path, flags, mode);
}

int NAME(open64)(const char *path, int flags, ...)
{
	va_list arguments;
	mode_t mode;

	va_start(arguments, flags);
	mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
	va_end(arguments);
	return open_it(path, flags, mode);
}

/* The three systems' structures begin alike; FreeBSD's goes on. */
struct helper {
	char mod[64];
	uint64_t addr, dof;
	int32_t pid, gen;
};

static int registered, owner[16]; /* the processes, 0 once removed */

static int forget(int gen)
{
	say("remove %d %d\n", gen, (int)getpid());
	if (gen > 100 && gen <= 100 + registered)
		owner[gen - 101] = 0;
	return 0;
}

/* Returns the inode of the file that is mapped at all of these addresses; 0 if there is none. */
static unsigned long file_at(uint64_t start, uint64_t size)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[8192];
	unsigned long found = 0;

	while (maps && fgets(line, sizeof(line), maps)) {
		unsigned long long low, high;
		unsigned long inode;

		if (sscanf(line, "%llx-%llx %*s %*s %*s %lu", &low, &high, &inode) == 3 && low <= start && start < high)
			found = start + size <= high ? inode : 0;
	}
	if (maps)
		fclose(maps);
	return found;
}

static int refuse(const char *why)
{
	say("refused %s\n", why);
	errno = EINVAL;
	return -1;
}

static int add_notes(uint64_t function)
{
	if (!is_mode("notes"))
		return refuse("unknown ioctl");
	if (!file_at(function, 1))
		return refuse("no file");
	owner[registered++] = getpid();
	say("notes %d %llx %d\n", registered, (unsigned long long)function, (int)getpid());
	return 100 + registered;
}

static int add(struct helper *helper, int is_freebsd, int is_oracle)
{
	static unsigned long files[16];
	const char *dof = (const char *)(uintptr_t)helper->dof;
	static uint64_t known[16];
	uint64_t size;
	char path[4096];
	long fd;
	int i;

	for (i = 0; i < registered; i++)
		if (known[i] == helper->dof && owner[i] == getpid()) { /* both kernels do nothing, and tell nobody */
			say("duplicate of %d\n", i + 1);
			return is_freebsd ? 0 : 99;
		}
	if (registered == 16)
		abort();
	owner[registered] = getpid();
	known[registered++] = helper->dof;
	memcpy(&size, dof + 40, sizeof(size));
	if (is_oracle) {
		unsigned long file = file_at(helper->dof, size);

		registered--;
		if (is_mode("notes"))
			return refuse("DOF");
		if (!file)
			return refuse("no file");
		for (i = 0; i < registered; i++)
			if (files[i] == file && owner[i] == getpid())
				return refuse("a second DOF of the file");
		files[registered++] = file;
	}
	say("add %d %s %llx %llx %llx %d %d\n", registered, helper->mod, (unsigned long long)helper->addr,
	    (unsigned long long)helper->dof, (unsigned long long)size, is_freebsd ? helper->pid : 0, (int)getpid());
	if (is_mode("refuse")) {
		errno = EINVAL;
		return -1;
	}
	snprintf(path, sizeof(path), "%s.%d.%d", getenv("HELPER_LOG"), (int)getpid(), registered);
	fd = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
	if (fd < 0 || syscall(SYS_write, fd, dof, (size_t)size) != (long)size)
		abort();
	syscall(SYS_close, fd);
	if (is_freebsd)
		helper->gen = 100 + registered;
	return is_freebsd ? 0 : 100 + registered;
}

int NAME(ioctl)(int fd, unsigned long request, ...)
{
	va_list arguments;
	void *argument;

	va_start(arguments, request);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	if (fd >= 0 && fd == device) {
		switch ((uint32_t)request) {
		case 0xC0587A03:
			return add(argument, 1, 0);
		case 0x64746803:
			return add(argument, 0, 0);
		case 0x4050D803:
			return add(argument, 0, 1);
		case 0x4008D805: /* of this test's header, not of DTrace's */
			return add_notes((uint64_t)(uintptr_t)argument);
		case 0x80047A02:
			return forget(*(int *)argument);
		case 0x64746802:
		case 0x4004D802:
			return forget((int)(intptr_t)argument);
		default:
			say("unknown ioctl %lx\n", request);
			errno = ENOTTY;
			return -1;
		}
	}
	return syscall(SYS_ioctl, fd, request, argument);
}

int NAME(close)(int fd)
{
	if (fd >= 0 && fd == device) {
		say("close\n");
		device = -1;
	}
	return syscall(SYS_close, fd);
}
