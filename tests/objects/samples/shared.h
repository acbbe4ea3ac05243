/* What the two C objects share: an inline function that each compiles for itself, and each other's functions. */
#ifndef SHARED_H
#define SHARED_H
#include "sample.h"

static inline int twice(int number)
{
    SAMPLE_ITEM(number, "twice");
    return 2 * number;
}

int other_count(int rounds);
int other_tail(int number);
int other_table(int number);
int overridden(int number);
extern int switched_off;
#endif
