// order.hpp: which goroutine a processor runs next, and what every goroutine that can run may
// count on.
//
// Speed wants the newest goroutine first (warm caches, few stacks in a tree of children), and wants
// a processor to read nothing but its own queues. Fairness wants the oldest goroutine first, from
// any queue, and wants the clock to be read. A processor does both. Most picks take what is
// fastest. About every 50 us one pick is a *look*: it reads the clock and puts right what the fast
// picks could not know.
//
// Lanes. A runnable goroutine is in one of these:
//
//   woken     a timer or the world (a descriptor, a plain thread, a call that returned) woke it; or
//             another goroutine woke it and then woke one more, which took its place in `next`.
//             There is also a global `woken`
//   next      the goroutine that the running one woke last
//   fresh     has never run: newest first
//   ready     has yielded, or has waited for long in another lane: oldest first
//   shared    (global) any processor may run it: it had a long turn, is a hog, or came from outside
//   overflow  (global) did not fit into a run queue
//
// "Those that wait their turn" are the goroutines in the last four lanes.
//
// Between two looks the order is: next, ready, newest fresh, the global queue. The lane `woken`
// goes before all of these while it is its half of the time, otherwise between fresh and the global
// queue. Ready goes before fresh, because finishing what was begun keeps memory small.
//
// A look (order.cpp) happens after 1 to 128 picks: as many as took about 50 us last time. If turns
// are longer than that, each pick is a look. If the number turns out too large, the monitor asks
// the running goroutine to yield, which is a look, too (watch.cpp). A look
//   - fires timers that are due, and polls at most every 50 us: what they wake goes to `woken`;
//   - picks from `woken` and from the rest, half of the time each if neither is empty. If the first
//     goroutine in `woken` has waited for a slice, and for longer than any other, `woken` goes
//     first in either half. A goroutine from `woken` shares its turn with the goroutine that it
//     starts last.
// Of the rest a look picks, in this order:
//   - `next`. A chain is the goroutine that last had its turn and all that were woken from there.
//     When a chain has used up a slice while others have waited for one, `next` has to yield at its
//     next call, which ends the chain. (If that goroutine goes to sleep, it does not yield; then
//     the next look ends the chain.)
//   - the goroutine that the running one has just started, within the same slice; if turns are
//     short, the newest goroutine that has never run.
//   - the oldest of those that wait their turn, whichever lane it is in. If a chain has just used
//     up a slice, the next slice belongs to the oldest: goroutines in `fresh` that have waited for
//     a slice move to the front of `ready`. If the chain has used up its slice by running children
//     from `fresh`, at most sixteen of the oldest in `fresh` move there.
// A goroutine that yields after a turn of 50 us or more goes to the end of `shared` (if there are
// several processors), else to the end of `ready`. Once in a millisecond, while all processors are
// busy, a look also moves some of the oldest goroutines of its processor to `shared`, if they are
// older than those there. So no goroutine is kept on a processor where more wait than elsewhere.
//
// Guarantees. With N goroutines that compute, P processors, and a slice of 10 ms, for every
// goroutine that can run:
//
//   G1  It runs within N * slice / P, plus one slice, whether it is new, was woken, yielded, came
//       back or was paused. If the goroutines that G2 prefers want half of the time, it runs within
//       twice that. Those that wait their turn are served in order. Before each of them, what G2
//       and G3 prefer has one slice at most. What G2 prefers has no more than half of the time,
//       unless it has waited for a slice and for longer than those that wait their turn.
//   G2  A goroutine that a timer or the world woke goes ahead of those that have just had a turn.
//       At most one turn of another goroutine comes before it; then half of the time is for
//       goroutines like it. If hogs have all processors, the monitor borrows one of them for it
//       after a millisecond (watch.hpp).
//   G3  Goroutines that wake each other share one slice, measured in time, the same slice that a
//       goroutine which computes alone has. So do a goroutine and the children it starts.
//   G4  Equal goroutines make equal progress.
//   G5  No goroutine waits for longer than 5 ms while a processor is idle (idle_watch.hpp).
//   G6  A goroutine that blocks or computes outside the runtime delays others by a slice at most.
//       That holds for every value that its machine's seat may have then (seat.hpp has the table).
//
// tests/stress/fairness_test.cpp asserts them one by one; tests/torture does under random loads,
// beside Go. docs/decisions/009-the-order-of-running.md has the measurements and what was tried.
//
// A goroutine that is queued on a processor gets the time of that processor's last look as its age
// (goroutine::since_ns): a pick or a push never reads the clock.
//
// All functions here require: inside the runtime, holding the processor.
#pragma once

#include "base/check.hpp"
#include "base/membarrier.hpp"
#include "sched/global_queue.hpp"
#include "sched/machine.hpp"
#include "sched/processor.hpp"
#include "sched/tls.hpp"
#include "sched/wake.hpp"

#include <atomic>

