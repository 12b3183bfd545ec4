// global_queue.hpp: goroutines that belong to no processor yet.
//
// Three queues, first in first out, under one lock; order.hpp says which processor takes from them
// when:
//   woken     goroutines that the world woke where no processor was at hand: by an event that the
//             monitor found, a plain thread that sent to a channel, a call that has returned. For
//             each a machine is woken.
//   shared    goroutines that may have their turn on any processor: those that have had a long
//             turn, hogs, those started by plain threads. A hog that was paused sits on its thread
//             meanwhile (mode paused); the others are parked.
//   overflow  what did not fit into a processor's run queue, in batches. The processor that pushed
//             a batch takes it back when it has nothing else. Others help themselves only when the
//             batch has been there for a while, because moving short work to another core costs
//             more than running it.
//
// Memory order:
//   The counts and ages are hints for looking without the lock. The counts of woken and shared are
//   changed by seq_cst operations: to a plain thread, or to a signal handler, they are the store of
//   [W1] (idle_state.hpp) without a light barrier.
#pragma once

#include "base/check.hpp"
#include "base/clock.hpp"
#include "base/lock.hpp"
#include "sched/goroutine_list.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace weft::sched {

class global_queue {
 public:
  enum class from : std::uint8_t { woken, shared, overflow };

  // Both keep the goroutines' ages (since_ns).
  void push(from which, goroutine* g) noexcept {
    const std::lock_guard hold(lock_);
    queue& q = of(which);
    q.list.push_back(g);
    count_locked(q);
  }
  void push(from which, goroutine_list& batch) noexcept {
    const std::lock_guard hold(lock_);
    queue& q = of(which);
    q.list.append(batch);
    count_locked(q);
  }

  // Puts `batch` before all others in `shared`.
  void push_older(goroutine_list& batch) noexcept {
    const std::lock_guard hold(lock_);
    batch.append(shared_.list);
    shared_.list.append(batch);
    count_locked(shared_);
  }

  // Takes up to `n` goroutines: the first, and those after it that have waited since before
  // `before_ns`. Returns: how many.
  std::size_t take(from which, std::size_t n, goroutine_list& out,
                   std::int64_t before_ns = base::never) noexcept {
    const std::lock_guard hold(lock_);
    queue& q = of(which);
    std::size_t taken = 0;
    for (; taken < n && !q.list.empty(); ++taken) {
      if (taken != 0 && q.list.front()->since_ns >= before_ns) break;
      out.push_back(q.list.pop_front());
    }
    if (taken != 0) {
      count_locked(q);
      // relaxed: written under the lock only.
      q.taken.store(q.taken.load(std::memory_order_relaxed) + taken, std::memory_order_relaxed);
    }
    return taken;
  }
  goroutine* take_one(from which) noexcept {
    goroutine_list one;
    return take(which, 1, one) != 0 ? one.pop_front() : nullptr;
  }

  // Whether the first goroutine in `shared` has a thread of its own, which waits for it.
  bool first_has_own_thread() noexcept {
    const std::lock_guard hold(lock_);
    return !shared_.list.empty() && has_own_thread(shared_.list.front());
  }

  // Takes the first goroutine whose own thread waits for it (paused, or bound). Returns: null if
  // there is none. Slow.
  goroutine* take_with_own_thread() noexcept {
    if (goroutine* const g = take_first(from::shared, has_own_thread)) return g;
    return take_first(from::woken, has_own_thread);
  }
  // Takes the first goroutine of one queue for which `is_wanted` holds. Returns: null if there is
  // none. Slow.
  goroutine* take_first(from which, bool (*is_wanted)(const goroutine*)) noexcept {
    const std::lock_guard hold(lock_);
    queue& q = of(which);
    goroutine_list before;
    goroutine* g = q.list.pop_front();
    for (; g != nullptr && !is_wanted(g); g = q.list.pop_front()) before.push_back(g);
    before.append(q.list);
    q.list.append(before);
    if (g != nullptr) {
      count_locked(q);
      q.taken.store(q.taken.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
    return g;
  }

  std::size_t size_hint(from which) const noexcept {
    return of(which).size.load(std::memory_order_seq_cst);  // [W1]
  }
  std::size_t size_hint() const noexcept {
    return size_hint(from::woken) + size_hint(from::shared) + size_hint(from::overflow);
  }
  // Since when the first goroutine waits; `never` if there is none.
  std::int64_t since_hint(from which) const noexcept {
    return of(which).since_ns.load(std::memory_order_relaxed);
  }
  // How many have ever been taken: it shows whether the first one is still the same.
  std::uint64_t taken_hint(from which) const noexcept {
    return of(which).taken.load(std::memory_order_relaxed);
  }

 private:
  struct queue {
    goroutine_list list;                              // guarded by lock_
    std::atomic<std::size_t> size{0};                 // [W1] written under lock_
    std::atomic<std::int64_t> since_ns{base::never};  // written under lock_; relaxed: a hint
    std::atomic<std::uint64_t> taken{0};              // written under lock_
  };

  // To be called after a change of `q`.
  void count_locked(queue& q) noexcept {
    WEFT_ASSERT(lock_.is_locked());
    q.size.store(q.list.size(), std::memory_order_seq_cst);  // [W1]
    q.since_ns.store(q.list.empty() ? base::never : q.list.front()->since_ns,
                     std::memory_order_relaxed);
  }

  queue& of(from which) noexcept {
    return which == from::woken ? woken_ : which == from::shared ? shared_ : overflow_;
  }
  const queue& of(from which) const noexcept {
    return which == from::woken ? woken_ : which == from::shared ? shared_ : overflow_;
  }

  base::spin_lock lock_;
  queue woken_;
  queue shared_;
  queue overflow_;
};

}  // namespace weft::sched
