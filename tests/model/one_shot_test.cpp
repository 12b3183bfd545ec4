// one_shot_test.cpp: weft/detail/one_shot.hpp on every interleaving of the goroutine that makes it
// happen, a few waiters and the owner that lets go, within the bounds named at each test.
#include <weft/detail/one_shot.hpp>

#include "base/sanitizer.hpp"
#include "model/expect.hpp"
#include "model/explore.hpp"
#include "model/mutants.hpp"
#include "model/seam.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace weft::model {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acq_rel = std::memory_order_acq_rel;
constexpr auto reason = detail::wait_reason::future;
constexpr std::int64_t some_time = 0;  // every deadline may pass at any moment

template <class Scheduler>
struct shared_event : parking_lot {
  storage<detail::one_shot<Scheduler>> event;
  var<int> letter{0, "letter"};  // what the goroutine publishes [H1] [H2]
  var<int> reply{0, "reply"};    // what the owner wrote before it let go [H2]
  atomic<std::uint32_t> returned{0};
  atomic<std::uint32_t> freed{0};

  shared_event() { event.emplace(); }

  void set() {
    letter.set(1);
    check(event->set(), "abandoned while somebody waits");
  }
  void wait() {
    event->wait(reason);
    check(letter.get() == 1, "a waiter went on before it happened");
  }
  // Returns: false if it gave up.
  bool wait_timed() {
    if (!event->wait_until(reason, some_time)) return false;
    check(letter.get() == 1, "a waiter went on before it happened");
    return true;
  }
  // The last of `waiters` takes the event's memory away.
  void destroy_as_last_of(std::uint32_t waiters) {
    if (waiters == 1 || returned.fetch_add(1, acq_rel) + 1 == waiters) event.destroy();
  }

  // Between a goroutine and the one owner of its future.
  void finish() {
    letter.set(1);
    if (!event->set()) free();
  }
  void let_go() {
    reply.set(1);
    if (event->abandon()) free();
  }
  void free() {
    check(letter.get() == 1 && reply.get() == 1, "freed while the other side still needs it");
    letter.set(0);
    reply.set(0);
    event.destroy();
    freed.fetch_add(1, relaxed);
  }
  void check_freed() const {
    check(freed.load(relaxed) == 1, "the state is not freed exactly once");
    check_empty();
  }
};

template <class Scheduler, std::size_t timed_waiters, std::size_t waiters>
void waiters_and_set(world& w) {
  auto s = std::make_shared<shared_event<Scheduler>>();
  constexpr std::uint32_t all = timed_waiters + waiters;
  for (std::size_t i = 0; i < timed_waiters; ++i) {
    w.thread("timed", [s] {
      if (!s->wait_timed()) s->wait();
      s->destroy_as_last_of(all);
    });
  }
  for (std::size_t i = 0; i < waiters; ++i) {
    w.thread("waiter", [s] {
      s->wait();
      s->destroy_as_last_of(all);
    });
  }
  w.thread("goroutine", [s] { s->set(); });
  w.at_end([s] { s->check_empty(); });
}

// It never happens: every deadline must end its wait.
template <class Scheduler, std::size_t timed_waiters>
void timed_waiters_alone(world& w) {
  auto s = std::make_shared<shared_event<Scheduler>>();
  for (std::size_t i = 0; i < timed_waiters; ++i) {
    w.thread("timed", [s] { check(!s->wait_timed(), "a waiter went on for no reason"); });
  }
  w.at_end([s] {
    check(!s->event->is_set(), "it happened by itself");
    check(s->event->set() && s->event->abandon(), "somebody is left in the list");
    s->check_empty();
  });
}

enum class owner { lets_go, waits, waits_timed };

template <class Scheduler, owner does>
void goroutine_and_owner(world& w) {
  auto s = std::make_shared<shared_event<Scheduler>>();
  w.thread("goroutine", [s] { s->finish(); });
  w.thread("owner", [s] {
    if (does == owner::waits) s->wait();
    if (does == owner::waits_timed) s->wait_timed();
    s->let_go();
  });
  w.at_end([s] { s->check_freed(); });
}

using seam = basic_seam<platform>;

constexpr options everything{.preemptions = -1, .timeouts = 2};

// Sanitizers make the exploration many times slower, and it is the explorer that they check.
constexpr int bound = base::sanitizer::active ? 1 : 2;
constexpr options bounded{.preemptions = bound, .timeouts = 3};

// A waiter that comes while it happens must not hang itself up where nobody looks any more, and
// set() must not touch the word after the exchange that lets the waiter go on: it destroys the
// event at once, as run() does. [H1] What came before set() is visible after wait().
TEST(one_shot, set_ends_a_wait) { expect_right(everything, &waiters_and_set<seam, 0, 1>); }

// [H3] A push that overwrote another would lose that waiter.
TEST(one_shot, set_ends_every_wait) {
  expect_right(everything, &waiters_and_set<seam, 0, 2>);
  expect_right({.preemptions = bound}, &waiters_and_set<seam, 0, 3>);
}

// [H2] Two that both believe to be the last would free twice, and none would leak; the last one
// must see all that the other side did.
TEST(one_shot, the_last_to_let_go_frees_it) {
  expect_right(everything, &goroutine_and_owner<seam, owner::lets_go>);
}

