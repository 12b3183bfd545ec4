// resize.hpp: how max_procs changes while everything runs; resize.cpp has the essay.
#pragma once

#include "sched/processor.hpp"

#include <cstdint>

namespace weft::sched {

// Sets the number of processors. Returns: the old one. Requires: n >= 1. Allocates address space.
std::uint32_t resize(std::uint32_t n) noexcept;
// Like resize(), and from then on the number no longer follows the CPU limit.
std::uint32_t resize_by_hand(std::uint32_t n) noexcept;
void follow_cpu_limit() noexcept;
// Takes a processor that is `retiring` out of circulation; its goroutines go to the global queue.
// Requires: the lock, and the right to touch it.
void retire_locked(processor& p) noexcept;

}  // namespace weft::sched
