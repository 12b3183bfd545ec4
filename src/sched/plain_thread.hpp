// plain_thread.hpp: plain threads that wait like goroutines; plain_thread.cpp has the essay.
#pragma once

#include "sched/goroutine.hpp"

#include <cstdint>

namespace weft::sched {

// The record that stands for the calling plain thread.
goroutine* this_thread_record() noexcept;
// Replaces that record: the exiting thread has given up a wait, in whose queue the old one stands.
goroutine* renew_thread_record() noexcept;
void wake_thread(goroutine* g) noexcept;
void park_thread(goroutine* g) noexcept;
bool park_thread_until(goroutine* g, std::int64_t deadline_ns) noexcept;

}  // namespace weft::sched
