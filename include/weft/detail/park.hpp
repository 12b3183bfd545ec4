// park.hpp: all that the primitives (channels, locks, wait groups) know of the scheduler.
//
// A primitive keeps its own queue of waiters. To wait, it
//
//     goroutine* self = prepare_park(reason);   // inside the runtime from here on
//     ... lock the primitive, look again; if there is nothing to wait for: unlock, cancel_park()
//     ... put `self` into the queue, unlock
//     park();                                   // goes on after ready(self); outside again
//
// The thread that takes `self` out of the queue calls ready(self), exactly once, at any time after
// `self` became visible there, even before park() has begun. A plain thread has a goroutine* of its
// own, and all of this works for it, except that it sleeps instead of parking.
//
// "Inside the runtime" means that the monitor will not pause or detach the caller; so a primitive
// holds its own short locks only inside. Code inside must not allocate, throw or call user code.
//
// To add a blocking primitive (the model is the semaphore):
//   - a core with the fast paths in include/weft/detail/<noun>_core.hpp. Waiters stand in a
//     `wait_queue` (wait_queue.hpp). The core has a `name` and is_waited_for(), for `guarded`;
//   - the slow paths in src/sync/<noun>.cpp. For the sequence above the semaphore uses
//     sched::inside (src/sched/inside.hpp), prepare_park_inside() and limit.park(), where `limit`
//     is the `wait_limit` (wait_limit.hpp) that every wait takes;
//   - the public class in include/weft/<noun>.hpp, and a line for it in include/weft/sync.hpp. The
//     class holds the core as `guarded<core>` (wait_queue.hpp), which, in builds with assertions,
//     ends a program that destroys a primitive while goroutines wait for it. A wait with a context
//     is wait_with() (context_wait.hpp) around a wait. The class calls observe() and acquired()
//     below, so that weft::test::explore sees its steps;
//   - a wait_reason below, and its text in to_string() in src/sched/park.cpp;
//   - both headers in the row "sync" of PUBLIC in tools/check_layers.py, the tags in
//     docs/memory-model.md, a test in tests/unit, and a model test if the core is lock-free (the
//     core then takes the seam as a parameter, like wait_group_core.hpp). CMake needs no line.
#pragma once

#include <weft/detail/config.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weft::sched {
struct goroutine;
}

