/* A program writes over what it shares with its tracer: numbers, and words with few bits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Do it so many times, call `after` each time, and return how many mappings that were. */
static int overwrite(int times, void (*after)(void)) {
    static char line[512], *starts[64], *ends[64];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps))
        if (strstr(line, "usdtbuild-trace") && strstr(line, "rw-s") && count < 64)
            count += sscanf(line, "%p-%p", (void **)&starts[count], (void **)&ends[count]) == 2;
    for (int round = 0; round < times; round++, after())
        for (int i = 0; i < count; i++)
            for (long *at = (long *)starts[i]; at < (long *)ends[i]; at++)
                *at = round % 3 ? (long)random() << 32 | random() : -1L << (round & 63);
    return count;
}
