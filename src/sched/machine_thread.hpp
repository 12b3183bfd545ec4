// machine_thread.hpp: the threads of the machines: how they begin, and which machine a thread is.
#pragma once

#include "sched/goroutine.hpp"
#include "sched/machine.hpp"

#include <cstdint>

namespace weft::sched {

// The slice of the kernel's time that a machine's thread asks for. Being short, it gets a thread
// that has waited for work a core at once, ahead of threads that compute.
inline constexpr std::int64_t slice_of_thread_ns = 100'000;

// Makes one more thread, for a processor in `starting` or to spare. Returns: 0 or an errno.
// Allocates: must not be called inside the runtime.
int start_machine() noexcept;
// Starts a thread of the runtime's own, with all signals blocked. Returns: 0 or an errno.
int start_service(const char* name, void* (*main)(void*)) noexcept;
// From now on new machines get the signal mask of the calling thread.
void keep_signal_mask() noexcept;

// Makes a machine for the calling thread, which goes on alone when the process ends. It remains a
// plain thread until be_machine() says otherwise. Outside the runtime. Returns: null if there can
// be no more machines.
machine* adopt_thread() noexcept;
void be_machine(machine* m) noexcept;
// Runs goroutines on the calling thread, the exiting one, until its record `self` has been made
// ready. Parks.
void run_until_ready(goroutine* self) noexcept;

}  // namespace weft::sched
