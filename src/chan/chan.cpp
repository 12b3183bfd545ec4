// chan.cpp: the untyped channel. Its essay is in weft/detail/chan_core.hpp.
#include <weft/chan.hpp>
#include <weft/detail/chan_core.hpp>
#include <weft/select.hpp>

#include "base/check.hpp"
#include "base/clock.hpp"
#include "base/membarrier.hpp"
#include "chan/locked.hpp"
#include "sched/bias.hpp"
#include "sched/fast_park.hpp"
#include "sched/simulation.hpp"

#include <algorithm>
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

chan_core* chan_core::allocate(std::size_t capacity, const chan_shape& shape) {
  const std::size_t slot_bytes = shape.words * chan_word;
  constexpr std::size_t most = std::numeric_limits<std::ptrdiff_t>::max();
  if (capacity > (most - sizeof(chan_core)) / slot_bytes) {
    throw std::length_error("weft::chan: the capacity is too large");
  }
  const std::size_t bytes = sizeof(chan_core) + capacity * slot_bytes;
  void* const memory = bytes <= block_bytes ? allocate_block() : ::operator new(bytes);
  auto* const core = ::new (memory) chan_core(capacity, shape);
  if (sched::this_simulation() != nullptr) {
    core->bias_.store(reinterpret_cast<sched::machine*>(in_simulation), std::memory_order_relaxed);
    core->set_flag(is_of_simulation);
  }
  return core;
}

chan_core* chan_core::make(std::size_t capacity, const chan_shape& shape) {
  chan_core* const core = allocate(capacity, shape);
  core->references_.store(1, std::memory_order_relaxed);  // no other thread knows it
  return core;
}

chan_core* chan_core::make_owned(std::size_t capacity, const chan_shape& shape, chan_owner* owner) {
  WEFT_ASSERT(shape.destroy == nullptr);
  chan_core* const core = allocate(capacity, shape);
  core->owner_ = owner;
  core->set_flag(has_owner);
  // A channel of a simulation never has a bias, and forgo_bias checks that it is used in one.
  if (!core->is_simulated()) core->bias_after_.store(never_biased, std::memory_order_relaxed);
  return core;
}

void chan_core::dropped() noexcept {
  if ((flags() & has_owner) != 0) return owner_->channel_dropped();
  destroy();
}

// No handle is left, so no goroutine waits and none comes.
void chan_core::destroy() noexcept {
  if (shape_.destroy != nullptr) {
    for (std::size_t n = count(); n != 0; --n, head_ = head_ + 1 == capacity_ ? 0 : head_ + 1) {
      shape_.destroy(slot<false>(head_));
    }
    while (returned_ != nullptr) {
      chan_box_base* const box = std::exchange(returned_, returned_->next);
      shape_.destroy(const_cast<chan_box_base**>(&box));
    }
  }
  const std::size_t bytes = sizeof(chan_core) + capacity_ * shape_.words * chan_word;
  this->~chan_core();
  bytes <= block_bytes ? free_block(this) : ::operator delete(this, bytes);
}

// Each look at the lock takes the cache line of the channel away from the thread that works on it,
// whose operation then takes 100 ns instead of 10. Doubling the pause after each look lets that
// thread get on: two processors together are then not slower than one.
void chan_core::lock_slow() noexcept {
  constexpr int most = 7;
  sched::machine* const m = sched::this_machine();
  const std::int64_t begin_ns = base::now_ns();
  for (int turn = 0;; ++turn) {
    for (int i = 1 << std::min(turn, most); i != 0; --i) relax(turn);
    // relaxed: only a look before the exchange.
    if (lock_.load(std::memory_order_relaxed) == 0 && try_lock()) break;  // [N1]
  }
  // From this time a thief sees whether it pays to run a goroutine here that shares a channel with
  // others (theft.hpp).
  if (m != nullptr) m->p->lock_wait_ns += base::now_ns() - begin_ns;
}

// ---- The lock ----

[[gnu::always_inline]] inline void chan_core::note_use_locked(sched::machine* m) noexcept {
  if (last_user_ != m) {
    last_user_ = m;
    uses_in_a_row_ = 0;
  } else if (++uses_in_a_row_ == bias_after_.load(std::memory_order_relaxed)) [[unlikely]] {
    consider_bias_locked(m);
  }
}

