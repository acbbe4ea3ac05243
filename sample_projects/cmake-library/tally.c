#include "tally/tally.h"

#include <string.h>

#include "tally.h" /* made from tally.d */

enum { ROOM = 8, LENGTH = 32 };

static struct {
    char name[LENGTH];
    long total;
} tallies[ROOM];

long tally_add(const char *name, int count)
{
    for (int i = 0; i < ROOM; i++) {
        if (tallies[i].name[0] == '\0')
            strncpy(tallies[i].name, name, LENGTH - 1);
        if (strncmp(tallies[i].name, name, LENGTH - 1) == 0) {
            tallies[i].total += count;
            TALLY_ADD(name, count, tallies[i].total);
            return tallies[i].total;
        }
    }
    TALLY_FULL(name);
    return -1;
}
