// order.cpp: the look, which is the pick that reads the clock. order.hpp has the policy.
#include "sched/order.hpp"

#include "base/check.hpp"
#include "base/clock.hpp"
#include "sched/ownership.hpp"
#include "sched/poller.hpp"
#include "sched/scheduler.hpp"
#include "sched/starter.hpp"
#include "sched/switch.hpp"
#include "sched/work.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

namespace weft::sched {
namespace {

using from = global_queue::from;

constexpr std::uint32_t gap_max = 128;
constexpr std::int64_t look_period_ns = 50'000;
constexpr std::int64_t long_turn_ns = 50'000;       // the turn after it may be on any processor
constexpr std::int64_t poll_period_ns = 50'000;     // in passing, while there is other work
constexpr std::int64_t gift_period_ns = 1'000'000;  // G4
constexpr std::uint64_t gift_share = 16;
constexpr std::int64_t overflow_old_ns = 1'000'000;
constexpr std::int64_t fresh_old_ns = 1'000'000;
constexpr std::uint64_t old_share = 16;
constexpr std::int64_t loan_ns = 1'000'000;  // for an urgent goroutine and those it wakes
constexpr std::size_t batch_max = 128;
constexpr std::uint32_t timers_most = 8;  // how many processors' timers one look checks

std::int64_t slice_ns() noexcept { return the_scheduler.slice_ns.load(std::memory_order_relaxed); }

std::int64_t since(const goroutine* g) noexcept { return g != nullptr ? g->since_ns : base::never; }

// Puts `list` in front of a queue whose goroutines have waited for less long. Requires: at most
// batch_max goroutines, and room for them.
void put_in_front(run_queue& r, goroutine_list& list) noexcept {
  WEFT_ASSERT(list.size() <= batch_max && list.size() <= run_queue::capacity - r.size());
  goroutine* all[batch_max];
  std::size_t n = 0;
  while (goroutine* const g = list.pop_front()) all[n++] = g;
  while (n != 0) r.push_front(all[--n]);
}

// Queues goroutines that were taken from elsewhere because they have waited longer than those here.
// They go in front of `ready`. There is one exception: while `ready` is empty, goroutines that have
// never run go to the front of `fresh`, whose newest goroutine is picked first. The exception does
// not hold during the slice of the oldest goroutines (oldest_until_ns), because `ready` is served
// before `fresh`. Requires: at most batch_max goroutines, with room in either queue.
void keep_older(processor& p, goroutine_list& list) noexcept {
  if (!p.ready.empty() || p.clock_ns.load(std::memory_order_relaxed) < p.oldest_until_ns) {
    return put_in_front(p.ready, list);
  }
  goroutine_list fresh;
  while (goroutine* const g = list.pop_front()) {
    has_run(g) ? p.ready.push_back(g) : fresh.push_back(g);
  }
  put_in_front(p.fresh, fresh);
}

// Takes the goroutine that was woken first, from this processor's `woken` or from the global one.
goroutine* take_woken(processor& p) noexcept {
  global_queue& global = the_scheduler.global;
  if (global.size_hint(from::woken) != 0 &&
      global.since_hint(from::woken) <= since(p.woken.front())) {
    if (goroutine* const g = global.take_one(from::woken)) return g;
  }
  return p.woken.pop_front();
}

// Notes how long picks take, and decides when to look again.
void note_turn(processor& p, std::int64_t now) noexcept {
  const std::uint64_t picks = p.picks.load(std::memory_order_relaxed);
  const std::int64_t gone = now - p.clock_ns.load(std::memory_order_relaxed);
  const auto n = static_cast<std::int64_t>(std::max<std::uint64_t>(picks - p.looked_picks, 1));
  const std::int64_t each = n == 1 ? gone : gone / n;
  p.clock_ns.store(now, std::memory_order_relaxed);
  p.looked_picks = picks;
  p.turn_was_long = each >= long_turn_ns;
  std::uint32_t gap = p.look_gap.load(std::memory_order_relaxed);
  if (each * gap > 2 * look_period_ns) {
    gap = static_cast<std::uint32_t>(std::max<std::int64_t>(look_period_ns / each, 1));
  } else if (each * gap < look_period_ns / 2) {
    gap = std::min(gap * 2, gap_max);
  }
  if (is_refused_threads()) gap = 1;  // every pick must reach choose_for_last_thread()
  WEFT_ASSERT(gap >= 1 && gap <= gap_max);
  p.look_gap.store(gap, std::memory_order_relaxed);
  p.until_look = gap;
}

// Fires the due timers of this processor and of some others. Another processor may be retired, or
// its goroutine may compute, so that the processor does not look.
void see_to_timers(processor& p, std::int64_t now) noexcept {
  p.timers.run(now);
  const std::uint32_t made = the_scheduler.procs_made.load(std::memory_order_acquire);  // [P1]
  for (std::uint32_t i = std::min(made, timers_most); i != 0; --i) {
    const std::uint32_t at = p.timers_turn++ % made;
    if (at != p.index)
      the_scheduler.processors[at].load(std::memory_order_relaxed)->timers.run(now);
  }
}

void see_to_descriptors(processor& p, std::int64_t now) noexcept {
  if (now - the_poller.last_poll_ns() > poll_period_ns && the_poller.poll_for(p) != 0) {
    work_made(this_machine());
  }
}

// G4: whether some of the goroutines that wait here should be given to all processors. They should
// if no processor is idle (an idle processor would come for them), and if the goroutines that other
// processors take next, those in `shared`, are younger.
bool is_gift_due(const processor& p, std::int64_t oldest) noexcept {
  if (p.clock_ns.load(std::memory_order_relaxed) - p.gift_ns < gift_period_ns) return false;
  // relaxed: hints.
  return the_scheduler.procs.load(std::memory_order_relaxed) != 1 &&
         the_scheduler.idle_count.load(std::memory_order_relaxed) == 0 &&
         the_scheduler.global.since_hint(from::shared) > oldest;
}

std::int64_t oldest_here(const processor& p) noexcept {
  return std::min(since(p.fresh.peek_front()), since(p.ready.peek_front()));
}

void give_to_all(processor& p) noexcept {
  if (p.ready.empty() && p.fresh.empty()) return;
  p.gift_ns = p.clock_ns.load(std::memory_order_relaxed);
  goroutine_list gift;
  for (std::uint64_t n = 1 + (p.ready.size() + p.fresh.size()) / gift_share; n != 0; --n) {
    run_queue& r = since(p.fresh.peek_front()) < since(p.ready.peek_front()) ? p.fresh : p.ready;
    if (goroutine* const g = r.pop_front()) gift.push_back(g);
  }
  the_scheduler.global.push_older(gift);
  work_made(this_machine());  // thieves could not see the goroutines for a moment
}

// If the oldest new goroutine has waited for fresh_old_ns, moves new goroutines into `ready`: at
// most as many as `ready` has already.
void line_up(processor& p, std::int64_t now) noexcept {
  if (p.ready.empty() || p.fresh.empty()) return;
  if (now - p.fresh.peek_front()->since_ns < fresh_old_ns) return;
  std::uint64_t n =
      std::min({p.ready.size(), p.fresh.size(), run_queue::capacity - p.ready.size()});
  for (; n != 0; --n) {
    goroutine* const g = p.fresh.pop_front();
    stamp(p, g);  // a queue is in the order of age, so a goroutine's age changes with its place
    p.ready.push_back(g);
  }
}

// For a processor whose turns are short, if the overflow has goroutines that are older than some in
// `ready`. The younger goroutines of `ready` go to the overflow, and older ones from the overflow
// take their place. Returns: the goroutine to run first.
goroutine* exchange_with_overflow(processor& p, std::int64_t overflow_since) noexcept {
  goroutine_list younger;
  goroutine_list older;
  p.ready.take_newest(
      p.ready.count_newest([&](const goroutine* g) { return g->since_ns > overflow_since; }),
      younger);
  const std::size_t room = run_queue::capacity - p.ready.size();
  const std::size_t taken =
      the_scheduler.global.take(from::overflow, std::min(room, batch_max), older);
  p.overflow_owed -= std::min(p.overflow_owed, taken);
  p.overflow_owed += younger.size();
  the_scheduler.global.push(from::overflow, younger);
  goroutine* const first = older.pop_front();
  while (goroutine* const g = older.pop_front()) p.ready.push_back(g);
  work_made(this_machine());  // thieves could not see the goroutines for a moment
  return first;
}

// Takes the oldest of the goroutines that wait their turn (order.hpp).
goroutine* take_oldest(processor& p, std::int64_t now) noexcept {
  const global_queue& global = the_scheduler.global;
  const std::int64_t ready = since(p.ready.peek_front());
  const std::int64_t fresh = since(p.fresh.peek_front());
  const std::int64_t shared = global.since_hint(from::shared);
  std::int64_t overflow = global.since_hint(from::overflow);
  // Goroutines that overflowed a short time ago are best left to the processor that let them
  // overflow. If this is that processor, and it has only new goroutines, these run first.
  if (overflow != base::never && now - overflow < overflow_old_ns &&
      (p.overflow_owed == 0 || (ready == base::never && fresh != base::never))) {
    overflow = base::never;
  }
  const std::int64_t oldest = std::min({ready, fresh, shared, overflow});
  if (oldest == base::never) return nullptr;
  goroutine* g = nullptr;
  if (oldest == shared) g = take_share(p, from::shared);
  if (g == nullptr && oldest == overflow) {
    g = p.look_gap.load(std::memory_order_relaxed) > 1 && ready != base::never
            ? exchange_with_overflow(p, overflow)
            : take_share(p, from::overflow);
  }
  // Other processors may have emptied the global queue meanwhile.
  if (g == nullptr && fresh <= ready) g = p.fresh.pop_front();
  return g != nullptr ? g : p.ready.pop_front();
}

// Returns: since when the oldest goroutine that waits its turn has waited.
std::int64_t oldest_in_turn(const processor& p) noexcept {
  const global_queue& global = the_scheduler.global;
  return std::min(
      {oldest_here(p), global.since_hint(from::shared), global.since_hint(from::overflow)});
}

// G3: the goroutine in `next` goes on. But once the chain's slice is used up, that goroutine has to
// yield at its next call. If it wakes another goroutine and goes to sleep instead, it does not
// yield. Then the next look ends the chain.
goroutine* continue_chain(processor& p, bool is_over) noexcept {
  goroutine* const g = take_next(p);
  if (g == nullptr || !is_over) return g;
  if (std::exchange(p.has_pleaded, true)) {
    push_ready(p, g);
    return nullptr;
  }
  if (has_own_thread(g)) {
    g->bound->has_to_yield = true;  // takes effect with the grant that `g` waits for
  } else {
    (void)this_machine()->seat.ask_to_yield();
  }
  return g;
}

// Takes the goroutine that was started last, if it was started after `since_ns`.
goroutine* take_newest(processor& p, std::int64_t since_ns) noexcept {
  const goroutine* const g = p.fresh.peek_back();
  return g != nullptr && g->since_ns >= since_ns ? p.fresh.pop_back() : nullptr;
}

// Moves new goroutines that are at least as old as `before_ns` to the front of `ready`, if they are
// older than those in it.
void bring_forward(processor& p, std::uint64_t most, std::int64_t before_ns) noexcept {
  goroutine_list old;
  most = std::min(most, run_queue::capacity - p.ready.size());
  before_ns = std::min(before_ns, since(p.ready.peek_front()));
  while (old.size() < most && since(p.fresh.peek_front()) <= before_ns) {
    old.push_back(p.fresh.pop_front());
  }
  put_in_front(p.ready, old);
}

// A slice ends only if another goroutine has waited for a slice. Who had the slice decides what
// comes next. After goroutines that wake each other, the oldest goroutines have the next slice.
// After new goroutines, only some of the oldest (old_share) get in line: in a tree of goroutines
// all that have not begun are old, and each one that begins takes memory. For the same reason the
// newest goroutine goes first if turns are short: a tree is then walked depth first.
goroutine* choose_in_turn(processor& p, std::int64_t now, std::int64_t last_look) noexcept {
  const std::int64_t slice = slice_ns();
  const bool has_waited = now - oldest_in_turn(p) >= slice;
  const bool is_over = has_waited && now - p.turn_ns >= slice;
  if (is_over && !p.has_taken_child) p.oldest_until_ns = now + slice;
  const bool is_oldest_first = has_waited && now < p.oldest_until_ns;
  if (goroutine* const g = continue_chain(p, is_over)) return g;
  if (!is_over && !is_oldest_first) {
    const bool is_short = p.look_gap.load(std::memory_order_relaxed) > 1;
    if (goroutine* const g = take_newest(p, is_short ? 0 : last_look)) {
      p.has_taken_child = true;
      return g;
    }
  }
  goroutine* const g = take_oldest(p, now);
  if (g == nullptr) return nullptr;
  p.turn_ns = now;
  p.has_pleaded = false;
  p.has_taken_child = false;
  if (is_oldest_first) {
    bring_forward(p, p.look_gap.load(std::memory_order_relaxed) - 1, now - slice);
  } else if (is_over) {
    bring_forward(p, old_share, now - slice);
  }
  return g;
}

// Chooses if the kernel refuses threads, some threads have been left to hogs, and this thread is
// the last that can run goroutines without a thread of their own. A new goroutine might be another
// hog and never give this thread back. So goroutines that have begun go first.
goroutine* choose_for_last_thread(processor& p) noexcept {
  if (!is_refused_threads()) [[likely]]
    return nullptr;
  p.until_look = 1;
  // relaxed: a hint.
  if (the_scheduler.paused_count.load(std::memory_order_relaxed) == 0 || has_spare_hint()) {
    return nullptr;
  }
  share_all(p);
  goroutine* const g = the_scheduler.global.take_first(from::shared, has_run);
  work_made(this_machine());  // thieves could not see the goroutines for a moment
  return g;
}

// A borrowed processor runs only urgent goroutines, and those that they wake.
goroutine* pick_on_loan(processor& p, std::int64_t now) noexcept {
  p.until_look = 1;
  if (goroutine* const g = take_woken(p)) return g;
  if (now - p.lent_ns >= loan_ns) return nullptr;
  if (goroutine* const g = take_next(p)) return g;
  // A peer that has just been sent something often answers at once. Polling is cheaper than the
  // next loan.
  const std::size_t found = the_poller.poll_for(p);
  if (found > 1) work_made(this_machine());
  return found != 0 ? take_woken(p) : nullptr;
}

// Ends the loan, because urgent work has gone on for a slice. The processor stays on this machine,
// so that goroutines that are not urgent get their turn, too. The lender may have gone to sleep
// meanwhile.
void keep_loan(processor& p) noexcept {
  const std::lock_guard hold(the_scheduler.lock);
  ownership::end_loan_of_locked(p);
}

}  // namespace

void push_beside_next(processor& p, goroutine* g) noexcept {
  goroutine* first = take_next(p);
  WEFT_ASSERT(first != nullptr && first != g);
  if (!p.is_others_time.load(std::memory_order_relaxed) &&
      first->since_ns < p.clock_ns.load(std::memory_order_relaxed)) {
    std::swap(first, g);
  }
  p.next.store(g, base::hot_store_order);
  p.woken.push_back(first);
}

goroutine* pick_beside_woken(processor& p) noexcept {
  if (p.is_others_time.load(std::memory_order_relaxed)) {
    if (goroutine* const g = take_next(p)) return g;
    if (goroutine* const g = p.ready.pop_front()) return g;
    if (goroutine* const g = p.fresh.pop_back()) return g;
  }
  p.has_run_woken = true;
  return p.woken.pop_front();
}

goroutine* take_share(processor& p, from which) noexcept {
  const std::size_t size = the_scheduler.global.size_hint(which);
  if (size == 0) return nullptr;
  // relaxed: a hint.
  const std::size_t procs = the_scheduler.procs.load(std::memory_order_relaxed);
  // An equal part for each processor, and one more.
  const std::size_t most =
      std::min(batch_max, run_queue::capacity - std::max(p.ready.size(), p.fresh.size()));
  const std::size_t n =
      p.look_gap.load(std::memory_order_relaxed) == 1 ? 1 : std::min(most, size / procs + 1);
  goroutine_list list;
  // The limit by age keeps the queues here in the order of age.
  const std::size_t taken =
      the_scheduler.global.take(which, std::max<std::size_t>(n, 1), list, oldest_here(p));
  if (taken == 0) return nullptr;
  if (which == from::overflow) p.overflow_owed -= std::min(p.overflow_owed, taken);
  goroutine* const first = list.pop_front();
  if (!list.empty()) {
    keep_older(p, list);
    work_made(this_machine());  // thieves could not see the goroutines for a moment
  }
  return first;
}

void overflow(processor& p, run_queue& r) noexcept {
  goroutine_list batch;
  if (&r == &p.ready) {
    r.take_newest(run_queue::capacity / 2, batch);  // the oldest stay: first in, first out
  } else {
    for (std::uint64_t i = 0; i < run_queue::capacity / 2; ++i) {
      goroutine* const g = r.pop_front();
      stamp(p, g);  // a new age with its new place
      batch.push_back(g);
    }
  }
  p.overflow_owed += batch.size();
  the_scheduler.global.push(from::overflow, batch);
}

namespace {

// G3: a goroutine from `woken` shares its turn with the goroutine that it started last. That child
// runs when the goroutine from `woken` lets others run.
goroutine* take_child_of_woken(processor& p, std::int64_t last_look) noexcept {
  if (!std::exchange(p.has_run_woken, false) || is_refused_threads()) return nullptr;
  return take_newest(p, last_look);
}

// Whether the first of the woken goroutines has waited for a slice, and for longer than any other.
bool is_woken_oldest(const processor& p, std::int64_t now) noexcept {
  const std::int64_t woken =
      std::min(since(p.woken.front()), the_scheduler.global.since_hint(from::woken));
  if (now - woken < slice_ns()) return false;
  return woken < std::min(oldest_in_turn(p), since(p.next.load(std::memory_order_relaxed)));
}

// G2: half of the time is for the goroutines in `woken`. Their time is as long as the turn before
// it took. Then the other goroutines get as long as the time of `woken` took. `woken` gets more
// time if its first goroutine has waited for longer than all other goroutines.
goroutine* choose_woken(processor& p, std::int64_t now, std::int64_t last_look) noexcept {
  const auto as_long_as = [&](std::int64_t since_ns) {
    return now + std::clamp(now - since_ns, look_period_ns, slice_ns());
  };
  const bool is_worlds = !p.is_others_time.load(std::memory_order_relaxed);
  if (p.woken.empty() && the_scheduler.global.size_hint(from::woken) == 0) {
    p.is_others_time.store(true, std::memory_order_relaxed);
    p.world_until_ns = 0;  // the next goroutine that is woken need not wait
    return nullptr;
  }
  const bool is_over = now >= p.world_until_ns;
  if (is_worlds == is_over && !is_woken_oldest(p, now)) {
    if (is_worlds) {
      p.is_others_time.store(true, std::memory_order_relaxed);
      p.world_until_ns = as_long_as(p.world_since_ns);
    }
    return nullptr;
  }
  goroutine* const g = take_woken(p);
  p.has_run_woken = g != nullptr;
  if (g != nullptr && !is_worlds) {
    p.is_others_time.store(false, std::memory_order_relaxed);
    p.world_since_ns = now;
    p.world_until_ns = as_long_as(last_look);
  }
  return g;
}

goroutine* choose(processor& p, std::int64_t now, std::int64_t last_look) noexcept {
  // relaxed: no loan begins while this machine holds the processor. If the lender ends the loan
  // meanwhile, return_own() or keep_loan() sees that under the lock.
  if (p.lender.load(std::memory_order_relaxed) != nullptr) {
    if (now - p.lent_ns < slice_ns()) return pick_on_loan(p, now);
    keep_loan(p);
  }
  if (goroutine* const g = take_child_of_woken(p, last_look)) {
    // The next pick is a look, too. Between two looks goroutines from `woken` go first, and
    // they might start further goroutines.
    p.until_look = 1;
    return g;
  }
  if (goroutine* const g = choose_woken(p, now, last_look)) return g;
  if (goroutine* const g = choose_for_last_thread(p)) return g;
  if (goroutine* const g = choose_in_turn(p, now, last_look)) return g;
  if (goroutine* const g = take_woken(p)) return g;
  return pick_global(p);
}

}  // namespace

goroutine* look(processor& p) noexcept {
  const std::int64_t now = base::now_ns();
  const std::int64_t last_look = p.clock_ns.load(std::memory_order_relaxed);
  note_turn(p, now);
  see_to_timers(p, now);
  see_to_descriptors(p, now);
  goroutine* const g = choose(p, now, last_look);
  line_up(p, now);
  if (is_gift_due(p, oldest_here(p))) give_to_all(p);
  return g;
}

goroutine* pick_global(processor& p) noexcept {
  const global_queue& global = the_scheduler.global;
  if (global.size_hint() == 0) return nullptr;
  if (goroutine* const g = take_woken(p)) return g;
  const bool shared_first = global.since_hint(from::shared) <= global.since_hint(from::overflow);
  if (shared_first || p.overflow_owed == 0) {
    if (goroutine* const g = take_share(p, from::shared)) return g;
  }
  if (p.overflow_owed != 0) {
    if (goroutine* const g = take_share(p, from::overflow)) return g;
    p.overflow_owed = 0;  // other processors have taken them
  }
  return take_share(p, from::shared);
}

bool pass_turn(machine* m) noexcept {
  goroutine* const g = m->g;
  processor& p = *m->p;
  goroutine* const next = look(p);
  if (next == nullptr) return false;
  WEFT_ASSERT(next != g);
  mark_runnable(g);
  // If a gift is still due, the look found no queued goroutine to give to all processors. Then the
  // goroutine that yields is the gift.
  const bool gives = is_gift_due(p, p.clock_ns.load(std::memory_order_relaxed));
  if (gives) p.gift_ns = p.clock_ns.load(std::memory_order_relaxed);
  if (gives || (p.turn_was_long && the_scheduler.procs.load(std::memory_order_relaxed) != 1)) {
    stamp(p, g);
    the_scheduler.global.push(from::shared, g);
  } else {
    push_ready(p, g);
  }
  switch_from_queued(m, g, next);
  return true;
}

}  // namespace weft::sched
