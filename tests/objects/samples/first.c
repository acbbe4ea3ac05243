/* The C sample's first object, compiled without optimisation. */
#include "shared.h"

int switched_off;

static int local(int number)
{
    SAMPLE_RARE(number);
    return number + 1;
}

/* A strong definition, which wins over the other object's weak one. */
int overridden(int number)
{
    SAMPLE_RARE(1000 + number);
    return number - 1;
}

/* Nobody calls these: --gc-sections drops them, with their records. */
int dead_first(int number)
{
    SAMPLE_ITEM(number, "dead");
    SAMPLE_START();
    return number;
}

__attribute__((visibility("default"))) int sample_run(int rounds)
{
    int total = 0;
    SAMPLE_START();
    for (int i = 0; i < rounds; i++) {
        SAMPLE_ITEM(i, "loop");
        total += twice(i) + local(i) + other_tail(i) + other_table(i) + overridden(i);
        if (SAMPLE_ITEM_DONE_ENABLED())
            SAMPLE_ITEM_DONE(i, "loop", total);
    }
    SAMPLE_WIDE(1, "b", 3, -4, -5, 6, rounds, 8);
    return total + other_count(rounds);
}
