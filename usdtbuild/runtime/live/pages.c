/*
 * Pages of code that are exchanged as a whole, for copies of the same files.
 *
 * Knows nothing of probes, nor of which instructions need it: those are the machine files' business.
 */

#include "internal.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * The mapping that an address lies in, its file opened. From /proc/self/maps, without a
 * buffer of libc's: `start-end rights offset major:minor inode path`.
 */
static void find_mapped(uintptr_t address, live_mapped *found)
{
	char line[4096 + 128], *field, *end;
	size_t length = 0, i;
	int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC), fd = -1;
	ssize_t got;

	found->start = found->end = 0;
	found->fd = -1;
	if (maps < 0)
		return;
	while ((got = read(maps, line + length, sizeof line - 1 - length)) > 0) {
		length += (size_t)got;
		while ((end = memchr(line, '\n', length)) || length == sizeof line - 1) {
			uintptr_t number[5] = {0, 0, 0, 0, 0}; /* start, end, rights, offset, device's first part */
			struct stat status;

			end = end ? end : line + length - 1;
			*end = '\0';
			for (field = line, i = 0; *field && i < 5; field++) {
				int digit = *field <= '9' ? *field - '0' : *field - 'a' + 10;

				if (*field == ' ' || (*field == '-' && i == 0))
					i++;
				else if (i != 2 && digit >= 0 && digit < 16)
					number[i] = number[i] * 16 + (uintptr_t)digit;
			}
			field = strchr(line, '/');
			if (number[0] <= address && address < number[1] && field) {
				fd = open(field, O_RDONLY | O_CLOEXEC);
				found->start = number[0];
				found->end = number[1];
				found->offset = (int64_t)number[3];
				/* The inode stands behind the device. */
				for (field = strchr(line, ':'), i = 0; field && *field && *field != ' '; field++)
					;
				for (; field && *field == ' '; field++)
					;
				for (; field && *field >= '0' && *field <= '9'; field++)
					i = i * 10 + (size_t)(*field - '0');
				if (fd >= 0 && (fstat(fd, &status) || (size_t)status.st_ino != i)) {
					close(fd);
					fd = -1;
				}
				close(maps);
				found->fd = fd;
				return;
			}
			i = (size_t)(end - line) + 1;
			memmove(line, line + i, length - i);
			length -= i;
		}
	}
	close(maps);
}

void live_forget_mapped(live_mapped *file)
{
	if (file->fd >= 0)
		close(file->fd);
	file->fd = -1;
}

/*
 * Exchange a page of code for a copy that has other bytes, within one instruction. For instructions that a processor doesn't allow to
 * change in memory while others run them: here no memory that is code ever changes, only which memory an address means. The kernel does
 * that under the lock that page faults wait for, and empties the processors' translations; so a thread fetches the old instruction or the
 * new one. The copy is one of the same file, so that other tracers still find what they know there.
 *
 * All stores are into the one page. A store that finds other bytes in the copy than it expects isn't made, and has no size afterwards.
 * Returns 0, with nothing changed, if the page can't be exchanged.
 */
int live_exchange_page_of(live_mapped *file, live_store *stores, size_t count, int protection)
{
	uintptr_t page = live_page(), start = stores[0].at & ~(page - 1);
	size_t i, made = 0;
	char *copy;

	if (start < file->start || start >= file->end) {
		live_forget_mapped(file);
		find_mapped(start, file);
	}
	copy = file->fd >= 0
		? mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE, file->fd, (off_t)file->offset + (off_t)(start - file->start))
		: mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (copy == MAP_FAILED)
		return 0;
	memcpy(copy, (const void *)start, page);
	for (i = 0; i < count; i++) {
		char *at = copy + (stores[i].at - start);

		if (memcmp(at, stores[i].old, stores[i].expected)) {
			stores[i].size = 0;
			continue;
		}
		memcpy(at, stores[i].bytes, stores[i].size);
		made++;
	}
	if (!made) {
		munmap(copy, page);
		return 1;
	}
	__builtin___clear_cache(copy, copy + page);
	if (mprotect(copy, page, protection) == 0 && mremap(copy, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)start) == (void *)start) {
		__builtin___clear_cache((char *)start, (char *)start + page);
		return 1;
	}
	munmap(copy, page);
	return 0;
}

int live_exchange_page(uintptr_t at, const void *bytes, size_t size, int protection)
{
	live_mapped file = {0, 0, 0, -1};
	live_store store = {.at = at, .size = (uint8_t)size};
	int done;

	memcpy(store.bytes, bytes, size);
	done = live_exchange_page_of(&file, &store, 1, protection);
	live_forget_mapped(&file);
	return done;
}
