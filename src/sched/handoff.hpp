// handoff.hpp: taking a processor from a machine whose goroutine runs user code; handoff.cpp has
// the essay.
#pragma once

#include "sched/machine.hpp"
#include "sched/processor.hpp"

#include <cstdint>

namespace weft::sched {

// Why a processor is taken from a machine whose goroutine runs user code.
enum class retake_cause : std::uint8_t { call, blocked, hog, loan, resize };

// A machine that was seen to hold a processor, and how many goroutines the processor had picked.
struct seen_turn {
  machine* holder;
  std::uint64_t picks;
};

// Takes `p` from its machine and passes it on. Returns: false if the machine could not be caught
// outside the runtime, no longer holds `p`, or has picked another goroutine than the one in `seen`.
bool retake(processor& p, retake_cause why, const seen_turn* seen = nullptr) noexcept;

// Inside. Answers whatever others have written on the seat's word; `pleaded` is set if that was a
// plea to yield. Returns: free, taken or stopped.
std::uint32_t settle_here(machine* m, bool* pleaded = nullptr) noexcept;

// Inside. After it no other thread can claim the processor. The caller has to pass it on, unless it
// has already been taken away (read m->p under the lock). Returns: false if the process ends.
bool give_up_seat(machine* m, bool* pleaded = nullptr) noexcept;

}  // namespace weft::sched
