/* Threads call a library's functions through stubs, and from call sites that begin at all 64 offsets of a cache line, with
   data alive in registers all the while, until there is something to read. Whatever is done to the sites, results stay
   right. */
#ifdef LIBRARY
#define WORK(k) long work_##k(long n, long thrice, long inverse) { return n * k + thrice + inverse; }
WORK(0) WORK(1) WORK(2) WORK(3)
#else
#define WORK(k) long work_##k(long n, long thrice, long inverse);
WORK(0) WORK(1) WORK(2) WORK(3)

#define PLACE(k)                                                                             \
    __attribute__((noinline, aligned(64))) static double place##k(long n, double a, double b, double c) { \
        double d = a * b, e = a + b + c;                                                     \
        APART(k);                                                                            \
        long got = k % 4 == 0   ? work_0(n, 3 * n, ~n)                                       \
                   : k % 4 == 1 ? work_1(n, 3 * n, ~n)                                       \
                   : k % 4 == 2 ? work_2(n, 3 * n, ~n)                                       \
                                : work_3(n, 3 * n, ~n);                                      \
        return d + e + (double)(got - n * (k % 4) - 3 * n - ~n);                             \
    }
#define RIGHT(a, b, c) (a * b + a + b + c)
#include "../tracing/sources/places.h"

int main(int argc, char **argv) { return until_told(argc, argv); }
#endif
