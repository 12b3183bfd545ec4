// interruption_test.cpp: weft/detail/interruption.hpp on every interleaving of a waiter, what it
// waits for and somebody who interrupts, within the bounds named at each test. The waiter's place
// is gone as soon as it has left: I1.
#include "sync/mutex_slow.hpp"

#include "model/expect.hpp"
#include "model/explore.hpp"
#include "model/mutants.hpp"
#include "model/seam.hpp"

#include <weft/detail/interruption.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>

namespace weft::model {
namespace {

// What a context is to an interruption: a lock, a list with room for one, and an end.
template <class Scheduler, bool settles>
class watched {
 public:
  using interruption = detail::basic_interruption<Scheduler, watched>;

  // Returns: false if it has ended.
  bool add(interruption& i) {
    const typename Scheduler::section inside;
    lock();
    const bool live = !ended_.get();
    if (live) linked_.set(&i);
    unlock();
    return live;
  }
  void remove() {
    const typename Scheduler::section inside;
    lock();
    linked_.set(nullptr);
    unlock();
  }
  void settle() noexcept {
    if (!settles) return;
    const typename Scheduler::section inside;
    lock();
    unlock();
  }
  void end() {
    typename Scheduler::waiter w{};
    {
      const typename Scheduler::section inside;
      lock();
      ended_.set(true);
      if (interruption* const i = linked_.get()) w = i->fire();
      linked_.set(nullptr);
      unlock();
    }
    if (w != nullptr) Scheduler::ready(w);
  }

 private:
  static constexpr std::uint32_t held = 1;
  // The lock is the context's own, and right whatever the platform: only the interruption is tried.
  void lock() { detail::take_bit<basic_seam<>>(word_, held); }
  void unlock() { word_.store(0, std::memory_order_release); }

  atomic<std::uint32_t> word_{0};
  var<bool> ended_{false, "ended"};
  var<interruption*> linked_{nullptr, "the list"};
};

// Something to wait for once. A thread that finds the waiter's place may use it.
template <class Scheduler, bool settles>
struct state : parking_lot {
  using me = state;
  struct place {
    var<bool> used{false, "the place"};  // by its owner, who is about to leave
    typename Scheduler::waiter who{};
    me* all = nullptr;
  };

  watched<Scheduler, settles> context;
  atomic<std::uint32_t> word{0};
  bool happened = false;    // guarded by word
  place* queued = nullptr;  // guarded by word
  place here;
  bool gave_up = false;

  void happen() {
    place* found = nullptr;
    {
      const typename Scheduler::section inside;
      detail::take_bit<basic_seam<>>(word, 1u);
      happened = true;
      found = std::exchange(queued, nullptr);
      word.store(0, std::memory_order_release);
    }
    if (found != nullptr) Scheduler::ready(found->who);
  }
  static bool give_up(void* argument) noexcept {
    place& p = *static_cast<place*>(argument);
    check(!p.used.get(), "the place of somebody who has left");
    detail::take_bit<basic_seam<>>(p.all->word, 1u);
    const bool waits = p.all->queued == &p;
    p.all->queued = nullptr;
    p.all->word.store(0, std::memory_order_release);
    return waits;
  }
  // Returns: false if it was interrupted.
  bool wait(detail::wait_limit limit) {
    typename Scheduler::inside in;
    detail::take_bit<basic_seam<>>(word, 1u);
    if (happened) {
      word.store(0, std::memory_order_release);
      in.leave();
      return true;
    }
    here.who = Scheduler::prepare_park_inside(detail::wait_reason::none);
    here.all = this;
    here.used.set(false);  // [Z1]
    queued = &here;
    word.store(0, std::memory_order_release);
    const bool woken = limit.park<Scheduler>(here.who, &give_up, &here);
    here.used.set(true);
    return woken;
  }
};

template <class Scheduler, bool settles = true>
void program(world& w) {
  auto s = std::make_shared<state<Scheduler, settles>>();
  w.thread("waiter", [s] {
    typename watched<Scheduler, settles>::interruption i(&s->context);
    if (!s->context.add(i)) (void)i.fire();
    s->gave_up = !s->wait(detail::wait_limit(i));
    s->context.remove();
  });
  w.thread("canceller", [s] { s->context.end(); });
  w.thread("what it waits for", [s] { s->happen(); });
  w.at_end([s] { s->check_empty(); });
}

// A mutex: its waiter may have to wait more than once.
template <class Scheduler, int holders>
void lock_program(world& w) {
  struct lock_state : parking_lot {
    storage<detail::basic_mutex<Scheduler>> mutex;
    watched<Scheduler, true> context;
    exclusive section{"the critical section"};
    atomic<std::uint32_t> left{holders + 1};
    lock_state() { mutex.emplace(); }

    void use_and_unlock() {
      {
        const exclusive::stay here(section);
      }
      mutex->unlock();
    }
    void leave() {
      if (left.fetch_sub(1, std::memory_order_acq_rel) == 1) mutex.destroy();
    }
  };
  auto s = std::make_shared<lock_state>();
  for (int i = 0; i < holders; ++i) {
    w.thread("holder", [s] {
      s->mutex->lock();
      s->use_and_unlock();
      s->leave();
    });
  }
  w.thread("waiter", [s] {
    typename watched<Scheduler, true>::interruption i(&s->context);
    if (!s->context.add(i)) (void)i.fire();
    if (s->mutex->lock_until(detail::wait_limit(i))) s->use_and_unlock();
    s->context.remove();
    s->leave();
  });
  w.thread("canceller", [s] { s->context.end(); });
  w.at_end([s] { s->check_empty(); });
}

using real = basic_seam<>;

TEST(interruption, of_one_wait) { expect_right({.preemptions = -1}, &program<real>); }
TEST(interruption, of_a_waiter_and_its_holder) {
  expect_right({.preemptions = 3}, &lock_program<real, 1>);
}
TEST(interruption, with_two_holders_the_waiter_may_wait_twice) {
  expect_right({.preemptions = 2}, &lock_program<real, 2>);
}

// ---- Mutants. ----

TEST(interruption, a_waiter_that_does_not_wait_for_the_canceller_is_found) {
  expect_wrong({.preemptions = -1}, &program<real, false>);
}
TEST(interruption, a_missing_release_is_found) {
  expect_wrong({.preemptions = -1}, &program<basic_seam<mutant::no_release>>);
}

}  // namespace
}  // namespace weft::model
