// What the two C++ objects share: templates, inline and virtual functions, constructors; compiled by each anew.
#pragma once
#include <stdexcept>
#include <string>

#include "sample.h"

namespace shapes {

template <typename Number> __attribute__((noinline)) Number square(Number number)
{
    SAMPLE_ITEM(static_cast<int>(number), "square");
    Number result = number * number;
    SAMPLE_ITEM_DONE(static_cast<int>(number), "square", static_cast<long>(result));
    return result;
}

struct Base {
    explicit Base(int sides) : sides(sides) { SAMPLE_SHAPE(0.5 * sides, this); }
    virtual ~Base() { SAMPLE_RARE(sides); }
    virtual int area() const noexcept
    {
        SAMPLE_SHAPE(sides, this);
        return sides;
    }
    int sides;
};

struct Virtual : virtual Base {
    Virtual() : Base(7) { SAMPLE_START(); }
    int area() const noexcept override
    {
        SAMPLE_ITEM(sides, "virtual");
        return Base::area() + 1;
    }
};

inline int count_up(int limit)
{
    static int calls = [] {
        SAMPLE_START();
        return 40;
    }();
    auto step = [&](int by) {
        if (SAMPLE_ITEM_ENABLED())
            SAMPLE_ITEM(by, "lambda");
        calls += by;
    };
    for (int i = 0; i < limit; i++)
        step(i);
    return calls;
}

}  // namespace shapes

int other_object(int rounds);
extern "C" int plain_name(int number);
