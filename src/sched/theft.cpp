#include "sched/theft.hpp"

#include "base/check.hpp"
#include "base/clock.hpp"
#include "base/platform.hpp"
#include "sched/choice.hpp"
#include "sched/order.hpp"
#include "sched/poller.hpp"
#include "sched/scheduler.hpp"
#include "sched/start.hpp"

#include <algorithm>
#include <mutex>
#include <numeric>

namespace weft::sched {
namespace {

constexpr std::int64_t patience_min_ns = 5'000;
// For a victim that has just polled: its goroutines spend microseconds in each system call.
constexpr std::int64_t patience_io_ns = 100'000;
constexpr std::int64_t patience_max_ns = 320'000;
constexpr std::int64_t question_ns = 1'500;
// A theft should keep the thief busy for theft_cost_ns, plus theft_cost_each_ns for each stolen
// goroutine. Else it was cheaper to leave them, because what they touch has to come over from the
// other core.
constexpr std::int64_t theft_cost_ns = 2'000;
constexpr std::int64_t theft_cost_each_ns = 200;
// Stolen goroutines may wait for the lock of a channel which goroutines that stayed use, too. Then
// they should have stayed. The thief knows only how long they waited. The theft costs the others
// time as well, so the wait counts this many times.
constexpr std::int64_t wait_weight = 4;

// Steals: takes half of each lane of the victim, the oldest first; of an odd number, the larger
// half. `next` is taken only if the thief asked for it (the victim is stuck) and the lanes are
// empty: otherwise `next` stays, because the victim's next pick runs it at once.
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
  WEFT_ASSERT(out.woken <= out.size && out.size <= share::most);
}

// Waits for the victim's answer. Returns: whether the answer came.
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
  WEFT_ASSERT(loot.woken <= loot.size && loot.size <= share::most);
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

// Robs a processor that is back from a loan while its machine computes and has not noticed. Until
// it does, the processor is touched only under the scheduler's lock (ownership.hpp, Loans).
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
    // The claim has replaced a plea, which is put back below. (If the word was another one when the
    // thief asked, and has gone since, the victim gets a plea for nothing.)
    has_plea = true;
  } else {
    return false;
  }
  if (owner->p == &victim) take_half(victim, p.mailbox);
  owner->seat.release();
  if (has_plea) (void)owner->seat.ask_to_yield();
  return true;
}

goroutine* rob(processor& p, processor& victim, bool wants_next) noexcept {
  machine* const owner = victim.holder.load(std::memory_order_acquire);  // [OW1]
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

// Looks at one victim, and robs it if that seems to be worth it.
goroutine* consider(machine* m, processor& victim, std::int64_t now) noexcept {
  processor& p = *m->p;
  sighting& seen = p.sightings[victim.index];
  const lane::look woken = victim.woken.look_hint();
  const run_queue::look ready = victim.ready.look_hint();
  const run_queue::look fresh = victim.fresh.look_hint();
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
    // The machine was woken for this work. Waking it took longer than any patience, so the victim
    // counts as stuck for that long.
    seen.picks_since_ns =
        std::min(seen.picks_since_ns, now - std::max(p.patience_ns, m->told_waited_ns));
  }
  if (woken.front >= seen.woken_mark) {  // every goroutine that was there at the mark has left
    seen.woken_mark = woken.back;
    seen.woken_since_ns = now;
  }
  if (ready.front >= seen.ready_mark) {  // likewise
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
  seen.valid = false;  // after a theft, even a failed one, the watch begins anew
  return rob(p, victim, stuck);
}

}  // namespace

goroutine* steal(machine* m, std::int64_t now) noexcept {
  processor& p = *m->p;
  const std::uint32_t procs = the_scheduler.procs_made.load(std::memory_order_acquire);  // [P1]
  std::uint32_t at = choose(p, choice::victim, procs);
  std::uint32_t stride = procs <= 2 ? 1 : 1 + choose(p, choice::stride, procs - 1);
  // Ends at procs - 1 at the latest, which is coprime to procs.
  while (std::gcd(stride, procs) != 1) ++stride;
  for (std::uint32_t i = 0; i < procs; ++i, at = (at + stride) % procs) {
    processor* const victim = the_scheduler.processors[at].load(std::memory_order_relaxed);  // [P1]
    if (victim == &p || victim->holder.load(std::memory_order_relaxed) == nullptr) continue;
    if (goroutine* const g = consider(m, *victim, now)) return g;
  }
  return nullptr;
}

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

void hand_over(machine* m, std::uint32_t thief) noexcept {
  processor& to = *the_scheduler.processors[thief].load(std::memory_order_relaxed);
  WEFT_ASSERT(&to != m->p.get() && to.delivered.load(std::memory_order_relaxed) == 0);
  to.mailbox.size = 0;
  if (m->p != nullptr) take_half(*m->p, to.mailbox);
  to.delivered.store(1, std::memory_order_release);  // [M1]
}

void turn_away(std::uint32_t thief) noexcept {
  processor& to = *the_scheduler.processors[thief].load(std::memory_order_relaxed);
  WEFT_ASSERT(to.delivered.load(std::memory_order_relaxed) == 0);
  to.mailbox.size = 0;
  to.delivered.store(1, std::memory_order_release);  // [M1]
}

}  // namespace weft::sched