void chan_core::consider_bias_locked(sched::machine* m) noexcept {
  WEFT_ASSERT(lock_.load(std::memory_order_relaxed) != 0 && !is_biased());  // I4
  uses_in_a_row_ = 0;
  if (m == nullptr || has_forgone_bias()) return;
  // The next bias needs more uses in a row.
  const std::uint32_t uses = bias_after_.load(std::memory_order_relaxed);
  bias_after_.store(std::min(uses * 4, last_bias), std::memory_order_relaxed);
  bias_.store(m, std::memory_order_release);  // I4 [E4]
  lock_.store(0, std::memory_order_release);  // [N1] from now on m does not need the lock
}

[[gnu::always_inline]] inline bool chan_core::lock_here(sched::machine* m) noexcept {
  const sched::machine* const biased = bias_.load(base::hot_load_order);
  if (biased == m) return true;
  if (biased != nullptr || !try_lock()) [[unlikely]]
    return false;
  if (bias_.load(std::memory_order_acquire) != nullptr) [[unlikely]] {  // I4 [E3]
    lock_.store(0, std::memory_order_release);                          // [N1]
    return false;
  }
  note_use_locked(m);
  return true;
}

bool chan_core::is_away() const noexcept {
  return is_simulated() && sched::this_simulation() == nullptr;
}

void chan_core::require_home() const {
  if (!is_away()) return;
  // A fast path may have entered the runtime.
  if (sched::machine* const m = sched::this_machine()) sched::leave(m);
  throw std::logic_error(
      "weft::chan: a channel, timer or context made in bubble() or explore() (weft/test.hpp) is "
      "used outside of it");
}

sched::machine* chan_core::enter_and_lock() {
  if (is_simulated()) [[unlikely]] {
    require_home();
    lock();
    return nullptr;
  }
  for (;;) {
    sched::machine* m = sched::this_machine();
    if (m != nullptr) m = sched::enter(m);
    const sched::machine* const biased = bias_.load(base::hot_load_order);
    if (biased != nullptr && biased == m) return m;
    if (biased == nullptr) {
      lock();
      if (bias_.load(std::memory_order_acquire) == nullptr) {  // I4 [E3]
        note_use_locked(m);
        return m;
      }
      lock_.store(0, std::memory_order_release);  // [N1]
    }
    if (m != nullptr) sched::leave(m);
    sched::revoke_bias(bias_);
  }
}

// bias_after_ is set under the lock itself, not under a bias: a thread that sees never_biased there
// looks at nothing else.
void chan_core::forgo_bias() {
  if (is_simulated()) return require_home();
  for (bool done = false; !done;) {
    sched::machine* const m = enter_and_lock();
    done = bias_.load(std::memory_order_relaxed) == nullptr;
    if (done) bias_after_.store(never_biased, std::memory_order_relaxed);
    unlock();
    if (m != nullptr) sched::leave(m);
    if (!done) sched::revoke_bias(bias_);
  }
}

// ---- Operations ----

chan_outcome chan_core::perform_locked(side as, void* element, chan_waiter*& served) noexcept {
  return as == side::senders ? send_locked<false>(element, served)
                             : receive_locked<false>(element, served);
}

// For a machine that is inside the runtime, with the lock or the bias. Afterwards it is outside,
// with neither. A simulation never runs on a machine, so there is nothing to observe.
template <chan_core::side as, bool one_word>
[[gnu::always_inline]] inline chan_outcome chan_core::perform_or_wait_here(sched::machine* m,
                                                                           void* element) {
  chan_waiter* served = nullptr;
  const chan_outcome outcome = as == side::senders ? send_locked<one_word>(element, served)
                                                   : receive_locked<one_word>(element, served);
  if (outcome != chan_outcome::would_wait) {
    unlock();
    if (served != nullptr) sched::ready_on(m, served->who);
    sched::leave(m);
    return outcome;
  }
  chan_waiter self;
  self.element = element;
  self.who = sched::prepare_park_on(
      m, as == side::senders ? wait_reason::chan_send : wait_reason::chan_receive);
  push_locked(as, &self);
  unlock();
  sched::park_on(m);
  return self.done ? chan_outcome::done : chan_outcome::closed;
}

