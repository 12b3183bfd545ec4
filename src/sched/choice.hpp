// choice.hpp: every choice that the scheduler leaves to chance goes through here, so that a test
// can make it and repeat it.
#pragma once

#include "sched/processor.hpp"

#include <cstdint>

namespace weft::sched {

enum class choice : std::uint8_t {
  victim,      // the processor to steal from first
  stride,      // the order in which to go on from there
  ready_case,  // the case of a select, if several are ready
};

// Returns: a number below `n`. Requires: n > 0; the caller holds `p`.
inline std::uint32_t choose(processor& p, choice, std::uint32_t n) noexcept {
  return p.random.below(n);
}

}  // namespace weft::sched
