// mutex_slow.hpp: the slow ways of a mutex, for mutex.cpp and for the model test. The essay is in
// weft/detail/mutex_core.hpp.
#pragma once

#include "base/check.hpp"

#include <weft/detail/mutex_core.hpp>

namespace weft::detail {

inline constexpr std::int64_t starved_ns = 1'000'000;

// Waits, running, for the holder to be done. Returns: true with the lock.
template <class Seam>
bool basic_mutex<Seam>::spin() noexcept {
  for (int turn = 0; Seam::spin(turn); ++turn) {
    // relaxed: a look before the exchange that counts.
    if ((word_.load(std::memory_order_relaxed) & locked) == 0 && try_lock()) return true;
  }
  return false;
}

template <class Seam>
bool basic_mutex<Seam>::lock_slow(wait_reason reason, patience limit) {
  if (spin()) return true;
  waiter self;
  self.primitive = this;
  bool on_the_way = false;  // woken_ stands for this one
  for (;;) {
    typename Seam::inside in;
    std::uint32_t word = take_bit<Seam>(word_, busy);  // [U2]
    if (on_the_way) woken_ = false;
    bool parks = false;
    for (;;) {
      if ((word & locked) == 0) {
        if (parks) queue_.remove(self);
        if (queue_.empty()) starving_ = false;
        // I2: this one is about to hold the lock.
        if (word_.compare_exchange_weak(word, locked | wake_if_due(), std::memory_order_acq_rel,
                                        std::memory_order_acquire)) {  // [U1] [U2]
          parks ? Seam::cancel_park() : in.leave();
          return true;
        }
        if (parks) on_the_way ? queue_.push_front(self) : queue_.push_back(self);
        continue;
      }
      if (!parks) {
        parks = true;
        self.who = Seam::prepare_park_inside(reason);
        const std::int64_t now_ns = Seam::now_ns();
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
    if (!limit.park<Seam>(self.who, &give_up, &self)) return false;
    if (self.granted) return true;
    on_the_way = true;
    if (spin()) {
      typename Seam::inside again;
      word = take_bit<Seam>(word_, busy);  // [U2]
      woken_ = false;
      if (queue_.empty()) starving_ = false;
      // The lock is held, by this one: nobody else changes the word.
      word_.store(locked | wake_if_due(), std::memory_order_release);  // [U2]
      again.leave();
      return true;
    }
  }
}

template <class Seam>
void basic_mutex<Seam>::unlock_slow() noexcept {
  typename Seam::inside in;
  unlock_inside();
  in.leave();
}

template <class Seam>
void basic_mutex<Seam>::unlock_inside() noexcept {
  const std::uint32_t word = take_bit<Seam>(word_, busy);  // [U2]
  if ((word & locked) == 0) die_of_unlock("an unlocked mutex");
  waiter* next = nullptr;
  std::uint32_t after = 0;
  if (starving_) {
    next = queue_.pop_front();
    WEFT_ASSERT(next != nullptr);
    next->granted = true;
    if (queue_.empty() || Seam::now_ns() - next->since_ns < starved_ns) starving_ = false;
    after = locked | wake_if_due();
  } else if (!woken_) {
    next = queue_.pop_front();
    woken_ = next != nullptr;
  }
  // A store: while the lock is held nobody but the holder of `busy` changes the word.
  word_.store(after, std::memory_order_release);  // [U1] [U2] I3
  if (next != nullptr) Seam::ready_inside(next->who);
}

template <class Seam>
bool basic_mutex<Seam>::give_up(void* argument) noexcept {
  waiter& self = *static_cast<waiter*>(argument);
  basic_mutex& m = *static_cast<basic_mutex*>(self.primitive);
  take_bit<Seam>(m.word_, busy);  // [U2]
  const bool waits = self.queued;
  if (waits) m.queue_.remove(self);
  if (m.queue_.empty()) m.starving_ = false;
  const std::uint32_t keep = m.queue_.empty() ? ~(busy | wake) : ~busy;
  m.word_.fetch_and(keep, std::memory_order_release);  // [U2]
  return waits;
}

}  // namespace weft::detail
