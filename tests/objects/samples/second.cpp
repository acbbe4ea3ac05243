// The C++ sample's second object, compiled with optimisation.
#include "shared.hpp"

static int __attribute__((noinline)) last_call(int number)
{
    if (number & 1)
        SAMPLE_RARE(number);
    return number;
}

extern "C" int plain_name(int number)
{
    SAMPLE_ITEM(number, "C");
    return last_call(number);
}

void dead_tail(shapes::Base &object)
{
    SAMPLE_ITEM_DONE(object.sides, "dead", 1);
}

int other_object(int rounds)
{
    shapes::Virtual object;
    shapes::Base *base = &object;
    auto *pointer = &__dtrace_sample___shape;
    asm volatile("" : "+r"(pointer));
    pointer(0, base);
    int total = shapes::square(rounds) + base->area() + shapes::count_up(2);
    try {
        SAMPLE_ITEM(rounds, "try");
        if (rounds)
            throw rounds;
    } catch (int thrown) {
        total += thrown;
        SAMPLE_ITEM_DONE(thrown, "caught", total);
    }
    return total + static_cast<int>(shapes::square(2.5));
}