void chan_core::note_waiter(side s, chan_waiter& w) {
  sched::simulation* const simulation = sched::this_simulation();
  if (simulation == nullptr || is_simulated()) return;
  simulation->remember(&w, [this, s, &w] { (void)take_out(s, &w); });
}

void chan_core::drop_note(const chan_waiter& w) noexcept {
  sched::simulation* const simulation = sched::this_simulation();
  if (simulation != nullptr && !is_simulated()) simulation->forget(&w);
}

// For any caller.
template <chan_core::side as>
chan_outcome chan_core::perform_or_wait(void* element) {
  if (sched::this_machine() == nullptr) {
    observe(touch::release, this, as == side::senders ? "send" : "receive");
  }
  if (sched::machine* const m = enter_and_lock()) {
    return perform_or_wait_here<as, false>(m, element);
  }
  chan_waiter* served = nullptr;
  chan_outcome outcome = perform_locked(as, element, served);
  if (outcome != chan_outcome::would_wait) {
    unlock();
    if (served != nullptr) ready_inside(served->who);
  } else {
    chan_waiter self;
    self.element = element;
    self.who = prepare_park_inside(as == side::senders ? wait_reason::chan_send
                                                       : wait_reason::chan_receive);
    push_locked(as, &self);
    unlock();
    note_waiter(as, self);
    park();
    drop_note(self);
    outcome = self.done ? chan_outcome::done : chan_outcome::closed;
  }
  observe(touch::acquire, this);
  return outcome;
}

chan_outcome chan_core::send(void* element) { return perform_or_wait<side::senders>(element); }
chan_outcome chan_core::receive(void* element) { return perform_or_wait<side::receivers>(element); }

// Operations on one word. These functions themselves handle the case that the ring has room, or a
// value, and no other goroutine is concerned. All other cases are calls in tail position, so that
// these functions need no stack frame.
chan_outcome chan_core::send_word(std::uint64_t word) {
  sched::machine* const m = sched::this_machine();
  if (m == nullptr || !m->seat.enter()) [[unlikely]]
    return send_word_slow(word);
  if (!lock_here(m)) [[unlikely]]
    return send_word_slow(word);
  if ((flags() & (is_closed | has_receivers)) != 0 || count() == capacity_)
    return send_word_here(m, word);
  push_ring_locked<true>(&word);
  unlock();
  sched::leave(m);
  return chan_outcome::done;
}

chan_word_received chan_core::receive_word() {
  sched::machine* const m = sched::this_machine();
  if (m == nullptr || !m->seat.enter()) [[unlikely]]
    return receive_word_slow();
  if (!lock_here(m)) [[unlikely]]
    return receive_word_slow();
  if ((flags() & (has_senders | has_returned)) != 0 || count() == 0) return receive_word_here(m);
  std::uint64_t word = 0;
  pop_ring_locked<true>(&word);
  unlock();
  sched::leave(m);
  return {word, chan_outcome::done};
}

[[gnu::noinline]] chan_outcome chan_core::send_word_here(sched::machine* m, std::uint64_t word) {
  return perform_or_wait_here<side::senders, true>(m, &word);
}
[[gnu::noinline]] chan_word_received chan_core::receive_word_here(sched::machine* m) {
  std::uint64_t word = 0;
  const chan_outcome outcome = perform_or_wait_here<side::receivers, true>(m, &word);
  return {word, outcome};
}

// For a plain thread, a machine that a thief has asked a question, and a lock that another thread
// holds.
[[gnu::noinline, gnu::cold]] chan_outcome chan_core::send_word_slow(std::uint64_t word) {
  return send(&word);
}
[[gnu::noinline, gnu::cold]] chan_word_received chan_core::receive_word_slow() {
  std::uint64_t word = 0;
  const chan_outcome outcome = receive(&word);
  return {word, outcome};
}

// ---- Until a context ends ----

