// machine.hpp: one OS thread that runs goroutines while it holds a processor.
//
// A machine uses two kinds of stack: those of the goroutines it runs, which switch directly from
// one to the next, and its thread's own (`scheduler`). On its own stack it looks for work, sleeps,
// and does what cannot be done on a goroutine's stack. Records are recycled and never unmapped, so
// that a claimer may look at the seat of a machine that has just ended.
#pragma once

#include "arch/context.hpp"
#include "sched/goroutine.hpp"
#include "sched/owned.hpp"
#include "sched/parker.hpp"
#include "sched/processor.hpp"
#include "sched/seat.hpp"

#include <weft/detail/linked_list.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <sys/types.h>

namespace weft::sched {

// How often a claimer looks whether a seat's owner is outside, before it gives up.
inline constexpr int claim_turns = 64;

// What a goroutine asks its machine to do once the goroutine's own stack is no longer in use.
enum class errand : std::uint8_t {
  none,        // find something to run; first find a processor, if the machine has lost its own
  run,         // run `errand_goroutine`, which could not be run from where it was picked
  wait_bound,  // `errand_goroutine` is bound to this machine and waits: sleep until it is ready
  end_bound,   // a bound goroutine has ended: the thread ends with it
};
// With any of them, `errand_stack` may be set: the stack of a goroutine that has ended, of another
// size than the default. It goes back to the pool.

struct alignas(64) machine {
  sched::seat seat;
  owned_pointer<processor> p;       // the processor it holds (ownership.hpp)
  goroutine* g = nullptr;           // the goroutine that runs here, or null; owner only
  int* errno_address = nullptr;     // immutable after start
  exception_globals* eh = nullptr;  // immutable after start
  arch::fp_control fp{};            // the thread's own; immutable after start
  arch::context scheduler;          // the thread's own stack, while a goroutine runs
  arch::context discard;            // where the context of an ended goroutine goes

  errand task = errand::none;             // owner only
  goroutine* errand_goroutine = nullptr;  // owner only
  stack::extent* errand_stack = nullptr;  // owner only
  bool searching = false;                 // counted in idle_state; owner, or its waker while parked
  bool dozed = false;                     // the last sleep was a doze that ran its time; owner only
  std::uint64_t locks = 0;                // depth of lock_thread of the goroutine bound to it
  owned_pointer<processor> last_p;        // the processor that it lost last
  std::int64_t short_since_ns = 0;  // since when there has been no memory for stacks; owner only

  // Whether the machine, at some instant of the call, uses nothing that is its own (bias.hpp).
  bool is_away() const noexcept {
    return !seat.inside_hint() || is_asleep.load(std::memory_order_acquire) ||  // [E1] [E2]
           has_stopped.load(std::memory_order_acquire);
  }

  parker sleep;
  // What a waker tells the machine that it wakes: on which processor work waits, how far that
  // processor had picked, and for how long the work has waited.
  processor* told_of = nullptr;
  std::uint64_t told_picks = 0;
  std::int64_t told_waited_ns = 0;
  owned_pointer<processor> granted_p;  // a grant: the processor,
  owned_pointer<goroutine> granted;    // and the goroutine to run, which waits for it
  bool has_to_yield = false;           // with the grant: yields at its next call (order.cpp)
  // In the list of spare machines, or of free records. Guarded by the scheduler's lock.
  detail::list_link<machine> spare_link;
  bool is_spare = false;                      // guarded by the scheduler's lock
  bool is_live = false;                       // guarded by the scheduler's lock
  std::atomic<std::uint64_t> naps{0};         // [DL1] how often it has woken; the machine writes it
  std::atomic<bool> is_asleep{true};          // [ST1] [E1] runs none, and looks before it does
  std::atomic<std::uintptr_t> stop_place{0};  // where the last signal to stop found the thread,
  std::atomic<std::uint32_t> stop_rounds{0};  // and how often it was at the same place
  std::atomic<std::uint32_t> is_held{0};      // futex: 1 while the signal has stopped it (stop.cpp)
  // How many locks of the runtime the thread holds while it is outside: it must not be stopped or
  // paused now. Written by the thread itself.
  std::atomic<std::uint32_t> holds_lock{0};
  std::atomic<bool> has_stopped{false};  // [ST2] the process ends: it will run nothing any more
  std::atomic<pid_t> thread_id{0};       // written once by the thread itself

  // How the machine loses its processor while it runs user code (handoff.cpp, preempt.cpp,
  // watch.cpp).
  owned_pointer<processor> lent;  // the processor that it has lent; guarded by the lock
  // Its processor has come back, and it has not noticed. Written under the lock; the monitor reads
  // a hint.
  owned_atomic<bool> is_returned{false};
  std::int64_t runs_since_ns = 0;            // when its turn began, before it lent p; monitor only
  std::atomic<std::uint32_t> calls{0};       // odd while in an announced call that is usually short
  std::atomic<int> cpu_timer{-1};            // the kernel's number; the thread makes and deletes it
  std::int64_t armed_cpu_ns = 0;             // its CPU clock when its timer was set; monitor only
  std::atomic<processor*> armed_p{nullptr};  // what the timer was set for: the processor,
  std::atomic<std::uint64_t> armed_picks{0};    // how far it had picked,
  std::atomic<std::int64_t> armed_since_ns{0};  // since when the turn ran; 0: it has gone off
  // It runs a hog while its processor's picks are equal to this. Written by the machine; the
  // monitor reads a hint.
  std::atomic<std::uint64_t> hog_picks{0};
  std::atomic<bool> has_long_slice{false};  // the kernel's usual slice, because it ran a hog
  std::atomic<bool> wants_report{false};    // its handler is to report a stall,
  std::atomic<std::int64_t> stalled_ns{0};  // which has lasted for so long
  std::atomic<bool> is_paused{false};       // [PR1]
  // For a machine that runs without a processor: when its turn is over, and it queues like others.
  // Guarded by the lock.
  std::int64_t turn_until_ns = base::never;
  std::int64_t spin_ns = 0;  // how long it waits awake after it gave its processor away
  bool gave_away = false;    // it has just given its processor away; owner only

  std::byte* stack_low = nullptr;  // the thread's own stack, for sanitizers
  std::size_t stack_bytes = 0;
  void* fake_stack = nullptr;  // what AddressSanitizer keeps for it while a goroutine runs
#if WEFT_TSAN
  void* fiber = nullptr;
  void* dead_fiber = nullptr;  // of a goroutine that ended here; destroyed after the switch
#endif
};

}  // namespace weft::sched
