/* Threads run through 64 pairs of functions; the inner ones have a `switch`, whose cases return by instructions that
   begin at all 64 offsets of a cache line, or jump to another function, which returns in their place. Whatever is done
   to entries and returns, results stay right. */
#define AT(k, number) __asm__ volatile(".skip (%c0 + 8 * " #number ") & 63, 0x90" : : "i"(k))
#define PLACE(k)                                                                                                      \
    __attribute__((noipa, aligned(64), patchable_function_entry(7, 5))) static long outer##k(long n) {                \
        return n * 64 + k;                                                                                            \
    }                                                                                                                 \
    __attribute__((noipa, aligned(64), patchable_function_entry(7, 5))) static long inner##k(long n, long way) {      \
        switch (way) {                                                                                                \
        case 0: AT(k, 0); return n * 64 + k;                                                                          \
        case 1: AT(k, 1); return outer##k(n);                                                                         \
        case 2: AT(k, 2); return (n + 2) * 64 + k;                                                                    \
        case 3: AT(k, 3); return outer##k(n + 3);                                                                     \
        case 4: AT(k, 4); return (n + 4) * 64 + k;                                                                    \
        default: AT(k, 5); return (n + way) * 64 + k;                                                                 \
        }                                                                                                             \
    }                                                                                                                 \
    __attribute__((noipa)) static double place##k(long n, double a, double b, double c) {                             \
        double d = a * b, e = a + b + c;                                                                              \
        long sum = 0;                                                                                                 \
        for (long way = 0; way < 6; way++) sum += inner##k(n, way) - (n + (way == 1 ? 0 : way)) * 64 - k;             \
        return d + e + (double)sum;                                                                                   \
    }
#define RIGHT(a, b, c) (a * b + a + b + c)
#include "places.h"

int main(int argc, char **argv) { return until_told(argc, argv); }
