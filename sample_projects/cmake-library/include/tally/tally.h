/* A library that keeps a tally: it counts things by name. */
#ifndef TALLY_TALLY_H
#define TALLY_TALLY_H

#ifdef __cplusplus
extern "C" {
#endif

/* Count so many more of `name`; return how many there are now, or -1 if there is no room for another name. */
long tally_add(const char *name, int count);

#ifdef __cplusplus
}
#endif

#endif
