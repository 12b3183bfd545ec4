// global_queue.hpp: goroutines that belong to no processor yet.
//
// Three queues, first in first out, under one lock:
//   inbox     goroutines made or readied where no processor was at hand: by plain threads, by a
//             goroutine that came back and found no processor. Somebody is woken for each, and the
//             first processor that looks takes them.
//   overflow  what did not fit into a processor's ring, in batches. The processor that pushed it
//             takes it back when it has nothing else; others help themselves only when it has been
//             lying for a while (find.cpp), because moving short work to another core costs more
//             than running it.
//   hogs      goroutines that used up their slice while others waited. They come after all others,
//             but get a third of a processor's time at least (find.cpp). One that was paused sits
//             on its thread meanwhile (mode paused), the others are parked.
//
// Memory order:
//   The counts are hints for looking without the lock. inbox_ and hogs_ are changed by seq_cst
//   operations: to a plain thread, or to a signal handler, they are the store of [W1]
//   (idle_state.hpp) without a light barrier.
#pragma once

#include "base/lock.hpp"
#include "sched/goroutine_list.hpp"

#include <atomic>
#include <cstdint>
#include <mutex>

namespace weft::sched {

class global_queue {
 public:
  void push_inbox(goroutine* g) noexcept {
    const std::lock_guard hold(lock_);
    inbox_list_.push_back(g);
    inbox_.fetch_add(1, std::memory_order_seq_cst);  // [W1]
  }

  void push_overflow(goroutine_list& batch) noexcept {
    const std::lock_guard hold(lock_);
    overflow_list_.append(batch);
    overflow_.store(overflow_list_.size(), std::memory_order_seq_cst);
  }

  void push_hog(goroutine* g) noexcept {
    const std::lock_guard hold(lock_);
    hogs_list_.push_back(g);
    hogs_.fetch_add(1, std::memory_order_seq_cst);  // [W1]
  }

  // Takes the hog that has waited longest. Returns: null if there is none.
  goroutine* take_hog() noexcept {
    const std::lock_guard hold(lock_);
    if (hogs_list_.empty()) return nullptr;
    hogs_.fetch_sub(1, std::memory_order_relaxed);
    return hogs_list_.pop_front();
  }

  bool first_hog_is_tied() noexcept {
    const std::lock_guard hold(lock_);
    return !hogs_list_.empty() && is_tied(hogs_list_.front());
  }

  // Takes one that has its thread waiting for it (paused, or bound), hogs first. Returns: null if
  // there is none. Slow.
  goroutine* take_tied() noexcept {
    const std::lock_guard hold(lock_);
    if (goroutine* const g = take_tied_from(hogs_list_)) {
      hogs_.fetch_sub(1, std::memory_order_relaxed);
      return g;
    }
    goroutine* const g = take_tied_from(inbox_list_);
    if (g != nullptr) inbox_.fetch_sub(1, std::memory_order_relaxed);
    return g;
  }

  enum class from : std::uint8_t { inbox, overflow };

  // Takes up to `n` goroutines. Returns: how many.
  std::size_t take(from which, std::size_t n, goroutine_list& out) noexcept {
    const std::lock_guard hold(lock_);
    goroutine_list& list = which == from::inbox ? inbox_list_ : overflow_list_;
    std::size_t taken = 0;
    for (; taken < n && !list.empty(); ++taken) out.push_back(list.pop_front());
    if (which == from::inbox) {
      inbox_.fetch_sub(taken, std::memory_order_relaxed);
    } else {
      overflow_.store(list.size(), std::memory_order_relaxed);  // written under the lock only
      overflow_taken_.store(overflow_taken_.load(std::memory_order_relaxed) + taken,
                            std::memory_order_relaxed);
    }
    return taken;
  }

  std::size_t inbox_hint() const noexcept { return inbox_.load(std::memory_order_seq_cst); }
  std::size_t overflow_hint() const noexcept { return overflow_.load(std::memory_order_relaxed); }
  std::size_t hogs_hint() const noexcept { return hogs_.load(std::memory_order_seq_cst); }
  // How many have ever been taken from the overflow; it tells how old the first one is.
  std::uint64_t overflow_taken_hint() const noexcept {
    return overflow_taken_.load(std::memory_order_relaxed);
  }

 private:
  static goroutine* take_tied_from(goroutine_list& list) noexcept {
    goroutine* found = nullptr;
    for (std::size_t n = list.size(); n != 0; --n) {
      goroutine* const g = list.pop_front();
      if (found == nullptr && is_tied(g)) {
        found = g;
      } else {
        list.push_back(g);
      }
    }
    return found;
  }

  base::spin_lock lock_;
  goroutine_list inbox_list_;     // guarded by lock_
  goroutine_list overflow_list_;  // guarded by lock_
  goroutine_list hogs_list_;      // guarded by lock_
  std::atomic<std::size_t> inbox_{0};
  std::atomic<std::size_t> overflow_{0};
  std::atomic<std::size_t> hogs_{0};
  std::atomic<std::uint64_t> overflow_taken_{0};
};

}  // namespace weft::sched
