/* Fires a probe, sleeps so many seconds, and says how many milliseconds that took. */
#include "scene.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv) {
    struct timespec before, after, pause = {argc > 1 ? atoi(argv[1]) : 1, 0};
    puts("ready");
    fflush(stdout);
    clock_gettime(CLOCK_MONOTONIC, &before);
    if (nanosleep(&pause, 0)) return 1;
    clock_gettime(CLOCK_MONOTONIC, &after);
    SCENE_LAST(1, 2);
    printf("%ld\n", (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000);
    return 0;
}
