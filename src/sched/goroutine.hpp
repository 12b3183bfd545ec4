// goroutine.hpp: the record of one goroutine.
//
// Five cache lines from a dense slab (records.cpp). A record is never given back to the system
// while the process lives. So a dump can scan the slabs, and a late look at a recycled record is
// harmless. A goroutine is this record alone until it first runs; only then does it get a stack. A
// goroutine that runs to its end without waiting leaves its stack to the next one.
//
// A plain thread that blocks in one of weft's primitives is represented by such a record, too (mode
// `thread`, plain_thread.cpp), so that a primitive's wait queue holds one kind of thing.
#pragma once

#include "arch/context.hpp"
#include "base/sanitizer.hpp"
#include "stack/pool.hpp"

#include <weft/detail/park.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weft::detail {
struct stopping_cancel;
}

namespace weft::sched {

struct machine;
struct goroutine_extra;

// What is true of a goroutine, who owns its stack, and who may change it.
enum class state : std::uint8_t {
  unused,     // the record is in a free list, or is being filled by the starter of a goroutine
  runnable,   // in exactly one queue; the machine that takes it from there runs it
  running,    // its stack is in use by the machine whose `g` it is; only the goroutine leaves
  waiting,    // in no queue of the scheduler; a waker takes it from its wait queue and readies it
  blocking,   // in an announced blocking call, on its machine, without a processor
  preempted,  // paused on its machine, without a processor
};

// How a runnable goroutine is brought to run.
enum class mode : std::uint8_t {
  parked,     // has a saved context: switch to it
  fresh,      // has never run and has no stack yet
  placed,     // has never run, and a stack of its own size is ready for it
  bound,      // has a saved context, or is paused, and must run on the machine `bound`
  paused,     // sits in a signal handler on the machine `bound`: give that machine a processor. Or
              // is the plain thread that ends the process, and runs others meanwhile (exit.cpp)
  thread,     // stands for a plain thread: wake the thread
  simulated,  // belongs to a test's simulation, which runs it itself
  stopped,    // was there before the process began to end: it never runs again
};

// libstdc++'s and libc++abi's per-thread exception state (the Itanium C++ ABI fixes its shape).
struct exception_globals {
  void* caught = nullptr;
  unsigned uncaught = 0;
};

struct alignas(64) goroutine {
  static constexpr std::size_t storage_bytes = 128;

  // What every switch touches.
  arch::context context;
  goroutine* next = nullptr;  // owned by the holder of the list that the goroutine is in
  arch::fp_control fp{};      // the goroutine's own, while it does not run
  exception_globals eh;       // the goroutine's own, while it does not run
  // When it became runnable, as of the last look (order.hpp); written by the thread that queues it.
  std::int64_t since_ns = 0;

  std::atomic<state> status{state::unused};      // relaxed: dumps read it as a hint; see `state`
  std::atomic<detail::wait_reason> reason{};     // relaxed: for dumps; valid while waiting
  mode how = mode::fresh;                        // written by a thread that may run it
  int saved_errno = 0;                           // its own, while it does not run
  std::uint64_t id = 0;                          // immutable after start
  stack::extent* stack = nullptr;                // written by a thread that may run it
  void (*invoke)(void* storage) = nullptr;       // immutable after start
  machine* bound = nullptr;                      // set by itself while `how` is bound or paused
  std::atomic<goroutine_extra*> extra{nullptr};  // written by itself; dumps read it [G1]
  const void* created_at = nullptr;              // immutable after start: a return address
  std::uint64_t created_by = 0;                  // immutable after start: the parent's id

  // The callable and its arguments (weft/detail/task.hpp).
  alignas(16) std::byte storage[storage_bytes];

  void* fake_stack = nullptr;  // what AddressSanitizer keeps for it while it does not run
#if WEFT_TSAN
  void* fiber = nullptr;
#endif
  // The innermost cancel of a context whose stop callbacks it calls (context.cpp); used by itself.
  detail::stopping_cancel* cancels = nullptr;

  void set_status(state s) noexcept { status.store(s, std::memory_order_relaxed); }
  state get_status() const noexcept { return status.load(std::memory_order_relaxed); }
};

// Whether `g` can go on only on one thread, which waits for it: because it is bound to that thread,
// or was paused there. The caller must hold the right to run `g`.
inline bool has_own_thread(const goroutine* g) noexcept {
  return g->how == mode::paused || g->how == mode::bound;
}

static_assert(sizeof(goroutine) <= 320 || base::sanitizer::active);

// What only few goroutines have: a name, a place, goroutine-local values. On the heap; the
// goroutine or its starter makes and destroys it in user mode, outside the runtime.
struct local_value {
  std::uint64_t key;
  void* value;
  void (*destroy)(void*);
  local_value* next;
};

struct goroutine_extra {
  char* name = nullptr;  // heap, or null
  const char* file = nullptr;
  const char* function = nullptr;
  std::uint32_t line = 0;
  local_value* locals = nullptr;
};

}  // namespace weft::sched
