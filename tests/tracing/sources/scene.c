/* Fires every probe of scene.d `rounds` times in each of some threads, and checks that tracing changes nothing: data in
   registers and below the stack pointer is compared at the end of each round. */
#include "scene.h"
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long rounds = 10;
static long guarded;

static char *const texts[] = {"", "hello", "a text of more than sixty-four bytes, which is what is copied of one at most",
                              "\x01 caf\xc3\xa9 \"quoted\"", 0, (char *)16, (char *)0x123456789abcdefULL};

__attribute__((noinline)) static long leaf(long a, long b) {
    /* A leaf function: what is live here is in registers and in the red zone. */
    volatile long zone[8];
    double x = a, y = b, z = a + b;
    for (int i = 0; i < 8; i++) zone[i] = a * i + b;
    SCENE_INTS((int8_t)-a, (uint8_t)a, (int16_t)-a, (uint16_t)a, (int32_t)-a, (uint32_t)a);
    long sum = 0;
    for (int i = 0; i < 8; i++) sum += zone[i];
    return sum + (long)(x + y + z);
}

__attribute__((noinline)) static int tail(int round, int sum) {
    SCENE_LAST(round, sum);
    return sum;
}

static void *work(void *wrong) {
    for (long i = 0; i < rounds; i++) {
        if (leaf(i, 7) != 28 * i + 56 + 2 * (i + 7)) __atomic_add_fetch((long *)wrong, 1, __ATOMIC_RELAXED);
        SCENE_WIDE(-i, (uint64_t)i << 40, i / 4.0, (float)(i / 2.0), &rounds);
        char *text = texts[i % 7];
        SCENE_TEXT(text, i % 7 < 4 ? (int)strlen(text) : -1);
        SCENE_EIGHT((int)i, 2, 3, 4, 5, 6, (int8_t)-7, (int64_t)i << 33);
        if (SCENE_GUARDED_ENABLED()) {
            __atomic_add_fetch(&guarded, 1, __ATOMIC_RELAXED);
            SCENE_GUARDED((int)i);
        }
        if (tail((int)i, 3) != 3) __atomic_add_fetch((long *)wrong, 1, __ATOMIC_RELAXED);
    }
    return 0;
}

int scene(int argc, char **argv) {
    long wrong = 0;
    pthread_t thread[64];
    int threads = argc > 2 ? atoi(argv[2]) : 1;
    if (argc > 1) rounds = atol(argv[1]);
    for (int i = 0; i < threads; i++) pthread_create(&thread[i], 0, work, &wrong);
    for (int i = 0; i < threads; i++) pthread_join(thread[i], 0);
    printf("wrong=%ld guarded=%ld\n", wrong, guarded);
    fflush(stdout);
    return 0;
}

#ifndef LIBRARY
int main(int argc, char **argv) {
    if (argc > 3 && !strcmp(argv[3], "wait")) {
        puts("ready");
        fflush(stdout);
        getchar(); /* until somebody traces us */
    }
    return scene(argc, argv);
}
#endif
