// machine_thread.hpp: the threads under the machines: how they begin, and whose they are.
#pragma once

#include "sched/goroutine.hpp"
#include "sched/machine.hpp"

#include <cstdint>

namespace weft::sched {

// Of the kernel's time. A thread that has waited for work gets a core at once, ahead of others that
// compute.
inline constexpr std::int64_t slice_of_thread_ns = 100'000;

// Makes one more thread, for a processor in `starting` or to spare. Returns: 0, or an errno.
// Allocates: never call it inside the runtime.
int start_machine() noexcept;
// Starts a thread of the runtime's own, with all signals blocked. Returns: 0 or an errno.
int start_service(const char* name, void* (*main)(void*)) noexcept;
// Machines get the signal mask of the calling thread.
void keep_signal_mask() noexcept;

// Makes a machine of the calling thread, which is a plain one until be_machine() says otherwise; it
// is the one that goes on when the process ends. Outside the runtime. Returns: null if there can be
// no more machines.
machine* adopt_thread() noexcept;
void be_machine(machine* m) noexcept;
// Runs goroutines on the calling thread, the exiting one, until `self`, its record, has been made
// ready. Parks.
void run_until_ready(goroutine* self) noexcept;

}  // namespace weft::sched
