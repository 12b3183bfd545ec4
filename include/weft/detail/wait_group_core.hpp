// wait_group_core.hpp: the counter that goroutines wait on; wait_group, future and run use it.
//
// One 64-bit word: the counter in the upper half, two flags in the lower. Waiters hang in a list of
// nodes on their own stacks, guarded by the flag `locked`; the flag `waited` says the list is not
// empty.
//
//   done, not the last        one compare-exchange
//   done, the last            the same; if `waited` was set it takes the list, clears the
//                             flags and then readies everyone
//   wait, counter 0           one load
//   wait, counter not 0       lock, push a node, unlock and set `waited`, park
//
// Invariants:
//   I1  `waited` is set only by a step that sees the counter above 0, so the done that brings the
//       counter to 0 sees it and is the one that must release the waiters.
//   I2  Nobody touches the core after the step that lets wait() return: for a done that is not
//       responsible that step is its exchange; for the one that is, clearing the flags. A wait()
//       that finds the counter 0 but a flag set stays until the flags are gone.
//
// Memory order:
//   [D1] done's release -> wait's acquire: what came before done is visible after wait. The chain
//        of exchanges keeps every earlier done's release.
//   [D2] unlock's release -> lock's acquire: the list.
#pragma once

#include <weft/detail/park.hpp>
#include <weft/detail/patience.hpp>

#include <cstdint>

namespace weft::detail {

template <class Seam>
class wait_group_core {
 public:
  static constexpr const char* name = "latch";

  explicit wait_group_core(std::uint32_t count = 0) noexcept
      : word_(std::uint64_t{count} << count_shift) {}
  wait_group_core(const wait_group_core&) = delete;
  wait_group_core& operator=(const wait_group_core&) = delete;

  void add(std::uint32_t n) noexcept {
    // relaxed: adding publishes nothing; the matching done does.
    word_.fetch_add(std::uint64_t{n} << count_shift, std::memory_order_relaxed);
  }

  // Takes `n` off. Returns: false if the counter would have gone below 0; it is unchanged then.
  bool sub(std::uint32_t n) noexcept {
    std::uint64_t before = word_.load(std::memory_order_relaxed);  // re-checked by the exchange
    do {
      if (count_of(before) < n) [[unlikely]]
        return false;
    } while (!word_.compare_exchange_weak(before, before - (std::uint64_t{n} << count_shift),
                                          std::memory_order_acq_rel,  // [D1]
                                          std::memory_order_relaxed));
    if (count_of(before) == n && (before & waited) != 0) [[unlikely]]
      release();
    return true;
  }

  bool is_zero() const noexcept {
    return word_.load(std::memory_order_acquire) == 0;  // [D1] and I2: no flag set either
  }

  bool is_waited_for() const noexcept {
    return (word_.load(std::memory_order_relaxed) & waited) != 0;  // a hint, for assertions
  }

  // Blocks: the goroutine, until the counter is 0.
  void wait(wait_reason reason) {
    if (!is_zero()) wait_slow(reason, no_deadline);
  }

  // Returns: false if the limit came first.
  bool wait_until(wait_reason reason, patience limit) {
    return is_zero() || wait_slow(reason, limit);
  }

 private:
  static constexpr std::uint64_t locked = 1;
  static constexpr std::uint64_t waited = 2;
  static constexpr int count_shift = 32;

  struct node {
    node* next = nullptr;
    typename Seam::waiter who{};
    wait_group_core* core = nullptr;
  };

  static std::uint32_t count_of(std::uint64_t word) noexcept {
    return static_cast<std::uint32_t>(word >> count_shift);
  }

  // Locks the list while `wanted(word)` holds. Returns: false as soon as it does not.
  template <class Wanted>
  bool lock_while(Wanted wanted) noexcept {
    std::uint64_t word = word_.load(std::memory_order_acquire);
    for (int turn = 0; wanted(word);) {
      if ((word & locked) != 0) {
        Seam::relax(turn++);
        word = word_.load(std::memory_order_acquire);
      } else if (word_.compare_exchange_weak(word, word | locked, std::memory_order_acquire,
                                             std::memory_order_acquire)) {  // [D2]
        return true;
      }
    }
    return false;
  }

  bool wait_slow(wait_reason reason, patience limit) {
    node self;
    self.who = Seam::prepare_park(reason);
    self.core = this;
    if (!lock_while([](std::uint64_t word) { return count_of(word) != 0; })) {
      Seam::cancel_park();
      await_release();
      return true;
    }
    self.next = waiters_;
    waiters_ = &self;
    std::uint64_t word = word_.load(std::memory_order_relaxed);  // re-checked by the exchange
    for (;;) {
      // I1: a counter that reached 0 meanwhile has a responsible done only if somebody waited.
      const bool someone_releases = count_of(word) != 0 || (word & waited) != 0;
      if (!someone_releases) waiters_ = nullptr;
      const std::uint64_t unlocked = (word & ~locked) | (someone_releases ? waited : 0);
      if (word_.compare_exchange_weak(word, unlocked, std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {  // [D2] [D1]
        if (someone_releases) break;
        Seam::cancel_park();
        return true;
      }
      waiters_ = &self;  // the counter moved; look again
    }
    return limit.park<Seam>(self.who, &give_up, &self);
  }

  // The counter is 0, and perhaps its last done is still about to release earlier waiters (I2).
  void await_release() const noexcept {
    for (int turn = 0;; ++turn) {
      const std::uint64_t word = word_.load(std::memory_order_acquire);  // [D1]
      if (count_of(word) != 0 || (word & (waited | locked)) == 0) return;
      if (turn < 100) {
        Seam::relax(turn);
      } else {
        Seam::yield();  // that done may have lost its processor and wait for this one
      }
    }
  }

  // The one responsible done.
  void release() noexcept {
    node* released = nullptr;
    {
      const typename Seam::section inside;
      lock_while([](std::uint64_t) { return true; });
      released = waiters_;
      waiters_ = nullptr;
      word_.fetch_and(~(locked | waited), std::memory_order_release);  // [D2] I2
    }
    while (released != nullptr) {
      node* const n = released;
      released = n->next;  // n is gone once its owner runs
      Seam::ready(n->who);
    }
  }

  // Takes a waiter whose time is up out of the list. Runs inside the runtime.
  static bool give_up(void* argument) noexcept {
    node* const self = static_cast<node*>(argument);
    wait_group_core* const core = self->core;
    // With the counter at 0 a done is on its way to release() and will ready this one too. Whoever
    // gives up has seen it above 0, so no such done comes upon a later round.
    if (!core->lock_while(
            [](std::uint64_t word) { return (word & waited) != 0 && count_of(word) != 0; })) {
      return false;
    }
    node** link = &core->waiters_;
    while (*link != nullptr && *link != self) link = &(*link)->next;
    const bool found = *link == self;
    std::uint64_t word = core->word_.load(std::memory_order_relaxed);  // re-checked by the exchange
    for (;;) {
      const bool leaves = found && count_of(word) != 0;
      if (found) *link = leaves ? self->next : self;
      const bool nobody_left = core->waiters_ == nullptr && count_of(word) != 0;
      const std::uint64_t unlocked = word & ~(nobody_left ? locked | waited : locked);
      if (core->word_.compare_exchange_weak(word, unlocked, std::memory_order_release,
                                            std::memory_order_relaxed)) {  // [D2]
        return leaves;
      }
    }
  }

  typename Seam::template atomic<std::uint64_t> word_;
  node* waiters_ = nullptr;
};

}  // namespace weft::detail
