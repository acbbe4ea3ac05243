/* Who calls whom, how often and for how long, added up while the program runs: for `usdtbuild trace --report` and `--graph`. */

#ifndef USDT_LIVE_CALL_TREE_H
#define USDT_LIVE_CALL_TREE_H

#include "internal.h"

/* From now on add up in the file `fd`, whose size says how many nodes there may be. Returns 0 if it can't be mapped. */
LIVE_HIDDEN int live_tree_begin(int fd);

/* Handlers for functions. */
LIVE_HIDDEN void live_tree_enter(const usdt_live_hit *hit, void *data);
LIVE_HIDDEN void live_tree_leave(const usdt_live_return *ret, void *data);

/* The number of a point in the file of counts. */
LIVE_HIDDEN uint32_t live_point_number(const usdt_live_point *shown);

#endif
