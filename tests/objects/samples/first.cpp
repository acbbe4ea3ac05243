// The C++ sample's first object, compiled without optimisation.
#include "shared.hpp"

namespace {

// Runs before main.
struct Early {
    Early() { SAMPLE_RARE(1); }
} early;

int thrower(int number)
{
    SAMPLE_ITEM(number, "throw");
    if (number > 2)
        throw std::runtime_error(std::to_string(number));
    return number;
}

}  // namespace

int dead_method(int number)
{
    SAMPLE_START();
    return shapes::square(static_cast<short>(number));
}

extern "C" __attribute__((visibility("default"))) int sample_run(int rounds)
{
    int total = 0;
    SAMPLE_START();
    for (int i = 0; i < rounds; i++) {
        try {
            total += shapes::square(i) + thrower(i);
        } catch (const std::runtime_error &error) {
            SAMPLE_RARE(i);
            total += std::stoi(error.what());
        }
    }
    shapes::Virtual object;
    shapes::Base *base = &object;
    total += base->area() + shapes::count_up(rounds) + other_object(rounds) + plain_name(rounds);
    SAMPLE_WIDE(1, "b", 3, -4, -5, 6, rounds, 8);
    return total;
}
