// mutex_slow.hpp: the slow paths of a mutex, for mutex.cpp and for the model test. The essay is in
// weft/detail/mutex_core.hpp.
#pragma once

#include "base/check.hpp"
#include "base/platform.hpp"

#include <weft/detail/mutex_core.hpp>

#include <algorithm>

namespace weft::detail {

// How a mutex gets at machines, for its bias. This default has no biases; mutex.cpp specialises it
// for the real seam.
template <class Scheduler>
struct bias_door {
  static constexpr bool biases = false;
};

inline constexpr std::int64_t starved_ns = 1'000'000;

// Spins while the holder has the lock. Returns: true if the lock was taken.
template <class Scheduler>
bool basic_mutex<Scheduler>::spin() noexcept {
  for (int turn = 0; Scheduler::spin(turn); ++turn) {
    // relaxed: a look before the exchange that counts.
    if ((word_.load(std::memory_order_relaxed) & locked) == 0 && try_lock()) return true;
  }
  return false;
}

template <class Scheduler>
bool basic_mutex<Scheduler>::lock_slow(wait_reason reason, wait_limit limit) {
  forgo_bias();
  if (spin()) return true;
  waiter self;
  self.primitive = this;
  bool on_the_way = false;  // woken_ is set for this waiter
  for (;;) {
    typename Scheduler::inside in;
    std::uint32_t word = take_busy(in);  // [U2]
    if (on_the_way) woken_ = false;
    bool parks = false;
    for (;;) {
      if ((word & locked) == 0) {
        if (parks) queue_.remove(self);
        if (queue_.empty()) starving_ = false;
        // I2: this waiter is about to hold the lock.
        if (word_.compare_exchange_weak(word, locked | wake_if_due(), std::memory_order_acq_rel,
                                        std::memory_order_acquire)) {  // [U1] [U2]
          uses_left_ = bias_after_;
          parks ? Scheduler::cancel_park() : in.leave();
          return true;
        }
        if (parks) on_the_way ? queue_.push_front(self) : queue_.push_back(self);
        continue;
      }
      if (!parks) {
        parks = true;
        self.who = Scheduler::prepare_park_inside(reason);
        const std::int64_t now_ns = Scheduler::now_ns();
        if (!on_the_way) {
          self.since_ns = now_ns;
        } else if (now_ns - self.since_ns > starved_ns) {
          starving_ = true;
        }
        on_the_way ? queue_.push_front(self) : queue_.push_back(self);
      }
      if (word_.compare_exchange_weak(word, locked | wake_if_due(), std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {  // I2 [U2]
        break;
      }
    }
    if (!limit.park<Scheduler>(self.who, &give_up, &self)) return false;
    if (self.granted) return true;
    on_the_way = true;
    if (spin()) {
      typename Scheduler::inside again;
      word = take_bit<Scheduler>(word_, busy);  // [U2]
      woken_ = false;
      if (queue_.empty()) starving_ = false;
      // This goroutine holds the lock, so no other thread changes the word.
      word_.store(locked | wake_if_due(), std::memory_order_release);  // [U2]
      again.leave();
      return true;
    }
  }
}

// Takes `busy`. The caller is inside before and after, but may leave in between, and then be inside
// on another machine.
template <class Scheduler>
std::uint32_t basic_mutex<Scheduler>::take_busy(typename Scheduler::inside& in) noexcept {
  std::uint32_t word = word_.load(std::memory_order_relaxed);  // re-checked by the exchange
  for (int turn = 0;;) {
    if ((word & biased) != 0) {  // I4
      in.leave();
      revoke_bias();
      in.enter();
    } else if ((word & busy) != 0) {
      Scheduler::relax(turn++);
    } else if (word_.compare_exchange_weak(word, word | busy, std::memory_order_acquire,  // [U2]
                                           std::memory_order_relaxed)) {
      return word | busy;
    }
    word = word_.load(std::memory_order_relaxed);
  }
}

// Called by a holder that has met no other goroutine at this mutex for a while. May give its
// machine the bias.
template <class Scheduler>
void basic_mutex<Scheduler>::consider_bias() noexcept {
  using door = bias_door<Scheduler>;
  uses_left_ = bias_after_;
  if constexpr (door::biases) {
    auto* m = door::here();
    if (m == nullptr) return;
    m = door::enter(m);
    // [U2] The mutex is locked, so no other thread makes it biased.
    take_bit<Scheduler>(word_, busy);
    const bool alone = queue_.empty() && !woken_ && !starving_;
    if (alone && owner_.load(std::memory_order_relaxed) == m) {
      // The next bias needs more uses.
      bias_after_ = std::min(bias_after_ * 4, last_bias);
      uses_left_ = bias_after_;
      held_ = true;
      word_.store(biased, std::memory_order_release);  // [U2] I4
    } else {
      owner_.store(m, std::memory_order_relaxed);
      word_.fetch_and(~busy, std::memory_order_release);  // [U2]
    }
    door::leave(m);
  }
}

template <class Scheduler>
bool basic_mutex<Scheduler>::try_lock_biased() noexcept {
  using door = bias_door<Scheduler>;
  if constexpr (door::biases) {
    for (;;) {
      if (auto* m = door::here()) {
        m = door::enter(m);
        const bool mine = (word_.load(base::hot_load_order) & (biased | leaving)) == biased &&
                          owner_.load(std::memory_order_relaxed) == m;
        const bool got = mine && !held_;
        if (got) held_ = true;
        door::leave(m);
        if (mine) return got;
      }
      revoke_bias();
      const std::uint32_t before = word_.fetch_or(locked, std::memory_order_acquire);  // [U1] [U3]
      if ((before & biased) == 0) return (before & locked) == 0;
    }
  }
  return false;
}

// Returns: false if the mutex has no bias any more.
template <class Scheduler>
bool basic_mutex<Scheduler>::unlock_biased() noexcept {
  using door = bias_door<Scheduler>;
  if constexpr (door::biases) {
    if ((word_.load(std::memory_order_relaxed) & biased) == 0) return false;
    if (auto* m = door::here()) {
      m = door::enter(m);
      const bool mine = (word_.load(base::hot_load_order) & (biased | leaving)) == biased &&
                        owner_.load(std::memory_order_relaxed) == m && held_;
      if (mine) held_ = false;
      door::leave(m);  // I3: a revoker waits for this
      if (mine) return true;
    }
    revoke_bias();
  }
  return false;
}

template <class Scheduler>
void basic_mutex<Scheduler>::revoke_bias() noexcept {
  using door = bias_door<Scheduler>;
  if constexpr (door::biases) {
    door::alone([this] {
      if ((word_.load(std::memory_order_acquire) & biased) == 0) return;  // [U2]
      word_.fetch_or(leaving, std::memory_order_seq_cst);                 // bias.hpp, [E1]
      door::wait_until_away(owner_.load(std::memory_order_relaxed));
      owner_.store(nullptr, std::memory_order_relaxed);
      word_.store(held_ ? locked : 0, std::memory_order_release);  // [U3] I4
    });
  }
}

template <class Scheduler>
void basic_mutex<Scheduler>::unlock_slow() noexcept {
  if (unlock_biased()) return;
  typename Scheduler::inside in;
  unlock_inside();
  in.leave();
}

template <class Scheduler>
void basic_mutex<Scheduler>::unlock_inside() noexcept {
  const std::uint32_t word = take_bit<Scheduler>(word_, busy);  // [U2]
  if ((word & locked) == 0) die_of_unlock("an unlocked mutex");
  waiter* next = nullptr;
  std::uint32_t after = 0;
  if (starving_) {
    next = queue_.pop_front();
    WEFT_ASSERT(next != nullptr);
    next->granted = true;
    if (queue_.empty() || Scheduler::now_ns() - next->since_ns < starved_ns) starving_ = false;
    after = locked | wake_if_due();
  } else if (!woken_) {
    next = queue_.pop_front();
    woken_ = next != nullptr;
  }
  // A store: while the lock is held, only the holder of `busy` changes the word.
  word_.store(after, std::memory_order_release);  // [U1] [U2] I3
  if (next != nullptr) Scheduler::ready_inside(next->who);
}

template <class Scheduler>
bool basic_mutex<Scheduler>::give_up(void* argument) noexcept {
  waiter& self = *static_cast<waiter*>(argument);
  basic_mutex& m = *static_cast<basic_mutex*>(self.primitive);
  take_bit<Scheduler>(m.word_, busy);  // [U2]
  const bool waits = self.queued;
  if (waits) m.queue_.remove(self);
  if (m.queue_.empty()) m.starving_ = false;
  const std::uint32_t keep = m.queue_.empty() ? ~(busy | wake) : ~busy;
  m.word_.fetch_and(keep, std::memory_order_release);  // [U2]
  return waits;
}

}  // namespace weft::detail