// Such a wait is like a select with one case: the thread that takes the waiter out of its queue has
// to claim the wait_set, and so has the cancel of the context. A cancel never touches the channel,
// which may therefore have a bias. A waiter whose wait was ended takes itself out of the queue.

// Returns: would_wait.
[[gnu::noinline]] chan_outcome chan_core::take_out(side as, chan_waiter* w) {
  sched::machine* const m = enter_and_lock();
  if (w->queued) remove_locked(as, w);
  unlock();
  if (m != nullptr) sched::leave(m);
  return chan_outcome::would_wait;
}

// Like perform_or_wait_here.
template <chan_core::side as, bool one_word>
[[gnu::always_inline]] inline chan_outcome chan_core::perform_until_here(sched::machine* m,
                                                                         void* element,
                                                                         const chan_core* done) {
  chan_waiter* served = nullptr;
  const chan_outcome outcome = as == side::senders ? send_locked<one_word>(element, served)
                                                   : receive_locked<one_word>(element, served);
  if (outcome != chan_outcome::would_wait) {
    unlock();
    if (served != nullptr) sched::ready_on(m, served->who);
    sched::leave(m);
    return outcome;
  }
  context_end self(
      element, sched::prepare_park_on(
                   m, as == side::senders ? wait_reason::chan_send : wait_reason::chan_receive));
  push_locked(as, &self);
  unlock();
  wait_ender& ender = done->ender();
  if (ender.watch(self)) [[likely]] {
    sched::suspend(m, m->g);
    ender.unwatch(self);
    sched::leave(sched::this_machine());
  } else if (self.claims.claim(wait_set::timeout)) {
    cancel_park();
  } else {
    sched::park_on(m);
  }
  if (self.was_claimed()) return take_out(as, &self);
  return self.done ? chan_outcome::done : chan_outcome::closed;
}

// For any caller.
template <chan_core::side as>
chan_outcome chan_core::perform_until(void* element, const chan_core* done) {
  if (sched::this_machine() == nullptr) {
    observe(touch::release, this, as == side::senders ? "send" : "receive");
  }
  if (sched::machine* const m = enter_and_lock()) {
    return perform_until_here<as, false>(m, element, done);
  }
  chan_waiter* served = nullptr;
  chan_outcome outcome = perform_locked(as, element, served);
  if (outcome != chan_outcome::would_wait) {
    unlock();
    if (served != nullptr) ready_inside(served->who);
    observe(touch::acquire, this);
    return outcome;
  }
  context_end self(element, prepare_park_inside(as == side::senders ? wait_reason::chan_send
                                                                    : wait_reason::chan_receive));
  push_locked(as, &self);
  unlock();
  note_waiter(as, self);
  wait_ender& ender = done->ender();
  if (!ender.watch_slowly(self) && self.claims.claim(wait_set::timeout)) {
    cancel_park();
  } else {
    park();
    ender.unwatch_slowly(self);
  }
  drop_note(self);
  outcome = self.done ? chan_outcome::done : chan_outcome::closed;
  if (self.was_claimed()) outcome = take_out(as, &self);
  observe(touch::acquire, this);
  return outcome;
}

chan_outcome chan_core::send_until(void* element, const chan_core* done) {
  return perform_until<side::senders>(element, done);
}
chan_outcome chan_core::receive_until(void* element, const chan_core* done) {
  return perform_until<side::receivers>(element, done);
}

// Operations on one word. A context that has ended already, or belongs to a simulation, is left to
// the caller.
chan_outcome chan_core::send_word_until(std::uint64_t word, const chan_core* done) {
  if (done->cannot_end()) [[unlikely]]
    return chan_outcome::would_wait;
  sched::machine* const m = sched::this_machine();
  if (m == nullptr || !m->seat.enter()) [[unlikely]]
    return send_word_until_slow(word, done);
  if (!lock_here(m)) [[unlikely]]
    return send_word_until_slow(word, done);
  return perform_until_here<side::senders, true>(m, &word, done);
}
chan_word_received chan_core::receive_word_until(const chan_core* done) {
  if (done->cannot_end()) [[unlikely]]
    return {0, chan_outcome::would_wait};
  sched::machine* const m = sched::this_machine();
  if (m == nullptr || !m->seat.enter()) [[unlikely]]
    return receive_word_until_slow(done);
  if (!lock_here(m)) [[unlikely]]
    return receive_word_until_slow(done);
  std::uint64_t word = 0;
  const chan_outcome outcome = perform_until_here<side::receivers, true>(m, &word, done);
  return {word, outcome};
}

