// kernel.hpp: what the running kernel can do and says about our threads.
#pragma once

#include <cstdint>
#include <sys/types.h>

namespace weft::base {

// Whether this is Linux major.minor or later.
bool kernel_at_least(int major, int minor) noexcept;

// Returns: the CPU time that a thread of this process has used, or -1 if it has ended.
std::int64_t cpu_time_ns(pid_t thread) noexcept;

// What a thread does, in the kernel's view: runs (or waits for a core), or sleeps; unknown where
// the kernel does not say. Opens and closes a descriptor; 3 us.
enum class thread_activity : std::uint8_t { runs, sleeps, unknown };
thread_activity activity_of(pid_t thread) noexcept;

// Returns: how often a thread has gone to sleep, or -1 where the kernel does not say. 20 us.
std::int64_t sleeps_of(pid_t thread) noexcept;

// Returns: the number of the system call that a sleeping thread is in, or -1. Not for the hot path:
// the kernel waits, for a tick at a time, until a thread that is about to sleep really does.
int system_call_of(pid_t thread) noexcept;

// Asks for a time slice for a thread of this process (0: the calling one). One with a short slice
// gets a core soon after it wakes, ahead of those with longer ones. 0: as long as the kernel likes.
// children_too: threads that it starts begin with the same.
enum class slice_for : std::uint8_t { itself, children_too };
void ask_for_slice(pid_t thread, std::int64_t slice_ns,
                   slice_for whom = slice_for::itself) noexcept;

// While it lives, the calling thread wakes up on time; else the kernel may let it sleep for some
// 50 us more. Not for longer than a sleep: threads and processes that it starts would inherit it.
class timely {
 public:
  timely() noexcept;
  timely(const timely&) = delete;
  timely& operator=(const timely&) = delete;
  ~timely();
};

}  // namespace weft::base
