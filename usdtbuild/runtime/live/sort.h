/*
 * Sorting without libc's qsort, which may call malloc: bottom-up merges, which keep the order of equals. Inline, for each use to be
 * compiled for its own elements.
 */

#ifndef USDT_LIVE_SORT_H
#define USDT_LIVE_SORT_H

#include <stddef.h>
#include <string.h>

/* Sort `count` elements of `size` bytes; `spare` has room for as many. in_order(a, b): whether a may stand before b. */
static inline __attribute__((always_inline)) void live_sort(
	void *list, void *spare, size_t count, size_t size, int (*in_order)(const void *, const void *))
{
	char *all = list, *to = spare;
	size_t width, left, i, j, k;

	for (i = 1; i < count && in_order(all + (i - 1) * size, all + i * size); i++)
		;
	if (i >= count) /* as one object's mostly are */
		return;
	for (width = 1; width < count; width *= 2) {
		for (left = 0; left < count; left += 2 * width) {
			size_t middle = left + width < count ? left + width : count;
			size_t right = left + 2 * width < count ? left + 2 * width : count;

			for (i = k = left, j = middle; k < right; k++) {
				int first = i < middle && (j >= right || in_order(all + i * size, all + j * size));

				memcpy(to + k * size, all + (first ? i++ : j++) * size, size);
			}
		}
		memcpy(all, to, count * size);
	}
}

#endif
