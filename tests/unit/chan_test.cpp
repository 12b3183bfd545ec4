// Channels: what each operation does, in every order that explorations come up with and on real
// processors. select_test.cpp has the select.
#include "base/sanitizer.hpp"
#include "runtime_fixture.hpp"

#include <weft/chan.hpp>
#include <weft/test.hpp>
#include <weft/weft.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

namespace {

using weft::chan;
using weft::chan_status;
using weft::test::explore;

TEST(chan, holds_as_many_values_as_its_capacity) {
  for (const std::size_t capacity :
       {std::size_t{1}, std::size_t{2}, std::size_t{7}, std::size_t{200}}) {
    const chan<int> c(capacity);
    for (int i = 0; i < static_cast<int>(capacity); ++i) {
      EXPECT_EQ(c.size(), static_cast<std::size_t>(i));
      int v = i;
      EXPECT_EQ(c.try_send(v), chan_status::ok);
    }
    EXPECT_EQ(c.try_send(-1), chan_status::full);
    EXPECT_EQ(c.size(), capacity);
    EXPECT_EQ(c.capacity(), capacity);
    for (int i = 0; i < static_cast<int>(capacity); ++i) EXPECT_EQ(c.try_recv(), i);
    EXPECT_EQ(c.try_recv().error(), chan_status::empty);
  }
}

// A value that is not sent may be the base of a larger object, which must stay what it is.
TEST(chan, a_base_that_is_not_sent_stays_a_part_of_its_object) {
  struct base {
    base() = default;
    base(base&& other) noexcept : text(std::move(other.text)) {}
    base& operator=(base&& other) noexcept {
      text = std::move(other.text);
      return *this;
    }
    virtual ~base() = default;
    virtual int kind() const { return 1; }
    std::string text = std::string(100, 'b');
  };
  struct derived : base {
    int kind() const override { return 2; }
    std::string more = std::string(100, 'd');
  };
  const chan<base> full;
  derived d;
  const base& part = d;
  EXPECT_EQ(full.try_send(std::move(d)), chan_status::full);
  EXPECT_EQ(part.kind(), 2);
  EXPECT_EQ(d.text, std::string(100, 'b'));
  EXPECT_EQ(d.more, std::string(100, 'd'));
}

// One message to several channels: a caller that sends an lvalue still has it afterwards, by
// whatever form of send, and whether it was sent or not.
TEST(chan, an_lvalue_is_copied_and_an_rvalue_moved_only_if_sent) {
  const std::string text(100, 'm');
  const auto ctx = weft::with_cancel(weft::context::background()).ctx;
  const chan<std::string> c(3);
  const weft::sender<std::string> s = c;
  std::string m = text;
  c.send(m);
  EXPECT_EQ(c.try_send(m), chan_status::ok);
  EXPECT_FALSE(c.send(ctx, m));
  EXPECT_EQ(m, text);
  EXPECT_EQ(c.try_send(m), chan_status::full);
  EXPECT_EQ(c.try_send(std::move(m)), chan_status::full);
  EXPECT_EQ(m, text) << "not sent";
  for (int i = 0; i < 3; ++i) EXPECT_EQ(c.recv(), text);
  EXPECT_EQ(s.try_send(m), chan_status::ok);
  EXPECT_FALSE(s.send(ctx, m));
  EXPECT_EQ(weft::select(weft::send(s, m)), 0u);
  EXPECT_EQ(m, text);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(c.recv(), text);
  EXPECT_EQ(s.try_send(std::move(m)), chan_status::ok);
  EXPECT_TRUE(m.empty());
  m = text;
  EXPECT_FALSE(s.send(ctx, std::move(m)));
  EXPECT_TRUE(m.empty());
  const chan<std::unique_ptr<int>> owners(1);  // there is no copy to be made
  auto one = std::make_unique<int>(1);
  EXPECT_EQ(owners.try_send(std::move(one)), chan_status::ok);
  EXPECT_EQ(one, nullptr);
}

// A channel that is full and has a sender waiting holds two values. Two who ask for one without
// waiting both get one: there is no instant at which it is empty.
TEST(chan, is_never_empty_while_it_holds_a_value) {
  struct wide {
    std::array<std::int64_t, 8> words{};
  };
  constexpr int n = 1'000;
  std::array<std::atomic<int>, 2> empty{};
  weft::run([&] {
    for (int round = 0; round < (weft::base::sanitizer::active ? 4 : 20); ++round) {
      const bool by_select = round % 2 != 0;
      std::vector<chan<wide>> channels;
      weft::wait_group senders;
      for (int i = 0; i < n; ++i) {
        channels.emplace_back(1);
        channels.back().send({});
        senders.go([c = channels.back()] { c.send({}); });
      }
      EXPECT_TRUE(weft::test::until_waiting(n, weft::detail::wait_reason::chan_send));
      std::array<std::atomic<int>, 2> at{};
      weft::wait_group takers;
      for (std::size_t t = 0; t < 2; ++t) {
        takers.go([&, t] {
          for (int i = 0; i < n; ++i) {
            const chan<wide>& c = channels[static_cast<std::size_t>(i)];
            at[t] = i;
            for (int turn = 0; turn < 2'000 && at[1 - t] < i; ++turn) {
            }
            empty[by_select ? 1 : 0] +=
                by_select ? weft::select(weft::recv(c), weft::otherwise()) == 1 : !c.try_recv();
          }
          at[t] = n;
        });
      }
      takers.wait();
      for (const chan<wide>& c : channels) (void)c.try_recv();
      senders.wait();
    }
  });
  EXPECT_EQ(empty[0], 0) << "try_recv";
  EXPECT_EQ(empty[1], 0) << "otherwise";
}

TEST(chan, a_closed_one_is_drained_and_then_empty_for_ever) {
  const chan<int> c(3);
  c.send(1);
  c.send(2);
  c.close();
  EXPECT_EQ(c.recv(), 1);
  EXPECT_EQ(c.try_recv(), 2);
  EXPECT_EQ(c.recv(), std::nullopt);
  EXPECT_EQ(c.try_recv().error(), chan_status::closed);
  int v = 5;
  EXPECT_EQ(c.try_send(v), chan_status::closed);
  EXPECT_THROW(c.send(3), weft::closed_channel);
  EXPECT_THROW(c.close(), weft::closed_channel);
}

TEST(chan, the_nil_channel_is_never_ready) {
  const chan<int> c = nullptr;
  EXPECT_FALSE(c);
  EXPECT_EQ(c.try_recv().error(), chan_status::empty);
  EXPECT_EQ(c.try_send(1), chan_status::full);
  EXPECT_THROW(c.close(), weft::nil_channel);
  EXPECT_EQ(c.size() + c.capacity(), 0u);
  EXPECT_TRUE(chan<int>());
  const auto r = weft::test::try_explore({.runs = 1}, [] { chan<int>(nullptr).recv(); });
  EXPECT_NE(r.report.find("chan receive (nil chan)"), std::string::npos) << r.report;
}

TEST(chan, handles_are_equal_if_they_are_on_one_channel) {
  const chan<int> a;
  const chan<int> b;
  const chan<int> c = a;
  EXPECT_EQ(a, c);
  EXPECT_NE(a, b);
  EXPECT_EQ(weft::sender<int>(a), weft::sender<int>(c));
  EXPECT_EQ(weft::receiver<int>(a), weft::receiver<int>(c));
  EXPECT_FALSE(weft::receiver<int>(nullptr));
}

TEST(chan, a_capacity_beyond_all_memory_is_refused) {
  EXPECT_THROW(chan<int>(SIZE_MAX), std::length_error);
  if (!weft::base::sanitizer::active) {  // they do not let an allocation fail
    EXPECT_THROW(chan<int>(SIZE_MAX / 32), std::exception);
  }
}

// Every order of a few senders and receivers: nothing lost, nothing doubled, each sender's values
// in their order.
TEST(chan, delivers_each_value_once_and_in_order) {
  for (const std::size_t capacity : {std::size_t{0}, std::size_t{1}, std::size_t{3}}) {
    explore({.runs = weft::test::runs(3'000)}, [capacity] {
      const chan<int> c(capacity);
      constexpr int senders = 3;
      constexpr int each = 3;
      weft::wait_group sending;
      for (int s = 0; s < senders; ++s) {
        sending.go([c, s] {
          for (int i = 0; i < each; ++i) c.send(s * 100 + i);
        });
      }
      std::array<std::vector<int>, 2> got;
      weft::wait_group receiving;
      for (std::vector<int>& mine : got) {
        receiving.go([c, &mine] {
          for (const int v : c) mine.push_back(v);
        });
      }
      sending.wait();
      c.close();
      receiving.wait();
      std::vector<int> all;
      for (const std::vector<int>& mine : got) {
        std::array<int, senders> last{-1, -1, -1};
        for (const int v : mine) {
          EXPECT_LT(last[static_cast<std::size_t>(v / 100)], v % 100);
          last[static_cast<std::size_t>(v / 100)] = v % 100;
        }
        all.insert(all.end(), mine.begin(), mine.end());
      }
      std::sort(all.begin(), all.end());
      std::vector<int> expected;
      for (int s = 0; s < senders; ++s) {
        for (int i = 0; i < each; ++i) expected.push_back(s * 100 + i);
      }
      EXPECT_EQ(all, expected);
    });
  }
}

// The waiter that has waited longest is served first, whatever comes between.
TEST(chan, waiters_are_served_in_the_order_in_which_they_came) {
  weft::test::bubble([] {
    const chan<int> c;
    std::vector<int> order;
    weft::wait_group all;
    for (int i = 0; i < 5; ++i) {
      all.go([&, i] {
        c.recv();
        order.push_back(i);
      });
      weft::test::wait();  // it waits before the next one comes
    }
    for (int i = 0; i < 5; ++i) {
      c.send(i);
      weft::test::wait();
    }
    all.wait();
    EXPECT_EQ(order, (std::vector{0, 1, 2, 3, 4}));

    order.clear();
    for (int i = 0; i < 5; ++i) {
      all.go([&, i] { c.send(i); });
      weft::test::wait();
    }
    for (int i = 0; i < 5; ++i) order.push_back(*c.recv());
    all.wait();
    EXPECT_EQ(order, (std::vector{0, 1, 2, 3, 4}));
  });
}

TEST(chan, close_wakes_every_blocked_receiver_and_sender) {
  explore({.runs = weft::test::runs(2'000)}, [] {
    const chan<int> c;
    int told = 0;
    weft::wait_group all;
    for (int i = 0; i < 4; ++i) {
      all.go([&, c] {
        if (!c.recv()) ++told;
      });
    }
    all.go([c] { c.close(); });
    all.wait();
    EXPECT_EQ(told, 4);
  });
  explore({.runs = weft::test::runs(2'000)}, [] {
    const chan<int> c;
    int threw = 0;
    weft::wait_group all;
    for (int i = 0; i < 3; ++i) {
      all.go([&, c] {
        try {
          c.send(1);
        } catch (const weft::closed_channel&) {
          ++threw;
        }
      });
    }
    all.go([c] { c.close(); });
    all.wait();
    EXPECT_EQ(threw, 3);
  });
}

// For every size of the buffer: a receiver waits while the channel is empty, and a sender while it
// is full. The values of waiting senders come after those in the buffer. A close tells all that
// wait.
TEST(chan, waits_exactly_while_it_is_empty_or_full) {
  for (int capacity = 0; capacity < 100; capacity += capacity < 5 ? 1 : 19) {
    weft::test::bubble([capacity] {
      const chan<int> c(static_cast<std::size_t>(capacity));
      weft::wait_group all;
      std::vector<int> got;
      all.go([&] { got.push_back(c.recv().value()); });
      weft::test::wait();
      EXPECT_TRUE(got.empty()) << "nothing was sent";
      c.send(-1);
      all.wait();
      EXPECT_EQ(got, std::vector{-1});

      int sent = 0;
      all.go([&] {
        for (int i = 0; i < capacity + 2; ++i) {
          c.send(i);
          ++sent;
        }
      });
      weft::test::wait();
      EXPECT_EQ(sent, capacity) << "and the next one waits";
      EXPECT_EQ(c.try_send(99), chan_status::full);
      for (int i = 0; i < capacity + 2; ++i) EXPECT_EQ(c.recv(), i);
      all.wait();

      bool told = false;
      all.go([&] { told = !c.recv(); });
      weft::test::wait();
      EXPECT_FALSE(told);
      c.close();
      all.wait();
      EXPECT_TRUE(told);
    });
  }
}

// A try meets a waiting goroutine, also without a buffer.
TEST(chan, a_try_meets_a_goroutine_that_waits) {
  weft::test::bubble([] {
    const chan<std::string> c;
    weft::wait_group all;
    all.go([c] { EXPECT_EQ(c.recv(), "to the receiver"); });
    weft::test::wait();
    EXPECT_EQ(c.try_send("to the receiver"), chan_status::ok);
    EXPECT_EQ(c.try_send("to nobody"), chan_status::full);
    all.go([c] { c.send("from the sender"); });
    weft::test::wait();
    EXPECT_EQ(c.try_recv(), "from the sender");
    EXPECT_EQ(c.try_recv().error(), chan_status::empty);
    all.wait();
  });
}

// A full channel is closed: there is no instant at which it is neither full nor closed.
TEST(chan, a_try_beside_the_close_finds_the_value_or_the_close) {
  explore({.runs = weft::test::runs(3'000)}, [] {
    const chan<int> c(1);
    c.send(7);
    weft::wait_group all;
    all.go([c] {
      const auto v = c.try_recv();
      EXPECT_TRUE(v == 7 || (!v && v.error() == chan_status::closed));
    });
    c.close();
    (void)c.recv();
    all.wait();
  });
}

// try_recv, too, sees a value that was there before the close.
TEST(chan, a_value_sent_before_the_close_is_not_missed) {
  explore({.runs = weft::test::runs(5'000)}, [] {
    const chan<int> c(1);
    weft::wait_group all;
    all.go([c] {
      c.send(7);
      c.close();
    });
    const auto v = c.try_recv();
    EXPECT_TRUE(v || v.error() == chan_status::empty);
    all.wait();
    EXPECT_TRUE(v || c.recv() == 7);
  });
}

// What Go's memory model promises, seen by race detection.
TEST(chan, orders_memory) {
  explore({.runs = weft::test::runs(3'000)}, [] {  // send before receive
    weft::test::var<int> data{0, "data"};
    const chan<std::monostate> c(1);
    weft::wait_group all;
    all.go([&] {
      data = 1;
      c.send({});
    });
    c.recv();
    EXPECT_EQ(data.get(), 1);
    all.wait();
  });
  explore({.runs = weft::test::runs(3'000)}, [] {  // close before the receive that tells of it
    weft::test::var<int> data{0, "data"};
    const chan<std::monostate> c;
    weft::wait_group all;
    all.go([&] {
      data = 1;
      c.close();
    });
    c.recv();
    EXPECT_EQ(data.get(), 1);
    all.wait();
  });
  explore({.runs = weft::test::runs(3'000)},
          [] {  // a receive from an unbuffered one before the end of the send
            weft::test::var<int> data{0, "data"};
            const chan<std::monostate> c;
            weft::wait_group all;
            all.go([&] {
              data = 1;
              c.recv();
            });
            c.send({});
            EXPECT_EQ(data.get(), 1);
            all.wait();
          });
  explore({.runs = weft::test::runs(3'000)}, [] {  // a buffered one as a semaphore
    weft::test::var<int> data{0, "data"};
    const chan<std::monostate> c(1);
    weft::wait_group all;
    for (int i = 0; i < 3; ++i) {
      all.go([&] {
        c.send({});
        data += 1;
        c.recv();
      });
    }
    all.wait();
    EXPECT_EQ(data.get(), 3);
  });
}

// ---- Types ----

struct counted {
  static inline int alive = 0;
  int n = 0;
  explicit counted(int i) : n(i) { ++alive; }
  counted(counted&& o) noexcept : n(std::exchange(o.n, -1)) { ++alive; }
  counted& operator=(counted&&) = default;
  ~counted() { --alive; }
};

TEST(chan, values_inside_a_dropped_channel_are_destroyed) {
  counted::alive = 0;
  {
    const chan<counted> c(8);
    for (int i = 0; i < 5; ++i) c.send(counted(i));
    EXPECT_EQ(c.recv()->n, 0);
    EXPECT_EQ(counted::alive, 4);
  }
  EXPECT_EQ(counted::alive, 0);
}

TEST(chan, move_only_values_pass_through) {
  explore({.runs = 500}, [] {
    const chan<std::unique_ptr<int>> c;
    weft::wait_group all;
    all.go([c] {
      for (int i = 0; i < 3; ++i) c.send(std::make_unique<int>(i));
      c.close();
    });
    int expected = 0;
    for (auto v : c) EXPECT_EQ(*v, expected++);
    EXPECT_EQ(expected, 3);
    all.wait();
  });
}

struct alignas(64) wide {
  std::uint64_t words[8];
};
struct huge {
  std::array<int, 1000> numbers;
};
struct empty {};
enum class colour : std::uint8_t { red, green };
struct three_bytes {
  char c[3];
};

template <class T>
void pass_through(T value, auto same) {
  for (const std::size_t capacity : {std::size_t{0}, std::size_t{2}}) {
    weft::test::bubble([&] {
      const chan<T> c(capacity);
      weft::wait_group all;
      all.go([&] { c.send(value); });
      EXPECT_TRUE(same(*c.recv()));
      all.wait();
    });
  }
}

TEST(chan, carries_every_kind_of_value) {
  wide w{};
  w.words[7] = 42;
  pass_through(w, [](const wide& v) {
    return v.words[7] == 42 && reinterpret_cast<std::uintptr_t>(&v) % 64 == 0;
  });
  huge h{};
  h.numbers[999] = 7;
  pass_through(h, [](const huge& v) { return v.numbers[999] == 7; });
  pass_through(empty{}, [](empty) { return true; });
  pass_through(colour::green, [](colour v) { return v == colour::green; });
  pass_through(three_bytes{{'a', 'b', 'c'}}, [](three_bytes v) { return v.c[2] == 'c'; });
  pass_through(std::string(1000, 'x'), [](const std::string& v) { return v.size() == 1000; });
  pass_through(2.5, [](double v) { return v == 2.5; });
  pass_through(true, [](bool v) { return v; });
}

// Moves that throw: the exception leaves the call that moved, and no value is lost or doubled.
struct fragile {
  static inline int moves_left = 1'000'000;
  int n;
  explicit fragile(int i) : n(i) {}
  fragile(fragile&& o) : n(o.n) {
    if (--moves_left < 0) throw std::runtime_error("a move failed");
    o.n = -1;
  }
  fragile& operator=(fragile&& o) {
    if (--moves_left < 0) throw std::runtime_error("a move failed");
    n = std::exchange(o.n, -1);
    return *this;
  }
};

TEST(chan, a_move_that_throws_loses_nothing) {
  for (int limit = 0; limit < 12; ++limit) {
    const chan<fragile> c(4);
    int sent = 0;
    fragile::moves_left = limit;
    for (int i = 0; i < 3; ++i) {
      fragile v(i);
      try {
        if (c.try_send(std::move(v)) == chan_status::ok) {
          ++sent;
        }
      } catch (const std::runtime_error&) {
        EXPECT_EQ(v.n, i);  // the value stayed
      }
    }
    EXPECT_EQ(c.size(), static_cast<std::size_t>(sent));
    int received = 0;
    int last = -1;
    for (int tries = 0; tries < 20 && received < sent; ++tries) {
      try {
        const auto v = c.recv();
        EXPECT_GT(v->n, last);
        last = v->n;
        ++received;
      } catch (const std::runtime_error&) {
        fragile::moves_left = 1'000'000;
      }
    }
    EXPECT_EQ(received, sent) << "limit " << limit;
    fragile::moves_left = 1'000'000;
  }
}

TEST(chan, a_receive_that_throws_gives_the_value_to_the_next) {
  weft::test::bubble([] {
    const chan<fragile> c;
    weft::wait_group all;
    all.go([&] { c.send(fragile(7)); });
    weft::test::wait();
    fragile::moves_left = 0;
    EXPECT_THROW(c.recv(), std::runtime_error);
    fragile::moves_left = 1'000'000;
    EXPECT_EQ(c.size(), 1u);
    EXPECT_EQ(c.recv()->n, 7);
    all.wait();
  });
}

// ---- Real processors ----

class chan_on_processors : public ::testing::TestWithParam<int> {};

TEST_P(chan_on_processors, many_producers_and_consumers_lose_nothing) {
  const int before = weft::max_procs(GetParam());
  weft::run([] {
    for (const std::size_t capacity : {std::size_t{0}, std::size_t{1}, std::size_t{100}}) {
      const chan<int> c(capacity);
      constexpr int n = 5'000;
      std::atomic<std::int64_t> sum{0};
      weft::wait_group producers;
      weft::wait_group consumers;
      for (int g = 0; g < 4; ++g) {
        producers.go([c] {
          for (int i = 1; i <= n; ++i) c.send(i);
        });
        consumers.go([c, &sum] {
          for (const int v : c) sum += v;
        });
      }
      producers.wait();
      c.close();
      consumers.wait();
      EXPECT_EQ(sum, 4 * (std::int64_t{n} * (n + 1) / 2));
    }
  });
  weft::max_procs(before);
}

TEST_P(chan_on_processors, plain_threads_and_goroutines_talk) {
  const int before = weft::max_procs(GetParam());
  const chan<std::string> requests;
  const chan<std::size_t> replies(2);
  weft::go([=] {
    for (const std::string& r : requests) replies.send(r.size());
    replies.close();
  });
  std::thread sender([=] {
    for (std::size_t i = 0; i < 500; ++i) requests.send(std::string(i, 'x'));
    requests.close();
  });
  std::size_t expected = 0;
  for (const std::size_t n : replies) EXPECT_EQ(n, expected++);
  EXPECT_EQ(expected, 500u);
  sender.join();
  weft::max_procs(before);
}

TEST_P(chan_on_processors, a_daisy_chain_of_goroutines_passes_a_number_along) {
  const int before = weft::max_procs(GetParam());
  weft::run([] {
    constexpr int n = 5'000;
    const chan<int> last;
    chan<int> right = last;
    for (int i = 0; i < n; ++i) {
      const chan<int> left;
      weft::go([from = left, to = right] { to.send(*from.recv() + 1); });
      right = left;
    }
    right.send(0);
    EXPECT_EQ(last.recv(), n);
  });
  weft::max_procs(before);
}

// Each prime has a goroutine that keeps its multiples from the next: a network that grows while it
// runs, and is taken down by a close that travels through it.
TEST_P(chan_on_processors, a_sieve_of_goroutines_finds_the_primes) {
  const int before = weft::max_procs(GetParam());
  weft::run([] {
    const chan<int> numbers;
    weft::wait_group all;
    all.go([numbers] {
      for (int i = 2; i < 600; ++i) numbers.send(i);
      numbers.close();
    });
    std::vector<int> primes;
    chan<int> in = numbers;
    while (const std::optional<int> prime = in.recv()) {
      primes.push_back(*prime);
      const chan<int> out;
      all.go([in, out, p = *prime] {
        for (const int i : in) {
          if (i % p != 0) out.send(i);
        }
        out.close();
      });
      in = out;
    }
    all.wait();
    ASSERT_EQ(primes.size(), 109u);
    EXPECT_EQ(primes[25], 101);
    EXPECT_EQ(primes.back(), 599);
  });
  weft::max_procs(before);
}

// Who asks again and again, and yields in between, leaves the sender its turn, on one processor and
// bound to a thread, too.
TEST_P(chan_on_processors, who_polls_and_yields_sees_the_send) {
  const int before = weft::max_procs(GetParam());
  weft::run([] {
    for (const bool bound : {false, true}) {
      const chan<int> c;
      const chan<int> polling(1);
      weft::wait_group all;
      bool seen = false;
      all.go([&] {
        if (bound) weft::this_goroutine::lock_thread();
        polling.send(1);
        seen = weft::test::eventually([&] { return c.try_recv() == 7; });
        if (bound) weft::this_goroutine::unlock_thread();
      });
      polling.recv();
      EXPECT_EQ(weft::select(weft::send(c, 7), weft::after(std::chrono::seconds(30), [] {})), 0u);
      all.wait();
      EXPECT_TRUE(seen);
    }
  });
  weft::max_procs(before);
}

INSTANTIATE_TEST_SUITE_P(procs, chan_on_processors, ::testing::Values(1, 2, 8));

}  // namespace
