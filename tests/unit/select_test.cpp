// select and selector.
#include <weft/select.hpp>
#include <weft/test.hpp>
#include <weft/weft.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using weft::chan;
using weft::otherwise;
using weft::recv;
using weft::select;
using weft::send;
using weft::test::bubble;
using weft::test::explore;

TEST(select, takes_the_case_that_is_ready_and_returns_its_index) {
  const chan<int> a(1);
  const chan<std::string> b(1);
  b.send("x");
  int from_a = 0;
  std::string from_b;
  EXPECT_EQ(select(recv(a, [&](std::optional<int> v) { from_a = *v; }),
                   recv(b, [&](std::optional<std::string> v) { from_b = v.value(); })),
            1u);
  EXPECT_EQ(from_b, "x");
  EXPECT_EQ(from_a, 0);
  int five = 5;
  EXPECT_EQ(select(recv(b), send(a, five)), 1u);
  EXPECT_EQ(a.recv(), 5);
}

TEST(select, handlers_may_be_left_out_and_bare_channels_are_cases) {
  const chan<int> a(2);
  a.send(1);
  a.send(2);
  int called = 0;
  EXPECT_EQ(select(a), 0u);
  EXPECT_EQ(select(recv(a, [&] { ++called; })), 0u);
  EXPECT_EQ(called, 1);
  const weft::receiver<int> r = a;
  EXPECT_EQ(select(r, otherwise()), 1u);
}

TEST(select, a_closed_channel_is_ready) {
  const chan<int> a;
  a.close();
  bool told = false;
  EXPECT_EQ(select(recv(a, [&](std::optional<int> v) { told = !v; })), 0u);
  EXPECT_TRUE(told);
  int x = 1;
  EXPECT_THROW(select(send(a, x)), weft::closed_channel);
}

TEST(select, the_nil_channel_is_never_ready) {
  const chan<int> nil = nullptr;
  int x = 1;
  EXPECT_EQ(select(recv(nil), send(nil, x), otherwise()), 2u);
  const auto r = weft::test::try_explore({.runs = 1}, [] { select(); });
  EXPECT_NE(r.report.find("select (no cases)"), std::string::npos) << r.report;
}

TEST(select, otherwise_may_stand_anywhere_but_once) {
  const chan<int> a;
  EXPECT_EQ(select(otherwise(), recv(a)), 0u);
  EXPECT_THROW(select(otherwise(), recv(a), otherwise()), std::logic_error);
}

// A value is moved from only if its case is taken.
TEST(select, values_of_cases_not_taken_stay) {
  const chan<std::unique_ptr<int>> full(1);
  full.send(std::make_unique<int>(1));
  const chan<std::string> open(1);
  auto kept = std::make_unique<int>(7);
  std::string sent(100, 'x');
  EXPECT_EQ(select(send(full, kept), send(open, sent)), 1u);
  ASSERT_NE(kept, nullptr);
  EXPECT_EQ(*kept, 7);
  EXPECT_TRUE(sent.empty());
  const std::string constant(50, 'y');
  EXPECT_EQ(open.recv().value().size(), 100u);
  EXPECT_EQ(select(send(open, constant)), 0u);
  EXPECT_EQ(constant.size(), 50u);
  EXPECT_EQ(select(send(open, std::string("temporary")), otherwise()), 1u);
}

TEST(select, after_is_taken_when_nothing_else_was) {
  bubble([] {
    const chan<int> c;
    std::string order;
    EXPECT_EQ(select(recv(c), weft::after(100ms, [&] { order += 'a'; }),
                     weft::after(50ms, [&] { order += 'b'; })),
              2u);
    weft::wait_group all;
    all.go([&] {
      weft::this_goroutine::sleep_for(10ms);
      c.send(1);
    });
    EXPECT_EQ(select(recv(c, [&] { order += 'c'; }), weft::after(1h, [] {})), 0u);
    all.wait();
    EXPECT_EQ(order, "bc");
  });
}

