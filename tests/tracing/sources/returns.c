/* Threads run through 64 pairs of functions; the inner ones return by two instructions, which begin at all 64 offsets of
   a cache line, with data alive in the outer ones' registers and, until just before, in the red zone. Whatever is done
   to entries and returns, results stay right. */
#define PLACE(k)                                                                                                      \
    __attribute__((noipa, aligned(64), patchable_function_entry(7, 5))) static long inner##k(long n) {                \
        volatile long zone[4];                                                                                        \
        for (int i = 0; i < 4; i++) zone[i] = n + i;                                                                  \
        long sum = zone[0] + zone[1] + zone[2] + zone[3] - 3 * n - 6;                                                 \
        if (n & 2) {                                                                                                  \
            __asm__ volatile(".skip %c0, 0x90" : : "i"(k));                                                           \
            return sum * 64 + k;                                                                                      \
        }                                                                                                             \
        __asm__ volatile(".skip 63 - %c0, 0x90" : : "i"(k));                                                          \
        return sum * 64 + k;                                                                                          \
    }                                                                                                                 \
    __attribute__((noipa)) static double place##k(long n, double a, double b, double c) {                             \
        double d = a * b, e = a + b + c;                                                                              \
        return d + e + (double)(inner##k(n) - (n * 64 + k)) + (double)(inner##k(n + 2) - (n * 64 + 128 + k));         \
    }
#define RIGHT(a, b, c) (a * b + a + b + c)
#include "places.h"

int main(int argc, char **argv) { return until_told(argc, argv); }
