// chan.cpp: the untyped channel. Its essay is in weft/detail/chan_core.hpp.
#include <weft/chan.hpp>
#include <weft/detail/chan_core.hpp>
#include <weft/select.hpp>

#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

namespace weft {

closed_channel::closed_channel(const char* what) : std::logic_error(what) {}
nil_channel::nil_channel(const char* what) : std::logic_error(what) {}

namespace detail {

void throw_closed_send() { throw closed_channel("weft::chan: send on a closed channel"); }
void throw_closed_twice() { throw closed_channel("weft::chan: close of a closed channel"); }
void throw_nil_close() { throw nil_channel("weft::chan: close of the nil channel"); }

void throw_two_otherwise() { throw std::logic_error("weft::select: there are two otherwise"); }

void wait_for_ever(wait_reason reason) {
  for (;;) {
    prepare_park(reason);
    park();
  }
}

chan_core* chan_core::make(std::size_t capacity, const chan_shape& shape) {
  const std::size_t slot_bytes = shape.words * chan_word;
  constexpr std::size_t most = std::numeric_limits<std::ptrdiff_t>::max();
  if (capacity > (most - sizeof(chan_core)) / slot_bytes) {
    throw std::length_error("weft::chan: the capacity is too large");
  }
  const std::size_t bytes = sizeof(chan_core) + capacity * slot_bytes;
  void* const memory = bytes <= block_bytes ? allocate_block() : ::operator new(bytes);
  return ::new (memory) chan_core(capacity, shape);
}

// The last handle is gone, so nobody waits and nobody comes.
void chan_core::destroy() noexcept {
  if (shape_->destroy != nullptr) {
    for (; ring_count_ != 0; --ring_count_, head_ = head_ + 1 == capacity_ ? 0 : head_ + 1) {
      shape_->destroy(slot(head_));
    }
    while (returned_ != nullptr) {
      chan_box_base* box = std::exchange(returned_, returned_->next);
      shape_->destroy(&box);
    }
  }
  const std::size_t bytes = sizeof(chan_core) + capacity_ * shape_->words * chan_word;
  this->~chan_core();
  bytes <= block_bytes ? free_block(this) : ::operator delete(this, bytes);
}

void chan_core::lock() noexcept {
  for (int turn = 0; lock_.exchange(1, std::memory_order_acquire) != 0;) {  // [N1]
    // relaxed: only to wait without disturbing.
    while (lock_.load(std::memory_order_relaxed) != 0) relax(turn++);
  }
}

void chan_core::copy(void* to, const void* from) const noexcept {
  // Word by word, as most elements have one.
  auto* const out = static_cast<std::byte*>(to);
  const auto* const in = static_cast<const std::byte*>(from);
  std::memcpy(out, in, chan_word);
  for (std::size_t i = 1; i < shape_->words; ++i) {
    std::memcpy(out + i * chan_word, in + i * chan_word, chan_word);
  }
}

// ---- Queues and ring, under the lock ----

void chan_core::push_locked(chan_queue& q, chan_waiter* w) noexcept {
  w->next = nullptr;
  w->previous = q.tail;
  w->queued = true;
  if (q.tail != nullptr) {
    q.tail->next = w;
  } else {
    q.head.store(w, std::memory_order_relaxed);
  }
  q.tail = w;
}

void chan_core::remove_locked(chan_queue& q, chan_waiter* w) noexcept {
  if (w->previous != nullptr) {
    w->previous->next = w->next;
  } else {
    q.head.store(w->next, std::memory_order_relaxed);
  }
  (w->next != nullptr ? w->next->previous : q.tail) = w->previous;
  w->queued = false;
}

// Takes the first waiter that can still be had. One of the caller's own select is passed over.
chan_waiter* chan_core::take_locked(chan_queue& q, const wait_set* own) noexcept {
  for (chan_waiter* w = q.head.load(std::memory_order_relaxed); w != nullptr;) {
    chan_waiter* const next = w->next;
    if (w->set == nullptr) {
      remove_locked(q, w);
      return w;
    }
    if (w->set != own) {
      remove_locked(q, w);  // its owner finds it gone, or has it claimed by us
      if (w->set->claim(w->index + 1)) return w;
    }
    w = next;
  }
  return nullptr;
}

void chan_core::push_ring_locked(const void* element) noexcept {
  std::size_t tail = head_ + ring_count_;
  if (tail >= capacity_) tail -= capacity_;
  copy(slot(tail), element);
  ++ring_count_;
  count_.store(count_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

void chan_core::pop_ring_locked(void* element) noexcept {
  if (returned_ != nullptr) {
    std::memcpy(element, &returned_, sizeof returned_);
    returned_ = returned_->next;
  } else {
    copy(element, slot(head_));
    head_ = head_ + 1 == capacity_ ? 0 : head_ + 1;
    --ring_count_;
  }
  count_.store(count_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
}

chan_outcome chan_core::send_locked(void* element, const wait_set* own,
                                    chan_waiter*& served) noexcept {
  if (closed_.load(std::memory_order_relaxed)) return chan_outcome::closed;
  if (chan_waiter* const w = take_locked(receivers_, own)) {
    copy(w->element, element);
    w->done = true;
    served = w;
    return chan_outcome::done;
  }
  if (ring_count_ < capacity_) {
    push_ring_locked(element);
    return chan_outcome::done;
  }
  return chan_outcome::would_wait;
}

chan_outcome chan_core::receive_locked(void* element, const wait_set* own,
                                       chan_waiter*& served) noexcept {
  if (count_.load(std::memory_order_relaxed) != 0) {
    pop_ring_locked(element);
    if (ring_count_ < capacity_) {
      if (chan_waiter* const w = take_locked(senders_, own)) {
        push_ring_locked(w->element);
        w->done = true;
        served = w;
      }
    }
    return chan_outcome::done;
  }
  if (chan_waiter* const w = take_locked(senders_, own)) {
    copy(element, w->element);
    w->done = true;
    served = w;
    return chan_outcome::done;
  }
  return closed_.load(std::memory_order_relaxed) ? chan_outcome::closed : chan_outcome::would_wait;
}

bool chan_core::can_send_hint() const noexcept {
  return closed_.load(std::memory_order_relaxed) ||
         count_.load(std::memory_order_relaxed) < capacity_ ||
         receivers_.head.load(std::memory_order_relaxed) != nullptr;
}

bool chan_core::can_receive_hint() const noexcept {
  return count_.load(std::memory_order_relaxed) != 0 ||
         senders_.head.load(std::memory_order_relaxed) != nullptr ||
         closed_.load(std::memory_order_relaxed);
}

// ---- Operations ----

namespace {

// Inside the runtime, with nothing locked: lets the other side go on, and leaves.
void finish(const chan_waiter* served) noexcept {
  if (served != nullptr) ready_inside(served->who);
  leave_runtime();
}

}  // namespace

chan_outcome chan_core::send(void* element) {
  observe(touch::release, this);
  chan_waiter* served = nullptr;
  enter_runtime();
  lock();
  chan_outcome outcome = send_locked(element, nullptr, served);
  if (outcome != chan_outcome::would_wait) {
    unlock();
    finish(served);
  } else {
    chan_waiter self;
    self.element = element;
    self.who = prepare_park_inside(wait_reason::chan_send);
    push_locked(senders_, &self);
    unlock();
    park();
    outcome = self.done ? chan_outcome::done : chan_outcome::closed;
  }
  observe(touch::acquire, this);
  return outcome;
}

chan_outcome chan_core::receive(void* element) {
  observe(touch::release, this);
  chan_waiter* served = nullptr;
  enter_runtime();
  lock();
  chan_outcome outcome = receive_locked(element, nullptr, served);
  if (outcome != chan_outcome::would_wait) {
    unlock();
    finish(served);
  } else {
    chan_waiter self;
    self.element = element;
    self.who = prepare_park_inside(wait_reason::chan_receive);
    push_locked(receivers_, &self);
    unlock();
    park();
    outcome = self.done ? chan_outcome::done : chan_outcome::closed;
  }
  observe(touch::acquire, this);
  return outcome;
}

chan_outcome chan_core::try_send(void* element) {
  observe(touch::release, this);
  if (!can_send_hint()) return chan_outcome::would_wait;
  chan_waiter* served = nullptr;
  enter_runtime();
  lock();
  const chan_outcome outcome = send_locked(element, nullptr, served);
  unlock();
  finish(served);
  observe(touch::acquire, this);
  return outcome;
}

chan_outcome chan_core::try_receive(void* element) {
  observe(touch::release, this);
  if (!can_receive_hint()) return chan_outcome::would_wait;
  chan_waiter* served = nullptr;
  enter_runtime();
  lock();
  const chan_outcome outcome = receive_locked(element, nullptr, served);
  unlock();
  finish(served);
  observe(touch::acquire, this);
  return outcome;
}

bool chan_core::close() {
  observe(touch::release, this);
  enter_runtime();
  lock();
  if (closed_.load(std::memory_order_relaxed)) {
    unlock();
    leave_runtime();
    return false;
  }
  closed_.store(true, std::memory_order_relaxed);
  // One queue is empty. The waiters are linked through `next` until they are readied.
  chan_waiter* list = nullptr;
  chan_waiter** end = &list;
  for (chan_queue* const q : {&receivers_, &senders_}) {
    while (chan_waiter* const w = take_locked(*q, nullptr)) {
      w->done = false;
      w->next = nullptr;
      *end = w;
      end = &w->next;
    }
  }
  unlock();
  while (list != nullptr) {
    const chan_waiter* const w = list;
    list = w->next;  // w is gone once its owner runs
    ready_inside(w->who);
  }
  leave_runtime();
  return true;
}

void chan_core::put_back(chan_box_base* box) {
  chan_waiter* served = nullptr;
  enter_runtime();
  lock();
  if (chan_waiter* const w = take_locked(receivers_, nullptr)) {
    std::memcpy(w->element, &box, sizeof box);
    w->done = true;
    served = w;
  } else {
    box->next = returned_;
    returned_ = box;
    count_.store(count_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  unlock();
  finish(served);
}

}  // namespace detail
}  // namespace weft
