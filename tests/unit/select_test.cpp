// select and selector.
#include "allocated.hpp"
#include "eventually.hpp"

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
#include <utility>
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

// A select that must wait for ever does, and is reported as a deadlock: the opposite of every case
// above.
TEST(select, without_a_ready_case_it_waits) {
  const auto waits_in = [](const char* reason, void (*body)()) {
    const auto r = weft::test::try_explore({.runs = 1, .shrink = false}, body);
    EXPECT_NE(r.failure.find("deadlock"), std::string::npos) << r.report;
    EXPECT_NE(r.report.find(reason), std::string::npos) << r.report;
  };
  waits_in("select", [] { select(recv(chan<int>(nullptr)), send(chan<int>(nullptr), 1)); });
  waits_in("select", [] {
    const chan<int> empty(3);
    const chan<int> full(1);
    full.send(1);
    select(recv(empty), send(full, 2), recv(chan<int>(nullptr)));
  });
  waits_in("select", [] {
    const chan<int> c;
    select(recv(c), send(c, 1));
  });
}

// What is in a closed channel comes out first; a send to it throws rather than to be passed over
// for otherwise, and keeps its value.
TEST(select, a_closed_channel_is_drained_first_and_takes_nothing) {
  const chan<int> c(2);
  c.send(1);
  c.send(2);
  c.close();
  const chan<int> never;
  std::vector<std::optional<int>> got;
  const auto keep = [&](std::optional<int> v) { got.push_back(v); };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(select(recv(never), recv(c, keep), otherwise()), 1u);
  EXPECT_EQ(got, (std::vector<std::optional<int>>{1, 2, std::nullopt}));
  auto kept = std::make_unique<int>(5);
  const chan<std::unique_ptr<int>> closed;
  closed.close();
  EXPECT_THROW(select(send(closed, std::move(kept)), recv(never), otherwise()),
               weft::closed_channel);
  EXPECT_EQ(*kept, 5);
}

