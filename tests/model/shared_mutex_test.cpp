// shared_mutex_test.cpp: weft/detail/shared_mutex_core.hpp on every interleaving of a few readers
// and writers, within the bounds named at each test. The last of them destroys it: I6.
#include "sync/shared_mutex_slow.hpp"

#include "model/expect.hpp"
#include "model/explore.hpp"
#include "model/mutants.hpp"
#include "model/seam.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

namespace weft::model {
namespace {

constexpr std::int64_t some_time = 0;  // every deadline may pass at any moment

// Readers begin in the slots, or in the center.
enum class begin : std::uint8_t { gathered, spread };

template <class Scheduler>
struct shared_lock_state : parking_lot {
  using core_type = detail::basic_shared_mutex<Scheduler>;

  storage<core_type> core;
  var<int> value{0, "value"};  // [X1] [X2]
  atomic<std::uint32_t> left;
  int writers_in = 0;
  int readers_in = 0;

  explicit shared_lock_state(int uses) : left(static_cast<std::uint32_t>(uses)) {
    left.name("left");
    core.emplace();
  }

  // The last user may destroy the mutex, while an earlier unlock is still on its way out.
  void write_and_unlock() {
    check(writers_in == 0 && readers_in == 0, "a writer is not alone");
    ++writers_in;
    value.set(value.get() + 1);
    --writers_in;
    const bool last = left.fetch_sub(1, std::memory_order_relaxed) == 1;
    core->unlock();
    if (last) core.destroy();
  }
  void read_and_unlock() {
    check(writers_in == 0, "a reader beside a writer");
    ++readers_in;
    (void)value.get();
    check(writers_in == 0, "a writer beside a reader");
    --readers_in;
    core->unlock_shared();
  }
};

struct cast {
  int writers = 0;
  int readers = 0;
  int timed_writers = 0;
  int timed_readers = 0;
};

template <class Scheduler, cast c, begin b>
void program(world& w) {
  constexpr int writes = c.writers + c.timed_writers;
  auto s = std::make_shared<shared_lock_state<Scheduler>>(writes + 1);
  for (int i = 0; i < c.writers; ++i) {
    w.thread("writer", [s] {
      s->core->lock_until(detail::no_deadline);
      s->write_and_unlock();
    });
  }
  for (int i = 0; i < c.timed_writers; ++i) {
    w.thread("timed writer", [s] {
      if (!s->core->lock_until(some_time)) s->core->lock_until(detail::no_deadline);
      s->write_and_unlock();
    });
  }
  for (int i = 0; i < c.readers; ++i) {
    w.thread("reader", [s] {
      if (b == begin::spread) s->core->spread();
      s->core->lock_shared_until(detail::no_deadline);
      s->read_and_unlock();
    });
  }
  for (int i = 0; i < c.timed_readers; ++i) {
    w.thread("timed reader", [s] {
      if (s->core->lock_shared_until(some_time)) s->read_and_unlock();
    });
  }
  w.at_end([s] {
    check(s->value.get() == writes, "a write was lost");
    check(s->core->try_lock(), "somebody is still in");
    s->check_empty();
  });
}

// A writer and the reader that hands it the lock: the writer destroys it at once.
template <class Scheduler, begin b>
void reader_then_last_writer(world& w) {
  struct state : shared_lock_state<Scheduler> {
    state() : shared_lock_state<Scheduler>(1) {}
    atomic<std::uint32_t> in{0};
  };
  auto s = std::make_shared<state>();
  w.thread("reader", [s] {
    if (b == begin::spread) s->core->spread();
    s->core->lock_shared_until(detail::no_deadline);
    s->in.store(1, std::memory_order_release);
    s->core->unlock_shared();
  });
  w.thread("writer", [s] {
    while (s->in.load(std::memory_order_acquire) == 0) platform::pause();
    s->core->lock_until(detail::no_deadline);
    s->write_and_unlock();
  });
  w.at_end([s] { s->check_empty(); });
}

using real = basic_seam<platform>;

// Every waiter is starved.
struct starving : basic_seam<platform> {
  static std::int64_t now_ns() noexcept { return ++calls * 2 * detail::starved_ns; }
  static inline std::int64_t calls = 0;
};

template <class Scheduler>
struct forgetful_seam : Scheduler {
  static void ready_inside(parking_lot::record*) noexcept {}
};

TEST(shared_mutex_core, a_writer_and_a_reader) {
  expect_right({.preemptions = -1}, &program<real, {.writers = 1, .readers = 1}, begin::gathered>);
  expect_right({.preemptions = 4}, &program<real, {.writers = 1, .readers = 1}, begin::spread>);
}

// I6: a goroutine to which a reader hands the lock destroys the mutex at once.
TEST(shared_mutex_core, a_reader_touches_nothing_after_it_has_left) {
  expect_right({.preemptions = -1}, &reader_then_last_writer<real, begin::gathered>);
  expect_right({.preemptions = 4}, &reader_then_last_writer<real, begin::spread>);
}

TEST(shared_mutex_core, a_writer_and_two_readers) {
  expect_right({.preemptions = 2}, &program<real, {.writers = 1, .readers = 2}, begin::gathered>);
  expect_right({.preemptions = 1}, &program<real, {.writers = 1, .readers = 2}, begin::spread>);
}

// I5: one of the waiters is woken, even if another goroutine comes in between.
TEST(shared_mutex_core, two_writers_and_a_reader) {
  expect_right({.preemptions = 2}, &program<real, {.writers = 2, .readers = 1}, begin::gathered>);
  expect_right({.preemptions = 2}, &program<real, {.writers = 2, .readers = 1}, begin::spread>);
}

TEST(shared_mutex_core, three_writers) {
  expect_right({.preemptions = 2}, &program<real, {.writers = 3}, begin::gathered>);
  expect_right({.preemptions = 2}, &program<starving, {.writers = 3}, begin::gathered>);
}

// A waiter that gives up leaves no goroutine behind that waited because of it.
TEST(shared_mutex_core, deadlines_leave_nobody_behind) {
  expect_right({.preemptions = 1, .timeouts = 2},
               &program<real, {.writers = 1, .readers = 1, .timed_writers = 1}, begin::gathered>);
  expect_right({.preemptions = 1, .timeouts = 2},
               &program<real, {.readers = 2, .timed_writers = 1}, begin::spread>);
  expect_right({.preemptions = 1, .timeouts = 2},
               &program<real, {.writers = 1, .readers = 1, .timed_readers = 1}, begin::gathered>);
}

// ---- Mutants. ----

TEST(shared_mutex_core, mistakes_are_found) {
  using forgetful = forgetful_seam<real>;
  expect_wrong({.preemptions = 3},
               &program<forgetful, {.writers = 1, .readers = 1}, begin::gathered>);
  using no_release = basic_seam<mutant::no_release>;
  expect_wrong({.preemptions = 3},
               &program<no_release, {.writers = 1, .readers = 1}, begin::gathered>);
  expect_wrong({.preemptions = 3},
               &program<no_release, {.writers = 1, .readers = 1}, begin::spread>);
  using no_acquire = basic_seam<mutant::no_acquire>;
  expect_wrong({.preemptions = 3},
               &program<no_acquire, {.writers = 1, .readers = 1}, begin::gathered>);
  expect_wrong({.preemptions = 3},
               &program<no_acquire, {.writers = 1, .readers = 1}, begin::spread>);
}

}  // namespace
}  // namespace weft::model
