// parker_test.cpp: sched/parker.hpp on every interleaving of a waiter and its wakers.
#include "sched/parker.hpp"

#include "model/expect.hpp"
#include "model/explore.hpp"
#include "model/mutants.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>

namespace weft::model {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;

// The poller: an interrupt stays until a thread sleeps there, and its time may be up at any moment.
template <class Platform>
struct bell {
  typename Platform::template atomic<std::uint32_t> rung{0};
  bell() {
    platform::on_interrupt = [this] {
      rung.store(1, std::memory_order_release);
      Platform::futex_wake(rung, 1);
    };
  }
  void sleep() {
    while (rung.load(std::memory_order_acquire) == 0) Platform::futex_wait(rung, 0);
  }
  void sleep_for_a_while() {
    if (rung.load(std::memory_order_acquire) == 0) (void)Platform::futex_wait_timed(rung, 0);
  }
};

// One waker writes a letter and wakes the waiter, which does `wait` and must find it.
template <class Platform>
struct letter_box {
  sched::basic_parker<Platform> parker;
  bell<Platform> poller;
  var<int> letter{0, "letter"};

  void read() const { check(letter.get() == 1, "woken before the letter was written"); }
};

template <class Platform, class F>
void waits_for_a_letter(world& w, F wait) {
  auto s = std::make_shared<letter_box<Platform>>();
  w.thread("waiter", [s, wait] { wait(*s); });
  w.thread("waker", [s] {
    s->letter.set(1);
    s->parker.wake();
  });
}

// Two wakers count their letters; the waiter looks at the count after each wait, of which only the
// first is `first_wait`: later ones would make up for what it lost.
template <class Platform>
struct letter_count {
  sched::basic_parker<Platform> parker;
  bell<Platform> poller;
  typename Platform::template atomic<int> letters{0};