// Among ready cases the choice is uniform: 10 sigma of 10,000 is 500 of 5,000.
TEST(select, is_fair_among_ready_cases) {
  const chan<int> never;
  const chan<int> a(1);
  const chan<int> b(1);
  int first = 0;
  constexpr int n = 10'000;
  for (int i = 0; i < n; ++i) {
    (void)a.try_send(1);
    (void)b.try_send(1);
    select(recv(never), recv(a, [&] { ++first; }), recv(never), recv(b));
  }
  EXPECT_NEAR(first, n / 2, 500);
}

TEST(select, one_channel_may_stand_in_several_cases) {
  explore({.runs = 3'000}, [] {
    const chan<int> c;
    weft::wait_group all;
    int taken = 0;
    all.go([&] {
      for (int i = 0; i < 2; ++i) {
        select(recv(c, [&] { ++taken; }), recv(c, [&] { ++taken; }));
      }
    });
    all.go([c] { c.send(1); });
    all.go([c] { c.send(2); });
    all.wait();
    EXPECT_EQ(taken, 2);
  });
}

// A select does not meet itself.
TEST(select, sends_nothing_to_itself) {
  explore({.runs = 3'000}, [] {
    const chan<int> c;
    weft::wait_group all;
    std::array<int, 2> received{};
    for (int g = 0; g < 2; ++g) {
      all.go([&, g] {
        int mine = g;
        select(send(c, mine), recv(c, [&](std::optional<int> v) {
                 EXPECT_NE(*v, g);
                 ++received[static_cast<std::size_t>(g)];
               }));
      });
    }
    all.wait();
    EXPECT_EQ(received[0] + received[1], 1);
  });
}

// Two selects over the same two channels in opposite order.
TEST(select, selects_against_selects_never_deadlock) {
  explore({.runs = 5'000}, [] {
    const chan<int> a;
    const chan<int> b;
    int sum = 0;
    weft::wait_group all;
    for (int g = 0; g < 2; ++g) {
      all.go([&, g] {
        int x = 1;
        for (int i = 0; i < 2; ++i) {
          if (g == 0) {
            select(send(a, x), send(b, x));
          } else {
            select(send(b, x), send(a, x));
          }
        }
      });
      all.go([&, g] {
        for (int i = 0; i < 2; ++i) {
          const auto add = [&](std::optional<int> v) { sum += *v; };
          if (g == 0) {
            select(recv(b, add), recv(a, add));
          } else {
            select(recv(a, add), recv(b, add));
          }
        }
      });
    }
    all.wait();
    EXPECT_EQ(sum, 4);
  });
}

// With one of two channels ready at every instant, otherwise must not be taken.
TEST(select, acts_on_one_instant) {
  explore({.runs = 10'000}, [] {
    const chan<int> a(1);
    const chan<int> b(1);
    a.send(1);
    weft::wait_group all;
    all.go([&] {
      b.send(1);
      a.recv();
    });
    EXPECT_NE(select(recv(a), recv(b), otherwise()), 2u);
    (void)a.try_send(1);  // for the other's receive
    all.wait();
  });
}

// A select that was served leaves no trace in the queues of the others.
TEST(select, leaves_no_trace) {
  explore({.runs = 3'000}, [] {
    const chan<int> a;
    const chan<int> b;
    weft::wait_group all;
    all.go([&] { select(recv(a), recv(b)); });
    all.go([&] { a.send(1); });
    all.wait();
    int x = 2;
    EXPECT_EQ(b.try_send(x), weft::chan_status::full);
    EXPECT_EQ(a.try_send(x), weft::chan_status::full);
  });
}

// A timeout and a value race: one of them wins, and the value is received or stays with its sender.
TEST(select, a_timeout_that_races_loses_nothing) {
  explore({.runs = 5'000}, [] {
    const chan<int> c;
    int received = 0;
    weft::wait_group all;
    all.go([&] {
      const std::size_t taken = select(recv(c, [&] { ++received; }), weft::after(1ms, [] {}));
      EXPECT_TRUE(taken == 0 || c.recv() == 7);
    });
    all.go([&] {
      weft::this_goroutine::sleep_for(1ms);
      c.send(7);
    });
    all.wait();
    EXPECT_LE(received, 1);
  });
}

