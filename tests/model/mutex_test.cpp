// mutex_test.cpp: weft/detail/mutex_core.hpp on every interleaving of a few lockers, within the
// bounds named at each test. The last of them destroys the mutex: I3.
#include "sync/mutex_slow.hpp"

#include "model/expect.hpp"
#include "model/explore.hpp"
#include "model/mutants.hpp"
#include "model/seam.hpp"
#include "sched/bias.hpp"
#include "sched/seat.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

namespace weft::model {
namespace {
template <class Platform, bool heavy>
struct biased_seam;
}  // namespace
}  // namespace weft::model

template <class Platform, bool heavy>
struct weft::detail::bias_door<weft::model::biased_seam<Platform, heavy>> {
  using seam = model::biased_seam<Platform, heavy>;
  static constexpr bool biases = true;
  static auto* here() {
    return &seam::machines::now->all[test::engine::current()->running().index];
  }
  static auto* enter(auto* m) {
    (void)m->seat.enter();
    return m;
  }
  static void leave(auto* m) { m->seat.leave(); }
  static void alone(auto&& f) {
    auto& word = seam::machines::now->revoking;
    while (word.exchange(1, std::memory_order_acquire) != 0) model::platform::pause();
    f();
    word.store(0, std::memory_order_release);
  }
  static void wait_until_away(const void* m) {
    using real = model::platform;
    using mutant = model::mutant::no_heavy_barrier;
    sched::wait_until_away<std::conditional_t<heavy, real, mutant>>(
        *static_cast<const typename seam::machine*>(m));
  }
};

namespace weft::model {
namespace {

constexpr std::int64_t some_time = 0;  // every deadline may pass at any moment

// Either no waiter is ever starved, or every waiter is.
enum class mode : std::uint8_t { normal, starving };

template <class Platform, mode m>
struct mutex_seam : basic_seam<Platform> {
  static std::int64_t now_ns() noexcept {
    return m == mode::normal ? 0 : parking_lot::tick() * 2 * detail::starved_ns;
  }
};

// One look at the mutex before parking, as if the holder might be running.
template <class Platform, mode m>
struct spinning_seam : mutex_seam<Platform, m> {
  static bool spin(int turn) noexcept { return turn == 0; }
};

// What a locker may not do: see the mutex locked, and wait, where the lock is free.
template <class Platform>
struct forgetful_seam : mutex_seam<Platform, mode::normal> {
  static void ready_inside(parking_lot::record*) noexcept {}
};

// Each thread of the model is a machine, and gets the bias after two uses in a row; or none is one.
template <class Platform, bool heavy = true>
struct biased_seam : mutex_seam<Platform, mode::normal> {
  static constexpr std::uint32_t first_bias = 1;
  struct machine {
    sched::basic_seat<platform> seat;
    bool is_away() const noexcept { return !seat.inside_hint(); }
  };
  struct machines {
    machines() { now = this; }
    static inline machines* now = nullptr;  // of the execution that runs
    machine all[parking_lot::threads_max + 1];
    atomic<std::uint32_t> revoking{0};
  };
};

template <class Scheduler>
struct no_machines {};
template <class Scheduler>
concept has_machines = requires { typename Scheduler::machines; };
template <class Scheduler>
struct machines_of : no_machines<Scheduler> {};
template <has_machines Scheduler>
struct machines_of<Scheduler> : Scheduler::machines {};

template <class Scheduler>
struct shared_mutex : parking_lot, machines_of<Scheduler> {
  using core_type = detail::basic_mutex<Scheduler>;

  storage<core_type> core;
  exclusive section{"the critical section"};
  var<int> count{0, "count"};  // [U1]
  int left;

  explicit shared_mutex(int uses) : left(uses) { core.emplace(); }

