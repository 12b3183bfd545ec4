// find.cpp: what runs next, in which order we look, and how work is stolen.
//
// A processor picks, in this order:
//   the goroutine woken last (`next`), so that a reply runs on a warm cache;
//   woken and yielded ones, oldest first (`ready`);
//   new ones, newest first (`fresh`);
//   the global queue: the inbox, what this processor itself let overflow, and, last of all, hogs.
// Every 61st pick (pick_fair) turns that around so that nobody starves: it looks first at the
// global queue, then at the oldest in `ready`, then at the oldest in `fresh`, each in its turn;
// runs timers that are due; ends the slice that goroutines waking each other through `next`
// inherit; gives a hog its turn if none has had one for three slices; and takes new ones from the
// old end for as long as the oldest of them has waited a millisecond or more.
//
// A processor with nothing to run searches. The hard part is not to find work but to leave alone
// what is better left alone: a thief that takes a 20 ns goroutine to another core makes both
// slower. So a thief looks at a victim every 5 us (`patience_ns`) and takes half of what it has
// only if
//   the victim has picked nothing for that long while something waits (it computes or blocks), or
//   something has waited for four times as long.
// A theft has paid when what was stolen kept the thief busy, other than with waiting for channels
// that others use, for longer than the theft cost, or when the victim is still where it was. Each
// unpaid theft doubles the thief's patience, a paid one resets it. What a search finds or not sets
// how long the next one lasts (5 to 40 us) and how long the processor then dozes (idle.cpp).
//
// Taking is by question first: the victim sees it at its next entry into the runtime and puts
// half of its queue into the thief's mailbox, at the cost of a few stores. If it does not come by
// within 1.5 us the thief claims the victim's seat (seat.hpp) and helps itself.
//
// Tried and dropped, with figures, in docs/decisions/: wake and steal at once as Go does
// (fine-grained work on two processors is slower than on one); stealing only what has aged 20 us.
#include "base/clock.hpp"
#include "sched/choice.hpp"
#include "sched/pick.hpp"
#include "sched/poller.hpp"
#include "sched/scheduler.hpp"
#include "sched/simulation.hpp"
#include "sched/start.hpp"

#include <algorithm>
#include <numeric>

