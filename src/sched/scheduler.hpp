// scheduler.hpp: what all machines share, and the functions by which they move goroutines.
//
// Reading order: goroutine.hpp, processor.hpp and machine.hpp are the nouns; seat.hpp says who may
// touch a processor; switch.cpp is how a goroutine starts, parks and ends; find.cpp what runs next
// and how work is stolen; idle.cpp how a machine without work goes to sleep and is woken;
// machine.cpp the life of a thread; resize.cpp max_procs; monitor.cpp the thread that looks after
// the rest.
//
// Locks, by rank (a holder may take only those further right):
//   timer heap  ->  scheduler.lock  ->  global queue, record pool, stack pool
#pragma once

#include "arch/entry.hpp"
#include "base/lock.hpp"
#include "sched/global_queue.hpp"
#include "sched/idle_state.hpp"
#include "sched/machine.hpp"
#include "sched/processor.hpp"
#include "sched/tls.hpp"

#include <atomic>
#include <cstdint>

namespace weft::sched {

inline constexpr std::uint32_t machines_max = 10'000;

struct scheduler {
  global_queue global;
  record_pool records;
  alignas(64) idle_state idle;

  alignas(64) std::atomic<std::uint32_t> procs{0};       // max_procs()
  std::atomic<std::uint32_t> procs_made{0};              // [P1] records below this exist
  std::atomic<processor*> processors[processors_max]{};  // [P1] resize -> everyone: the record

  base::spin_lock lock;
  processor* idle_head = nullptr;            // guarded by lock: last idled first
  std::atomic<std::uint32_t> idle_count{0};  // written under lock; read as a hint
  processor* starting = nullptr;     // guarded by lock: processors that wait for a new thread
  machine* spare_head = nullptr;     // guarded by lock: machines that sleep without a processor
  std::uint32_t spare_count = 0;     // guarded by lock
  machine* keeper = nullptr;         // guarded by lock: sleeps until the earliest timer
  std::int64_t keeper_until_ns = 0;  // guarded by lock: the earliest timer when it went to sleep
  machine* free_machines = nullptr;  // guarded by lock: records of threads that have ended
  std::uint32_t machines = 0;        // guarded by lock: live threads
  std::uint32_t machines_made = 0;   // guarded by lock: records in machine_table
  std::atomic<machine*> machine_table[machines_max]{};

  std::atomic<std::uint64_t> next_id{2};          // 1 is run's main
  std::atomic<std::uint64_t> outside_started{0};  // goroutines started by plain threads
  std::atomic<bool> stopping{false};              // the process ends: nobody runs any more
  std::atomic<bool> stack_shortage{false};        // a goroutine waits for memory for its stack
  bool has_starter = false;                       // guarded by lock
  std::atomic<std::uint32_t> starter_word{0};     // futex: bumped when `starting` is not empty
  std::atomic<std::uint32_t> monitor_word{0};     // futex: what the monitor does (monitor.cpp)

