// mini_sync.hpp: a mutex, a condition variable, a channel, a timer and a cancellation for programs
// that a test explores, until weft has its own.
//
// They live in a simulation (weft/test.hpp) only: its goroutines share one OS thread and are
// interrupted at points alone, so plain members need no lock. Every member function begins with one
// point; what it does after that, up to a park, is one step.
//
// A waiter puts its node into a queue before it parks, and a wake-up marks the node: it is not lost
// if it comes between the two.
#pragma once

#include <weft/detail/park.hpp>
#include <weft/go.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

namespace weft::mini {

using detail::observe;
using detail::touch;
using detail::wait_reason;

// The waiters, first come first served. The nodes are on the waiters' stacks.
class wait_queue {
 public:
  struct node {
    detail::goroutine* who = nullptr;  // once it is about to park
    node* next = nullptr;
    wait_queue* queue = nullptr;
    bool woken = false;
  };

  wait_queue() = default;
  wait_queue(const wait_queue&) = delete;
  wait_queue& operator=(const wait_queue&) = delete;

  void join(node& n) {
    n.queue = this;
    node** last = &first_;
    while (*last != nullptr) last = &(*last)->next;
    *last = &n;
  }

  // Parks. Requires: join(n). Returns: false if it was not woken before `deadline_ns`.
  static bool wait(node& n, wait_reason reason, std::int64_t deadline_ns = INT64_MAX) {
    detail::goroutine* const self = detail::prepare_park(reason);
    if (n.woken) {
      detail::cancel_park();
      return true;
    }
    n.who = self;
    if (deadline_ns == INT64_MAX) {
      detail::park();
      return true;
    }
    return detail::park_until(deadline_ns, &give_up, &n);
  }

  void wake_one() {
    if (first_ != nullptr) wake(*first_);
  }
  void wake_all() {
    while (first_ != nullptr) wake(*first_);
  }
  static void wake(node& n) {
    n.queue->leave(n);
    n.woken = true;
    if (n.who != nullptr) detail::ready(n.who);
  }

 private:
  void leave(node& n) {
    node** link = &first_;
    while (*link != &n) link = &(*link)->next;
    *link = n.next;
  }

  static bool give_up(void* argument) {
    node& n = *static_cast<node*>(argument);
    if (n.woken) return false;
    n.queue->leave(n);
    return true;
  }

  node* first_ = nullptr;
};

// The first to come gets the lock: a waiter that was woken may find that another goroutine was
// faster.
class mutex {
 public:
  void lock() {
    observe(touch::arrive, this, "lock");
    while (locked_) {
      wait_queue::node n;
      waiters_.join(n);
      wait_queue::wait(n, wait_reason::mutex);
    }
    locked_ = true;
    observe(touch::acquire, this);
  }

  void unlock() {
    observe(touch::release, this, "unlock");
    if (!locked_) throw std::logic_error("unlock of a mutex that is not locked");
    locked_ = false;
    waiters_.wake_one();
  }

 private:
  bool locked_ = false;
  wait_queue waiters_;
};

// Works with any lock. There are no spurious wake-ups, but other goroutines may run between the
// wake-up and the lock.
class condition_variable {
 public:
  template <class Lock>
  void wait(Lock& lock) {
    (void)wait_until_ns(lock, INT64_MAX);
  }
  // Returns: false if no notification came in time.
  template <class Lock>
  bool wait_for(Lock& lock, std::chrono::nanoseconds d) {
    return wait_until_ns(lock, detail::deadline_after(d.count()));
  }

  void notify_one() {
    observe(touch::arrive, this, "notify_one");
    waiters_.wake_one();
  }
  void notify_all() {
    observe(touch::arrive, this, "notify_all");
    waiters_.wake_all();
  }

 private:
  template <class Lock>
  bool wait_until_ns(Lock& lock, std::int64_t deadline_ns) {
    observe(touch::arrive, this, "wait");
    wait_queue::node n;
    waiters_.join(n);
    lock.unlock();
    const bool notified = wait_queue::wait(n, wait_reason::condition, deadline_ns);
    lock.lock();
    return notified;
  }

  wait_queue waiters_;
};

// Go's channel. Holds `capacity` values; further values wait together with their senders.
template <class T>
class chan {
 public:
  explicit chan(std::size_t capacity = 0) : capacity_(capacity) {}

