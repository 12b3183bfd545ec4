// shared_mutex_slow.hpp: the slow paths of a shared_mutex, for shared_mutex.cpp and for the model
// test. The essay is in weft/detail/shared_mutex_core.hpp.
#pragma once

#include "base/check.hpp"
#include "sync/mutex_slow.hpp"

#include <weft/detail/shared_mutex_core.hpp>

#include <new>

namespace weft::detail {

inline constexpr std::uint32_t collisions_to_spread = 16;

inline constexpr std::uint64_t slot_open = 1;
inline constexpr int slot_shift = 1;
inline constexpr std::uint64_t slot_reader = 1u << slot_shift;

template <class Scheduler>
struct basic_shared_mutex<Scheduler>::slots {
  static constexpr std::size_t count = 8;

  struct alignas(64) slot {
    atomic<std::uint64_t> word{0};
  };
  slot all[count];
};

// The parts of the center's word, while one thread is busy with it.
template <class Scheduler>
struct basic_shared_mutex<Scheduler>::center {
  std::int64_t readers;
  bool writer;
  bool open;  // whether the slots are open

  explicit center(std::uint64_t word) noexcept
      : readers(static_cast<std::int64_t>(word) >> reader_shift),
        writer((word & held) != 0),
        open((word & spread_) != 0) {}
};

template <class Scheduler>
basic_shared_mutex<Scheduler>::~basic_shared_mutex() {
  delete slots_.load(std::memory_order_relaxed);
}

// ---- Under busy ----

template <class Scheduler>
typename basic_shared_mutex<Scheduler>::center basic_shared_mutex<Scheduler>::take() noexcept {
  return center(take_bit<Scheduler>(word_, busy));  // [X1] [X2] [X3]
}

template <class Scheduler>
void basic_shared_mutex<Scheduler>::let_go(const center& c) noexcept {
  const bool somebody_waits = woken_ || !readers_.empty() || !writers_.empty();  // I4
  WEFT_ASSERT(!c.open || (!c.writer && writers_.empty()));                       // I3
  word_.store((static_cast<std::uint64_t>(c.readers) << reader_shift) | (c.writer ? held : 0) |
                  (c.open ? spread_ : 0) | (somebody_waits ? barred : 0),
              std::memory_order_release);  // [X1] [X2] [X3] I6
}

template <class Scheduler>
void basic_shared_mutex<Scheduler>::close_slots(center& c) noexcept {
  if (!c.open) return;
  for (typename slots::slot& s : slots_.load(std::memory_order_relaxed)->all) {  // ordered by [X3]
    const std::uint64_t word = s.word.exchange(0, std::memory_order_acq_rel);    // [X2]
    c.readers += static_cast<std::int64_t>(word) >> slot_shift;
  }
  c.open = false;
  collisions_.store(0, std::memory_order_relaxed);
}

// Afterwards the slots are closed.
template <class Scheduler>
bool basic_shared_mutex<Scheduler>::nobody_in(center& c) noexcept {
  close_slots(c);
  return !c.writer && c.readers == 0;
}

template <class Scheduler>
void basic_shared_mutex<Scheduler>::admit_readers(center& c, wait_chain& admitted) noexcept {
  while (waiter* const w = readers_.pop_front()) {
    w->granted = true;
    ++c.readers;
    admitted.add(*w);
  }
}

// Makes the first writer of the queue the owner. Returns: null if the queue is empty.
template <class Scheduler>
typename basic_shared_mutex<Scheduler>::waiter* basic_shared_mutex<Scheduler>::hand_over(
    center& c) noexcept {
  waiter* const w = writers_.pop_front();
  if (w == nullptr) return nullptr;
  w->granted = true;
  c.writer = true;
  if (writers_.empty() || Scheduler::now_ns() - w->since_ns < starved_ns) starving_ = false;
  return w;
}

// ---- Writers ----

template <class Scheduler>
bool basic_shared_mutex<Scheduler>::try_lock_slow() noexcept {
  typename Scheduler::inside in;
  center c = take();
  const bool got = nobody_in(c);
  if (got) c.writer = true;
  let_go(c);
  in.leave();
  return got;
}

template <class Scheduler>
bool basic_shared_mutex<Scheduler>::lock_slow(wait_limit limit) {
  waiter self;
  self.primitive = this;
  bool on_the_way = false;  // woken_ is set for this waiter
  for (;;) {
    for (int turn = 0; Scheduler::spin(turn); ++turn) {
      // relaxed: a look before the exchange that counts.
      if ((word_.load(std::memory_order_relaxed) & ~barred) == 0) break;
    }
    typename Scheduler::inside in;
    center c = take();
    if (on_the_way) woken_ = false;
    if (nobody_in(c)) {
      c.writer = true;
      let_go(c);
      in.leave();
      return true;
    }
    self.who = Scheduler::prepare_park_inside(wait_reason::shared_mutex);
    const std::int64_t now_ns = Scheduler::now_ns();
    if (!on_the_way) {
      self.since_ns = now_ns;
      writers_.push_back(self);
    } else {
      if (now_ns - self.since_ns > starved_ns) starving_ = true;
      writers_.push_front(self);
    }
    let_go(c);
    if (!limit.park<Scheduler>(self.who, &give_up_lock, &self)) return false;
    if (self.granted) return true;
    on_the_way = true;
  }
}

template <class Scheduler>
void basic_shared_mutex<Scheduler>::unlock_slow() noexcept {
  wait_chain admitted;
  typename Scheduler::inside in;
  center c = take();
  if (!c.writer) die_of_unlock("an unlocked shared_mutex");
  c.writer = false;
  if (!readers_.empty()) {
    admit_readers(c, admitted);
  } else if (starving_) {
    if (waiter* const w = hand_over(c)) admitted.add(*w);
  } else if (!woken_) {
    if (waiter* const w = writers_.pop_front()) {
      woken_ = true;  // I5
      admitted.add(*w);
    }
  }
  let_go(c);
  admitted.ready_all();
  in.leave();
}

template <class Scheduler>
bool basic_shared_mutex<Scheduler>::give_up_lock(void* argument) noexcept {
  waiter& self = *static_cast<waiter*>(argument);
  basic_shared_mutex& m = *static_cast<basic_shared_mutex*>(self.primitive);
  wait_chain admitted;
  center c = m.take();
  const bool waits = self.queued;
  if (waits) {
    m.writers_.remove(self);
    if (m.writers_.empty()) {
      m.starving_ = false;
      // Readers that were held back only because of this writer.
      if (!c.writer && !m.woken_) m.admit_readers(c, admitted);  // I5
    }
  }
  m.let_go(c);
  admitted.ready_all();
  return waits;
}

// ---- Readers ----

template <class Scheduler>
typename Scheduler::template atomic<std::uint64_t>* basic_shared_mutex<Scheduler>::my_slot()
    const noexcept {
  slots* const s = slots_.load(std::memory_order_acquire);  // [X4]
  if (s == nullptr) [[likely]]
    return nullptr;
  return &s->all[Scheduler::thread_hint() % slots::count].word;
}

template <class Scheduler>
bool basic_shared_mutex<Scheduler>::try_lock_shared() noexcept {
  if (atomic<std::uint64_t>* const slot = my_slot()) {
    std::uint64_t word = slot->load(std::memory_order_relaxed);  // re-checked by the exchange
    while ((word & slot_open) != 0) {
      if (slot->compare_exchange_weak(word, word + slot_reader, std::memory_order_acquire,  // [X1]
                                      std::memory_order_relaxed)) {
        return true;
      }
    }
  }
  std::uint64_t word = word_.load(std::memory_order_relaxed);  // re-checked by the exchange
  for (bool collided = false;; collided = true) {
    if ((word & (held | barred)) != 0) return false;
    if ((word & busy) != 0) break;
    if (word_.compare_exchange_strong(word, word + one_reader, std::memory_order_acquire,  // [X1]
                                      std::memory_order_relaxed)) {
      if (collided && collisions_.fetch_add(1, std::memory_order_relaxed) == collisions_to_spread) {
        spread();
      }
      return true;
    }
  }
  typename Scheduler::inside in;
  center c = take();
  const bool got = !c.writer && writers_.empty() && !woken_;
  if (got) ++c.readers;
  let_go(c);
  in.leave();
  return got;
}

template <class Scheduler>
bool basic_shared_mutex<Scheduler>::lock_shared_until(wait_limit limit) {
  if (try_lock_shared()) [[likely]]
    return true;
  for (int turn = 0; Scheduler::spin(turn); ++turn) {
    if (try_lock_shared()) return true;
  }
  typename Scheduler::inside in;
  center c = take();
  if (!c.writer && writers_.empty() && !woken_) {
    ++c.readers;
    let_go(c);
    in.leave();
    return true;
  }
  waiter self;
  self.primitive = this;
  self.who = Scheduler::prepare_park_inside(wait_reason::shared_mutex_shared);
  readers_.push_back(self);
  let_go(c);
  return limit.park<Scheduler>(self.who, &give_up_lock_shared, &self);
}

template <class Scheduler>
bool basic_shared_mutex<Scheduler>::give_up_lock_shared(void* argument) noexcept {
  waiter& self = *static_cast<waiter*>(argument);
  basic_shared_mutex& m = *static_cast<basic_shared_mutex*>(self.primitive);
  const center c = m.take();
  const bool waits = self.queued;
  if (waits) m.readers_.remove(self);
  m.let_go(c);
  return waits;
}

template <class Scheduler>
void basic_shared_mutex<Scheduler>::unlock_shared() noexcept {
  if (atomic<std::uint64_t>* const slot = my_slot()) {
    std::uint64_t word = slot->load(std::memory_order_relaxed);  // re-checked by the exchange
    while ((word & slot_open) != 0) {
      if (slot->compare_exchange_weak(word, word - slot_reader, std::memory_order_release,  // [X2]
                                      std::memory_order_relaxed)) {
        return;
      }
    }
  }
  std::uint64_t word = word_.load(std::memory_order_relaxed);  // re-checked by the exchange
  while ((word & (busy | held | barred)) == 0 && word != 0) {
    if (word_.compare_exchange_weak(word, word - one_reader, std::memory_order_release,  // [X2]
                                    std::memory_order_relaxed)) {
      return;
    }
  }
  typename Scheduler::inside in;
  center c = take();
  if (c.writer || (!c.open && c.readers == 0)) die_of_unlock("an unlocked shared_mutex");
  --c.readers;
  // I5: if a woken writer is on its way, no other waiter need be woken.
  waiter* next = nullptr;
  if (!c.open && c.readers == 0 && !woken_) next = hand_over(c);
  let_go(c);
  if (next != nullptr) Scheduler::ready_inside(next->who);
  in.leave();
}

template <class Scheduler>
void basic_shared_mutex<Scheduler>::spread() noexcept {
  slots* made = nullptr;
  if (slots_.load(std::memory_order_relaxed) == nullptr) {
    made = new (std::nothrow) slots;
    if (made == nullptr) return;
  }
  typename Scheduler::inside in;
  center c = take();
  slots* s = slots_.load(std::memory_order_relaxed);  // ordered by [X3]
  if (s == nullptr && made != nullptr) {
    s = made;
    made = nullptr;
    slots_.store(s, std::memory_order_release);  // [X4]
  }
  if (s != nullptr && !c.open && !c.writer && writers_.empty() && !woken_) {
    for (typename slots::slot& slot : s->all)
      slot.word.store(slot_open, std::memory_order_release);  // [X1]
    c.open = true;
  }
  let_go(c);
  in.leave();
  delete made;
}

}  // namespace weft::detail
