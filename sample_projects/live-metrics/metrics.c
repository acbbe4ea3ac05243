#include "metrics.h"

#include <stdio.h>

#include "usdt_live.h"

struct page {
	char *text;
	size_t size;
	int length;
};

static int add_line(const usdt_live_point *point, unsigned long long count, void *data)
{
	struct page *page = data;
	size_t at = (size_t)page->length < page->size ? (size_t)page->length : page->size;
	int length = snprintf(page->text + at, page->size - at, "probe_hits{probe=\"%s:%s\",site=\"%lx\",on=\"%d\"} %llu\n",
		point->provider, point->name, (unsigned long)point->address, point->is_on, count);

	page->length += length > 0 ? length : 0;
	return 0;
}

int metrics_page(char *page, size_t size)
{
	struct page all = {page, size, 0};

	all.length = snprintf(page, size, "# TYPE probe_hits counter\n");
	usdt_live_each(USDT_LIVE_PROBES, "*", add_line, &all);
	return all.length;
}