[[gnu::noinline, gnu::cold]] chan_outcome chan_core::send_word_until_slow(std::uint64_t word,
                                                                          const chan_core* done) {
  return send_until(&word, done);
}
[[gnu::noinline, gnu::cold]] chan_word_received chan_core::receive_word_until_slow(
    const chan_core* done) {
  std::uint64_t word = 0;
  const chan_outcome outcome = receive_until(&word, done);
  return {word, outcome};
}

// ---- Without waiting ----

chan_outcome chan_core::try_send(void* element) {
  observe(touch::release, this, "try_send");
  return could_send() ? perform_now(side::senders, element) : chan_outcome::would_wait;
}

chan_outcome chan_core::try_receive(void* element) {
  observe(touch::release, this, "try_recv");
  return could_receive() ? perform_now(side::receivers, element) : chan_outcome::would_wait;
}

chan_outcome chan_core::perform_now(side as, void* element) {
  if (const sched::machine* const here = sched::this_machine()) sched::expect_outside(here);
  return perform_entered(as, element);
}

// A fast path may have entered the runtime.
chan_outcome chan_core::perform_entered(side as, void* element) {
  sched::machine* const m = enter_and_lock();
  const chan_outcome outcome = perform_and_unlock(as, element);
  if (m != nullptr) sched::leave(m);
  observe(touch::acquire, this);
  return outcome;
}

// Requires: inside the runtime, with the lock or the bias. Lets go of the lock.
chan_outcome chan_core::perform_and_unlock(side as, void* element) noexcept {
  chan_waiter* served = nullptr;
  const chan_outcome outcome = perform_locked(as, element, served);
  unlock();
  if (served != nullptr) ready_inside(served->who);
  return outcome;
}

chan_outcome chan_core::offer_inside(void* element) noexcept {
  lock();
  return perform_and_unlock(side::senders, element);
}

bool chan_core::take_back_inside() noexcept {
  std::uint64_t element[8];  // as large as an element can be; a box would be lost
  lock();
  return perform_and_unlock(side::receivers, element) == chan_outcome::done;
}

bool chan_core::is_received_from_inside() noexcept {
  bool found = false;
  lock();
  for (const chan_waiter* w = receivers_.front(); w != nullptr; w = chan_queue::after(w)) {
    found = found || w->who->how != sched::mode::stopped;
  }
  unlock();
  return found;
}

bool chan_core::close() {
  observe(touch::release, this, "close");
  sched::machine* const m = enter_and_lock();
  if ((flags() & is_closed) != 0) {
    unlock();
    if (m != nullptr) sched::leave(m);
    return false;
  }
  flags_.store(flags() | is_closed, std::memory_order_release);  // [N3]
  chan_queue woken;  // of waiters that are no longer queued
  for (const side s : {side::receivers, side::senders}) {
    while (chan_waiter* const w = take_locked(s)) {
      w->done = false;
      woken.push_back(w);
    }
  }
  unlock();
  // A waiter is gone once its owner runs.
  while (const chan_waiter* const w = woken.pop_front()) ready_inside(w->who);
  if (m != nullptr) sched::leave(m);
  return true;
}

void chan_core::put_back(chan_box_base* box) {
  sched::machine* const m = enter_and_lock();
  chan_waiter* const served = take_locked(side::receivers);
  if (served != nullptr) {
    std::memcpy(served->element, &box, sizeof box);
    served->done = true;
  } else {
    box->next = returned_;
    returned_ = box;
    returned_count_.store(returned_count_.load(std::memory_order_relaxed) + 1,
                          std::memory_order_relaxed);
    set_flag(has_returned);
  }
  unlock();
  if (served != nullptr) ready_inside(served->who);
  if (m != nullptr) sched::leave(m);
}

}  // namespace detail
}  // namespace weft