namespace weft::sched {

// Moves half of a full run queue to the global queue.
void overflow(processor& p, run_queue& r) noexcept;
// Picks as fairness demands; also fires timers and polls descriptors.
goroutine* look(processor& p) noexcept;
// Picks from the global queue. For a processor that has nothing of its own.
goroutine* pick_global(processor& p) noexcept;
// Takes a fair share of a global queue if turns are short here, else one goroutine. Returns: the
// first one. The others are queued on `p`.
goroutine* take_share(processor& p, global_queue::from which) noexcept;
// Lets others run: the goroutine on `m` goes to the end of a queue, and a look decides which one
// runs instead. Requires: the pick has been counted. Returns: false if no other can run. Parks.
bool pass_turn(machine* m) noexcept;

inline bool has_run(const goroutine* g) noexcept {
  return g->how != mode::fresh && g->how != mode::placed;
}

// Sets the age of `g`, which can run from now on.
[[gnu::always_inline]] inline void stamp(const processor& p, goroutine* g) noexcept {
  g->since_ns = p.clock_ns.load(std::memory_order_relaxed);  // written only by p's holder: us
}

// Queues `g` without changing its age.
[[gnu::always_inline]] inline void push(processor& p, run_queue& r, goroutine* g) noexcept {
  WEFT_ASSERT(g->how < mode::thread || g->how == mode::stopped);  // run_queue.hpp, I2
  if (r.try_push_back(g)) [[likely]]
    return;
  overflow(p, r);
  r.push_back(g);
}

// push_next() when `next` is occupied: one of the two goroutines moves to `woken`. Usually that is
// the one that was in `next`. While it is the time of `woken`, and if the one in `next` is older
// than the last look, the new one moves; otherwise two chains would take turns by goroutines
// instead of by time.
[[gnu::noinline]] void push_beside_next(processor& p, goroutine* g) noexcept;

// Queues a goroutine that the running one has woken.
[[gnu::always_inline]] inline void push_next(processor& p, goroutine* g) noexcept {
  stamp(p, g);
  // relaxed: guarded by the seat. hot_store: a store of [W1].
  if (p.next.load(std::memory_order_relaxed) != nullptr) [[unlikely]]
    return push_beside_next(p, g);
  p.next.store(g, base::hot_store_order);
}

// Queues a goroutine that has yielded, behind the others.
[[gnu::always_inline]] inline void push_ready(processor& p, goroutine* g) noexcept {
  stamp(p, g);
  push(p, p.ready, g);
}

// Queues a goroutine that has never run.
[[gnu::always_inline]] inline void push_fresh(processor& p, goroutine* g) noexcept {
  stamp(p, g);
  push(p, p.fresh, g);
}

// Queues a goroutine that a timer or the world woke.
inline void push_woken(processor& p, goroutine* g) noexcept {
  stamp(p, g);
  p.woken.push_back(g);
}

[[gnu::always_inline]] inline goroutine* take_next(processor& p) noexcept {
  // relaxed: guarded by the seat; thieves only look whether it is null.
  goroutine* const g = p.next.load(std::memory_order_relaxed);
  if (g != nullptr) p.next.store(nullptr, base::hot_store_order);
  return g;
}

// While an object of this class lives, goroutines that a firing timer readies count as woken by a
// timer.
class firing {
 public:
  firing() noexcept : m_(this_machine()), next_(m_ != nullptr ? take_next(*m_->p) : nullptr) {}
  firing(const firing&) = delete;
  firing& operator=(const firing&) = delete;
  ~firing() {
    if (m_ == nullptr) return;  // a simulation fires its timers without a machine
    if (goroutine* const g = take_next(*m_->p)) push_woken(*m_->p, g);
    if (next_ != nullptr) m_->p->next.store(next_, base::hot_store_order);
    work_made(m_);  // thieves could not see these two for a moment
  }

 private:
  machine* const m_;
  goroutine* const next_;
};

[[gnu::always_inline]] inline void count_pick(processor& p) noexcept {
  // relaxed: only the holder writes; thieves and the monitor watch it move.
  p.picks.store(p.picks.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

// pick_fast() when `woken` is not empty: asks whose half of the time it is. Not inlined,
// because the lane is nearly always empty.
[[gnu::noinline]] goroutine* pick_beside_woken(processor& p) noexcept;

// A pick between two looks.
[[gnu::always_inline]] inline goroutine* pick_fast(processor& p) noexcept {
  if (!p.woken.empty()) [[unlikely]]
    return pick_beside_woken(p);
  if (goroutine* const g = take_next(p)) return g;
  if (goroutine* const g = p.ready.pop_front()) return g;
  if (goroutine* const g = p.fresh.pop_back()) return g;
  return pick_global(p);
}

[[gnu::always_inline]] inline goroutine* pick(processor& p) noexcept {
  WEFT_ASSERT(p.until_look != 0);
  count_pick(p);
  if (--p.until_look == 0) [[unlikely]]
    return look(p);
  return pick_fast(p);
}

}  // namespace weft::sched
