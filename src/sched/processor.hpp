// processor.hpp: the right to run goroutines, and what goes with it.
//
// There are max_procs() of them. ownership.hpp tells who holds one. All fields but those marked are
// guarded by the holder's seat (seat.hpp).
#pragma once

#include "base/clock.hpp"
#include "base/random.hpp"
#include "sched/blocks.hpp"
#include "sched/lane.hpp"
#include "sched/linked_list.hpp"
#include "sched/owned.hpp"
#include "sched/records.hpp"
#include "sched/run_queue.hpp"
#include "sched/timers.hpp"
#include "stack/cache.hpp"

#include <atomic>
#include <cstdint>

namespace weft::sched {

struct machine;

inline constexpr std::uint32_t processors_max = 1024;

// How long a processor dozes after a search that found nothing: from the first to the second,
// doubling each time, until a theft pays (theft.hpp, sleep.hpp).
inline constexpr std::int64_t doze_min_ns = 50'000;
inline constexpr std::int64_t doze_max_ns = 2'000'000;

// What goroutines handed from one processor to another travel in.
struct share {
  static constexpr std::uint32_t most = run_queue::capacity / 2;
  // Set by the thief before it asks [S5]: the victim has picked nothing for a while, so what it is
  // to run next may as well run elsewhere.
  bool wants_next = false;
  std::uint32_t size = 0;
  std::uint32_t woken = 0;  // so many of them, the first, are from the victim's lane of that name
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
  // What it runs, in which order: order.hpp.
  std::atomic<goroutine*> next{
      nullptr};                         // the goroutine woken last; thieves look whether it is null
  std::atomic<std::uint64_t> picks{0};  // goroutines picked so far; thieves see it move
  lane woken;
  record_cache records;
  block_cache blocks;
  std::uint64_t next_id = 0;
  std::uint64_t ids_end = 0;
  std::atomic<std::uint64_t> started{0};  // num_goroutine sums these over all processors
  std::atomic<std::uint64_t> ended{0};
  std::atomic<std::uint64_t> io_waits{0};  // how often one parked for a descriptor (poller.cpp)
  std::uint32_t until_look = 1;            // picks until the next one that looks at the clock
  std::atomic<std::uint32_t> look_gap{1};  // picks between two looks
  std::atomic<std::int64_t> clock_ns{0};   // the last look; the monitor reads it
  std::uint64_t looked_picks = 0;          // `picks` then
  bool turn_was_long = false;              // what the last look found
  // Whether it is not the time of `woken` now, since when it is, and until when. The monitor reads
  // the first as a hint.
  std::atomic<bool> is_others_time{true};
  std::int64_t world_since_ns = 0;
  std::int64_t world_until_ns = 0;
  // Until then those that have waited for a slice go before new ones.
  std::int64_t oldest_until_ns = 0;
  bool has_taken_child = false;   // a look has, since turn_ns
  bool has_run_woken = false;     // one from the lane `woken`, since the last look
  bool has_pleaded = false;       // those that wake each other have had a slice, and were told
  std::int64_t turn_ns = 0;       // when a look last picked one that had waited its turn
  std::int64_t gift_ns = 0;       // when it last gave a goroutine to all processors
  std::uint32_t timers_turn = 0;  // whose timers a look runs beside its own
  std::size_t overflow_owed = 0;  // goroutines it let overflow and has not taken back
  std::int64_t lock_wait_ns = 0;  // spent waiting for channels that others were using
  stack::cache stacks;
  base::random random;
  run_queue ready;
  run_queue fresh;

  // The machine that may use all of the above (ownership.hpp).
  alignas(64) owned_atomic<machine*> holder{nullptr};  // [OW1]
  std::uint32_t index = 0;                             // immutable
  std::atomic<bool> retiring{false};  // set by resize; the holder lets go when it sees it
  bool retired = false;               // out of circulation; guarded by the scheduler's lock
  // Whom it comes back to. Written under the scheduler's lock; its holder reads a hint.
  owned_atomic<machine*> lender{nullptr};
  std::int64_t lent_ns = 0;  // since when; written under the scheduler's lock
  // In the list of idle ones, or of those that wait for a thread. Guarded by the scheduler's lock.
  list_link<processor> idle_link;
  enum class idleness : std::uint8_t { busy, listening, dozing, numb };
  idleness idle = idleness::busy;   // guarded by the scheduler's lock
  std::int64_t dozes_until_ns = 0;  // guarded by the scheduler's lock
  timer_heap timers;                // has its own lock

  // As a thief: what it has learned.
  alignas(64) share mailbox;                // written by the victim that accepted
  std::atomic<std::uint32_t> delivered{0};  // [M1] victim's release -> thief's acquire: mailbox
  std::int64_t patience_ns = 5'000;
  std::int64_t search_ns = 20'000;
  std::int64_t doze_ns = doze_min_ns;
  processor* robbed = nullptr;  // the last victim, its picks then, and the time
  std::uint64_t robbed_picks = 0;
  std::uint32_t robbed_count = 0;
  std::int64_t robbed_lock_wait_ns = 0;  // lock_wait_ns then
  std::int64_t robbed_at_ns = 0;
  std::uint64_t overflow_mark = 0;
  std::int64_t overflow_since_ns = 0;
  sighting sightings[processors_max];  // by victim; pages are touched as needed
};

}  // namespace weft::sched
