// idle_state_test.cpp: sched/idle_state.hpp on every interleaving of machines that make work and
// machines that go to sleep, within the bounds named at each test.
//
// idle_state is one word; what makes it a protocol is how it is used. So the machines here do what
// work_made(), wake_one() and sleep_idle() in sched/wake.cpp and sched/sleep.cpp and the loop in
// sched/machine_thread.cpp do, step by step, but for dozing and timers, which only add reasons to
// wake up. Change one with the other.
#include "sched/idle_state.hpp"

#include "base/sanitizer.hpp"
#include "model/expect.hpp"
#include "model/explore.hpp"
#include "model/mutants.hpp"
#include "sched/parker.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace weft::model {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;
constexpr auto acq_rel = std::memory_order_acq_rel;

// The steps that a test may leave out, or do in another place, to see that they matter.
enum class goroutines { end_at_once, run_for_ever };
struct as_written {
  static constexpr goroutines are = goroutines::end_at_once;
  static constexpr bool last_look = true;         // [W1] before sleeping
  static constexpr bool passes_search_on = true;  // I2, after finding work
  static constexpr bool gives_up_locked = true;   // wake_one() that finds no machine
};

template <class Platform, class Rules, std::size_t sleepers, std::size_t producers>
struct scheduler {
  static constexpr std::size_t nobody = ~std::size_t{0};
  static constexpr std::uint32_t searches_max = 2;

  struct machine {
    sched::basic_parker<Platform> sleep;
    var<bool> listed{false, "listed"};        // guarded by the lock
    var<bool> searching{false, "searching"};  // its own, or its waker's while it sleeps
  };

  sched::basic_idle_state<Platform> idle;
  typename Platform::template atomic<std::uint32_t> lock_word{0};
  typename Platform::template atomic<std::uint32_t> over{0};
  std::array<machine, sleepers> machines;
  std::array<typename Platform::template atomic<int>, producers> work;

  scheduler() {
    lock_word.name("lock");
    over.name("over");
    for (auto& w : work) w.name("work");
  }

  void lock() {
    while (lock_word.exchange(1, acquire) != 0) Platform::pause();
  }
  void unlock() { lock_word.exchange(0, release); }

  bool work_waits() const {
    for (const auto& w : work) {
      if (w.load(acquire) != 0) return true;
    }
    return false;
  }

  // ---- Makes work. ----

  void produce(std::size_t queue) {
    work[queue].store(1, Platform::hot_store);
    work_made();
  }

  void work_made() {
    Platform::light_barrier();
    if (idle.should_wake()) wake_one();
  }

  void wake_one() {
    if (!idle.begin_wake()) return;
    lock();
    const std::size_t woken = find_listed();
    if (woken != nobody) {
      remove(machines[woken]);
      machines[woken].searching.set(true);
    }
    if (woken == nobody && Rules::gives_up_locked) idle.end_search();
    unlock();
    if (woken == nobody && !Rules::gives_up_locked) idle.end_search();
    if (woken != nobody) machines[woken].sleep.wake();
  }

  std::size_t find_listed() {
    for (std::size_t i = 0; i < sleepers; ++i) {
      if (machines[i].listed.get()) return i;
    }
    return nobody;
  }

  void remove(machine& m) {
    m.listed.set(false);
    idle.stop_listening();
  }

  // ---- Looks for work. ----

  void run(machine& m) {
    while (over.load(acquire) == 0) {
      if (!m.searching.get()) m.searching.set(idle.try_search(searches_max));
      // Other machines search in its place. It comes back here until they have found work or given
      // up; the model need not see each time.
      if (!m.searching.get()) Platform::pause();
      if (m.searching.get() && find_work()) {
        m.searching.set(false);
        idle.end_search();
        if (Rules::passes_search_on) work_made();
        if (Rules::are == goroutines::run_for_ever) {
          while (over.load(acquire) == 0) Platform::futex_wait(over, 0);
        }
      } else {
        sleep_idle(m);
      }
    }
    if (m.searching.get()) idle.end_search();
  }

  bool find_work() {
    for (auto& w : work) {
      if (w.load(relaxed) != 0 && w.exchange(0, acq_rel) != 0) return true;
    }
    return false;
  }

