// futex.hpp: sleeping on a 32-bit word. Raw system calls: nothing here takes a libc lock, allocates
// or is a cancellation point. errno is left as it was.
#pragma once

#include <atomic>
#include <cstdint>

namespace weft::base {

// Sleeps while `word` holds `expected`. May return early; callers loop.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected) noexcept;

enum class woken : bool { by_timeout, by_wake };

// Like futex_wait(), but sleeps until `deadline_ns` on CLOCK_MONOTONIC at the latest.
woken futex_wait_until(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                       std::int64_t deadline_ns) noexcept;

void futex_wake(const std::atomic<std::uint32_t>& word, int count) noexcept;

// One turn of a busy-wait loop.
void pause() noexcept;

// Gives the rest of the thread's time slice to another thread.
void yield_thread() noexcept;

}  // namespace weft::base
