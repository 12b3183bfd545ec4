// pick.hpp: the few instructions by which a processor queues a goroutine and picks the next. What
// they mean is in find.cpp, where the rare cases are.
//
// All of these: inside the runtime, holding the processor.
#pragma once

#include "base/clock.hpp"
#include "sched/scheduler.hpp"

namespace weft::sched {

// Moves the older half of a full ring to the global queue.
void overflow(processor& p, ring& r) noexcept;
// Every 61st pick, and every 16th while timers are pending: a look at those that might starve.
goroutine* pick_fair(processor& p) noexcept;
// With nothing of its own: the inbox, what this processor let overflow, and hogs.
goroutine* pick_global(processor& p) noexcept;

inline bool has_run(const goroutine* g) noexcept {
  return g->how != mode::fresh && g->how != mode::placed;
}

[[gnu::always_inline]] inline void push(processor& p, ring& r, goroutine* g) noexcept {
  if (r.full()) [[unlikely]]
    overflow(p, r);
  r.push_back(g);
}

// Woken: runs before all others.
[[gnu::always_inline]] inline void push_next(processor& p, goroutine* g) noexcept {
  // relaxed: guarded by the seat. hot_store: a store of [W1].
  goroutine* const kicked = p.next.load(std::memory_order_relaxed);
  p.next.store(g, base::hot_store_order);
  if (kicked != nullptr) push(p, p.ready, kicked);
}

// Yielded: behind the others.
[[gnu::always_inline]] inline void push_ready(processor& p, goroutine* g) noexcept {
  push(p, p.ready, g);
}

// Has never run.
[[gnu::always_inline]] inline void push_fresh(processor& p, goroutine* g) noexcept {
  push(p, p.fresh, g);
}

[[gnu::always_inline]] inline goroutine* take_next(processor& p) noexcept {
  // relaxed: guarded by the seat; thieves only look whether it is null.
  goroutine* const g = p.next.load(std::memory_order_relaxed);
  if (g != nullptr) p.next.store(nullptr, base::hot_store_order);
  return g;
}

[[gnu::always_inline]] inline void count_pick(processor& p) noexcept {
  // relaxed: only the holder writes; thieves and the monitor watch it move.
  p.picks.store(p.picks.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

[[gnu::always_inline]] inline goroutine* pick(processor& p) noexcept {
  count_pick(p);
  if (--p.until_fair == 0) [[unlikely]] {
    if (goroutine* const g = pick_fair(p)) return g;
  }
  if (goroutine* const g = take_next(p)) return g;
  if (goroutine* const g = p.ready.pop_front()) return g;
  if (p.oldest_first) [[unlikely]] {
    if (goroutine* const g = p.fresh.pop_front()) return g;
  }
  if (goroutine* const g = p.fresh.pop_back()) return g;
  return pick_global(p);
}

}  // namespace weft::sched