  // Throws: std::logic_error if the channel is closed, also during the wait.
  void send(T value) {
    observe(touch::release, this, "send");
    if (closed_) throw std::logic_error("send on a closed channel");
    receivers_.wake_one();
    if (values_.size() < capacity_) {
      values_.push_back({std::move(value), nullptr});
    } else {
      sender self;
      senders_.join(self.node);
      values_.push_back({std::move(value), &self});
      wait_queue::wait(self.node, wait_reason::chan_send);
      if (self.refused) throw std::logic_error("send on a closed channel");
    }
    observe(touch::acquire, this);
  }

  // Returns: nothing if the channel is closed and empty.
  std::optional<T> receive() { return receive_until_ns(INT64_MAX); }
  // Like recv(), and returns nothing if no value came in time.
  std::optional<T> receive_for(std::chrono::nanoseconds d) {
    return receive_until_ns(detail::deadline_after(d.count()));
  }

  // Throws: std::logic_error if it is closed already.
  void close() {
    observe(touch::release, this, "close");
    if (std::exchange(closed_, true)) throw std::logic_error("close of a closed channel");
    receivers_.wake_all();
    while (values_.size() > capacity_) {
      sender& s = *values_.back().from;
      values_.pop_back();
      s.refused = true;
      wait_queue::wake(s.node);
    }
  }

 private:
  struct sender {
    wait_queue::node node;
    bool refused = false;
  };
  struct entry {
    T value;
    sender* from;  // the sender that waits with the value; null below the capacity
  };

  std::optional<T> receive_until_ns(std::int64_t deadline_ns) {
    // A release, too: what came before it is visible to the goroutine that sends into the free
    // place.
    observe(touch::release, this, "receive");
    while (values_.empty()) {
      if (closed_) break;
      wait_queue::node n;
      receivers_.join(n);
      if (!wait_queue::wait(n, wait_reason::chan_receive, deadline_ns)) return std::nullopt;
    }
    observe(touch::acquire, this);
    if (values_.empty()) return std::nullopt;
    // There will be room for the first that waits; without capacity that is the one received.
    if (values_.size() > capacity_) {
      wait_queue::wake(std::exchange(values_[capacity_].from, nullptr)->node);
    }
    std::optional<T> value(std::move(values_.front().value));
    values_.pop_front();
    return value;
  }

  std::size_t capacity_;
  bool closed_ = false;
  std::deque<entry> values_;
  wait_queue senders_;
  wait_queue receivers_;
};

// Calls a function after a time, in a goroutine of its own. Go's time.AfterFunc.
class timer {
 public:
  timer(std::chrono::nanoseconds d, std::function<void()> f) : state_(std::make_shared<state>()) {
    weft::go({.name = "timer"}, &run, state_, detail::deadline_after(d.count()), std::move(f));
  }

  // Returns: whether the function will not be called because of this. If not, it may run still.
  bool stop() {
    observe(touch::arrive, state_.get(), "stop");
    if (state_->stopped || state_->fired) return false;
    state_->stopped = true;
    state_->sleeper.wake_one();
    return true;
  }

 private:
  struct state {
    bool stopped = false;
    bool fired = false;
    wait_queue sleeper;
  };

  static void run(const std::shared_ptr<state>& s, std::int64_t deadline_ns,
                  const std::function<void()>& f) {
    if (!s->stopped) {
      wait_queue::node n;
      s->sleeper.join(n);
      wait_queue::wait(n, wait_reason::sleep, deadline_ns);
    }
    observe(touch::arrive, s.get(), "fire");
    if (s->stopped) return;
    s->fired = true;
    f();
  }

  std::shared_ptr<state> state_;
};

// What the goroutines that work for a caller wait for besides their work. Go's context.
class cancellation {
 public:
  void cancel() {
    observe(touch::release, this, "cancel");
    cancelled_ = true;
    waiters_.wake_all();
  }

  // Returns: whether it was cancelled within that time.
  bool wait_for(std::chrono::nanoseconds d) {
    observe(touch::arrive, this, "wait for cancel");
    wait_queue::node n;
    if (!cancelled_) {
      waiters_.join(n);
      if (!wait_queue::wait(n, wait_reason::sleep, detail::deadline_after(d.count()))) return false;
    }
    observe(touch::acquire, this);
    return true;
  }

 private:
  bool cancelled_ = false;
  wait_queue waiters_;
};

}  // namespace weft::mini