TEST(selector, waits_for_hundreds_of_channels) {
  bubble([] {
    constexpr std::size_t n = 300;
    std::vector<chan<std::size_t>> channels(n);
    weft::selector all;
    std::size_t got = 0;
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_EQ(all.add(recv(channels[i], [&](std::optional<std::size_t> v) { got += *v; })), i);
    }
    weft::wait_group senders;
    for (std::size_t i = 0; i < n; ++i) {
      senders.go([&, i] { channels[i].send(i); });
    }
    for (std::size_t i = 0; i < n; ++i) all.wait();
    senders.wait();
    EXPECT_EQ(got, n * (n - 1) / 2);
  });
}

TEST(selector, has_every_kind_of_case) {
  bubble([] {
    const chan<int> c(1);
    weft::selector s;
    int value = 3;
    s.add(send(c, value));
    s.add(weft::after(1s, [] {}));
    EXPECT_EQ(s.wait(), 0u);
    EXPECT_EQ(s.wait(), 1u);
    s.add(otherwise());
    EXPECT_EQ(s.wait(), 2u);
    EXPECT_THROW(s.add(otherwise()), std::logic_error);
  });
}

class select_on_processors : public ::testing::TestWithParam<int> {};

TEST_P(select_on_processors, a_storm_of_sends_receives_and_selects_loses_nothing) {
  const int before = weft::max_procs(GetParam());
  weft::run([] {
    constexpr int n = 2'000;
    const std::array<chan<int>, 4> channels{chan<int>(0), chan<int>(0), chan<int>(2), chan<int>(3)};
    std::atomic<std::int64_t> sent{0};
    std::atomic<std::int64_t> received{0};
    weft::wait_group senders;
    weft::wait_group receivers;
    for (const chan<int>& c : channels) {
      senders.go([&, c] {
        for (int i = 1; i <= n; ++i) c.send(i);
        sent += std::int64_t{n} * (n + 1) / 2;
      });
      receivers.go([&, c] {
        for (const int v : c) received += v;
      });
    }
    for (int g = 0; g < 2; ++g) {
      senders.go([&] {
        std::int64_t mine = 0;
        for (int i = 1; i <= 4 * n; ++i) {
          int x = i;
          select(send(channels[0], x), send(channels[1], x), send(channels[2], x),
                 send(channels[3], x));
          mine += i;
        }
        sent += mine;
      });
      receivers.go([&] {
        std::array<chan<int>, 4> open = channels;
        std::int64_t mine = 0;
        int closed = 0;
        const auto take = [&](std::size_t i) {
          return recv(open[i], [&, i](std::optional<int> v) {
            if (v) {
              mine += *v;
            } else {
              ++closed;
              open[i] = nullptr;
            }
          });
        };
        while (closed < 4) select(take(0), take(1), take(2), take(3));
        received += mine;
      });
    }
    senders.wait();
    for (const chan<int>& c : channels) c.close();
    receivers.wait();
    EXPECT_EQ(sent, received);
  });
  weft::max_procs(before);
}

TEST_P(select_on_processors, plain_threads_select_too) {
  const int before = weft::max_procs(GetParam());
  const chan<int> a;
  const chan<int> b;
  for (const chan<int>& c : {a, b}) {
    weft::go([c] {
      for (int i = 0; i < 500; ++i) c.send(1);
    });
  }
  int sum = 0;
  std::thread reader([&] {
    const auto add = [&](std::optional<int> v) { sum += *v; };
    for (int i = 0; i < 1000; ++i) select(recv(a, add), recv(b, add));
    EXPECT_EQ(select(recv(a), weft::after(2ms, [] {})), 1u);
  });
  reader.join();
  EXPECT_EQ(sum, 1000);
  weft::max_procs(before);
}

INSTANTIATE_TEST_SUITE_P(procs, select_on_processors, ::testing::Values(1, 2, 8));

}  // namespace
