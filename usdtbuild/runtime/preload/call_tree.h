/* Who calls whom, how often and for how long, added up while the program runs: for `usdtbuild trace --report` and `--graph`. */

#ifndef USDT_LIVE_CALL_TREE_H
#define USDT_LIVE_CALL_TREE_H

#include "internal.h"

/*
 * From now on add up in the file `fd`, whose size says how many nodes there may be. Times are ticks of the processor's clock if `ticks`,
 * and that may be read, else nanoseconds. Returns 0 if it can't be mapped, else 1 and in `flags` what rules of the handlers have.
 */
LIVE_HIDDEN int live_tree_begin(int fd, int ticks, unsigned *flags);

/* Which calls are added up: those that took so long, and where so many at most are open. */
LIVE_HIDDEN void live_tree_cut(uint64_t least, uint32_t deepest);
/* What a function means for the calls within it: they alone are added up, or they aren't. */
enum { LIVE_TREE_BELOW = 1, LIVE_TREE_WITHOUT = 2 };
LIVE_HIDDEN void live_tree_role(unsigned role);

/* Handlers for functions. */
LIVE_HIDDEN USDT_LIVE_FAST_HANDLER void live_tree_enter(const usdt_live_hit *hit, void *data);
LIVE_HIDDEN USDT_LIVE_FAST_HANDLER void live_tree_leave(const usdt_live_return *ret, void *data);
/* And for probes, where adding up begins (`data` isn't NULL) or ends. */
LIVE_HIDDEN USDT_LIVE_FAST_HANDLER void live_tree_switch(const usdt_live_hit *hit, void *data);
LIVE_HIDDEN void live_tree_waits(void); /* until it begins so */

/* The number of a point in the file of counts. */
LIVE_HIDDEN USDT_LIVE_FAST_HANDLER uint32_t live_point_number(const usdt_live_point *shown);

#endif
