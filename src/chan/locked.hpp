// locked.hpp: the operations under a channel's lock: on its ring, on its queues, and on both.
// Inlined in chan.cpp and select.cpp; the essay is in weft/detail/chan_core.hpp.
#pragma once

#include <weft/detail/chan_core.hpp>

#include <cstring>

namespace weft::detail {

template <bool one_word>
[[gnu::always_inline]] inline void chan_core::copy(void* to, const void* from) const noexcept {
  auto* const out = static_cast<std::byte*>(to);
  const auto* const in = static_cast<const std::byte*>(from);
  std::memcpy(out, in, chan_word);
  if constexpr (one_word) return;
  for (std::size_t i = 1; i < shape_.words; ++i) {
    std::memcpy(out + i * chan_word, in + i * chan_word, chan_word);
  }
}

template <bool one_word>
[[gnu::always_inline]] inline void chan_core::push_ring_locked(const void* element) noexcept {
  copy<one_word>(slot<one_word>(tail_), element);
  tail_ = tail_ + 1 == capacity_ ? 0 : tail_ + 1;
  count_.store(count() + 1, std::memory_order_relaxed);
}

template <bool one_word>
[[gnu::always_inline]] inline void chan_core::pop_ring_locked(void* element) noexcept {
  copy<one_word>(element, slot<one_word>(head_));
  head_ = head_ + 1 == capacity_ ? 0 : head_ + 1;
  count_.store(count() - 1, std::memory_order_release);  // [N4]
}

// Takes the first element of a full ring and appends another. head_ and tail_ are equal then, and
// count_ stays as it is (I5).
template <bool one_word>
[[gnu::always_inline]] inline void chan_core::exchange_ring_locked(void* element,
                                                                   const void* with) noexcept {
  copy<one_word>(element, slot<one_word>(head_));
  copy<one_word>(slot<one_word>(head_), with);
  head_ = tail_ = head_ + 1 == capacity_ ? 0 : head_ + 1;
}

[[gnu::always_inline]] inline void chan_core::push_locked(side s, chan_waiter* w) noexcept {
  queue(s).push_back(w);
  w->queued = true;
  set_flag(flag_of(s));
}

[[gnu::always_inline]] inline void chan_core::remove_locked(side s, chan_waiter* w) noexcept {
  chan_queue& q = queue(s);
  q.remove(w);
  w->queued = false;
  if (q.empty()) clear_flag(flag_of(s));
}

// Takes out the first waiter, passing over waiters of selects that another thread has claimed.
[[gnu::always_inline]] inline chan_waiter* chan_core::take_locked(side s) noexcept {
  chan_queue& q = queue(s);
  while (chan_waiter* const w = q.pop_front()) {
    if (q.empty()) clear_flag(flag_of(s));
    w->queued = false;
    // In a select the claim decides. If it fails, another thread was first; the owner finds the
    // waiter gone from the queue.
    if (w->set == nullptr || w->set->claim(w->index + 1)) return w;
  }
  return nullptr;
}

template <bool one_word>
[[gnu::always_inline]] inline chan_outcome chan_core::send_locked(void* element,
                                                                  chan_waiter*& served) noexcept {
  if ((flags() & is_closed) != 0) return chan_outcome::closed;
  if ((flags() & has_receivers) != 0) {
    if (chan_waiter* const w = take_locked(side::receivers)) {
      copy<one_word>(w->element, element);
      w->done = true;
      served = w;
      return chan_outcome::done;
    }
  }
  if (count() < capacity_) {
    push_ring_locked<one_word>(element);
    return chan_outcome::done;
  }
  return chan_outcome::would_wait;
}

template <bool one_word>
[[gnu::always_inline]] inline chan_outcome chan_core::receive_locked(
    void* element, chan_waiter*& served) noexcept {
  if ((flags() & has_returned) != 0) {
    std::memcpy(element, &returned_, sizeof returned_);
    returned_ = returned_->next;
    returned_count_.store(returned_count_.load(std::memory_order_relaxed) - 1,
                          std::memory_order_relaxed);
    if (returned_ == nullptr) clear_flag(has_returned);
    return chan_outcome::done;
  }
  if (count() != 0) {
    if ((flags() & has_senders) != 0) {
      if (chan_waiter* const w = take_locked(side::senders)) {
        exchange_ring_locked<one_word>(element, w->element);
        w->done = true;
        served = w;
        return chan_outcome::done;
      }
    }
    pop_ring_locked<one_word>(element);
    return chan_outcome::done;
  }
  if ((flags() & has_senders) != 0) {
    if (chan_waiter* const w = take_locked(side::senders)) {
      copy<one_word>(element, w->element);
      w->done = true;
      served = w;
      return chan_outcome::done;
    }
  }
  return (flags() & is_closed) != 0 ? chan_outcome::closed : chan_outcome::would_wait;
}

}  // namespace weft::detail