namespace weft::detail {

using sched::goroutine;

// What a goroutine waits for, as dumps and traces show it.
enum class wait_reason : std::uint8_t {
  none,
  sleep,
  wait_group,
  future,
  chan_receive,
  chan_send,
  chan_receive_nil,
  chan_send_nil,
  select,
  select_empty,
  mutex,
  shared_mutex_shared,
  shared_mutex,
  condition,
  semaphore,
  latch,
  barrier,
  once,
  io,
  run,
};

WEFT_API std::string_view to_string(wait_reason reason) noexcept;

// Enters the runtime and marks the caller as waiting. Returns: the caller.
WEFT_API goroutine* prepare_park(wait_reason reason);

// prepare_park for a caller that is inside the runtime already, perhaps with a lock of its own.
WEFT_API goroutine* prepare_park_inside(wait_reason reason) noexcept;

// Undoes prepare_park. Requires: no other thread can find the caller any more.
WEFT_API void cancel_park() noexcept;

// Parks. Requires: prepare_park. Blocks: the goroutine (or plain thread), until ready().
WEFT_API void park() noexcept;

// Like park(), until `deadline_ns` of the runtime's clock. Then give_up(argument) is called, inside
// the runtime and perhaps on another thread. It takes the caller out of its queue and returns true,
// or returns false if a waker has done so already. Returns: false if the caller gave up.
WEFT_API bool park_until(std::int64_t deadline_ns, bool (*give_up)(void*), void* argument) noexcept;

// Lets a goroutine go on: it runs next on the processor of the caller. If a plain thread calls
// this, the goroutine goes to the global queue.
WEFT_API void ready(goroutine* g) noexcept;

// ready for a caller that is inside the runtime already, such as give_up of park_until.
WEFT_API void ready_inside(goroutine* g) noexcept;

// Entering and leaving the runtime around a primitive's own lock, without parking.
WEFT_API void enter_runtime();
WEFT_API void leave_runtime() noexcept;

// Memory for small shared states, from the processor's own cache; outside the runtime only.
inline constexpr std::size_t block_bytes = 128;
WEFT_API void* allocate_block();
WEFT_API void free_block(void* block) noexcept;

// Returns: a random number below n, or one that a test chooses. Requires: inside the runtime; n >
// 0.
WEFT_API std::uint32_t choose_inside(std::uint32_t n) noexcept;

// One turn of a loop that waits for another thread to leave a short critical section.
WEFT_API void relax(int turn) noexcept;

// One turn of a loop that waits for another goroutine, which may be running, to end something
// short. Outside the runtime only. Returns: false if more turns are unlikely to help and the caller
// should park.
WEFT_API bool spin(int turn) noexcept;

// Returns: a number that is usually the same for code on one thread, and differs between threads.
WEFT_API std::uint64_t thread_hint() noexcept;

// Returns: the time of the runtime's clock, in nanoseconds.
WEFT_API std::int64_t clock_now_ns() noexcept;

// Lets other goroutines run first. Outside the runtime only.
WEFT_API void yield() noexcept;

// Places where a test (weft/test.hpp) may let other goroutines run first, and where it learns what
// it needs to tell a race from an ordered access. Fast paths that make no call contain them inline,
// for the price of one load of a value that never changes in production.
enum class touch : std::uint8_t {
  arrive,   // the caller is about to use the object
  release,  // like arrive, and what the caller did before becomes visible through the object
  acquire,  // the caller has used the object: what was released through the object is visible
};
// How many simulations run. relaxed: a simulation counts itself before its own thread looks.
WEFT_API extern constinit std::atomic<std::uint32_t> simulations;
WEFT_API void observe_slow(touch how, const void* object, const char* what) noexcept;

// `what` is the name that tables show for the operation: "lock".
inline void observe(touch how, const void* object, const char* what = nullptr) noexcept {
  if (simulations.load(std::memory_order_relaxed) != 0) [[unlikely]]
    observe_slow(how, object, what);
}

// Marks the end of an operation that may have failed. Returns: `yes`.
inline bool acquired(bool yes, const void* object) noexcept {
  if (yes) observe(touch::acquire, object);
  return yes;
}

// What the lock-free cores of the primitives need of the scheduler, their parameter `Scheduler`;
// tests substitute a seam of their own.
struct seam {
  template <class T>
  using atomic = std::atomic<T>;
  using waiter = goroutine*;
  static constexpr std::uint32_t first_bias = 1000;  // uses before a machine may get the bias

  // Enters the runtime. The user leaves it explicitly, because parking leaves the runtime, too.
  class inside {
   public:
    inside() { enter_runtime(); }
    inside(const inside&) = delete;
    inside& operator=(const inside&) = delete;
    void leave() noexcept { leave_runtime(); }
    void enter() noexcept { enter_runtime(); }
  };

  static waiter prepare_park(wait_reason reason) { return detail::prepare_park(reason); }
  static waiter prepare_park_inside(wait_reason reason) noexcept {
    return detail::prepare_park_inside(reason);
  }
  static void cancel_park() noexcept { detail::cancel_park(); }
  static void park() noexcept { detail::park(); }
  static bool park_until(std::int64_t deadline_ns, bool (*give_up)(void*), void* arg) noexcept {
    return detail::park_until(deadline_ns, give_up, arg);
  }
  static void ready(waiter w) noexcept { detail::ready(w); }
  static void ready_inside(waiter w) noexcept { detail::ready_inside(w); }
  static void relax(int turn) noexcept { detail::relax(turn); }
  static bool spin(int turn) noexcept { return detail::spin(turn); }
  static std::uint64_t thread_hint() noexcept { return detail::thread_hint(); }
  static std::int64_t now_ns() noexcept { return clock_now_ns(); }
  static void yield() noexcept { detail::yield(); }
};

// For weft::blocking. begin_blocking() gives the processor away; end_blocking() waits until the
// goroutine has one again. On a plain thread both do nothing.
WEFT_API void begin_blocking() noexcept;
WEFT_API void end_blocking() noexcept;

class blocking_call {
 public:
  blocking_call() noexcept { begin_blocking(); }
  blocking_call(const blocking_call&) = delete;
  blocking_call& operator=(const blocking_call&) = delete;
  ~blocking_call() { end_blocking(); }
};

}  // namespace weft::detail
