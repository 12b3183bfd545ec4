// order.hpp: who runs next on a processor, and what everybody who can run may count on.
//
// Speed asks for the newest first (warm caches, few stacks in a tree of children) and for nothing
// but a look at one's own queues; fairness asks for the oldest first, from everywhere, and for a
// look at the clock. A processor has both: it picks as is fastest, and about every 50 us one pick
// is a *look*, which reads the clock and puts right what the others could not know.
//
// Lanes. A runnable goroutine is in one of these:
//
//   woken     a timer or the world (a descriptor, a plain thread, a call that returned) woke it, or
//             another goroutine did and then woke one more; there is a global one, too
//   next      the goroutine that the running one woke last
//   fresh     has never run: newest first
//   ready     woken or yielded: oldest first
//   shared    (global) any processor may run it: after a long turn, a hog, come from outside
//   overflow  (global) did not fit into a run queue
//
// Those in the last four wait their turn.
//
// Between two looks: next, ready, newest fresh, the global queue; and `woken` before them or after
// them, whose time it is goes first. Ready before fresh, because to finish what was begun keeps
// memory small.
//
// A look (order.cpp) happens after 1 to 128 picks, so many that they took some 50 us last time:
// each pick is one if turns are longer than that. If it misjudged, the monitor asks for it
// (watch.cpp). In this order a look
//   - fires timers that are due, and polls, at most every 50 us: what they wake goes to `woken`;
//   - picks from `woken` and from the rest, half of the time each if neither is empty; from
//     `woken` as long as the first one there has waited for a slice, and for longest of all. Who
//     comes from `woken` shares its turn with the one it starts last. Of the rest it picks
//   - `next`; if the one that last had its turn and all it woke have used up a slice together while
//     others waited for one, `next` has to yield at its next call, and that ends the chain (or the
//     next look does, for who goes to sleep instead does not yield); else
//   - the goroutine that the one which leaves has just started, within the same slice (if turns are
//     short, the newest that has never run); else
//   - the oldest of those that wait their turn, whichever lane it is in. After a slice of such as
//     wake each other the new ones that have waited for a slice have one, too; after a slice of new
//     ones sixteen of the oldest get in line.
// A goroutine that yields after a turn of 50 us or more goes to the end of `shared`, else to the
// end of `ready`. Once in a millisecond, while all processors are busy, a look also moves the first
// of its processor's own to `shared`, so that nobody is kept on a processor where more wait than
// elsewhere.
//
// Guarantees. With N goroutines that compute, P processors, and a slice of 10 ms, for every
// goroutine that can run:
//
//   G1  It runs within N * slice / P, plus one slice, whether it is new, was woken, yielded, came
//       back or was paused; and within twice that if what G2 prefers wants half of the time. Those
//       that wait their turn are served in order; before each of them what G2 and G3 prefer has one
//       slice at most, and what G2 prefers no more than half of the time, unless it has waited for
//       a slice, and for longer than they.
//   G2  What a timer or the world woke goes ahead of those that have just had a turn: one turn of
//       another goroutine at most comes before it, then half of the time is for such as it. Beside
//       hogs the monitor borrows a processor for it after a millisecond (watch.hpp).
//   G3  Goroutines that wake each other, and a goroutine and the children it starts, share one
//       slice, measured in time, as one that computes alone has.
//   G4  Equals make equal progress.
//   G5  Nobody waits for longer than 5 ms while a processor is idle (idle_watch.hpp).
//   G6  What a goroutine does outside the runtime, blocking or computing, delays others by a slice
//       at most, whatever was on its seat at that instant (seat.hpp has the table).
//
// tests/stress/fairness_test.cpp asserts them one by one, tests/torture under random loads beside
// Go. docs/decisions/009-the-order-of-running.md has the measurements and what was tried.
//
// Ages (goroutine::since_ns) are those of the last look: a pick or push never reads the clock.
//
// All functions here: inside the runtime, holding the processor.
#pragma once

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
// Picks as fairness demands, and sees to timers and descriptors.
goroutine* look(processor& p) noexcept;
// With nothing of its own: the global queue.
goroutine* pick_global(processor& p) noexcept;
// A fair share of a global queue if turns are short here, else one. Returns: the first; the rest is
// queued.
goroutine* take_share(processor& p, global_queue::from which) noexcept;
// It is the turn of others: the goroutine that runs on `m` goes to the end of a queue and another
// one runs, as a look decides. Requires: the pick is counted. Returns: false if there is no other.
// Parks.
bool pass_turn(machine* m) noexcept;