namespace weft::sched {
namespace {

constexpr std::uint32_t fair_period = 61;
constexpr std::uint32_t fair_period_timers = 16;  // while timers are pending, to look at the clock
// While others wait, too, hogs get a third: after so many slices without one it is a hog's turn.
constexpr std::int64_t hog_period_slices = 3;
constexpr std::int64_t fresh_age_max_ns = 1'000'000;
constexpr std::size_t batch_max = 128;
constexpr std::int64_t poll_period_ns = 50'000;  // in passing, while there is other work

constexpr std::int64_t patience_min_ns = 5'000;
// With one that has just polled, whose goroutines spend microseconds in system calls each.
constexpr std::int64_t patience_io_ns = 100'000;
constexpr std::int64_t patience_max_ns = 320'000;
constexpr std::int64_t look_period_ns = 5'000;
constexpr std::int64_t search_min_ns = 5'000;
constexpr std::int64_t search_max_ns = 40'000;
constexpr std::int64_t question_ns = 1'500;
// A stolen goroutine should keep the thief busy for so long on the average, or it was cheaper to
// leave it: what it touches has to come over from the other core.
constexpr std::int64_t theft_cost_ns = 2'000;
constexpr std::int64_t theft_cost_each_ns = 200;
// And what waits for those that stayed had better stayed, too: the time it waits for is only a part
// of what it costs them.
constexpr std::int64_t wait_weight = 4;

void push_by_kind(processor& p, goroutine* g) noexcept {
  push(p, has_run(g) ? p.ready : p.fresh, g);
}

// Keeps all of `list` but the first, which is returned.
goroutine* keep_rest(processor& p, goroutine_list& list) noexcept {
  goroutine* const first = list.pop_front();
  if (list.empty()) return first;
  while (goroutine* const g = list.pop_front()) push_by_kind(p, g);
  work_made(this_machine());  // they were out of sight for a moment
  return first;
}

// A fair share of the global queue: an equal part for each processor, and one for luck.
goroutine* take_global(processor& p, global_queue::from which, std::size_t size) noexcept {
  if (size == 0) return nullptr;
  const std::size_t procs = the_scheduler.procs.load(std::memory_order_relaxed);
  goroutine_list list;
  const std::size_t n =
      the_scheduler.global.take(which, std::min(batch_max, size / procs + 1), list);
  if (n == 0) return nullptr;
  if (which == global_queue::from::overflow) p.overflow_owed -= std::min(p.overflow_owed, n);
  return keep_rest(p, list);
}

goroutine* take_one_global(processor& p) noexcept {
  global_queue& global = the_scheduler.global;
  goroutine_list list;
  if (global.inbox_hint() != 0 && global.take(global_queue::from::inbox, 1, list) != 0) {
    return list.pop_front();
  }
  if (global.overflow_hint() != 0 && global.take(global_queue::from::overflow, 1, list) != 0) {
    p.overflow_owed -= std::min<std::size_t>(p.overflow_owed, 1);
    return list.pop_front();
  }
  return nullptr;
}

// Whether hogs may have a turn. A processor that was borrowed goes back to the one it came from.
bool hogs_wait(const processor& p) noexcept {
  return the_scheduler.global.hogs_hint() != 0 &&
         p.lender.load(std::memory_order_relaxed) == nullptr;
}

goroutine* take_hog(processor& p, std::int64_t now) noexcept {
  p.hog_turn_ns.store(now, std::memory_order_relaxed);
  return the_scheduler.global.take_hog();
}

// Sees whether the oldest fresh goroutine has waited for too long.
void watch_fresh(processor& p, std::int64_t now) noexcept {
  const ring::look look = p.fresh.look_hint();
  if (look.size() == 0 || look.front != p.oldest_fresh || look.epoch != p.oldest_fresh_epoch) {
    // While the order is turned around the oldest one changes with every pick; go back to newest
    // first only when nobody is left who was there when it was turned.
    if (p.oldest_first && look.size() != 0 && look.front < p.oldest_first_until) return;
    p.oldest_first = false;
    p.oldest_fresh = look.front;
    p.oldest_fresh_epoch = look.epoch;
    p.oldest_fresh_since_ns = now;
  } else if (now - p.oldest_fresh_since_ns > fresh_age_max_ns) {
    p.oldest_first = true;
    p.oldest_first_until = look.back;
  }
}

// Half of what a processor has, the oldest first; of an odd number the larger half.
void take_half(processor& victim, share& out) noexcept {
  out.size = 0;
  for (ring* const r : {&victim.ready, &victim.fresh}) {
    std::uint64_t n = (r->size() + 1) / 2;
    for (; n != 0 && out.size < share::most; --n) out.items[out.size++] = r->pop_front();
  }
  if (out.wants_next && out.size == 0) {
    if (goroutine* const g = take_next(victim)) out.items[out.size++] = g;
  }
}

// Waits for the victim's answer. Returns: whether it came.
bool await_delivery(processor& p, std::int64_t until_ns) noexcept {
  for (int turn = 0;; ++turn) {
    if (p.delivered.load(std::memory_order_acquire) != 0) return true;  // [M1]
    if (turn % 16 == 15 && base::now_ns() >= until_ns) return false;
    if (until_ns == base::never && turn > 1000) base::yield_thread();
    base::pause();
  }
}

goroutine* keep_share(processor& p, const share& loot) noexcept {
  if (loot.size == 0) return nullptr;
  for (std::uint32_t i = 1; i < loot.size; ++i) push_by_kind(p, loot.items[i]);
  return loot.items[0];
}

goroutine* rob(processor& p, processor& victim, bool wants_next) noexcept {
  machine* const owner = victim.holder.load(std::memory_order_acquire);
  if (owner == nullptr) return nullptr;
  const std::uint64_t picks = victim.picks.load(std::memory_order_relaxed);
  p.mailbox.size = 0;
  p.mailbox.wants_next = wants_next;
  p.delivered.store(0, std::memory_order_relaxed);  // [S5]
  if (!owner->chair.ask(p.index)) return nullptr;
  if (!await_delivery(p, base::now_ns() + question_ns)) {
    switch (owner->chair.claim_after_asking(p.index, claim_turns)) {
      case seat::claimed::no:
        return nullptr;
      case seat::claimed::accepted:
        await_delivery(p, base::never);
        break;
      case seat::claimed::yes:
        if (owner->p == &victim) take_half(victim, p.mailbox);
        owner->chair.release();
        break;
    }
  }
  goroutine* const first = keep_share(p, p.mailbox);
  if (first != nullptr) {
    p.robbed = &victim;
    p.robbed_picks = picks;
    p.robbed_count = p.mailbox.size;
    p.robbed_lock_wait_ns = p.lock_wait_ns;
    p.robbed_at_ns = base::now_ns();
  }
  return first;
}

// Called when what was stolen last has been run, or waits: was it worth it?
void judge_theft(processor& p, std::int64_t now) noexcept {
  if (p.robbed == nullptr) return;
  const bool still_stuck = p.robbed->picks.load(std::memory_order_relaxed) == p.robbed_picks;
  const std::int64_t busy = now - p.robbed_at_ns;
  const std::int64_t useful = busy - wait_weight * (p.lock_wait_ns - p.robbed_lock_wait_ns);
  if (still_stuck || useful > theft_cost_ns + theft_cost_each_ns * p.robbed_count) {
    p.patience_ns = patience_min_ns;
    p.doze_ns = doze_min_ns;
  } else {
    p.patience_ns = std::min(p.patience_ns * 2, patience_max_ns);
  }
  p.robbed = nullptr;
}

// Looks at one victim and robs it if that seems to be worth it.
goroutine* consider(machine* m, processor& victim, std::int64_t now) noexcept {
  processor& p = *m->p;
  sighting& seen = p.sightings[victim.index];
  const ring::look ready = victim.ready.look_hint();
  const ring::look fresh = victim.fresh.look_hint();
  const bool next = victim.next.load(std::memory_order_relaxed) != nullptr;
  if (ready.size() + fresh.size() == 0 && !next) {
    seen.valid = false;
    return nullptr;
  }
  const std::uint64_t picks = victim.picks.load(std::memory_order_relaxed);
  if (!seen.valid) {
    seen = {};
    seen.valid = true;
    seen.picks = picks;
    seen.picks_since_ns = seen.ready_since_ns = seen.fresh_since_ns = now;
    // Its waker was told off by this very work, and waking took longer than any patience.
    if (m->told_of == &victim && m->told_picks == picks) seen.picks_since_ns = now - p.patience_ns;
    seen.ready_mark = ready.back;
    seen.fresh_front = fresh.front;
    seen.fresh_epoch = fresh.epoch;
  }
  if (picks != seen.picks) {
    seen.picks = picks;
    seen.picks_since_ns = now;
  }
  if (ready.front >= seen.ready_mark) {  // all that were there at the mark have gone
    seen.ready_mark = ready.back;
    seen.ready_since_ns = now;
  }
  if (fresh.size() == 0 || fresh.front != seen.fresh_front || fresh.epoch != seen.fresh_epoch) {
    seen.fresh_front = fresh.front;
    seen.fresh_epoch = fresh.epoch;
    seen.fresh_since_ns = now;
  }
  const std::int64_t patience_ns = the_poller.is_anothers(p, now) && the_poller.is_owner(victim)
                                       ? std::max(p.patience_ns, patience_io_ns)
                                       : p.patience_ns;
  const bool stuck = now - seen.picks_since_ns >= patience_ns;
  const bool aged = (ready.size() != 0 && now - seen.ready_since_ns >= 4 * patience_ns) ||
                    (fresh.size() != 0 && now - seen.fresh_since_ns >= 4 * patience_ns);
  if (!stuck && !aged) return nullptr;
  seen.valid = false;  // begin anew after a theft, also a failed one
  return rob(p, victim, stuck);
}

// Takes from the overflow what has been lying there for as long as a victim's queue might.
goroutine* consider_overflow(processor& p, std::int64_t now) noexcept {
  global_queue& global = the_scheduler.global;
  const std::size_t size = global.overflow_hint();
  const std::uint64_t taken = global.overflow_taken_hint();
  if (size == 0 || taken >= p.overflow_mark) {
    p.overflow_mark = taken + size;
    p.overflow_since_ns = now;
    return nullptr;
  }
  if (now - p.overflow_since_ns < 4 * p.patience_ns) return nullptr;
  p.overflow_mark = 0;
  return take_global(p, global_queue::from::overflow, size);
}

goroutine* look_at_victims(machine* m, std::int64_t now) noexcept {
  processor& p = *m->p;
  const std::uint32_t procs = the_scheduler.procs_made.load(std::memory_order_acquire);  // [P1]
  std::uint32_t at = choose(p, choice::victim, procs);
  std::uint32_t stride = procs <= 2 ? 1 : 1 + choose(p, choice::stride, procs - 1);
  while (std::gcd(stride, procs) != 1) ++stride;  // 1 + a multiple of procs at the latest
  for (std::uint32_t i = 0; i < procs; ++i, at = (at + stride) % procs) {
    processor* const victim = the_scheduler.processors[at].load(std::memory_order_relaxed);  // [P1]
    if (victim == &p || victim->holder.load(std::memory_order_relaxed) == nullptr) continue;
    if (goroutine* const g = consider(m, *victim, now)) return g;
  }
  return nullptr;
}

}  // namespace

void overflow(processor& p, ring& r) noexcept {
  goroutine_list batch;
  for (std::uint64_t i = 0; i < ring::capacity / 2; ++i) batch.push_back(r.pop_front());
  p.overflow_owed += batch.size();
  the_scheduler.global.push_overflow(batch);
}

bool arm_timer(timer& t, std::int64_t when_ns) noexcept {
  if (machine* const m = this_machine()) {
    processor& p = *m->p;
    p.until_fair = std::min(p.until_fair, fair_period_timers);  // looks at the clock more often
    const bool armed = p.timers.arm(t, when_ns);
    tell_monitor_of_timer(when_ns);
    return armed;
  }
  if (simulation* const s = this_simulation()) return s->timers().arm(t, when_ns);
  ensure_started();
  return the_scheduler.processors[0]
      .load(std::memory_order_acquire)
      ->timers.arm(t, when_ns);  // [P1]
}

goroutine* pick_fair(processor& p) noexcept {
  const std::int64_t now = base::now_ns();
  p.timers.run(now);
  // And those of one other processor, which may be retired, or compute and not look at its own.
  const std::uint32_t procs = the_scheduler.procs_made.load(std::memory_order_acquire);  // [P1]
  the_scheduler.processors[p.fair_turn % procs].load(std::memory_order_relaxed)->timers.run(now);
  if (now - the_poller.last_poll_ns() > poll_period_ns && the_poller.poll_for(p) != 0) {
    work_made(this_machine());
  }
  p.until_fair = p.timers.earliest_hint() == base::never ? fair_period : fair_period_timers;
  watch_fresh(p, now);
  const std::int64_t slice_ns = the_scheduler.slice_ns.load(std::memory_order_relaxed);
  if (now - p.slice_start_ns > slice_ns) {
    p.slice_start_ns = now;
    // Never out of sight: a last look elsewhere finds it in one place or the other.
    if (goroutine* const g = p.next.load(std::memory_order_relaxed)) {
      push(p, p.ready, g);
      p.next.store(nullptr, base::hot_store_order);
    }
  }
  // On a borrowed processor urgent ones go first, up to a point: its lender may be asleep.
  const bool borrowed = p.lender.load(std::memory_order_relaxed) != nullptr;
  const std::int64_t hog_period_ns = (borrowed ? 10 : hog_period_slices) * slice_ns;
  if (the_scheduler.global.hogs_hint() != 0 &&
      now - p.hog_turn_ns.load(std::memory_order_relaxed) > hog_period_ns) {
    if (goroutine* const g = take_hog(p, now)) return g;
  }
  // In turn, each falls back on the next, so that the others come first in some later round.
  const std::uint32_t turn = p.fair_turn++;
  for (std::uint32_t i = 0; i < 3; ++i) {
    goroutine* g = nullptr;
    switch ((turn + i) % 3) {
      case 0:
        g = take_one_global(p);
        break;
      case 1:
        g = p.ready.pop_front();
        break;
      default:
        g = p.fresh.pop_front();
        break;
    }
    if (g != nullptr) return g;
  }
  return nullptr;
}

goroutine* pick_global(processor& p) noexcept {
  global_queue& global = the_scheduler.global;
  if (goroutine* const g = take_global(p, global_queue::from::inbox, global.inbox_hint())) return g;
  if (p.overflow_owed != 0) {
    if (goroutine* const g = take_global(p, global_queue::from::overflow, global.overflow_hint())) {
      return g;
    }
    p.overflow_owed = 0;  // others have taken it
  }
  if (!hogs_wait(p)) return nullptr;
  if (goroutine* const g = take_global(p, global_queue::from::overflow, global.overflow_hint())) {
    return g;
  }
  return take_hog(p, base::now_ns());
}

goroutine* search(machine* m) noexcept {
  processor& p = *m->p;
  idle_state& idle = the_scheduler.idle;
  if (!m->searching) {
    const std::uint32_t procs = the_scheduler.procs.load(std::memory_order_relaxed);
    const std::uint32_t idle_procs = the_scheduler.idle_count.load(std::memory_order_relaxed);
    const std::uint32_t busy = procs > idle_procs ? procs - idle_procs : 1;
    if (!idle.try_search(std::max<std::uint32_t>(1, busy / 2))) return nullptr;
    m->searching = true;
  }
  std::int64_t now = base::now_ns();
  judge_theft(p, now);
  // Alone there is nobody to steal from: one look is enough.
  const bool alone = the_scheduler.procs.load(std::memory_order_relaxed) == 1;
  const std::int64_t end = alone ? now : now + p.search_ns;
  for (;;) {
    if (p.retiring.load(std::memory_order_relaxed)) return nullptr;  // the caller looks again
    if (the_scheduler.stopping.load(std::memory_order_relaxed)) stop_here();
    run_timers(now);
    goroutine* g = pick(p);
    if (g == nullptr && !the_poller.is_anothers(p, now) && the_poller.poll_for(p) != 0) {
      g = p.ready.pop_front();
    }
    if (g == nullptr) g = consider_overflow(p, now);
    if (g == nullptr) g = look_at_victims(m, now);
    m->told_of = nullptr;
    if (g != nullptr) {
      p.search_ns = std::min(p.search_ns * 2, search_max_ns);
      return g;
    }
    const std::int64_t look = now;
    if (now >= end) break;
    do {
      base::pause();
      now = base::now_ns();
    } while (now < look + look_period_ns && the_scheduler.global.inbox_hint() == 0);
  }
  p.search_ns = std::max(p.search_ns / 2, search_min_ns);
  return nullptr;
}

void hand_over(machine* m, std::uint32_t thief) noexcept {
  processor& to = *the_scheduler.processors[thief].load(std::memory_order_relaxed);
  to.mailbox.size = 0;
  if (m->p != nullptr) take_half(*m->p, to.mailbox);
  to.delivered.store(1, std::memory_order_release);  // [M1]
}

void drain(processor& p) noexcept {
  goroutine_list all;
  if (goroutine* const g = take_next(p)) all.push_back(g);
  while (goroutine* const g = p.ready.pop_front()) all.push_back(g);
  while (goroutine* const g = p.fresh.pop_front()) all.push_back(g);
  p.overflow_owed = 0;
  while (goroutine* const g = all.pop_front()) the_scheduler.global.push_inbox(g);
  p.stacks.drain();
}

bool has_work(const processor& p) noexcept {
  return p.next.load(base::hot_load_order) != nullptr || p.ready.look_hint().size() != 0 ||
         p.fresh.look_hint().size() != 0;
}

bool others_want(const processor& p) noexcept {
  const global_queue& global = the_scheduler.global;
  return has_work(p) || global.inbox_hint() + global.overflow_hint() + global.hogs_hint() != 0;
}

bool is_any_idle() noexcept {
  // relaxed, both: hints, unless the caller holds the lock.
  return the_scheduler.idle_count.load(std::memory_order_relaxed) >
         the_scheduler.numb_count.load(std::memory_order_relaxed);
}

bool work_waits_hint() noexcept {
  const global_queue& global = the_scheduler.global;
  if (global.inbox_hint() + global.overflow_hint() + global.hogs_hint() != 0) return true;
  const std::uint32_t procs = the_scheduler.procs_made.load(std::memory_order_acquire);  // [P1]
  for (std::uint32_t i = 0; i < procs; ++i) {
    const processor* const p = the_scheduler.processors[i].load(std::memory_order_relaxed);
    if (has_work(*p)) return true;
  }
  return false;
}

bool urgent_work_hint(std::int64_t now_ns) noexcept {
  return the_scheduler.global.inbox_hint() != 0 || earliest_timer_hint() <= now_ns;
}

std::int64_t earliest_timer_hint() noexcept {
  std::int64_t earliest = base::never;
  const std::uint32_t procs = the_scheduler.procs_made.load(std::memory_order_acquire);  // [P1]
  for (std::uint32_t i = 0; i < procs; ++i) {
    const processor* const p = the_scheduler.processors[i].load(std::memory_order_relaxed);
    earliest = std::min(earliest, p->timers.earliest_hint());
  }
  return earliest;
}

std::size_t run_timers(std::int64_t now_ns) noexcept {
  std::size_t fired = 0;
  const std::uint32_t procs = the_scheduler.procs_made.load(std::memory_order_acquire);  // [P1]
  for (std::uint32_t i = 0; i < procs; ++i) {
    fired += the_scheduler.processors[i].load(std::memory_order_relaxed)->timers.run(now_ns);
  }
  return fired;
}

}  // namespace weft::sched
