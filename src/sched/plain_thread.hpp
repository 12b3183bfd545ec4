// plain_thread.hpp: plain threads in the place of goroutines.
#pragma once

#include "sched/goroutine.hpp"

#include <cstdint>

namespace weft::sched {

// The record that stands for the calling plain thread.
goroutine* this_thread_record() noexcept;
// Another one from now on: the exiting thread has given up a wait in which the old one stands.
goroutine* renew_thread_record() noexcept;
void wake_thread(goroutine* g) noexcept;
void park_thread(goroutine* g) noexcept;
bool park_thread_until(goroutine* g, std::int64_t deadline_ns) noexcept;

}  // namespace weft::sched
