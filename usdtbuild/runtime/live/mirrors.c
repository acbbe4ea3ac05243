/*
 * Landings: where a site's own bytes can jump to, on machines where its jump can't have any distance (x86-64, Thumb). The machine's file
 * chooses a distance and says where each point lands; this maps the pages of all, or says that something is in the way.
 */

#include "internal.h"

#include <string.h>
#include <sys/mman.h>

#include "sort.h"

/* Pages with a gap of fewer than this between them are mapped at once. */
enum { GAP = 16 };

static int by_address(const void *a, const void *b)
{
	return (*(live_point *const *)a)->shown.address <= (*(live_point *const *)b)->shown.address;
}

/* Sort pointers to points by address. */
void live_sort_points(live_point **list, live_point **spare, size_t count)
{
	live_sort(list, spare, count, sizeof *list, by_address);
}

/* One run of pages. 0 if they aren't free. */
static int map_run(live_module *module, uintptr_t start, uintptr_t end)
{
	void *found = mmap(
		(void *)start, end - start, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | 0x100000 /* MAP_FIXED_NOREPLACE */, -1, 0);

	if (found != MAP_FAILED && (uintptr_t)found != start) {
		munmap(found, end - start);
		found = MAP_FAILED;
	}
	if (found == MAP_FAILED)
		return 0;
	module->mirrors[module->mirror_count].at = found;
	module->mirrors[module->mirror_count++].size = end - start;
	return 1;
}

/* Map the landings of `count` sorted points, `size` bytes each. 0 if something is in the way, with nothing left mapped. */
int live_map_landings(live_module *module, live_point **list, size_t count, unsigned size)
{
	uintptr_t page = live_page(), start = 0, end = 0;
	unsigned first = module->mirror_count;
	size_t i;

	for (i = 0; i <= count; i++) {
		uintptr_t at = i < count ? list[i]->landing : UINTPTR_MAX;
		uintptr_t from = at & ~(page - 1), to = i < count ? (at + size + page - 1) & ~(page - 1) : 0;

		/* The order of landings may be that of two forms, a few bytes apart: pages overlap, and never run back. */
		if (i < count && end && from <= end + GAP * page) {
			end = to > end ? to : end;
			continue;
		}
		if (end && !map_run(module, start, end)) {
			while (module->mirror_count > first) {
				module->mirror_count--;
				munmap(module->mirrors[module->mirror_count].at, module->mirrors[module->mirror_count].size);
			}
			return 0;
		}
		start = from;
		end = to;
	}
	return 1;
}

/* What was mapped from the module's mirror `first` on is code now. */
void live_seal_landings(live_module *module, live_point **list, size_t count, unsigned first)
{
	size_t i;

	for (; first < module->mirror_count; first++) {
		__builtin___clear_cache(module->mirrors[first].at, (char *)module->mirrors[first].at + module->mirrors[first].size);
		if (!live_make_executable(module->mirrors[first].at, module->mirrors[first].size))
			for (i = 0; i < count; i++)
				live_refuse(list[i], "no-execute", "the system allows no new code (SELinux, MDWE)");
	}
}