// After wait() the goroutine has let go, even if it has not come back from set() yet.
TEST(one_shot, is_the_owners_after_wait) {
  expect_right(everything, &goroutine_and_owner<seam, owner::waits>);
}

// An owner that has given up lets go of an event that may happen at that moment. A node left in the
// word would be readied after its death, or taken for a mark.
TEST(one_shot, is_freed_once_after_giving_up) {
  expect_right(everything, &goroutine_and_owner<seam, owner::waits_timed>);
}

TEST(one_shot, a_waiter_gives_up_or_is_released) {
  expect_right(everything, &waiters_and_set<seam, 1, 0>);
}

// The one that gives up has the other's node in its hands while it happens: then it is the only one
// who can ready it.
TEST(one_shot, giving_up_harms_no_other_waiter) {
  expect_right(everything, &waiters_and_set<seam, 1, 1>);
  expect_right(bounded, &waiters_and_set<seam, 1, 2>);
}

// One of them finds the other's list gone, and must not believe that set() has it.
TEST(one_shot, two_waiters_give_up_at_once) {
  expect_right({.preemptions = bound, .timeouts = 2}, &waiters_and_set<seam, 2, 0>);
  expect_right({.preemptions = 1, .timeouts = 2}, &waiters_and_set<seam, 2, 1>);
}

// A give_up that does not find its node, because another one has it in hand and will put it back,
// must not report that a waker has it: the waiter would sleep on past its deadline.
TEST(one_shot, every_deadline_ends_its_wait) {
  expect_right(everything, &timed_waiters_alone<seam, 1>);
  expect_right(everything, &timed_waiters_alone<seam, 2>);
  expect_right(bounded, &timed_waiters_alone<seam, 3>);
}

// ---- Mutants. ----

constexpr std::uintptr_t happened = 1;

// Pushes a node without looking what is there.
struct blind_push : platform {
  template <class T>
  struct atomic : model::atomic<T> {
    using model::atomic<T>::atomic;
    bool compare_exchange_weak(T& expected, T desired, std::memory_order success,
                               std::memory_order failure) noexcept {
      if (desired == 0) {
        return model::atomic<T>::compare_exchange_weak(expected, desired, success, failure);
      }
      model::atomic<T>::exchange(desired, success);
      return true;
    }
  };
};

// Looks at the word once more after set() or abandon().
struct curious : platform {
  template <class T>
  struct atomic : model::atomic<T> {
    using model::atomic<T>::atomic;
    T exchange(T value, std::memory_order order) noexcept {
      const T old = model::atomic<T>::exchange(value, order);
      this->load(relaxed);
      return old;
    }
  };
};

// A give_up, whose loads alone are relaxed, that takes an empty word for set()'s work.
struct hasty_give_up : platform {
  template <class T>
  struct atomic : model::atomic<T> {
    using model::atomic<T>::atomic;
    T load(std::memory_order order) const noexcept {
      const T value = model::atomic<T>::load(order);
      return order == relaxed && value == 0 ? happened : value;
    }
  };
};

// A give_up that readies no waiter.
struct careless_give_up : seam {
  static void ready_inside(waiter) noexcept {}
};

bool fails_with(const make_function& make, std::string_view message) {
  const result r = explore({.preemptions = bound, .timeouts = 2}, make);
  EXPECT_NE(r.message.find(message), std::string::npos) << r.report;
  return !r.ok;
}

template <class Platform>
using on = basic_seam<Platform>;

// The tests above notice what they are there to notice.
TEST(one_shot_mutants, are_caught) {
  EXPECT_TRUE(fails_with(&waiters_and_set<on<mutant::no_release>, 0, 1>, "race on "));
  EXPECT_TRUE(fails_with(&waiters_and_set<on<mutant::no_acquire>, 0, 1>, "race on "));
  EXPECT_TRUE(fails_with(&goroutine_and_owner<on<mutant::no_release>, owner::lets_go>, "race on "));
  EXPECT_TRUE(fails_with(&goroutine_and_owner<on<mutant::no_acquire>, owner::lets_go>, "race on "));
  EXPECT_TRUE(fails_with(&waiters_and_set<on<mutant::torn_exchange>, 0, 1>, "deadlock: "));
  EXPECT_TRUE(fails_with(&goroutine_and_owner<on<mutant::torn_exchange>, owner::lets_go>,
                         "not freed exactly once"));
  EXPECT_TRUE(fails_with(&waiters_and_set<on<blind_push>, 0, 1>, "deadlock: "));
  EXPECT_TRUE(fails_with(&waiters_and_set<on<blind_push>, 0, 2>, "deadlock: "));
  EXPECT_TRUE(fails_with(&waiters_and_set<on<curious>, 0, 1>, "after its destruction"));
  EXPECT_TRUE(
      fails_with(&goroutine_and_owner<on<curious>, owner::lets_go>, "after its destruction"));
  EXPECT_TRUE(fails_with(&timed_waiters_alone<on<hasty_give_up>, 2>, "deadlock: "));
  EXPECT_TRUE(fails_with(&waiters_and_set<careless_give_up, 1, 1>, "deadlock: "));
}

}  // namespace
}  // namespace weft::model