  // For deadlock.cpp.
  std::atomic<std::uint32_t> runs{0};           // calls of weft::run in progress
  std::atomic<std::uint32_t> services{0};       // threads of ours that are not machines
  std::atomic<std::uint64_t> thread_sleeps{0};  // of plain threads in weft, without a deadline,
  std::atomic<std::uint64_t> thread_wakes{0};   // and how many of them have ended
};

extern constinit scheduler the_scheduler;

// Starts the runtime if it does not run yet. Throws: std::system_error if no thread can be had.
void ensure_started();

// --- switch.cpp: on a goroutine's stack -------------------------------------------------------

// Enters the runtime. Requires: the caller is a goroutine. May park, if the processor was taken.
[[nodiscard]] machine* enter_slow(machine* m) noexcept;
[[gnu::always_inline, nodiscard]] inline machine* enter(machine* m) noexcept {
  if (!m->chair.enter()) [[unlikely]]
    m = enter_slow(m);
  return m;
}
[[nodiscard]] inline machine* enter() noexcept { return enter(this_machine()); }
// Leaves it. Nothing of the runtime may be touched after this.
[[gnu::always_inline]] inline void leave(machine* m) noexcept { m->chair.leave(); }

// Where this_goroutine::exit keeps its state: above the goroutine's first frame.
arch::unwind_storage* unwind_storage_of(const goroutine* g) noexcept;
void set_exit_hook(arch::entry_hooks& hooks) noexcept;

// The outermost C++ function on every goroutine stack.
[[noreturn]] void goroutine_main(void*);

// Sees to it that `g` has a stack and may run on this machine. Returns: whether it can.
bool can_run_here(machine* m, goroutine* g) noexcept;
// Brings `g` to run, from the scheduler's stack; returns when the machine is back there.
void run_goroutine(machine* m, goroutine* g) noexcept;

// Arms a timer in the heap of the caller's processor, of its simulation, or on a plain thread of
// any processor; that has to call keep_time() then. Inside. Returns: false if there is no memory.
bool arm_timer(timer& t, std::int64_t when_ns) noexcept;

// --- find.cpp ---------------------------------------------------------------------------------

// Looks for work everywhere, for a bounded time. Returns: null if there is none worth taking.
goroutine* search(machine* m) noexcept;
// Answers a thief's question, at an entry into the runtime.
void hand_over(machine* m, std::uint32_t thief) noexcept;
// Moves all of a processor's goroutines to the global queue. Requires: the right to touch it.
void drain(processor& p) noexcept;
// Takes the processor from a machine whose goroutine computes or blocks. Returns: false if the
// machine could not be caught outside the runtime or no longer holds it.
bool detach(processor& p) noexcept;
bool work_waits_hint() noexcept;
bool urgent_work_hint(std::int64_t now_ns) noexcept;
std::int64_t earliest_timer_hint() noexcept;
// Fires what is due on any processor.
std::size_t run_timers(std::int64_t now_ns) noexcept;

// --- idle.cpp ---------------------------------------------------------------------------------

// Called after work became visible: wakes a machine if nobody looks for work and somebody listens.
void wake_one(machine* m) noexcept;
[[gnu::always_inline]] inline void work_made(machine* m) noexcept {
  base::light_barrier();  // [W1]
  if (the_scheduler.idle.should_wake()) [[unlikely]]
    wake_one(m);
}
// From a place without a processor: puts `g` into the inbox and wakes somebody.
void inject(goroutine* g) noexcept;
void wake_for_inbox() noexcept;

// The monitor is to look whether anybody can still run (deadlock.cpp). Called by each thread that
// lies down until it is woken.
void tell_monitor() noexcept;
inline void suspect_deadlock() noexcept {
  if (the_scheduler.runs.load(std::memory_order_relaxed) != 0) tell_monitor();
}
// Returns: true if nobody can. Then that is so for ever.
bool is_deadlocked() noexcept;
// Whether it is worth asking: cheap, and true if it could be so.
bool looks_deadlocked() noexcept;

inline void count_nap(machine* m) noexcept {
  m->naps.store(m->naps.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

// Sleep until a token comes, or until the deadline; whoever ends the process sees it asleep.
inline void sleep(machine* m) noexcept {
  m->is_asleep.store(true, std::memory_order_release);
  m->sleep.wait(&suspect_deadlock);
  count_nap(m);
  m->is_asleep.store(false, std::memory_order_release);
}
inline bool sleep_until(machine* m, std::int64_t deadline_ns) noexcept {
  m->is_asleep.store(true, std::memory_order_release);
  const bool token = m->sleep.wait_until(deadline_ns);
  count_nap(m);
  m->is_asleep.store(false, std::memory_order_release);
  return token;
}
// Sleeps, with its processor in the idle list, until there may be work. The processor may be
// another one when it returns. Returns: false if the thread should end; it has no processor then.
bool sleep_idle(machine* m) noexcept;
// Sleeps without a processor. Returns: false if the thread should end.
bool sleep_spare(machine* m) noexcept;
// A goroutine that lost its processor: gets the old one or another idle one. Returns: success.
bool acquire_processor(machine* m) noexcept;
// Gives up m->p: to another machine if there is work for it, else to the idle list.
void release_processor(machine* m) noexcept;
// Gives m->p to `to`, which sleeps bound, together with `g`, the goroutine bound to it.
void give_processor(machine* m, machine* to, goroutine* g) noexcept;
// Wakes the machine that sleeps until a timer, if there is none any more: it sleeps for good then.
void dismiss_keeper() noexcept;
// Sees to it that somebody wakes up for the earliest timer.
void keep_time() noexcept;
// Takes a processor out of circulation. Requires: the lock, and the right to touch it.
void add_idle_locked(processor* p, processor::idleness how) noexcept;
void remove_idle_locked(processor* p) noexcept;
// The machine that sleeps with an idle processor, if any, becomes a spare one. Requires: the lock.
// Returns: whom to wake after unlocking, or null.
machine* dismiss_sleeper_locked(processor* p) noexcept;
// Pairs an idle processor with a thread: one that sleeps with it, a spare one, or a new one.
// Requires: the lock; p is out of the idle list. Returns: whom to wake after unlocking, or null.
machine* staff_locked(processor* p) noexcept;

// --- machine.cpp, resize.cpp, monitor.cpp --------------------------------------------------------

// Makes one more thread, which takes over `p` (searching is counted already) or none.
// Returns: 0, or an errno. Allocates: never call it inside the runtime.
int start_machine(processor* p) noexcept;
// Starts a thread of the runtime's own, with all signals blocked. Returns: 0 or an errno.
int start_service(const char* name, void* (*main)(void*)) noexcept;
int start_starter() noexcept;
int start_monitor() noexcept;
// Machines get the signal mask of the calling thread.
void keep_signal_mask() noexcept;
[[noreturn]] void stop_here() noexcept;

// Sets the number of processors. Returns: the old one. Requires: n >= 1. Allocates address space.
std::uint32_t resize(std::uint32_t n) noexcept;
// The same, and from then on the number no longer follows the CPU limit.
std::uint32_t resize_by_hand(std::uint32_t n) noexcept;
void follow_cpu_limit() noexcept;
void note_activity() noexcept;  // wakes the monitor from its deep sleep

// --- thread.cpp ---------------------------------------------------------------------------------

// The record that stands for the calling plain thread.
goroutine* this_thread_record() noexcept;
void wake_thread(goroutine* g) noexcept;
void park_thread(goroutine* g) noexcept;
bool park_thread_until(goroutine* g, std::int64_t deadline_ns) noexcept;

// --- bias.cpp -----------------------------------------------------------------------------------

// Nobody has `bias` afterwards. Outside the runtime.
void revoke_bias(std::atomic<machine*>& bias) noexcept;

// --- report.cpp ---------------------------------------------------------------------------------

void install_reports() noexcept;
// Prints every goroutine to stderr, `first` before the others.
void print_goroutines(const goroutine* first) noexcept;

}  // namespace weft::sched
