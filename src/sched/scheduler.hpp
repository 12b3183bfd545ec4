// scheduler.hpp: what all machines share; and where to find everything else.
//
// The nouns
//   goroutine.hpp      a function with its own stack; records.hpp: where its record comes from
//   processor.hpp      the right to run goroutines, and its queues: run_queue.hpp, lane.hpp
//   machine.hpp        one OS thread; machine_thread.hpp: how the thread lives; tls.hpp: which one
//                      this is
//   seat.hpp           who may touch a processor
//   ownership.hpp      which machine holds which processor, and how that changes; owned.hpp: fields
//                      that only it writes
//   global_queue.hpp   goroutines that belong to no processor; goroutine_list.hpp: a chain of them;
//                      linked_list.hpp: a list of other records
//
// The life of a goroutine
//   go.cpp             start
//   enter.hpp          entering the runtime and leaving it; inside.hpp: for primitives
//   switch.hpp         from one goroutine to the next; switch.cpp: begin, wait, end
//   park.cpp           waiting in a primitive; fast_park.hpp: the same, inlined
//   this_goroutine.cpp yield, exit, lock_thread; clock.cpp: now, sleep
//   extra.hpp          names and goroutine-local values; local.cpp: weft::local
//   blocks.hpp         memory for what goroutines share
//   bias.hpp           a lock that one machine need not take
//   plain_thread.hpp   plain threads that wait like goroutines
//
// Who runs next
//   order.hpp          the policy, and what every goroutine may count on
//   search.hpp         a processor with nothing to run; theft.hpp: what it takes from others
//   work.hpp           where work waits
//   choice.hpp         the choices that are left to chance, or to a test
//
// No work
//   idle_state.hpp     the protocol between producers of work and machines that lie down
//   sleep.hpp          how a machine goes to sleep, on its futex (parker.hpp) or in the poller
//   wake.hpp           how a machine is woken
//   idle_list.hpp      idle processors; spare.hpp: machines without a processor
//   keeper.hpp         which sleeping machine wakes up for timers
//   starter.hpp        new threads
//
// A processor never waits
//   handoff.hpp        a processor is taken from a goroutine that blocks or hogs it
//   preempt.hpp        a hog is paused
//   monitor.hpp        the thread that looks after the rest: watch.hpp, idle_watch.hpp,
//                      deadlock.hpp, monitor_pace.hpp, monitor_sleep.hpp
//
// The world
//   timers.hpp         one heap of timers; timer.hpp: one of them; timer_spill.hpp: when there is
//                      no memory; all_timers.hpp: those of all processors
//   poller.hpp         descriptors
//   call.hpp           announced system calls
//   resize.hpp         max_procs; procs.cpp: how many processors and goroutines there are
//   simulation.hpp     a test in the scheduler's place
//
// Begin and end
//   start.hpp, stop.hpp, exit.hpp, report.hpp; counters.hpp: what stats() shows
//
// Locks, by rank (a holder may take only those further right):
//   timer heap  ->  scheduler.lock  ->  global queue, record pool, stack pool, sides of pollables
#pragma once

#include "base/clock.hpp"
#include "base/lock.hpp"
#include "sched/global_queue.hpp"
#include "sched/idle_state.hpp"
#include "sched/machine.hpp"
#include "sched/processor.hpp"
#include "sched/records.hpp"
#include "sched/tls.hpp"

#include <weft/detail/linked_list.hpp>

#include <atomic>
#include <cstdint>

namespace weft::sched {

inline constexpr std::uint32_t machines_max = 10'000;

using idle_processor_list = detail::counted_list<processor, &processor::idle_link>;
using machine_list = detail::counted_list<machine, &machine::spare_link>;

struct scheduler {
  global_queue global;
  record_pool records;
  alignas(64) idle_state idle;

  alignas(64) std::atomic<std::uint32_t> procs{0};       // max_procs()
  std::atomic<std::uint32_t> procs_made{0};              // [P1] records below this exist
  std::atomic<processor*> processors[processors_max]{};  // [P1] resize -> everyone: the record

  base::spin_lock lock;
  idle_processor_list idle_processors;       // guarded by lock: last idled first
  std::atomic<std::uint32_t> idle_count{0};  // written under lock; read as a hint
  std::atomic<std::uint32_t> numb_count{0};  // numb processors in the list; written under lock
  // Guarded by lock: processors that wait for a new thread; for each of them a search is counted.
  idle_processor_list starting;
  std::uint32_t threads_coming = 0;  // guarded by lock: threads made that do not run yet
  std::atomic<std::int64_t> starting_since_ns{base::never};  // written under lock
  machine_list spare;                // guarded by lock: machines that sleep without a processor
  machine* keeper = nullptr;         // guarded by lock: wakes up for the earliest timer
  machine* polling = nullptr;        // guarded by lock: sleeps in the poller
  std::int64_t keeper_until_ns = 0;  // guarded by lock: when the keeper wakes up
  machine_list free_machines;        // guarded by lock: records of threads that have ended
  std::uint32_t machines = 0;        // guarded by lock: live threads
  std::uint32_t machines_made = 0;   // guarded by lock: records in machine_table
  std::atomic<machine*> machine_table[machines_max]{};
  std::atomic<std::uint32_t> paused_count{0};  // written under lock: machines that are paused

  std::atomic<std::uint64_t> next_id{2};           // 1 is run's main
  std::atomic<std::uint64_t> outside_started{0};   // goroutines started by plain threads
  std::atomic<bool> stopping{false};               // the process ends: goroutines have to stop
  std::atomic<machine*> exiting{nullptr};          // the machine that runs the exit (exit.cpp)
  std::atomic<bool> stack_shortage{false};         // a goroutine waits for memory for its stack
  std::atomic<std::uint32_t> cores{1};             // written once, at the start
  bool has_starter = false;                        // guarded by lock
  bool needs_reserve = false;                      // guarded by lock: keep spare threads ready
  std::atomic<std::int64_t> refused_until_ns{0};   // 0, or when to ask for a refused thread again
  std::atomic<std::uint32_t> starter_word{0};      // futex: bumped when `starting` is not empty
  std::atomic<std::uint32_t> monitor_word{0};      // futex: the monitor's state (monitor_sleep.hpp)
  std::atomic<std::int64_t> monitor_until_ns{0};   // when the monitor is going to look again
  std::atomic<bool> monitor_is_alone{false};       // no machine picks: the monitor minds the timers
  std::atomic<bool> suspicious{false};             // the monitor is to look for a deadlock
  bool monitor_listens = false;                    // guarded by lock: counted in idle.listening
  std::atomic<std::int64_t> slice_ns{10'000'000};  // written once, at the start

  // For deadlock.cpp.
  std::atomic<std::uint32_t> runs{0};           // calls of weft::run in progress
  std::atomic<std::uint32_t> services{0};       // threads of ours that are not machines
  std::atomic<std::uint32_t> service_waits{0};  // goroutines that such a thread is going to wake
  std::atomic<bool> has_io_uring{false};        // the kernel's io_uring threads are in the process
  std::atomic<std::uint64_t> thread_sleeps{0};  // sleeps of plain threads without a deadline, and
  std::atomic<std::uint64_t> thread_wakes{0};   // how many of these sleeps have ended
};

extern constinit scheduler the_scheduler;

}  // namespace weft::sched
