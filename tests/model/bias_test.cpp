// bias_test.cpp: sched/bias.hpp on every interleaving of machines that use one primitive, with
// store buffers, within the bounds named at each test. The users behave as
// chan_core::enter_and_lock() does; what the primitive guards is a `var` that each of them reads
// and writes.
#include "sched/bias.hpp"

#include "model/expect.hpp"
#include "model/explore.hpp"
#include "model/mutants.hpp"
#include "sched/seat.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

namespace weft::model {
namespace {

enum class defect : std::uint8_t { none, revoker_does_not_wait, no_second_look, wipes_the_lock };

template <class Platform, defect d>
struct state {
  struct machine {
    sched::basic_seat<Platform> seat;
    bool is_away() const noexcept {
      return d == defect::revoker_does_not_wait || !seat.inside_hint();
    }
  };
  template <class T>
  using platform_atomic = typename Platform::template atomic<T>;

  machine machines[2];
  platform_atomic<machine*> bias{nullptr};
  platform_atomic<std::uint32_t> lock{0};
  platform_atomic<std::uint32_t> revoking{0};
  exclusive users{"the primitive"};
  var<int> uses{0, "uses"};
  var<machine*> last{nullptr, "last"};  // two uses in a row give it the bias

  state() {
    bias.name("bias");
    lock.name("lock");
  }

  static void take(platform_atomic<std::uint32_t>& word) {
    while (word.exchange(1, std::memory_order_acquire) != 0) Platform::pause();
  }
  static void let_go(platform_atomic<std::uint32_t>& word) {
    word.store(0, std::memory_order_release);
  }

  void use(machine* m) {
    enter_and_lock(m);
    {
      const exclusive::stay here(users);
      uses.set(uses.get() + 1);
    }
    // A machine that has the bias does not hold the lock.
    if (d == defect::wipes_the_lock || bias.load(std::memory_order_relaxed) == nullptr)
      let_go(lock);
    if (m != nullptr) m->seat.leave();
  }

  void enter_and_lock(machine* m) {
    for (;;) {
      if (m != nullptr) (void)m->seat.enter();
      machine* const biased = bias.load(Platform::hot_load);
      if (m != nullptr && biased == m) return;
      if (biased == nullptr) {
        take(lock);
        if (d == defect::no_second_look || bias.load(std::memory_order_acquire) == nullptr) {
          const bool again = last.get() == m && m != nullptr;
          last.set(m);
          if (again) {
            bias.store(m, std::memory_order_relaxed);
            let_go(lock);
          }
          return;
        }
        let_go(lock);
      }
      if (m != nullptr) m->seat.leave();
      take(revoking);
      sched::revoke_bias_alone<Platform>(bias);
      let_go(revoking);
    }
  }
};

struct cast {
  int first = 0;   // uses by a machine that begins with the bias
  int second = 0;  // by another machine
  int thread = 0;  // by a plain thread
  bool biased = true;
};

template <cast c, class Platform = platform, defect d = defect::none>
void program(world& w) {
  auto s = std::make_shared<state<Platform, d>>();
  if (c.biased) s->bias.store(&s->machines[0], std::memory_order_relaxed);
  w.thread("first", [s] {
    for (int i = 0; i < c.first; ++i) s->use(&s->machines[0]);
  });
  if (c.second != 0) {
    w.thread("second", [s] {
      for (int i = 0; i < c.second; ++i) s->use(&s->machines[1]);
    });
  }
  if (c.thread != 0) {
    w.thread("thread", [s] {
      for (int i = 0; i < c.thread; ++i) s->use(nullptr);
    });
  }
  w.at_end([s] { check(s->uses.get() == c.first + c.second + c.thread, "a use was lost"); });
}

TEST(bias, is_taken_by_another_machine) {
  expect_right({.preemptions = 4}, &program<cast{.first = 2, .second = 1}>);
}
TEST(bias, is_taken_by_a_thread) {
  expect_right({.preemptions = 4}, &program<cast{.first = 2, .thread = 1}>);
}
// The second one gets the bias while the first one waits for the lock.
TEST(bias, comes_up_again) {
  expect_right({.preemptions = 3}, &program<cast{.first = 1, .second = 3}>);
  expect_right({.preemptions = 3}, &program<cast{.first = 2, .second = 2, .biased = false}>);
}
TEST(bias, is_taken_by_two_at_once) {
  expect_right({.preemptions = 2}, &program<cast{.first = 1, .second = 1, .thread = 1}>);
}
// One gets the bias while a second waits for the lock, and a third takes it away.
TEST(bias, begins_and_ends_while_somebody_waits_for_the_lock) {
  expect_right({.preemptions = 1},
               &program<cast{.first = 3, .second = 1, .thread = 1, .biased = false}>);
  // The mistake below takes three preemptions: as far as there is time.
  const result r = explore({.preemptions = 3, .max_executions = 150'000},
                           &program<cast{.first = 3, .second = 1, .thread = 1, .biased = false}>);
  EXPECT_TRUE(r.ok) << r.report;
}
TEST(bias, holds_without_membarrier) {
  expect_right({.preemptions = 3}, &program<cast{.first = 2, .second = 1}, fenced_platform>);
  expect_right({.preemptions = 3}, &program<cast{.first = 2, .second = 1}, sequential_platform>);
}

// ---- Mutants. ----

TEST(bias, a_missing_heavy_barrier_is_found) {
  expect_wrong({.preemptions = 3},
               &program<cast{.first = 2, .second = 1}, mutant::no_heavy_barrier>);
}
TEST(bias, a_revoker_that_does_not_wait_is_found) {
  expect_wrong({.preemptions = 3},
               &program<cast{.first = 2, .second = 1}, platform, defect::revoker_does_not_wait>);
}
TEST(bias, an_owner_that_frees_anothers_lock_is_found) {
  expect_wrong({.preemptions = 3},
               &program<cast{.first = 3, .second = 1, .thread = 1, .biased = false}, platform,
                        defect::wipes_the_lock>);
}
TEST(bias, a_missing_second_look_is_found) {
  expect_wrong(
      {.preemptions = 3},
      &program<cast{.first = 2, .second = 3, .biased = false}, platform, defect::no_second_look>);
}

}  // namespace
}  // namespace weft::model
