/* Threads run through 64 pairs of functions. Of each pair the second one's NOPs, as many as ENTRY says, begin none to
   three bytes behind the first one's last return, which begins at all offsets of a cache line. Whatever is done to
   entries and returns, results stay right. */
#define PLACE(k)                                                                                                      \
    __attribute__((noipa, aligned(64), patchable_function_entry(ENTRY))) static long inner##k(long n) {               \
        __asm__ volatile(".skip %c0, 0x90" : : "i"(k));                                                               \
        return n * 64 + k;                                                                                            \
    }                                                                                                                 \
    __asm__(".skip 0" #k " & 3, 0x90");                                                                               \
    __attribute__((noipa, patchable_function_entry(ENTRY))) static long inner1##k(long n) { return (n + 1) * 64 + k; } \
    __asm__(".skip 16, 0x90"); /* room for its own return */                                                          \
    __attribute__((noipa)) static double place##k(long n, double a, double b, double c) {                             \
        double d = a * b, e = a + b + c;                                                                              \
        return d + e + (double)(inner##k(n) - (n * 64 + k)) + (double)(inner1##k(n) - (n * 64 + 64 + k));             \
    }
#define RIGHT(a, b, c) (a * b + a + b + c)
#include "places.h"

int main(int argc, char **argv) { return until_told(argc, argv); }
