/* Small functions keep their data below the stack pointer if they call nothing (the red zone of the x86-64 ABI), and in
   registers that a call would lose. Prints in how many calls a tracer's hit changed any of it. */
#include <stdio.h>
#include <stdlib.h>
#include "redzone.d.h"

__attribute__((noinline)) static int leaf(int x)
{
    volatile int kept[16];
    int i, sum = 0;
    for (i = 0; i < 16; i++)
        kept[i] = x + i;
    REDZONE_HIT(x);
    for (i = 0; i < 16; i++)
        sum += kept[i] == x + i;
    return sum;
}

/* Nine values in integer registers, eight in floating point registers, and the flags of the comparison. */
__attribute__((noinline)) static double registers(long a, long b, double s, double t)
{
    long c = a * b, d = a + b, e = a ^ b, f = a - b, g = a * 3, h = b * 5, i = c - d;
    double u = s * t, v = s + t, w = s - t, x = s * s, y = t * t, z = u + v;
    REDZONE_HIT((int)a);
    return (double)(a + 2 * b + 3 * c + 5 * d + 7 * e + 11 * f + 13 * g + 17 * h + 19 * i) + s + 2 * t + 3 * u + 5 * v
        + 7 * w + 11 * x + 13 * y + 17 * z;
}

int main(int argc, char **argv)
{
    int i, changed = 0, calls = argc > 1 ? atoi(argv[1]) : 1000;
    double expected = registers(6, 7, 1.5, 2.5), got;
    for (i = 0; i < calls; i++) {
        if (i & 1)
            changed += leaf(i) != 16;
        else {
            got = registers(6, 7, 1.5, 2.5);
            changed += got != expected;
        }
    }
    printf("changed %d, first %.17g\n", changed, expected);
    return 0;
}