  void use() {
    bool last = false;
    {
      const exclusive::stay here(section);
      count.set(count.get() + 1);
      last = --left == 0;
    }
    core->unlock();
    if (last) core.destroy();
  }
  void lock_and_use() {
    core->lock();
    use();
  }
  // A goroutine that gives up does not use the mutex, because only afterwards is it known which is
  // last.
  void try_and_use() {
    if (core->lock_until(some_time)) {
      use();
    } else {
      core->lock();
      use();
    }
  }
};

template <class Scheduler, int lockers, int turns, int timed = 0>
void program(world& w) {
  auto s = std::make_shared<shared_mutex<Scheduler>>((lockers + timed) * turns);
  for (int i = 0; i < lockers; ++i) {
    w.thread("locker", [s] {
      for (int k = 0; k < turns; ++k) s->lock_and_use();
    });
  }
  for (int i = 0; i < timed; ++i) {
    w.thread("timed", [s] {
      for (int k = 0; k < turns; ++k) s->try_and_use();
    });
  }
  w.at_end([s] {
    check(s->count.get() == (lockers + timed) * turns, "a use was lost");
    s->check_empty();
  });
}

using normal = mutex_seam<platform, mode::normal>;
using starving = mutex_seam<platform, mode::starving>;
using spinning = spinning_seam<platform, mode::normal>;

// I1 and I2: a waiter that no unlock sees would sleep for ever.
TEST(mutex_core, two_lock_once) { expect_right({.preemptions = -1}, &program<normal, 2, 1>); }
TEST(mutex_core, two_lock_twice) { expect_right({.preemptions = -1}, &program<normal, 2, 2>); }
TEST(mutex_core, three_lock_once) { expect_right({.preemptions = 3}, &program<normal, 3, 1>); }
TEST(mutex_core, three_lock_twice) { expect_right({.preemptions = 3}, &program<normal, 3, 2>); }

// In a hand-over the lock is never free in between, and no two goroutines have it.
TEST(mutex_core, starved_two_lock_twice) {
  expect_right({.preemptions = -1}, &program<starving, 2, 2>);
}
TEST(mutex_core, starved_three_lock_twice) {
  expect_right({.preemptions = 3}, &program<starving, 3, 2>);
}

// A woken waiter that gets the lock by spinning has to pass on the duty to wake the next.
TEST(mutex_core, who_spins_forgets_nobody) {
  expect_right({.preemptions = 2}, &program<spinning, 3, 1>);
  expect_right({.preemptions = 2}, &program<spinning, 2, 2>);
}

// A deadline takes its waiter out of the queue, or the wake-up it got on to another.
TEST(mutex_core, deadlines_lose_no_wake_up) {
  expect_right({.preemptions = 4, .timeouts = 1}, &program<normal, 1, 1, 1>);
  expect_right({.preemptions = 2, .timeouts = 2}, &program<normal, 1, 1, 2>);
  expect_right({.preemptions = 2, .timeouts = 2}, &program<starving, 2, 1, 1>);
}

// A bias comes and goes.
TEST(mutex_core, biased_two_lock) {
  expect_right({.preemptions = 3}, &program<biased_seam<platform>, 2, 2>);
  expect_right({.preemptions = 2}, &program<biased_seam<platform>, 2, 3>);
}
TEST(mutex_core, biased_three_lock) {
  expect_right({.preemptions = 2}, &program<biased_seam<platform>, 3, 2>);
}
TEST(mutex_core, biased_with_deadlines) {
  expect_right({.preemptions = 2, .timeouts = 1}, &program<biased_seam<platform>, 1, 2, 1>);
}

// ---- Mutants. ----

TEST(mutex_core, a_bias_without_its_barrier_is_found) {
  expect_wrong({.preemptions = 3}, &program<biased_seam<platform, false>, 2, 3>);
}

TEST(mutex_core, a_forgotten_wake_up_is_found) {
  expect_wrong({.preemptions = 3}, &program<forgetful_seam<platform>, 2, 1>);
}
TEST(mutex_core, a_missing_release_is_found) {
  expect_wrong({.preemptions = 3}, &program<mutex_seam<mutant::no_release, mode::normal>, 2, 1>);
}
TEST(mutex_core, a_missing_acquire_is_found) {
  expect_wrong({.preemptions = 3}, &program<mutex_seam<mutant::no_acquire, mode::normal>, 2, 1>);
}

}  // namespace
}  // namespace weft::model
