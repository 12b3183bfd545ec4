// kernel.hpp: what the running kernel supports, and what it says about our threads.
#pragma once

#include <cstdint>
#include <sys/types.h>

namespace weft::base {

// Whether this is Linux major.minor or later.
bool kernel_at_least(int major, int minor) noexcept;

// Returns: the CPU time that a thread of this process has used, or -1 if it has ended.
std::int64_t cpu_time_ns(pid_t thread) noexcept;

// What a thread does in the kernel's view: it runs (or waits for a core), or it sleeps; unknown if
// the kernel does not say. Opens and closes a descriptor; takes 3 us.
enum class thread_activity : std::uint8_t { runs, sleeps, unknown };
thread_activity activity_of(pid_t thread) noexcept;

// Returns: how often a thread has gone to sleep, or -1 if the kernel does not say. Takes 20 us.
std::int64_t sleeps_of(pid_t thread) noexcept;

// Returns: the number of the system call that a sleeping thread is in, or -1. Not for the hot path:
// the kernel waits, for a tick at a time, until a thread that is about to sleep really does.
int system_call_of(pid_t thread) noexcept;

// Asks for a time slice for a thread of this process (0: the calling thread). A thread with a short
// slice gets a core soon after it wakes, ahead of threads with longer slices. A slice of 0 means
// the kernel's default. children_too: threads that this thread starts inherit the slice.
enum class slice_for : std::uint8_t { itself, children_too };
void ask_for_slice(pid_t thread, std::int64_t slice_ns,
                   slice_for whom = slice_for::itself) noexcept;

// While this object lives, the kernel wakes the calling thread on time; otherwise it may let the
// thread sleep for some 50 us more. Keep it only for the time of a sleep, because threads and
// processes that the thread starts inherit the setting.
class timely {
 public:
  timely() noexcept;
  timely(const timely&) = delete;
  timely& operator=(const timely&) = delete;
  ~timely();
};

}  // namespace weft::base
