// processor.hpp: the right to run goroutines, and what goes with it.
//
// There are max_procs() processors. ownership.hpp tells which machine holds one. All fields but
// those marked are guarded by the holder's seat (seat.hpp).
#pragma once

#include "base/clock.hpp"
#include "base/random.hpp"
#include "sched/blocks.hpp"
#include "sched/lane.hpp"
#include "sched/owned.hpp"
#include "sched/records.hpp"
#include "sched/run_queue.hpp"
#include "sched/timers.hpp"
#include "stack/cache.hpp"

#include <weft/detail/linked_list.hpp>

#include <atomic>
#include <cstdint>

namespace weft::sched {

struct machine;

inline constexpr std::uint32_t processors_max = 1024;

// How long a processor dozes after a search that found nothing: at first doze_min_ns, then twice as
// long each time, up to doze_max_ns, until a theft pays (theft.hpp, sleep.hpp).
inline constexpr std::int64_t doze_min_ns = 50'000;
inline constexpr std::int64_t doze_max_ns = 2'000'000;

// Goroutines on their way from one processor to another.
struct share {
  static constexpr std::uint32_t most = run_queue::capacity / 2;
  // Set by the thief before it asks [S5]: the victim has picked nothing for a while, so the
  // goroutine in its `next` may as well run elsewhere.
  bool wants_next = false;
  std::uint32_t size = 0;
  std::uint32_t woken = 0;  // how many of the items, the first ones, come from the lane `woken`
  goroutine* items[most + 1];
};

// What a thief remembers of a victim between two looks (theft.hpp).
struct sighting {
  std::uint64_t picks = 0;
  std::int64_t picks_since_ns = 0;
  std::uint64_t woken_mark = 0;
  std::int64_t woken_since_ns = 0;
  std::uint64_t ready_mark = 0;
  std::int64_t ready_since_ns = 0;
  std::uint64_t fresh_front = 0;
  std::uint64_t fresh_epoch = 0;
  std::int64_t fresh_since_ns = 0;
  bool valid = false;
};

struct alignas(64) processor {
  // The goroutines that it runs, and in which order: order.hpp.
  std::atomic<goroutine*> next{
      nullptr};                         // the goroutine woken last; thieves look whether it is null
  std::atomic<std::uint64_t> picks{0};  // goroutines picked so far; thieves watch it move
  lane woken;
  record_cache records;
  block_cache blocks;
  std::uint64_t next_id = 0;
  std::uint64_t ids_end = 0;
  std::atomic<std::uint64_t> started{0};  // num_goroutine sums these over all processors
  std::atomic<std::uint64_t> ended{0};
  std::atomic<std::uint64_t> io_waits{0};  // goroutines parked here for a descriptor (poller.cpp)
  std::uint32_t until_look = 1;            // picks until the next look at the clock
  std::atomic<std::uint32_t> look_gap{1};  // picks between two looks
  std::atomic<std::int64_t> clock_ns{0};   // time of the last look; the monitor reads it
  std::uint64_t looked_picks = 0;          // `picks` at the last look
  bool turn_was_long = false;              // found by the last look
  // Whose time it is: that of `woken`, or of the others; since when it is that of `woken`; and
  // until when. The monitor reads the first as a hint.
  std::atomic<bool> is_others_time{true};
  std::int64_t world_since_ns = 0;
  std::int64_t world_until_ns = 0;
  // Until then goroutines that have waited for a slice go before new ones.
  std::int64_t oldest_until_ns = 0;
  bool has_taken_child = false;   // a look has picked a child of the running one since turn_ns
  bool has_run_woken = false;     // a goroutine from `woken` has run since the last look
  bool has_pleaded = false;       // the chain has used up its slice, and was asked to yield
  std::int64_t turn_ns = 0;       // when a look last picked a goroutine that waited its turn
  std::int64_t gift_ns = 0;       // when a look last gave goroutines to all processors
  std::uint32_t timers_turn = 0;  // the processor whose timers the next look runs beside its own
  std::size_t overflow_owed = 0;  // goroutines that went to the overflow and have not come back
  std::int64_t lock_wait_ns = 0;  // spent waiting for channels that others were using
  stack::cache stacks;
  base::random random;
  run_queue ready;
  run_queue fresh;

  // The machine that may use all of the above (ownership.hpp).
  alignas(64) owned_atomic<machine*> holder{nullptr};  // [OW1]
  std::uint32_t index = 0;                             // immutable
  std::atomic<bool> retiring{false};  // set by resize; the holder gives it up when it sees this
  bool retired = false;               // out of circulation; guarded by the scheduler's lock
  // The machine it comes back to. Written under the scheduler's lock; the holder reads a hint.
  owned_atomic<machine*> lender{nullptr};
  std::int64_t lent_ns = 0;  // since when it is lent; written under the scheduler's lock
  // In the list of idle processors, or of those that wait for a thread. Guarded by the scheduler's
  // lock.
  detail::list_link<processor> idle_link;
  enum class idleness : std::uint8_t { busy, listening, dozing, numb };
  idleness idle = idleness::busy;   // guarded by the scheduler's lock
  std::int64_t dozes_until_ns = 0;  // guarded by the scheduler's lock
  timer_heap timers;                // has its own lock

  // What the processor has learned as a thief.
  alignas(64) share mailbox;                // written by the victim that accepted
  std::atomic<std::uint32_t> delivered{0};  // [M1] victim's release -> thief's acquire: mailbox
  std::int64_t patience_ns = 5'000;
  std::int64_t search_ns = 20'000;
  std::int64_t doze_ns = doze_min_ns;
  processor* robbed = nullptr;  // the last victim, its picks at that time, and the time
  std::uint64_t robbed_picks = 0;
  std::uint32_t robbed_count = 0;
  std::int64_t robbed_lock_wait_ns = 0;  // lock_wait_ns at that time
  std::int64_t robbed_at_ns = 0;
  std::uint64_t overflow_mark = 0;
  std::int64_t overflow_since_ns = 0;
  sighting sightings[processors_max];  // by victim; pages are touched as needed
};

}  // namespace weft::sched
