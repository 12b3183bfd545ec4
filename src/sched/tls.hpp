// tls.hpp: this_machine(), the one door to thread_local.
//
// After a switch a goroutine may go on on another thread. But a compiler takes the address of a
// thread_local for a constant within a function. So the runtime has a single thread_local, reads it
// with volatile assembly, and reads it again after every call that may park.
#pragma once

#include "thread_register.hpp"

namespace weft::sched {
struct machine;
}

extern "C" [[gnu::visibility("hidden"),
             gnu::tls_model(
                 "initial-exec")]] constinit thread_local weft::sched::machine* weft_this_machine;

namespace weft::sched {

// Returns: the machine that this thread is, or null on a plain thread. The result is not valid
// after a call that may park.
[[gnu::always_inline]] inline machine* this_machine() noexcept {
  machine* m;
  WEFT_READ_THREAD_LOCAL(weft_this_machine, m);
  return m;
}

}  // namespace weft::sched
