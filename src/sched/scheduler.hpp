// scheduler.hpp: what all machines share, and the functions by which they move goroutines.
//
// Reading order: goroutine.hpp, processor.hpp and machine.hpp are the nouns; seat.hpp says who may
// touch a processor; switch.cpp is how a goroutine starts, parks and ends; order.hpp who runs next,
// and what everybody may count on; find.cpp how work is stolen; idle.cpp how a machine without work
// goes to sleep and is woken; handoff.cpp how a processor leaves a goroutine that blocks or hogs
// it; preempt.cpp how a hog is paused; monitor.cpp the thread that looks after the rest;
// machine.cpp the life of a thread; resize.cpp max_procs.
//
// Locks, by rank (a holder may take only those further right):
//   timer heap  ->  scheduler.lock  ->  global queue, record pool, stack pool, sides of pollables
#pragma once

#include "arch/entry.hpp"
#include "base/lock.hpp"
#include "sched/global_queue.hpp"
#include "sched/idle_state.hpp"
#include "sched/machine.hpp"
#include "sched/processor.hpp"
#include "sched/tls.hpp"

#include <atomic>
#include <csignal>
#include <cstdint>

namespace weft::sched {

inline constexpr std::uint32_t machines_max = 10'000;
// So many threads are kept ready once a processor has had to change its thread: making one takes
// time, and what it is needed for is often urgent.
inline constexpr std::uint32_t spare_reserve = 2;

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
  std::atomic<std::uint32_t> numb_count{0};  // of them, those without a thread; the same
  processor* starting = nullptr;     // guarded by lock: processors that wait for a new thread;
  std::uint32_t starting_count = 0;  // guarded by lock: for each of them a search is counted
  std::uint32_t threads_coming = 0;  // guarded by lock: threads made and not yet there
  std::atomic<std::int64_t> starting_since_ns{base::never};  // written under lock
  machine* spare_head = nullptr;     // guarded by lock: machines that sleep without a processor
  std::uint32_t spare_count = 0;     // guarded by lock
  machine* keeper = nullptr;         // guarded by lock: sleeps until the earliest timer
  machine* polling = nullptr;        // guarded by lock: sleeps in the poller
  std::int64_t keeper_until_ns = 0;  // guarded by lock: the earliest timer when it went to sleep
  machine* free_machines = nullptr;  // guarded by lock: records of threads that have ended
  std::uint32_t machines = 0;        // guarded by lock: live threads
  std::uint32_t machines_made = 0;   // guarded by lock: records in machine_table
  std::atomic<machine*> machine_table[machines_max]{};
  std::atomic<std::uint32_t> paused_count{0};  // written under lock: machines paused in a signal

  std::atomic<std::uint64_t> next_id{2};           // 1 is run's main
  std::atomic<std::uint64_t> outside_started{0};   // goroutines started by plain threads
  std::atomic<bool> stopping{false};               // the process ends: nobody runs any more
  std::atomic<machine*> exiting{nullptr};          // the only one that then goes on (exit.cpp)
  std::atomic<bool> stack_shortage{false};         // a goroutine waits for memory for its stack
  std::atomic<std::uint32_t> cores{1};             // written once, at the start
  bool has_starter = false;                        // guarded by lock
  bool needs_reserve = false;                      // guarded by lock: of spare threads
  std::atomic<std::int64_t> refused_until_ns{0};   // the kernel refuses threads: when to try again
  std::atomic<std::uint32_t> starter_word{0};      // futex: bumped when `starting` is not empty
  std::atomic<std::uint32_t> monitor_word{0};      // futex: what the monitor does (monitor.cpp)
  std::atomic<std::int64_t> monitor_until_ns{0};   // when it is going to look again
  std::atomic<bool> monitor_is_alone{false};       // no processor picks: it sees to the timers
  std::atomic<bool> suspicious{false};             // it is to look for a deadlock
  bool monitor_listens = false;                    // guarded by lock: counted in idle.listening
  std::atomic<std::int64_t> slice_ns{10'000'000};  // written once, at the start

  // For deadlock.cpp.
  std::atomic<std::uint32_t> runs{0};           // calls of weft::run in progress
  std::atomic<std::uint32_t> services{0};       // threads of ours that are not machines
  std::atomic<std::uint32_t> service_waits{0};  // goroutines that one of those is going to wake
  std::atomic<bool> has_ring{false};            // io_uring has threads in this process, too
  std::atomic<std::uint64_t> thread_sleeps{0};  // of plain threads in weft, without a deadline,
  std::atomic<std::uint64_t> thread_wakes{0};   // and how many of them have ended
};

extern constinit scheduler the_scheduler;

// Starts the runtime if it does not run yet. Throws: std::system_error if no thread can be had.
void ensure_started();