  letter_count() { letters.name("letters"); }
};

template <class Platform, class F>
void waits_for_two_letters(world& w, F first_wait) {
  auto s = std::make_shared<letter_count<Platform>>();
  w.thread("waiter", [s, first_wait] {
    for (int i = 0; s->letters.load(relaxed) < 2; ++i) {
      if (i == 0) {
        first_wait(*s);
      } else {
        s->parker.wait();
      }
    }
  });
  for (int i = 0; i < 2; ++i) {
    w.thread("waker", [s] {
      s->letters.fetch_add(1, relaxed);
      s->parker.wake();
    });
  }
}

// One wake-up lets one wait() return, before it or after it, and shows what the waker wrote.
template <class Platform>
void one_waker(world& w) {
  waits_for_a_letter<Platform>(w, [](auto& s) {
    s.parker.wait();
    s.read();
  });
}

// Wake-ups do not add up, but none is lost on a waiter that looks at the world after each: whatever
// happens before a wake() is seen after the wait() that it ends, or the one after that.
template <class Platform>
void two_wakers(world& w) {
  waits_for_two_letters<Platform>(w, [](auto& s) { s.parker.wait(); });
}

// A wait that gives up must not lose the token that comes at that moment or later, and a token must
// not be reported twice.
template <class Platform>
void one_waker_and_a_timeout(world& w) {
  waits_for_a_letter<Platform>(w, [](auto& s) {
    if (!s.parker.wait_until(0)) s.parker.wait();
    s.read();
    check(!s.parker.wait_until(0), "a token counted twice");
  });
}

template <class Platform>
void two_wakers_and_timeouts(world& w) {
  waits_for_two_letters<Platform>(w, [](auto& s) { s.parker.wait_until(0); });
}

// A machine that sleeps in the poller is woken like any other.
template <class Platform>
void one_waker_and_a_poller(world& w) {
  waits_for_a_letter<Platform>(w, [](auto& s) {
    check(s.parker.wait_elsewhere([&] { s.poller.sleep(); }), "woken by nobody");
    s.read();
  });
}

// An event may end the sleep there; then the token is still to come.
template <class Platform>
void two_wakers_and_an_event(world& w) {
  waits_for_two_letters<Platform>(
      w, [](auto& s) { s.parker.wait_elsewhere([&] { s.poller.sleep_for_a_while(); }); });
}

// The waiter destroys the parker as soon as it has its token.
template <class Platform>
void gone_after_wait(world& w) {
  auto s = std::make_shared<storage<sched::basic_parker<Platform>>>();
  s->emplace();
  w.thread("waiter", [s] {
    (*s)->wait();
    s->destroy();
  });
  w.thread("waker", [s] { (*s)->wake(); });
}

constexpr options all{.preemptions = -1, .timeouts = 2};
constexpr options all_with_whims{.preemptions = -1, .timeouts = 2, .whims = 1};

void expect_right(const make_function& make) {
  for (const options& o : {all, all_with_whims}) expect_right(o, make);
}

// [K1] A lost wake-up leaves a machine asleep with a processor that has work.
TEST(parker, one_wake_up_ends_one_wait) { expect_right(&one_waker<platform>); }

// [K1] The token's removal must not swallow the next token: it has to be visible before the waiter
// looks at the world.
TEST(parker, no_wake_up_is_lost_on_a_waiter_that_looks_again) {
  expect_right(&two_wakers<platform>);
}

TEST(parker, a_timeout_loses_no_token) { expect_right(&one_waker_and_a_timeout<platform>); }

TEST(parker, no_wake_up_is_lost_between_timeouts) {
  expect_right(&two_wakers_and_timeouts<platform>);
}

TEST(parker, one_wake_up_ends_a_sleep_in_the_poller) {
  expect_right(&one_waker_and_a_poller<platform>);
}

TEST(parker, an_event_loses_no_token) { expect_right(&two_wakers_and_an_event<platform>); }

// A waker that touched the parker after its exchange would touch memory that has another owner.
TEST(parker, may_be_gone_as_soon_as_wait_has_returned) { expect_right(&gone_after_wait<platform>); }

// Consumes the token with a store: it may linger in the buffer while the waiter looks at the world,
// and land on a token that came meanwhile.
struct token_removed_by_store : platform {
  template <class T>
  struct atomic : model::atomic<T> {
    using model::atomic<T>::atomic;
    T exchange(T value, std::memory_order order) noexcept {
      if (value != 0) return model::atomic<T>::exchange(value, order);  // 0: empty
      const T old = this->load(std::memory_order_acquire);
      this->store(value, relaxed);
      return old;
    }
  };
};

// The tests above notice what they are there to notice.
TEST(parker, mutants_are_caught) {
  EXPECT_EQ(explore({}, &one_waker<mutant::no_wake>).message, "deadlock: waiter sleeps");
  EXPECT_EQ(explore({}, &one_waker<mutant::blind_wait>).message, "deadlock: waiter sleeps");
  EXPECT_EQ(explore({}, &one_waker<mutant::torn_exchange>).message, "deadlock: waiter sleeps");
  for (const result& r :
       {explore({}, &one_waker<mutant::no_release>), explore({}, &one_waker<mutant::no_acquire>)}) {
    EXPECT_FALSE(r.ok);
    EXPECT_NE(r.message.find("race on letter: waiter reads it"), std::string::npos) << r.report;
  }
  EXPECT_EQ(explore({}, &two_wakers<token_removed_by_store>).message, "deadlock: waiter sleeps");
  EXPECT_EQ(explore({}, &one_waker_and_a_poller<mutant::torn_exchange>).message,
            "deadlock: waiter sleeps");
  EXPECT_EQ(explore({}, &two_wakers_and_an_event<token_removed_by_store>).message,
            "deadlock: waiter sleeps");
  EXPECT_EQ(explore({}, &two_wakers_and_timeouts<token_removed_by_store>).message,
            "deadlock: waiter sleeps");
  const result r = explore({}, &gone_after_wait<mutant::curious_wake>);
  EXPECT_FALSE(r.ok);
  EXPECT_NE(r.message.find("after its destruction"), std::string::npos) << r.report;
}

}  // namespace
}  // namespace weft::model
