/* Ring<T, Room>: keeps the last `Room` elements. Everything is in this header, its probes included. */
#ifndef RING_HPP
#define RING_HPP

#include <array>
#include <cstddef>
#include <utility>

#include "ring-probes.h" // made from ring.d

/* An inline function: each source that calls it brings a copy, and the linker keeps one, with its probe. */
inline void report_drain(const void *ring, std::size_t used)
{
    if (RING_DRAIN_ENABLED())
        RING_DRAIN(ring, used);
}

/* A template: each type has code of its own, so each type has its own sites of the same probes. */
template <typename T, std::size_t Room> class Ring {
public:
    void push(T value)
    {
        if (used_ == Room) {
            RING_DROP(this, Room);
            first_ = (first_ + 1) % Room;
            used_--;
        }
        values_[(first_ + used_) % Room] = std::move(value);
        used_++;
        RING_PUSH(this, used_, sizeof(T));
    }

    template <typename Function> void drain(Function take)
    {
        report_drain(this, used_);
        for (; used_ > 0; used_--) {
            take(std::move(values_[first_]));
            first_ = (first_ + 1) % Room;
        }
    }

private:
    std::array<T, Room> values_{};
    std::size_t first_ = 0;
    std::size_t used_ = 0;
};

#endif