inline bool has_run(const goroutine* g) noexcept {
  return g->how != mode::fresh && g->how != mode::placed;
}

// It can run from now on.
[[gnu::always_inline]] inline void stamp(const processor& p, goroutine* g) noexcept {
  g->since_ns = p.clock_ns.load(std::memory_order_relaxed);  // the holder's own
}

// Queues one that keeps its age.
[[gnu::always_inline]] inline void push(processor& p, run_queue& r, goroutine* g) noexcept {
  if (r.try_push_back(g)) [[likely]]
    return;
  overflow(p, r);
  r.push_back(g);
}

// push_next() while there is one in `next`. The first of both goes to `woken`; but in the time of
// `woken`, if the first was there before, it is the new one, or two chains would take turns by
// goroutines and not by time.
[[gnu::noinline]] void push_beside_next(processor& p, goroutine* g) noexcept;

// Woken by the goroutine that runs.
[[gnu::always_inline]] inline void push_next(processor& p, goroutine* g) noexcept {
  stamp(p, g);
  // relaxed: guarded by the seat. hot_store: a store of [W1].
  if (p.next.load(std::memory_order_relaxed) != nullptr) [[unlikely]]
    return push_beside_next(p, g);
  p.next.store(g, base::hot_store_order);
}

// Yielded: behind the others.
[[gnu::always_inline]] inline void push_ready(processor& p, goroutine* g) noexcept {
  stamp(p, g);
  push(p, p.ready, g);
}

// Has never run.
[[gnu::always_inline]] inline void push_fresh(processor& p, goroutine* g) noexcept {
  stamp(p, g);
  push(p, p.fresh, g);
}

// Woken by a timer or by the world.
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

// What is readied while one of these lives, by a timer that fires, was woken by a timer.
class firing {
 public:
  firing() noexcept : m_(this_machine()), next_(m_ != nullptr ? take_next(*m_->p) : nullptr) {}
  firing(const firing&) = delete;
  firing& operator=(const firing&) = delete;
  ~firing() {
    if (m_ == nullptr) return;  // a simulation's
    if (goroutine* const g = take_next(*m_->p)) push_woken(*m_->p, g);
    if (next_ != nullptr) m_->p->next.store(next_, base::hot_store_order);
    work_made(m_);  // both were out of sight for a moment
  }

 private:
  machine* const m_;
  goroutine* const next_;
};

[[gnu::always_inline]] inline void count_pick(processor& p) noexcept {
  // relaxed: only the holder writes; thieves and the monitor watch it move.
  p.picks.store(p.picks.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

// pick_fast() while `woken` is not empty: whose time it is goes first. Not inlined: nearly always
// the lane is empty.
[[gnu::noinline]] goroutine* pick_beside_woken(processor& p) noexcept;

// Between two looks.
[[gnu::always_inline]] inline goroutine* pick_fast(processor& p) noexcept {
  if (!p.woken.empty()) [[unlikely]]
    return pick_beside_woken(p);
  if (goroutine* const g = take_next(p)) return g;
  if (goroutine* const g = p.ready.pop_front()) return g;
  if (goroutine* const g = p.fresh.pop_back()) return g;
  return pick_global(p);
}

[[gnu::always_inline]] inline goroutine* pick(processor& p) noexcept {
  count_pick(p);
  if (--p.until_look == 0) [[unlikely]]
    return look(p);
  return pick_fast(p);
}

}  // namespace weft::sched
