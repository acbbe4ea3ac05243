#ifndef METRICS_H
#define METRICS_H

#include <stddef.h>

/*
 * Write a page in the text format that Prometheus reads: one counter for each probe of the program, and which are on. Returns its
 * length, as snprintf does.
 */
int metrics_page(char *page, size_t size);

#endif
