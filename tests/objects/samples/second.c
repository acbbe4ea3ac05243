/* The C sample's second object, compiled with optimisation: tail calls, cold parts, clones, pointers to stubs. */
#include <string.h>
#include "shared.h"

typedef void (*rare_function)(int);

/* Neither of these two uses is a call that could be replaced: the stub itself becomes the probe. */
static const rare_function table[] = {__dtrace_sample___rare, 0};
static rare_function volatile chosen;

__attribute__((noinline)) int other_table(int number)
{
    chosen = number & 1 ? table[0] : __dtrace_sample___rare;
    chosen(number);
    return number;
}

static __attribute__((noinline)) void tail(int number, const char *name)
{
    SAMPLE_ITEM(number + 1, name);
}

int other_tail(int number)
{
    tail(number, "tail");
    if (number == 3)
        SAMPLE_RARE(number);
    return (int)strlen("tail");
}

static __attribute__((cold, noinline)) void report(int number)
{
    SAMPLE_WIDE(number, "cold", 200, -1, -2, 3, 4, 5);
}

static __attribute__((noinline)) int part(int *numbers, int count, int step)
{
    if (!numbers)
        return -1;
    for (int i = 0; i < count; i += step) {
        if (__builtin_expect(numbers[i] < 0, 0)) {
            report(i);
            SAMPLE_RARE(i);
            return -2;
        }
        numbers[i] += twice(i);
    }
    SAMPLE_ITEM_DONE(count, "part", numbers[0]);
    return numbers[count - 1];
}

__attribute__((weak)) int overridden(int number)
{
    SAMPLE_START();
    return number - 100;
}

int dead_second(int number)
{
    SAMPLE_WIDE(number, "dead", 1, 2, 3, 4, 5, 6);
    SAMPLE_RARE(number);
    return twice(number);
}

int other_count(int rounds)
{
    int numbers[] = {1, 2, 3, 4};
    if (SAMPLE_RARE_ENABLED() && switched_off)
        SAMPLE_RARE(rounds);
    return part(numbers, 4, 1) + part(numbers, rounds & 3, 1);
}