// --- switch.cpp: on a goroutine's stack -------------------------------------------------------

// Marks a stretch outside the runtime in which the caller holds one of its locks, so that nobody
// stops or pauses it there.
class lock_outside {
 public:
  lock_outside() noexcept : m_(this_machine()) { add(1); }
  lock_outside(const lock_outside&) = delete;
  lock_outside& operator=(const lock_outside&) = delete;
  ~lock_outside() { add(-1u); }

 private:
  void add(std::uint32_t n) noexcept {
    std::atomic_signal_fence(std::memory_order_seq_cst);  // handlers run on this thread
    if (m_ != nullptr) {
      m_->holds_lock.store(m_->holds_lock.load(std::memory_order_relaxed) + n,
                           std::memory_order_relaxed);
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }

  machine* const m_;
};

// Enters the runtime. Requires: the caller is a goroutine. May park, if the processor was taken.
// What the caller is about to do decides about a plea to yield on its seat: it yields; it is going
// to ready others, which must not wait for its next turn, and yields another time; it parks, which
// will do.
enum class entry : std::uint8_t { any, readies, parks };
// Who passes `has_waited` yields; it is set if that meant to wait for a processor.
[[nodiscard]] machine* enter_slow(machine* m, entry then = entry::any,
                                  bool* has_waited = nullptr) noexcept;
[[gnu::always_inline, nodiscard]] inline machine* enter(machine* m) noexcept {
  if (!m->seat.enter()) [[unlikely]]
    m = enter_slow(m);
  return m;
}
[[nodiscard]] inline machine* enter_to_ready(machine* m) noexcept {
  return m->seat.enter() ? m : enter_slow(m, entry::readies);
}
[[nodiscard]] inline machine* enter_to_park(machine* m) noexcept {
  return m->seat.enter() ? m : enter_slow(m, entry::parks);
}
[[nodiscard]] inline machine* enter() noexcept { return enter(this_machine()); }
// A thread that is about to enter and is inside already runs a signal handler. Not looked at on the
// hottest paths.
[[noreturn]] void die_in_handler() noexcept;
inline void expect_outside(const machine* m) noexcept {
  if (m->seat.inside_hint() || m->g == nullptr) [[unlikely]]
    die_in_handler();
}
// Leaves it. Nothing of the runtime may be touched after this.
[[gnu::always_inline]] inline void leave(machine* m) noexcept { m->seat.leave(); }

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
// any processor; that has to call keep_time() then. Inside.
void arm_timer(timer& t, std::int64_t when_ns) noexcept;

// --- find.cpp ---------------------------------------------------------------------------------

// Looks for work everywhere, for a bounded time. Returns: null if there is none worth taking.
goroutine* search(machine* m) noexcept;
// Answers a thief's question, at an entry into the runtime.
void hand_over(machine* m, std::uint32_t thief) noexcept;
// Tells the thief that there is nothing. The caller has accepted its question for the owner.
void turn_away(std::uint32_t thief) noexcept;
// Moves all of a processor's goroutines to the global queue. Requires: the right to touch it.
void drain(processor& p) noexcept;
// Like drain(), but it keeps its stacks.
void share_all(processor& p) noexcept;
// Whether anything is in its own queues. A hint, unless the caller may touch it.
bool has_work(const processor& p) noexcept;
// Whether anything would run on it if what runs there did not. The same.
bool others_want(const processor& p) noexcept;
// Whether a processor is idle that has, or could have, a thread. A hint, or under the lock.
bool is_any_idle() noexcept;
bool work_waits_hint() noexcept;
// Whether a goroutine waits that an idle processor should run at once, whichever it is.
bool is_anyones_work_hint() noexcept;
// Whether a timer is due, or a goroutine that the world woke has no processor (order.hpp, G2).
bool is_urgent_hint(std::int64_t now_ns) noexcept;
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
// From a place without a processor: puts `g` into a global queue and wakes an idle processor.
void inject(global_queue::from lane, goroutine* g) noexcept;
// Wakes an idle processor, also a dozing one, to look for work at once. `of`: a processor on which
// some has waited for so long, or null.
void wake_somebody(processor* of = nullptr, std::int64_t waited_ns = 0) noexcept;

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

// Gives a token to whom a function with `_locked` in its name has named, if anybody.
inline void wake(machine* m) noexcept {
  if (m != nullptr) m->sleep.wake();
}

// The search that is counted for this machine is over. Returns: whether there was one: then
// look_for_others() must follow, unless it goes on to run something.
inline bool end_search(machine* m) noexcept {
  if (!m->searching) return false;
  m->searching = false;
  the_scheduler.idle.end_search();
  return true;
}

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
// Sleeps until somebody grants a processor.
void sleep_for_grant(machine* m, void (*lie_down)()) noexcept;
// Somebody has to look for work, because a search ended without a last look (idle_state.hpp, I2).
void look_for_others() noexcept;
// Gives up m->p: to another machine if there is work for it, else to the idle list.
void release_processor(machine* m) noexcept;
// Gives m->p to the machine that `g` is tied to, which sleeps, or is about to, until then.
void give_processor(machine* m, goroutine* g) noexcept;
// Wakes the machine that sleeps until a timer, if there is none any more: it sleeps for good then.
void dismiss_keeper() noexcept;
// Sees to it that somebody wakes up for the earliest timer.
void keep_time() noexcept;
// Sees to it that somebody sleeps in the poller if all sleep (poller.hpp, P1).
void attend_poller() noexcept;
machine* keep_time_locked() noexcept;  // Returns: whom to wake, or null.

// What is to be done without the lock when a processor has left its machine.
struct departure {
  machine* woken = nullptr;   // goes on with it
  machine* keeper = nullptr;  // keeps time instead
  bool is_idle = false;       // nobody goes on with it: look whether it was missed
  void finish() const noexcept;
};
// Requires: the lock; p has just been passed on, to `woken` if to anybody.
departure after_passing_locked(const processor& p, machine* woken) noexcept;

// Puts a processor into the idle list. Requires: the lock, and the right to touch it.
void add_idle_locked(processor* p, processor::idleness how) noexcept;
void remove_idle_locked(processor* p) noexcept;
// The machine that sleeps with an idle processor, if any, becomes a spare one. Requires: the lock.
// Returns: whom to wake after unlocking, or null.
machine* dismiss_sleeper_locked(processor* p) noexcept;
// Pairs an idle processor with a thread: one that sleeps with it, a spare one, or a new one.
// Requires: the lock; p is out of the idle list. Returns: whom to wake after unlocking, or null.
machine* staff_locked(processor* p) noexcept;
// Whether the kernel has refused the last thread it was asked for.
inline bool is_refused_threads() noexcept {
  return the_scheduler.refused_until_ns.load(std::memory_order_relaxed) != 0;
}
// Whether there is a thread, or can be one, for a processor that leaves a hog.
bool has_thread_locked() noexcept;
bool has_thread_hint() noexcept;
// Whether there is a thread, or can be one, for a processor that is lent.
bool has_spare_locked() noexcept;
bool has_spare_hint() noexcept;
// Takes one that waits for a new thread, or that one. Require: the lock. Return: null, or false, if
// there is none. The search counted for it goes to the caller.
processor* take_starting_locked() noexcept;
bool remove_starting_locked(processor* p) noexcept;
// The new thread does not come: a processor that waits for it goes to a goroutine that has one, or
// to the idle list. Returns: whom to wake after unlocking, or null. Requires: the lock; there is
// one. look_for_others() must follow.
machine* rescue_starting_locked() noexcept;
// There is no thread for it: it goes to a goroutine that has one, or to the idle list. The same.
machine* idle_without_thread_locked(processor* p) noexcept;

// --- machine.cpp, resize.cpp, monitor.cpp --------------------------------------------------------

// Makes one more thread, for a processor in `starting` or to spare. Returns: 0, or an errno.
// Allocates: never call it inside the runtime.
int start_machine() noexcept;
// Starts a thread of the runtime's own, with all signals blocked. Returns: 0 or an errno.
int start_service(const char* name, void* (*main)(void*)) noexcept;
int start_starter() noexcept;
int start_monitor() noexcept;
// Makes a machine of the calling thread, which is a plain one until be_machine() says otherwise; it
// is the one that goes on when the process ends. Outside the runtime. Returns: null if there can be
// no more machines.
machine* adopt_thread() noexcept;
void be_machine(machine* m) noexcept;
// Machines get the signal mask of the calling thread.
void keep_signal_mask() noexcept;
[[noreturn]] void stop_here() noexcept;

// Sets the number of processors. Returns: the old one. Requires: n >= 1. Allocates address space.
std::uint32_t resize(std::uint32_t n) noexcept;
// The same, and from then on the number no longer follows the CPU limit.
std::uint32_t resize_by_hand(std::uint32_t n) noexcept;
void follow_cpu_limit() noexcept;
// Takes a processor that is `retiring` out of circulation; what it has queued is for others.
// Requires: the lock, and the right to touch it.
void retire_locked(processor& p) noexcept;
void note_activity() noexcept;  // wakes the monitor from its deep sleep
void poke_monitor() noexcept;   // makes it look at once
// The monitor lies down for long while all processors are busy, and relies on being told when there
// is more to do than they do. Requires: the lock. Returns: whether it did.
bool stop_monitor_listening_locked() noexcept;
// A timer was set for then, perhaps on a processor that will not look at it in time.
void tell_monitor_of_timer(std::int64_t when_ns) noexcept;

// --- thread.cpp ---------------------------------------------------------------------------------

// The record that stands for the calling plain thread.
goroutine* this_thread_record() noexcept;
// Another one from now on: the exiting thread has given up a wait in which the old one stands.
goroutine* renew_thread_record() noexcept;
void wake_thread(goroutine* g) noexcept;
void park_thread(goroutine* g) noexcept;
bool park_thread_until(goroutine* g, std::int64_t deadline_ns) noexcept;

// --- handoff.cpp ---------------------------------------------------------------------------------

// A processor has lost its machine: it goes on with another one, back to its lender, or to the idle
// list. Requires: the lock, and the right to touch it. Returns: whom to wake after unlocking, or
// null.
machine* pass_on_locked(processor* p) noexcept;
// Gives `p` to the machine that `g` is tied to. The same.
machine* grant_locked(processor* p, goroutine* g) noexcept;
// Like grant_locked(), for a goroutine whose turn it is. What was woken on `p` becomes global.
machine* grant_turn_locked(processor* p, goroutine* g) noexcept;
// The machine waits, perhaps asleep, until somebody has granted it a processor for its goroutine,
// and holds that then. lie_down() is called if it has to sleep. Returns: the goroutine, or null if
// the process ends.
goroutine* await_grant(machine* m, void (*lie_down)()) noexcept;
// Why a processor is taken from a machine whose goroutine runs user code.
enum class detach_cause : std::uint8_t { call, blocked, hog, loan, resize };
// Who was seen to hold a processor, and how far that had picked.
struct seen_turn {
  machine* holder;
  std::uint64_t picks;
};
// Takes it and passes it on. Returns: false if the machine could not be caught outside the runtime
// or no longer holds it, or if it runs another goroutine than was seen.
bool retake(processor& p, detach_cause why, const seen_turn* seen = nullptr) noexcept;
// Gives a borrowed processor back. Inside, with nothing to run. Returns: false if it was not
// borrowed, its lender has gone on without it, or there is something to do after all.
bool give_back_loan(machine* m) noexcept;
void return_loan_locked(processor* p) noexcept;
// A lender does not get its processor back; a processor does not go back. Require: the lock.
void end_loan_locked(machine* lender) noexcept;
void end_loan_of_locked(processor& p) noexcept;
// A goroutine that lost its processor: gets it, the old one or another idle one. Requires (the
// first): the lock. Returns: success.
bool acquire_locked(machine* m, machine*& to_wake) noexcept;
bool acquire_processor(machine* m) noexcept;
// Inside: answers whatever is on the seat's word; `pleaded` is set if that was a plea to yield.
// Returns: free, taken or stopped.
std::uint32_t settle_here(machine* m, bool* pleaded = nullptr) noexcept;
// Inside: nobody can claim the processor any more, which is this machine's to pass on, or has gone
// already (m->p, under the lock). Returns: false if the process ends.
bool give_up_seat(machine* m, bool* pleaded = nullptr) noexcept;

// --- preempt.cpp ---------------------------------------------------------------------------------

// Called once, before the first machine.
void install_preemption() noexcept;
// Whether hogs are paused; else their processors are only taken from them.
bool can_pause() noexcept;
bool is_preemption_signal(int signal) noexcept;
// Somebody wants those of the preemption signal that are not the runtime's own; null: nobody does.
// Returns: false, and does nothing, if `signal` is another one.
using signal_listener = void (*)(int signal, siginfo_t* info, void* ucontext);
bool listen_to_preemption_signal(int signal, signal_listener l) noexcept;
// Whether the program has no use of its own for this signal.
bool is_only_ours(int signal, const struct sigaction& action) noexcept;
// Each machine's thread makes and deletes its own.
void make_cpu_timer(machine* m) noexcept;
void delete_cpu_timer(machine* m) noexcept;
// The machine's handler runs when its thread has used so much more CPU time.
void arm_cpu_timer(machine* m, std::int64_t cpu_ns) noexcept;
// Lets all paused machines go on, without a processor: the process ends.
void release_paused() noexcept;

// --- bias.cpp -----------------------------------------------------------------------------------

// Nobody has `bias` afterwards. Outside the runtime.
void revoke_bias(std::atomic<machine*>& bias) noexcept;

// --- report.cpp ---------------------------------------------------------------------------------

void install_reports() noexcept;
// In a signal handler: tells that the goroutine of `m` has held its processor for too long, and
// where it is.
void report_stall(machine* m, const void* ucontext) noexcept;
// From another thread, without a stack: the same for one that sleeps in a system call (or, -1, a
// page fault), or computes and takes no signals (-2).
void report_blocked_stall(machine* m, const goroutine* g, int system_call) noexcept;

}  // namespace weft::sched
