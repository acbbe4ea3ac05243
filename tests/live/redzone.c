/* A small function keeps its data below the stack pointer if it calls nothing (the red zone of the x86-64 ABI).
   Prints in how many of 1,000 calls a tracer's hit changed that data. */
#include <stdio.h>
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

int main(void)
{
    int i, changed = 0;
    for (i = 0; i < 1000; i++)
        changed += leaf(i) != 16;
    printf("changed %d\n", changed);
    return 0;
}
