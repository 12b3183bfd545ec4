// seam.hpp: stands for weft::detail::seam (weft/detail/park.hpp), so that the cores of the
// primitives can be explored without a scheduler.
//
// A waiter is the record of a thread of the model. ready() puts a token into it and wakes its
// futex; park() waits for the token and takes it. A deadline is a timed wait, which may end at any
// moment; the thread then calls give_up itself, and if that says no it waits for the token like
// anybody. The real alarm may ring on another thread, but while it does its waiter only sleeps.
//
// Besides, the seam sees to the contract of park.hpp:
//   - prepare_park is followed by cancel_park or by one wait; nothing in between enters again;
//   - each wait gets exactly one ready(), or gives up and gets none;
//   - ready() and yield() come from outside the runtime, ready_inside() from inside;
//   - a thread that readies a waiter has found it through an acquire: `prepared` below is a var
//     that the waiter writes before other threads can find it and after it is back.
//
// Only the atomics of the cores come from Platform. The seam's own are always right: a defect is to
// show in the core.
#pragma once

#include <weft/detail/park.hpp>

#include "model/explore.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace weft::model {

// The records of one execution. The state of a test is derived from it.
class parking_lot {
 public:
  static constexpr std::size_t threads_max = 8;
  struct record {
    record() { token.name("token"); }
    atomic<std::uint32_t> token{0};
    var<bool> prepared{false, "a waiter's record"};
    bool inside = false;  // its thread only
  };

  parking_lot() { current_ = this; }
  parking_lot(const parking_lot&) = delete;
  parking_lot& operator=(const parking_lot&) = delete;

  static record& self() { return current_->records_[engine::current()->running().index]; }

  // A clock that moves on each time it is read.
  static std::int64_t tick() { return ++current_->ticks_; }

  // For at_end: a token that is left belongs to a waiter that was readied once too often.
  void check_empty() const {
    for (const record& r : records_) {
      check(r.token.load(std::memory_order_relaxed) == 0, "a token is left over");
      check(!r.inside, "a thread ended inside the runtime");
    }
  }

 private:
  static inline parking_lot* current_ = nullptr;  // of the execution that runs
  std::array<record, threads_max + 1> records_;   // the first one is make()'s and at_end()'s
  std::int64_t ticks_ = 0;
};

template <class Platform = platform>
struct basic_seam {
  template <class T>
  using atomic = typename Platform::template atomic<T>;
  using waiter = parking_lot::record*;
  static constexpr std::uint32_t first_bias = 1000;  // never, in so small a world

  // For what a test does inside the runtime; the cores enter by `inside`.
  class section {
   public:
    section() { enter(); }
    section(const section&) = delete;
    section& operator=(const section&) = delete;
    ~section() { leave(); }
  };

  class inside {
   public:
    inside() { enter(); }
    inside(const inside&) = delete;
    inside& operator=(const inside&) = delete;
    void leave() noexcept { basic_seam::leave(); }
    void enter() noexcept { basic_seam::enter(); }
  };

  static waiter prepare_park(detail::wait_reason reason) {
    enter();
    return prepare_park_inside(reason);
  }
  static waiter prepare_park_inside(detail::wait_reason) {
    check(parking_lot::self().inside, "prepare_park_inside() outside of the runtime");
    waiter const self = &parking_lot::self();
    self->prepared.set(true);
    return self;
  }
  static void cancel_park() noexcept {
    parking_lot::self().prepared.set(false);
    leave();
  }

  static void park() noexcept {
    waiter const self = &parking_lot::self();
    while (self->token.load(std::memory_order_acquire) == 0) platform::futex_wait(self->token, 0);
    come_back(self);
  }

  static bool park_until(std::int64_t, bool (*give_up)(void*), void* argument) noexcept {
    waiter const self = &parking_lot::self();
    while (self->token.load(std::memory_order_acquire) == 0) {
      if (platform::futex_wait_timed(self->token, 0)) continue;
      if (!give_up(argument)) {
        park();
        return true;
      }
      self->prepared.set(false);
      leave();
      return false;
    }
    come_back(self);
    return true;
  }

  static void ready(waiter w) noexcept {
    check(!parking_lot::self().inside, "ready() inside the runtime");
    hand_token(w);
  }
  static void ready_inside(waiter w) noexcept {
    check(parking_lot::self().inside, "ready_inside() outside of the runtime");
    hand_token(w);
  }

  static void relax(int) noexcept { platform::pause(); }
  static bool spin(int) noexcept { return false; }
  static std::int64_t now_ns() noexcept { return 0; }
  static std::uint64_t thread_hint() noexcept {
    return static_cast<std::uint64_t>(engine::current()->running().index);
  }
  static void yield() noexcept {
    check(!parking_lot::self().inside, "yield() inside the runtime");
    platform::pause();
  }

 private:
  static void enter() noexcept {
    check(!parking_lot::self().inside, "the runtime is entered twice");
    parking_lot::self().inside = true;
  }
  static void leave() noexcept {
    check(parking_lot::self().inside, "the runtime is left twice");
    parking_lot::self().inside = false;
  }
  static void come_back(waiter self) noexcept {
    self->token.exchange(0, std::memory_order_acquire);
    self->prepared.set(false);
    leave();
  }
  static void hand_token(waiter w) noexcept {
    check(w->prepared.get(), "somebody is readied who does not wait");
    check(w->token.fetch_add(1, std::memory_order_release) == 0, "a waiter is readied twice");
    platform::futex_wake(w->token, 1);
  }
};

}  // namespace weft::model