  void sleep_idle(machine& m) {
    lock();
    m.listed.set(true);
    idle.start_listening();
    if (m.searching.get()) {
      m.searching.set(false);
      idle.end_search();
    }
    unlock();

    Platform::heavy_barrier();  // [W1]
    const bool stay_awake = Rules::last_look && work_waits();
    if (!stay_awake) m.sleep.wait();

    lock();
    const bool taken = !m.listed.get();
    if (stay_awake && !taken) remove(m);
    unlock();
    if (stay_awake && taken) m.sleep.wait();  // the token is on its way
  }

  // ---- Sees that all is well. ----

  void observe() {
    await_rest();
    lock();
    check(find_listed() == nobody || !work_waits(), "work lies while somebody sleeps");
    over.store(1, std::memory_order_seq_cst);
    for (machine& m : machines) {
      if (!m.listed.get()) continue;
      remove(m);
      m.sleep.wake();
    }
    unlock();
    Platform::futex_wake(over, static_cast<int>(sleepers));
  }

  void check_counts() const {
    check(idle.searching_hint() == 0, "a search was never ended");
    check(idle.listening_hint() == 0, "somebody listens who is not there");
  }
};

template <class Platform, class Rules, std::size_t sleepers, std::size_t producers>
void sleepers_and_producers(world& w) {
  auto s = std::make_shared<scheduler<Platform, Rules, sleepers, producers>>();
  for (auto& m : s->machines) w.thread("sleeper", [s, &m] { s->run(m); });
  for (std::size_t i = 0; i < producers; ++i) w.thread("producer", [s, i] { s->produce(i); });
  w.thread("observer", [s] { s->observe(); });
  w.at_end([s] { s->check_counts(); });
}

template <class Platform>
class idle_state : public testing::Test {};

// All three forms of the platform: membarrier, fences, TSan's.
using platforms = testing::Types<platform, fenced_platform, sequential_platform>;
TYPED_TEST_SUITE(idle_state, platforms);

// Sanitizers make the exploration thirty times slower, and it is the explorer that they check.
constexpr int bound = base::sanitizer::active ? 2 : 3;

// [W1] Otherwise a goroutine waits although a processor is idle.
TYPED_TEST(idle_state, no_work_lies_while_a_machine_sleeps) {
  expect_right({.preemptions = -1}, &sleepers_and_producers<TypeParam, as_written, 1, 1>);
  expect_right({.preemptions = bound}, &sleepers_and_producers<TypeParam, as_written, 1, 2>);
  expect_right({.preemptions = bound - 1}, &sleepers_and_producers<TypeParam, as_written, 2, 1>);
}

struct hogs : as_written {
  static constexpr goroutines are = goroutines::run_for_ever;
};

// I2: a producer that sees a search wakes no machine. If the searcher takes another piece of work
// and is busy with it from then on, the next machine must be woken all the same.
TYPED_TEST(idle_state, no_work_lies_behind_a_hog_while_a_machine_sleeps) {
  expect_right({.preemptions = 1}, &sleepers_and_producers<TypeParam, hogs, 2, 2>);
}

struct no_last_look : as_written {
  static constexpr bool last_look = false;
};
struct late_give_up : as_written {
  static constexpr bool gives_up_locked = false;
};
struct search_not_passed_on : hogs {
  static constexpr bool passes_search_on = false;
};

// The tests above notice what they are there to notice.
TEST(idle_state_mutants, are_caught) {
  constexpr auto lies = "work lies while somebody sleeps";
  // The barrier keeps the last look from coming too early...
  EXPECT_EQ(
      explore({}, &sleepers_and_producers<mutant::no_heavy_barrier, as_written, 1, 1>).message,
      lies);
  EXPECT_EQ(
      explore({}, &sleepers_and_producers<mutant::local_heavy_barrier, as_written, 1, 1>).message,
      lies);
  // ...and without a last look there is nothing to keep.
  EXPECT_EQ(explore({}, &sleepers_and_producers<platform, no_last_look, 1, 1>).message, lies);
  // A wake_one() that finds no machine has announced a search that does not take place. If it takes
  // the announcement back only after it has released the lock, a machine may lie down in between,
  // and a second producer may see a search and wake no machine.
  EXPECT_EQ(explore({}, &sleepers_and_producers<platform, late_give_up, 1, 2>).message, lies);
  EXPECT_EQ(
      explore({.preemptions = 1}, &sleepers_and_producers<platform, search_not_passed_on, 2, 2>)
          .message,
      lies);
}

}  // namespace
}  // namespace weft::model
