// explore(): the tool itself. What it finds in programs is in planted_bugs_test.cpp.
#include "eventually.hpp"

#include <weft/test.hpp>
#include <weft/weft.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

namespace {

using namespace std::chrono_literals;
using weft::test::explore;
using weft::test::strategy;
using weft::test::try_explore;

// Two goroutines of `steps` steps each.
void two_walkers(int steps, std::string& order) {
  weft::wait_group all;
  for (const char who : {'a', 'b'}) {
    all.go([&order, steps, who] {
      for (int i = 0; i < steps; ++i) {
        weft::test::point();
        order += who;
      }
    });
  }
  all.wait();
}

// Every order of the ten steps of main and the ten of another goroutine, and none twice. Main's
// begin at its points; the other's first one begins with it, and the rest at its nine points.
TEST(explore, exhaustive_search_visits_every_order) {
  constexpr int steps = weft::test::scaled(10, 6);
  constexpr std::uint64_t orders{weft::test::scaled(184'756, 924)};  // 2 * steps over steps
  std::vector<int> seen(std::size_t{1} << (2 * steps));  // how often; an order is a number
  const auto r =
      try_explore({.how = strategy::exhaustive, .runs = 10'000'000, .switches = -1}, [&] {
        // One bit for each step; counted when both have ended.
        const std::shared_ptr<std::size_t> order(new std::size_t(0), [&](std::size_t* last) {
          ++seen[*last];
          delete last;
        });
        weft::go([order] {
          *order = *order * 2 + 1;
          for (int i = 1; i < steps; ++i) {
            weft::test::point();
            *order = *order * 2 + 1;
          }
        });
        for (int i = 0; i < steps; ++i) {
          weft::test::point();
          *order *= 2;
        }
      });
  EXPECT_TRUE(r.ok) << r.report;
  EXPECT_TRUE(r.exhausted) << r.report;
  EXPECT_EQ(r.runs, orders);
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), static_cast<std::ptrdiff_t>(orders));
}

TEST(explore, a_bound_on_preemptions_bounds_the_search) {
  std::uint64_t last = 0;
  for (int bound = 0; bound <= 3; ++bound) {
    const auto r =
        try_explore({.how = strategy::exhaustive, .runs = 10'000'000, .switches = bound}, [&] {
          std::string order;
          two_walkers(10, order);
        });
    EXPECT_TRUE(r.exhausted);
    EXPECT_GT(r.runs, last);
    last = r.runs;
  }
}

struct lost_update {
  weft::test::var<int> n{0, "n"};
  void operator()() {
    weft::wait_group all;
    for (int i = 0; i < 2; ++i) all.go([this] { ++n; });
    all.wait();
  }
};

TEST(explore, a_race_is_shown_with_both_sides) {
  const auto r = try_explore({}, [] { lost_update{}(); });
  EXPECT_FALSE(r.ok);
  EXPECT_NE(r.failure.find("race on n"), std::string::npos) << r.report;
  EXPECT_NE(r.report.find("explore_test.cpp:"), std::string::npos) << r.report;
}

TEST(explore, a_failure_replays_from_its_seed) {
  const auto program = [] {
    weft::test::atomic<int> n{0, "n"};
    weft::wait_group all;
    for (int i = 0; i < 2; ++i) all.go([&n] { n.store(n.load() + 1); });
    all.wait();
    EXPECT_EQ(n.load(), 2);
  };
  for (const strategy how : {strategy::random, strategy::priorities, strategy::exhaustive}) {
    const auto r = try_explore({.how = how}, program);
    ASSERT_FALSE(r.ok);
    EXPECT_LE(r.switches, 6u) << r.report;
    for (int i = 0; i < 100; ++i) {
      const auto again = weft::test::replay({}, r.seed, program);
      ASSERT_FALSE(again.ok);
      ASSERT_EQ(again.failure, r.failure);
    }
    // The line that the report prints.
    const std::string seed = "WEFT_SEED=" + r.seed;
    EXPECT_NE(r.report.find(seed), std::string::npos) << r.report;
    EXPECT_NE(r.report.find("--gtest_filter=explore.a_failure_replays_from_its_seed"),
              std::string::npos)
        << r.report;
  }
}

TEST(explore, an_exception_fails_it) {
  const auto r = try_explore({}, [] { throw std::runtime_error("boom"); });
  EXPECT_EQ(r.failure, "main threw std::runtime_error: boom");
  EXPECT_THROW(explore({}, [] { throw std::runtime_error("boom"); }), weft::test::failed);
}

// A terminal would obey what a client has sent.
TEST(explore, control_characters_of_an_exception_are_not_shown) {
  const std::string long_one = std::string(126, 'x') + "\u20ac" + std::string(5'000, 'y');
  const auto r = try_explore({}, [&] {
    weft::go({.name = "\x1b]0;name\a"},
             [&] { throw std::runtime_error("\x1b[2Jone\r\ntwo \u00e4\xff " + long_one); });
    weft::this_goroutine::yield();
  });
  EXPECT_EQ(r.failure,
            "\\x1b]0;name\\x07.1 threw std::runtime_error: \\x1b[2Jone\\x0d\\ntwo \u00e4\\xff " +
                long_one);
  EXPECT_EQ(r.report.find_first_of("\x1b\a\r"), std::string::npos) << r.report;
}

TEST(explore, a_failed_expectation_fails_it) {
  const auto r = try_explore({}, [] { EXPECT_EQ(1, 2) << "of course"; });
  EXPECT_NE(r.failure.find("explore_test.cpp:"), std::string::npos) << r.report;
  EXPECT_NE(r.report.find("of course"), std::string::npos) << r.report;
}

TEST(explore, a_deadlock_fails_it) {
  const auto r = try_explore({}, [] {
    weft::wait_group never;
    never.add(1);
    never.wait();
  });
  EXPECT_NE(r.failure.find("deadlock"), std::string::npos) << r.report;
}

TEST(explore, no_end_fails_it) {
  const auto r = try_explore({.runs = 1, .steps = 1'000}, [] {
    for (;;) weft::test::point();
  });
  EXPECT_NE(r.failure.find("no end after 1000 steps"), std::string::npos) << r.report;
  const auto y = try_explore({.runs = 1, .steps = 1'000}, [] {
    for (;;) weft::this_goroutine::yield();
  });
  EXPECT_FALSE(y.ok);
}

// Two loops that wait for a third goroutine do not pass the turn between them for ever.
TEST(explore, loops_that_yield_let_everybody_have_a_turn) {
  const auto program = [] {
    weft::test::atomic<bool> flag{false, "flag"};
    weft::wait_group all;
    for (int i = 0; i < 2; ++i) {
      all.go([&] {
        while (!flag) weft::this_goroutine::yield();
      });
    }
    all.go([&] { flag = true; });
    all.wait();
  };
  for (const strategy how : {strategy::random, strategy::priorities, strategy::exhaustive}) {
    const auto r = try_explore({.how = how, .runs = 500, .steps = 500}, program);
    EXPECT_TRUE(r.ok) << r.report;
  }
  const auto r = try_explore({.how = strategy::exhaustive, .runs = 20'000, .switches = 0}, program);
  EXPECT_TRUE(r.exhausted) << r.report;
}

TEST(explore, what_is_left_behind_fails_it) {
  const auto goroutine =
      try_explore({}, [] { weft::go([] { weft::this_goroutine::sleep_for(1s); }); });
  EXPECT_NE(goroutine.failure.find("left behind"), std::string::npos) << goroutine.report;
  int fd = -1;
  const auto descriptor = try_explore({.runs = 1, .shrink = false}, [&fd] { fd = ::dup(1); });
  EXPECT_NE(descriptor.failure.find("file descriptor"), std::string::npos) << descriptor.report;
  ::close(fd);
}

// Timers and computing goroutines race, within the bound.
TEST(explore, a_goroutine_may_be_late) {
  const auto program = [](std::chrono::nanoseconds sleep) {
    return [sleep] {
      weft::test::atomic<bool> done{false};
      weft::wait_group all;
      all.go([&] { done = true; });
      weft::this_goroutine::sleep_for(sleep);
      EXPECT_TRUE(done);
      all.wait();
    };
  };
  EXPECT_FALSE(try_explore({}, program(5ms)).ok);
  EXPECT_TRUE(try_explore({}, program(20ms)).ok);
  EXPECT_TRUE(try_explore({.late = 0ms}, program(5ms)).ok);
}

// One processor runs a goroutine until it waits.
TEST(explore, on_one_processor_nobody_is_interrupted) {
  std::set<std::string> orders;
  const auto r = try_explore({.procs = 1}, [&] {
    std::string order;
    two_walkers(4, order);
    orders.insert(order);
  });
  EXPECT_TRUE(r.ok) << r.report;
  EXPECT_EQ(orders, (std::set<std::string>{"aaaabbbb", "bbbbaaaa"}));
}

// A store that lingers in its buffer while the next load is done: x86-64's one surprise.
TEST(explore, buffered_memory_shows_store_load_reordering) {
  const auto program = [](std::memory_order order) {
    return [order] {
      weft::test::atomic<int> x{0, "x"};
      weft::test::atomic<int> y{0, "y"};
      int a = 1;
      int b = 1;
      weft::wait_group all;
      all.go([&] {
        x.store(1, order);
        a = y.load(std::memory_order_acquire);
      });
      all.go([&] {
        y.store(1, order);
        b = x.load(std::memory_order_acquire);
      });
      all.wait();
      EXPECT_TRUE(a == 1 || b == 1);
    };
  };
  const weft::test::options buffered{.model = weft::test::memory::buffered};
  EXPECT_FALSE(try_explore(buffered, program(std::memory_order_release)).ok);
  EXPECT_TRUE(try_explore(buffered, program(std::memory_order_seq_cst)).ok);
  EXPECT_TRUE(try_explore({}, program(std::memory_order_release)).ok);
}

// What starts, wakes or releases is an exchange or more in the real primitives: no earlier store
// lands after it.
TEST(explore, buffered_memory_does_not_delay_a_store_past_a_start_a_wake_up_or_a_release) {
  constexpr auto relaxed = std::memory_order_relaxed;
  const auto r = try_explore({.model = weft::test::memory::buffered}, [] {
    weft::test::atomic<int> x{0, "x"};
    weft::test::atomic<int> y{0, "y"};
    x.store(1, relaxed);
    auto started = weft::async([&] {
      EXPECT_EQ(x.load(relaxed), 1);
      y.store(1, relaxed);
    });
    started.wait();
    EXPECT_EQ(y.load(relaxed), 1);
  });
  EXPECT_TRUE(r.ok) << r.report;
}

// Memory lies elsewhere in each run. A search that depended on where would not be one.
TEST(explore, a_search_does_not_depend_on_addresses) {
  std::vector<std::unique_ptr<char[]>> ballast;
  const auto program = [&ballast] {
    ballast.push_back(std::make_unique<char[]>(ballast.size() % 977));
    const auto words = std::make_unique<std::array<weft::test::atomic<int>, 16>>();
    weft::wait_group all;
    for (const std::size_t first : {0U, 8U}) {
      all.go([&words = *words, first] {
        for (std::size_t i = 0; i < 4; ++i) {
          words[first + i].store(1, std::memory_order_relaxed);
          words[first + i + 4].load(std::memory_order_relaxed);
        }
      });
    }
    all.wait();
  };
  const auto r = try_explore({.how = strategy::exhaustive,
                              .runs = 100'000,
                              .switches = 1,
                              .model = weft::test::memory::buffered},
                             program);
  EXPECT_TRUE(r.ok) << r.report;
  EXPECT_TRUE(r.exhausted) << r.report;
}

// Release and acquire order plain data; relaxed does not.
TEST(explore, races_follow_the_orders_of_atomics) {
  const auto program = [](std::memory_order store, std::memory_order load) {
    return [store, load] {
      weft::test::var<int> data{0, "data"};
      weft::test::atomic<bool> flag{false, "flag"};
      weft::wait_group all;
      all.go([&] {
        data = 42;
        flag.store(true, store);
      });
      all.go([&] {
        if (flag.load(load)) weft::test::check(data == 42, "the data is there");
      });
      all.wait();
      EXPECT_EQ(data.get(), 42);
    };
  };
  using enum std::memory_order;
  EXPECT_TRUE(try_explore({}, program(release, acquire)).ok);
  EXPECT_FALSE(try_explore({}, program(relaxed, acquire)).ok);
  EXPECT_FALSE(try_explore({}, program(release, relaxed)).ok);
}

// The table shows what each goroutine did with which value, and one line says what went wrong.
TEST(explore, the_table_tells_names_values_and_lines) {
  const auto r = try_explore({}, [] {
    weft::test::var<int> n{0, "n"};
    weft::wait_group all;
    weft::test::name(&all, "all");
    all.add(1);
    weft::go({.name = "writer"}, [&] {
      n = 7;
      all.done();
    });
    all.wait();
    EXPECT_EQ(n.get(), 8);
  });
  EXPECT_NE(r.failure.find("explore_test.cpp:"), std::string::npos) << r.failure;
  EXPECT_NE(r.failure.find("Which is: 7 8"), std::string::npos) << r.failure;
  EXPECT_NE(r.report.find("  writer.1"), std::string::npos) << r.report;  // though it has ended
  for (const char* const text : {"add all (:", "wait all (:", "write n = 7 (:", "read n = 7 (:",
                                 "done all (", "lines of explore_test.cpp"}) {
    EXPECT_NE(r.report.find(text), std::string::npos) << text << "\n" << r.report;
  }
}

TEST(explore, what_repeats_at_the_end_is_shown_once) {
  const auto r = try_explore({.runs = 1, .steps = 1'000}, [] {
    weft::test::atomic<int> n{1, "n"};
    while (n.load() != 0) weft::this_goroutine::yield();
  });
  EXPECT_NE(r.report.find("load n = 1"), std::string::npos) << r.report;
  EXPECT_NE(r.report.find("and so on: the last 2 of these lines, "), std::string::npos) << r.report;
  EXPECT_LT(std::count(r.report.begin(), r.report.end(), '\n'), 15) << r.report;
}

TEST(explore, instrumented_types_are_plain_outside) {
  weft::test::atomic<int> a{1};
  weft::test::var<int> v{1};
  ++a;
  ++v;
  weft::test::point();
  int expected = 2;
  EXPECT_TRUE(a.compare_exchange_strong(expected, 3));
  EXPECT_EQ(a.load() + v.get(), 5);
}

TEST(explore, a_bad_seed_is_refused) {
  EXPECT_THROW((void)weft::test::replay({}, "nonsense", [] {}), std::invalid_argument);
  EXPECT_THROW((void)weft::test::replay({}, "12:0y3", [] {}), std::invalid_argument);
}

// A goroutine that starts a timer, or waits for a group, is ordered with the goroutines that run
// then.
TEST(explore, timers_and_groups_order_what_they_start) {
  explore({.runs = 50}, [] {
    weft::test::var<int> x{0, "x"};
    weft::chan<int> done;
    x = 1;
    const auto t = weft::after_func(1s, [&] {
      EXPECT_EQ(x, 1);
      done.close();
    });
    (void)done.recv();
    {
      weft::group g;
      g.go([&x] { x = 2; });
    }
    EXPECT_EQ(x, 2);
  });
}

TEST(explore, a_ticker_nobody_listens_to_hides_no_deadlock) {
  const auto r = try_explore({.runs = 3}, [] {
    const weft::ticker k(1s);
    weft::mutex m;
    m.lock();
    m.lock();
  });
  EXPECT_NE(r.failure.find("deadlock: all goroutines are asleep: main: mutex lock"),
            std::string::npos)
      << r.report;
}

// A loop of 50,000 turns has a seed of a few letters, which replays it.
TEST(explore, no_end_is_told_at_once_with_a_short_seed) {
  const auto endless = [] {
    for (;;) weft::this_goroutine::sleep_for(1s);
  };
  const auto r = try_explore({.runs = 3}, endless);
  EXPECT_NE(r.failure.find("no end after 100000 steps"), std::string::npos) << r.report;
  EXPECT_LT(r.seed.size(), 60u) << r.seed;
  EXPECT_EQ(weft::test::replay({}, r.seed, endless).failure, r.failure);
}

TEST(explore, tables_say_what_is_done_with_what) {
  const auto r = try_explore({.runs = 1}, [] {
    weft::mutex m;
    weft::chan<int> jobs(1);
    weft::counting_semaphore<1> permits(1);
    weft::test::name(&m, "m");
    weft::test::name(&jobs, "jobs");
    weft::test::name(&permits, "permits");
    m.lock();
    m.unlock();
    permits.acquire();
    jobs.send(1);
    jobs.send(2);
  });
  for (const char* const text : {"lock m", "unlock m", "acquire permits", "send jobs"}) {
    EXPECT_NE(r.report.find(text), std::string::npos) << text << "\n" << r.report;
  }
}

TEST(explore, a_schedule_that_no_longer_fits_is_told) {
  const auto r = weft::test::replay({}, "1:0x2-9x7-0x3", [] { weft::this_goroutine::yield(); });
  EXPECT_TRUE(r.ok);
  EXPECT_NE(r.report.find("could not follow the schedule"), std::string::npos) << r.report;
}

}  // namespace
