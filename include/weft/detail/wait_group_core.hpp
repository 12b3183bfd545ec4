// wait_group_core.hpp: the counter under weft::wait_group, weft::latch and weft::group.
//
// One 64-bit word: the counter in the upper half, two flags in the lower. Waiters are linked in a
// list of nodes on their own stacks. The flag `locked` guards the list; the flag `waited` says that
// it is not empty.
//
//   done, not the last        one compare-exchange
//   done, the last            one compare-exchange; if `waited` was set it takes the list, clears
//                             the flags and then readies all waiters
//   wait, counter 0           one load
//   wait, counter not 0       lock, push a node, unlock and set `waited`, park
//
// Invariants:
//   I1  `waited` is set only by a step that sees the counter above 0. So the done that brings the
//       counter to 0 sees `waited`, and is the one that has to release the waiters.
//   I2  No thread touches the core after the step that lets wait() return. For a done that does not
//       have to release waiters, that step is its compare-exchange. For the done that does, it is
//       the one that clears the flags. A wait() that finds the counter 0 but a flag set stays until
//       the flags are clear.
//
// Memory order:
//   [D1] done's release -> wait's acquire: what came before done is visible after wait. Each done's
//        compare-exchange continues the release of the dones before it, so that holds for all.
//   [D2] unlock's release -> lock's acquire: the list.
#pragma once

#include <weft/detail/park.hpp>
#include <weft/detail/wait_limit.hpp>

#include <cstdint>

namespace weft::detail {

template <class Scheduler>
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
  bool wait_until(wait_reason reason, wait_limit limit) {
    return is_zero() || wait_slow(reason, limit);
  }

 private:
  static constexpr std::uint64_t locked = 1;
  static constexpr std::uint64_t waited = 2;
  static constexpr int count_shift = 32;

  struct node {
    node* next = nullptr;
    typename Scheduler::waiter who{};
    wait_group_core* core = nullptr;
  };

  static std::uint32_t count_of(std::uint64_t word) noexcept {
    return static_cast<std::uint32_t>(word >> count_shift);
  }

  // Waits for the lock of the list and takes it. Returns: false, without the lock, as soon as
  // `wanted(word)` is false.
  template <class Wanted>
  bool lock_while(Wanted wanted) noexcept {
    std::uint64_t word = word_.load(std::memory_order_acquire);  // [D1]
    for (int turn = 0; wanted(word);) {
      if ((word & locked) != 0) {
        Scheduler::relax(turn++);
        word = word_.load(std::memory_order_acquire);  // [D1]
      } else if (word_.compare_exchange_weak(word, word | locked, std::memory_order_acquire,
                                             std::memory_order_acquire)) {  // [D2] [D1]
        return true;
      }
    }
    return false;
  }

  bool wait_slow(wait_reason reason, wait_limit limit) {
    node self;
    self.who = Scheduler::prepare_park(reason);
    self.core = this;
    if (!lock_while([](std::uint64_t word) { return count_of(word) != 0; })) {
      Scheduler::cancel_park();
      await_release();
      return true;
    }
    self.next = waiters_;
    waiters_ = &self;
    std::uint64_t word = word_.load(std::memory_order_relaxed);  // re-checked by the exchange
    for (;;) {
      // I1: if the counter reached 0 meanwhile, a done releases the waiters only if `waited` was
      // set.
      const bool someone_releases = count_of(word) != 0 || (word & waited) != 0;
      if (!someone_releases) waiters_ = nullptr;
      const std::uint64_t unlocked = (word & ~locked) | (someone_releases ? waited : 0);
      if (word_.compare_exchange_weak(word, unlocked, std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {  // [D2] [D1]
        if (someone_releases) break;
        Scheduler::cancel_park();
        return true;
      }
      waiters_ = &self;  // the counter moved; look again
    }
    return limit.park<Scheduler>(self.who, &give_up, &self);
  }

  // Waits for the last done, which may still be about to release earlier waiters although the
  // counter is 0 (I2).
  void await_release() const noexcept {
    for (int turn = 0;; ++turn) {
      const std::uint64_t word = word_.load(std::memory_order_acquire);  // [D1]
      if (count_of(word) != 0 || (word & (waited | locked)) == 0) return;
      if (turn < 100) {
        Scheduler::relax(turn);
      } else {
        Scheduler::yield();  // the last done may have lost its processor and need this one
      }
    }
  }

  // Called by the done that has to release the waiters (I1).
  void release() noexcept {
    typename Scheduler::inside in;
    lock_while([](std::uint64_t) { return true; });
    node* released = waiters_;
    waiters_ = nullptr;
    word_.fetch_and(~(locked | waited), std::memory_order_release);  // [D2] I2
    in.leave();
    while (released != nullptr) {
      node* const n = released;
      released = n->next;  // n is gone once its owner runs
      Scheduler::ready(n->who);
    }
  }

  // Takes a waiter whose wait is over early out of the list. Runs inside the runtime.
  static bool give_up(void* argument) noexcept {
    node* const self = static_cast<node*>(argument);
    wait_group_core* const core = self->core;
    // With the counter at 0 the last done is on its way to release() and will ready this waiter,
    // too. A waiter gives up only after it has seen the counter above 0, so no such done is left
    // over that could release the waiters of a later use of the counter.
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

  typename Scheduler::template atomic<std::uint64_t> word_;
  node* waiters_ = nullptr;
};

}  // namespace weft::detail