// A close while selects wait: those that would receive are told, those that would send throw, and
// the other cases of both are as if they had not been.
TEST(select, a_close_wakes_every_goroutine_that_waits_in_a_select) {
  explore({.runs = weft::test::runs(3'000)}, [] {
    const chan<int> c;
    const chan<int> other;
    int told = 0;
    int threw = 0;
    weft::wait_group all;
    all.go([&] { select(recv(other), recv(c, [&](std::optional<int> v) { told += v ? 0 : 1; })); });
    all.go([&] { c.close(); });
    all.wait();
    const chan<int> d;
    for (int i = 0; i < 2; ++i) {
      all.go([&] {
        int x = 3;
        try {
          select(recv(other), send(d, x));
          ADD_FAILURE() << "nobody receives";
        } catch (const weft::closed_channel&) {
          ++threw;
        }
      });
    }
    all.go([&] { d.close(); });
    all.wait();
    EXPECT_EQ(told, 1);
    EXPECT_EQ(threw, 2);
    EXPECT_EQ(other.try_recv().error(), weft::chan_status::empty);
    EXPECT_EQ(other.try_send(1), weft::chan_status::full);
  });
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
  EXPECT_EQ(select(send(full, std::move(kept)), send(open, sent)), 1u);
  ASSERT_NE(kept, nullptr);
  EXPECT_EQ(*kept, 7);
  EXPECT_EQ(sent.size(), 100u) << "an lvalue is copied";
  EXPECT_EQ(open.recv().value().size(), 100u);
  EXPECT_EQ(select(send(full, std::move(kept)), send(open, std::move(sent))), 1u);
  EXPECT_TRUE(sent.empty()) << "an rvalue is moved";
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
  explore({.runs = weft::test::runs(3'000)}, [] {
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

// A select that stood in a queue several times, between others, leaves it by another case: the
// others are still there, in their order.
TEST(select, leaves_the_queue_to_those_before_and_behind_it) {
  bubble([] {
    const chan<int> c;
    const chan<int> d;
    std::string order;
    weft::wait_group all;
    const auto receive = [&](char name) {
      all.go([&, name] {
        c.recv();
        order += name;
      });
      weft::test::wait();
    };
    receive('a');
    all.go([&] {
      const std::size_t taken = select(recv(c), recv(d), recv(c), recv(c));
      EXPECT_EQ(taken, 1u);
    });
    weft::test::wait();
    receive('b');
    all.go([&] { EXPECT_EQ(select(recv(c), recv(d)), 0u); });
    weft::test::wait();
    d.send(1);  // the first select
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(c.try_send(i), weft::chan_status::ok);
      weft::test::wait();
    }
    EXPECT_EQ(c.try_send(9), weft::chan_status::full) << "nobody is left";
    EXPECT_EQ(d.try_send(9), weft::chan_status::full);
    all.wait();
    EXPECT_EQ(order, "ab");
  });
}

// Two sends to one channel, with or without room in it: either is taken, about as often.
TEST(select, is_fair_among_sends_to_one_channel) {
  for (const std::size_t capacity : {std::size_t{0}, std::size_t{1}, std::size_t{50}}) {
    bubble([capacity] {
      constexpr int n = 1'000;
      const chan<int> c(capacity);
      int ones = 0;
      weft::wait_group all;
      all.go([&] {
        for (int i = 0; i < n; ++i) ones += c.recv().value();
      });
      for (int i = 0; i < n; ++i) {
        const int zero = 0;
        const int one = 1;
        select(send(c, zero), send(c, one));
      }
      all.wait();
      EXPECT_GT(ones, n / 10);
      EXPECT_LT(ones, n - n / 10);
    });
  }
}

// A select does not meet itself.
TEST(select, sends_nothing_to_itself) {
  explore({.runs = weft::test::runs(3'000)}, [] {
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

// With a buffer a select may well take out what it put in, but it is never stuck.
TEST(select, sends_to_itself_through_a_buffer) {
  explore({.runs = weft::test::runs(2'000)}, [] {
    const chan<int> c(2);
    weft::wait_group all;
    int sent = 0;
    int received = 0;
    for (int g = 0; g < 2; ++g) {
      all.go([&, g] {
        for (int i = 0; i < 4; ++i) {
          int mine = g;
          select(send(c, mine, [&] { ++sent; }), recv(c, [&] { ++received; }));
        }
      });
    }
    all.wait();
    EXPECT_EQ(sent + received, 8);
    EXPECT_EQ(c.size(), static_cast<std::size_t>(sent - received));
  });
}

// Two selects over the same two channels in opposite order.
TEST(select, selects_against_selects_never_deadlock) {
  explore({.runs = weft::test::runs(5'000)}, [] {
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
  explore({.runs = weft::test::runs(10'000)}, [] {
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
  explore({.runs = weft::test::runs(3'000)}, [] {
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
  explore({.runs = weft::test::runs(5'000)}, [] {
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

// acts_on_one_instant while they really run at once: of two channels one is ready at every instant,
// by a value or by its close, though each is not at some. Two threads, which the system runs beside
// each other if it can.
TEST(select, acts_on_one_instant_on_real_processors) {
  std::atomic<int> round{0};
  std::atomic<int> answered{0};
  chan<int> a;
  chan<int> b;
  int missed = 0;
  constexpr int last = -1;
  const auto wait_while = [](auto condition) {
    for (int i = 0; condition(); ++i) {
      if (i % 256 == 255) std::this_thread::yield();
    }
  };
  std::thread selects([&] {
    for (int i = 1;; ++i) {
      wait_while([&] { return round != i && round != last; });
      if (round == last) return;
      missed += select(recv(a), recv(b), otherwise()) == 2 ? 1 : 0;
      answered = i;
    }
  });
  // With one core a round may take long.
  const auto deadline = std::chrono::steady_clock::now() + 100ms;
  for (int i = 1; i <= 20'000 && std::chrono::steady_clock::now() < deadline; ++i) {
    a = chan<int>(1);
    b = chan<int>(1);
    a.send(1);
    round = i;
    for (int spin = 0; spin < i % 64; ++spin) weft::detail::relax(0);
    if (i % 2 == 0) {
      b.send(1);
    } else {
      b.close();
    }
    (void)a.try_recv();
    wait_while([&] { return answered != i; });
  }
  round = last;
  selects.join();
  EXPECT_EQ(missed, 0);
}

// A channel that is ready all the time does not keep a timer from firing and from being seen.
TEST_P(select_on_processors, busy_channels_do_not_starve_a_timer) {
  const int before = weft::max_procs(GetParam());
  weft::run([] {
    const chan<int> busy;
    const chan<int> done;
    weft::wait_group all;
    for (int g = 0; g < 2; ++g) {
      all.go([&] {
        while (select(send(busy, 1), recv(done)) == 0) {
        }
      });
    }
    const auto begin = std::chrono::steady_clock::now();
    const weft::receiver<weft::clock::time_point> in_time = weft::after(2ms);
    while (select(recv(busy), recv(in_time)) == 0) {
      if (std::chrono::steady_clock::now() - begin > 20s) {
        ADD_FAILURE() << "the timer is not seen";
        break;
      }
    }
    done.close();
    all.wait();
  });
  weft::max_procs(before);
}

// A server selects for years, mostly on channels that never become ready: no select leaves anything
// behind in them.
TEST_P(select_on_processors, many_selects_need_no_more_memory_than_one) {
  const int before = weft::max_procs(GetParam());
  weft::run([] {
    const chan<int> ping;
    const chan<int> pong;
    const chan<int> never;
    weft::wait_group all;
    constexpr int n = weft::test::scaled(20'000, 1'000);
    all.go([&] {
      for (int i = 0; i < n + 100; ++i) {
        select(recv(never), recv(ping));
        select(send(pong, i), recv(never), recv(never));
      }
    });
    const auto serve = [&](int times) {
      for (int i = 0; i < times; ++i) {
        select(send(ping, i), recv(never), weft::after(1h, [] {}));
        select(recv(never), recv(pong));
      }
    };
    serve(100);
    const std::size_t used = weft::test::allocated_bytes();
    serve(n);
    EXPECT_LT(weft::test::allocated_bytes(), used + 200'000) << "10 bytes for each would be more";
    all.wait();
  });
  weft::max_procs(before);
}

INSTANTIATE_TEST_SUITE_P(procs, select_on_processors, ::testing::Values(1, 2, 8));

// One object in several cases is sent once, and stays what it is if none of them is taken.
TEST(select, one_value_stands_in_several_cases) {
  const std::string text(100, 's');
  const chan<std::string> full(1);
  const chan<std::string> open(1);
  full.send("x");
  std::string s = text;
  EXPECT_EQ(select(send(full, std::move(s)), send(open, std::move(s))), 1u);
  EXPECT_EQ(open.recv(), text);
  s = text;
  EXPECT_EQ(select(send(full, std::move(s)), send(full, std::move(s)), otherwise()), 2u);
  EXPECT_EQ(s, text);
  EXPECT_EQ(select(send(open, std::move(s)), send(full, std::move(s))), 0u);
  EXPECT_EQ(open.recv(), text);

  weft::selector sel;
  s = text;
  sel.add(send(full, weft::moving(s)));
  sel.add(send(full, weft::moving(s)));
  sel.add(otherwise());
  EXPECT_EQ(sel.wait(), 2u);
  EXPECT_EQ(s, text);
  (void)full.recv();
  EXPECT_LT(sel.wait(), 2u);
  EXPECT_EQ(full.recv(), text);

  full.close();
  s = text;
  EXPECT_THROW(select(send(full, std::move(s)), send(full, std::move(s))), weft::closed_channel);
  EXPECT_EQ(s, text);
}

// A selector would be the only one that cannot send what cannot be copied, if a case of its could
// not be given a variable to move from.
TEST(selector, a_moved_variable_is_untouched_until_its_case_is_taken) {
  const chan<std::unique_ptr<int>> full(1);
  full.send(nullptr);
  auto mine = std::make_unique<int>(7);
  weft::selector s;
  s.add(send(full, weft::moving(mine)));
  s.add(otherwise());
  EXPECT_EQ(s.wait(), 1u);
  ASSERT_NE(mine, nullptr);
  (void)full.recv();
  EXPECT_EQ(s.wait(), 0u);
  EXPECT_EQ(mine, nullptr);
  EXPECT_EQ(**full.recv(), 7);
  // In a select it is what std::move is.
  mine = std::make_unique<int>(8);
  EXPECT_EQ(select(send(weft::sender<std::unique_ptr<int>>(full), weft::moving(mine))), 0u);
  EXPECT_EQ(**full.recv(), 8);
}

// What a selector refers to has to be there when it waits: a temporary is not.
template <class T, class... Value>
concept can_be_added = requires(weft::selector& s, const chan<T>& c, Value&&... value) {
  s.add(send(c, std::forward<Value>(value)...));
};
static_assert(can_be_added<std::string, std::string&>);
static_assert(can_be_added<std::string, const std::string&>);
static_assert(can_be_added<std::string, const char*>, "is made a string that is the case's");
static_assert(can_be_added<int, int&>);
static_assert(can_be_added<long, int>);
static_assert(!can_be_added<std::string, std::string>);
static_assert(!can_be_added<std::string, const std::string>);
static_assert(!can_be_added<int, int>);
static_assert(!can_be_added<std::unique_ptr<int>, std::unique_ptr<int>>);

// A value that has to be made a T first is made one, and a selector sends it each time.
TEST(select, values_of_other_types_are_converted) {
  const chan<long> numbers(2);
  EXPECT_EQ(select(send(numbers, 1)), 0u);
  const weft::sender<long> end = numbers;
  EXPECT_EQ(select(send(end, short{2}, [] {})), 0u);
  EXPECT_EQ(numbers.recv(), 1);
  EXPECT_EQ(numbers.recv(), 2);
  const chan<std::string> words(2);
  weft::selector s;
  s.add(send(words, "a word that is long enough to be on the heap"));
  s.wait();
  s.wait();
  EXPECT_EQ(words.recv()->size(), 44u);
  EXPECT_EQ(words.recv()->size(), 44u);
}

// Go's specification has it as an example: a select that may send 0 or 1 sends random bits; also if
// it has to wait before it can, and so it is with receives. In the end the channel is closed.
TEST(select, one_channel_in_several_cases_is_fair_after_a_wait) {
  constexpr int rounds = weft::test::scaled(3'000, 600);
  weft::run([] {
    const chan<int> c;
    const chan<int> other;
    const chan<int> nil = nullptr;
    weft::wait_group all;
    std::array<int, 3> sent{};
    all.go([&] {
      for (int i = 0; i < rounds; ++i) {
        weft::this_goroutine::yield();
        ++sent[static_cast<std::size_t>(*c.recv())];
      }
    });
    for (int i = 0; i < rounds; ++i) {
      select(send(c, 0), recv(other), recv(nil), send(c, 1), send(c, 2));
    }
    all.wait();
    for (const int n : sent) EXPECT_NEAR(n, rounds / 3, rounds / 8);

    std::array<int, 4> taken{};
    all.go([&] {
      for (int i = 0; i < rounds; ++i) {
        weft::this_goroutine::yield();
        c.send(1);
      }
      weft::this_goroutine::yield();
      c.close();
    });
    for (int i = 0; i < rounds; ++i) ++taken[select(recv(c), recv(other), recv(c), recv(c))];
    EXPECT_EQ(taken[1], 0);
    for (const std::size_t i : {0u, 2u, 3u}) EXPECT_NEAR(taken[i], rounds / 3, rounds / 8);
    EXPECT_NE(select(recv(c), recv(other), recv(c)), 1u);
    all.wait();
  });
}

// A const one that is sent beside it is a copy of the same value; a part of it at the same address
// is something else.
TEST(select, one_value_stands_in_cases_of_several_kinds) {
  struct pair {
    std::string first = std::string(100, 'f');
    std::string second = std::string(100, 's');
  };
  const chan<std::string> full(1);
  const chan<std::string> open(1);
  full.send("x");
  std::string s(100, 's');
  EXPECT_EQ(select(send(full, std::move(s)), send(open, s)), 1u);
  EXPECT_EQ(open.recv()->size(), 100u);
  EXPECT_EQ(s.size(), 100u);

  const chan<pair> pairs(1);
  const chan<pair> no_room;
  pair p;
  EXPECT_EQ(select(send(no_room, std::move(p)), send(open, p.first)), 1u);
  (void)open.recv();
  EXPECT_EQ(p.second.size(), 100u);
}

TEST(select, one_value_waits_in_two_cases) {
  explore({.runs = weft::test::runs(500)}, [] {
    const chan<std::unique_ptr<int>> a;
    const chan<std::unique_ptr<int>> b;
    weft::wait_group all;
    all.go([=] {
      auto value = std::make_unique<int>(7);
      select(send(a, std::move(value)), send(b, std::move(value)));
      EXPECT_EQ(value, nullptr);
    });
    select(recv(a, [](auto v) { EXPECT_EQ(**v, 7); }), recv(b, [](auto v) { EXPECT_EQ(**v, 7); }));
    all.wait();
  });
}

}  // namespace
