// find.cpp: how a processor with nothing to run searches for work, and how work is stolen. What
// runs next on a processor that has some is order.hpp's.
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
// within 1.5 us the thief claims the victim's seat (seat.hpp) and helps itself; so it does at once
// if the seat's word is a plea to yield, and under the scheduler's lock if the victim has its
// processor back from a loan and has not noticed.
//
// Tried and dropped, with figures, in docs/decisions/: wake and steal at once as Go does
// (fine-grained work on two processors is slower than on one); stealing only what has aged 20 us.
#include "base/clock.hpp"
#include "sched/choice.hpp"
#include "sched/order.hpp"
#include "sched/poller.hpp"
#include "sched/scheduler.hpp"
#include "sched/simulation.hpp"
#include "sched/start.hpp"

#include <algorithm>
#include <mutex>
#include <numeric>

namespace weft::sched {
namespace {

using from = global_queue::from;

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

// Half of what a processor has, the oldest first; of an odd number the larger half.
void take_half(processor& victim, share& out) noexcept {
  out.size = 0;
  const auto take = [&out](auto& queue) {
    std::uint64_t n = (queue.size() + 1) / 2;
    for (; n != 0 && out.size < share::most; --n) out.items[out.size++] = queue.pop_front();
  };
  take(victim.woken);
  out.woken = out.size;
  take(victim.ready);
  take(victim.fresh);
  if (out.wants_next && out.size == 0) {
    if (goroutine* const g = take_next(victim)) out.items[out.size++] = g;
  }
}

// Waits for the victim's answer. Returns: whether it came.
bool await_delivery(processor& p, std::int64_t until_ns) noexcept {
  for (int turn = 0;; ++turn) {
    if (p.delivered.load(std::memory_order_acquire) != 0) return true;  // [M1]
    if (turn % 16 == 15 && base::now_ns() >= until_ns) return false;
    if (until_ns == base::never && turn > 1000) {
      if (the_scheduler.stopping.load(std::memory_order_relaxed)) stop_here();
      base::yield_thread();
    }
    base::pause();
  }
}

goroutine* keep_share(processor& p, const share& loot) noexcept {
  if (loot.size == 0) return nullptr;
  for (std::uint32_t i = 1; i < loot.size; ++i) {
    goroutine* const g = loot.items[i];
    if (i < loot.woken) {
      p.woken.push_back(g);
    } else {
      push(p, has_run(g) ? p.ready : p.fresh, g);
    }
  }
  return loot.items[0];
}

// The victim's machine computes on a processor that was lent and given back, which it has not
// noticed: nobody touches that processor but under the lock (handoff.cpp).
bool rob_returned(processor& p, processor& victim, machine* owner) noexcept {
  const std::lock_guard hold(the_scheduler.lock);
  if (!owner->is_returned.load(std::memory_order_relaxed) || owner->p != &victim) return false;
  take_half(victim, p.mailbox);
  return true;
}

// Asks the victim for half of what it has, or takes it. Returns: whether p's mailbox has an answer.
bool ask_or_take(processor& p, processor& victim, machine* owner) noexcept {
  bool has_plea = false;
  if (owner->seat.ask(p.index)) {
    if (await_delivery(p, base::now_ns() + question_ns)) return true;
    switch (owner->seat.claim_after_asking(p.index, claim_turns)) {
      case seat::claimed::no:
        return false;
      case seat::claimed::accepted:
        return await_delivery(p, base::never);
      case seat::claimed::yes:
        break;
    }
  } else if (owner->is_returned.load(std::memory_order_relaxed)) {
    return rob_returned(p, victim, owner);
  } else if (owner->seat.claim(claim_turns)) {
    has_plea = true;  // or whatever kept it from asking has gone since
  } else {
    return false;
  }
  if (owner->p == &victim) take_half(victim, p.mailbox);
  owner->seat.release();
  if (has_plea) (void)owner->seat.ask_to_yield();
  return true;
}

goroutine* rob(processor& p, processor& victim, bool wants_next) noexcept {
  machine* const owner = victim.holder.load(std::memory_order_acquire);
  if (owner == nullptr) return nullptr;
  const std::uint64_t picks = victim.picks.load(std::memory_order_relaxed);
  p.mailbox.size = 0;
  p.mailbox.wants_next = wants_next;
  p.delivered.store(0, std::memory_order_relaxed);  // [S5]
  if (!ask_or_take(p, victim, owner)) return nullptr;
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
  const lane::look woken = victim.woken.look_hint();
  const ring::look ready = victim.ready.look_hint();
  const ring::look fresh = victim.fresh.look_hint();
  const bool next = victim.next.load(std::memory_order_relaxed) != nullptr;
  if (woken.size() + ready.size() + fresh.size() == 0 && !next) {
    seen.valid = false;
    return nullptr;
  }
  const std::uint64_t picks = victim.picks.load(std::memory_order_relaxed);
  if (!seen.valid) {
    seen = {};
    seen.valid = true;
    seen.picks = picks;
    seen.picks_since_ns = seen.woken_since_ns = now;
    seen.ready_since_ns = seen.fresh_since_ns = now;
    seen.woken_mark = woken.back;
    seen.ready_mark = ready.back;
    seen.fresh_front = fresh.front;
    seen.fresh_epoch = fresh.epoch;
  }
  if (picks != seen.picks) {
    seen.picks = picks;
    seen.picks_since_ns = now;
  }
  if (m->told_of == &victim && m->told_picks == picks) {
    // This work is what the machine was woken for, and waking it took longer than any patience.
    seen.picks_since_ns =
        std::min(seen.picks_since_ns, now - std::max(p.patience_ns, m->told_waited_ns));
  }
  if (woken.front >= seen.woken_mark) {  // all that were there at the mark have gone
    seen.woken_mark = woken.back;
    seen.woken_since_ns = now;
  }
  if (ready.front >= seen.ready_mark) {  // all ready ones that were there at the mark have gone
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
  const bool aged = (woken.size() != 0 && now - seen.woken_since_ns >= 4 * patience_ns) ||
                    (ready.size() != 0 && now - seen.ready_since_ns >= 4 * patience_ns) ||
                    (fresh.size() != 0 && now - seen.fresh_since_ns >= 4 * patience_ns);
  if (!stuck && !aged) return nullptr;
  seen.valid = false;  // begin anew after a theft, also a failed one
  return rob(p, victim, stuck);
}

// Takes from the overflow what has been lying there for as long as a victim's queue might.
goroutine* consider_overflow(processor& p, std::int64_t now) noexcept {
  global_queue& global = the_scheduler.global;
  const std::size_t size = global.size_hint(from::overflow);
  const std::uint64_t taken = global.taken_hint(from::overflow);
  if (size == 0 || taken >= p.overflow_mark) {
    p.overflow_mark = taken + size;
    p.overflow_since_ns = now;
    return nullptr;
  }
  if (now - p.overflow_since_ns < 4 * p.patience_ns) return nullptr;
  p.overflow_mark = 0;
  return take_share(p, from::overflow);
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

void arm_timer(timer& t, std::int64_t when_ns) noexcept {
  machine* const m = this_machine();
  if (simulation* const s = m == nullptr ? this_simulation() : nullptr) {
    return s->timers().arm(t, when_ns);
  }
  if (m == nullptr) ensure_started();
  processor* const p =
      m != nullptr ? m->p : the_scheduler.processors[0].load(std::memory_order_acquire);  // [P1]
  p->timers.arm(t, when_ns);
  tell_monitor_of_timer(when_ns);
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
      g = p.woken.pop_front();
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
    } while (now < look + look_period_ns && !is_anyones_work_hint());
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

void turn_away(std::uint32_t thief) noexcept {
  processor& to = *the_scheduler.processors[thief].load(std::memory_order_relaxed);
  to.mailbox.size = 0;
  to.delivered.store(1, std::memory_order_release);  // [M1]
}

void share_all(processor& p) noexcept {
  goroutine_list woken;
  goroutine_list others;
  while (goroutine* const g = p.woken.pop_front()) woken.push_back(g);
  if (goroutine* const g = take_next(p)) others.push_back(g);
  while (goroutine* const g = p.ready.pop_front()) others.push_back(g);
  while (goroutine* const g = p.fresh.pop_front()) others.push_back(g);
  p.overflow_owed = 0;
  if (!woken.empty()) the_scheduler.global.push(from::woken, woken);
  if (!others.empty()) the_scheduler.global.push(from::shared, others);
}

void drain(processor& p) noexcept {
  share_all(p);
  p.stacks.drain();
}

bool has_work(const processor& p) noexcept {
  return p.next.load(base::hot_load_order) != nullptr || p.ready.look_hint().size() != 0 ||
         p.fresh.look_hint().size() != 0 || p.woken.look_hint().size() != 0;
}

bool others_want(const processor& p) noexcept {
  return has_work(p) || the_scheduler.global.size_hint() != 0;
}

bool is_any_idle() noexcept {
  // relaxed, both: hints, unless the caller holds the lock.
  return the_scheduler.idle_count.load(std::memory_order_relaxed) >
         the_scheduler.numb_count.load(std::memory_order_relaxed);
}

bool work_waits_hint() noexcept {
  if (the_scheduler.global.size_hint() != 0) return true;
  const std::uint32_t procs = the_scheduler.procs_made.load(std::memory_order_acquire);  // [P1]
  for (std::uint32_t i = 0; i < procs; ++i) {
    const processor* const p = the_scheduler.processors[i].load(std::memory_order_relaxed);
    if (has_work(*p)) return true;
  }
  return false;
}

bool is_anyones_work_hint() noexcept {
  const global_queue& global = the_scheduler.global;
  return global.size_hint(from::woken) + global.size_hint(from::shared) != 0;
}

bool is_urgent_hint(std::int64_t now_ns) noexcept {
  return the_scheduler.global.size_hint(from::woken) != 0 || earliest_timer_hint() <= now_ns;
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
