// thread_hop.hpp: makes the calling goroutine go on on another OS thread, for tests of what has to
// travel with it.
#pragma once

#include <weft/go.hpp>

#include <sys/types.h>
#include <unistd.h>

namespace weft::test {

// The calling thread's id, asked anew each time.
[[gnu::noinline]] inline pid_t thread_id() { return ::gettid(); }

// A goroutine that ends locked takes its thread with it; if it ran on ours, we have another one
// now. With one processor the first attempt succeeds.
inline void hop_to_another_thread() {
  const pid_t before = thread_id();
  while (thread_id() == before) {
    go([] { this_goroutine::lock_thread(); });
    this_goroutine::yield();
  }
}

}  // namespace weft::test
