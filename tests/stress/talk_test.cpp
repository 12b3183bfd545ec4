// Channels and selects between goroutines, bound goroutines and plain threads, on 1, 2, 8 and
// changing numbers of processors: every value arrives once, in its sender's order.
#include "stress_fixture.hpp"

#include <weft/weft.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <pthread.h>
#include <thread>
#include <vector>

namespace weft {
namespace {

using namespace std::chrono_literals;

class talk : public test::stress_test {};

// Runs f, usually in a goroutine.
class crew {
 public:
  template <class F>
  void start(base::random& random, F f) {
    const std::uint32_t which = random.below(12);
    if (which == 0) {
      threads_.emplace_back(f);
    } else if (which == 1) {
      all_.go([f] {
        this_goroutine::lock_thread();
        f();
      });
    } else {
      all_.go(f);
    }
  }
  void join() {
    all_.wait();
    for (std::thread& t : threads_) t.join();
  }

 private:
  wait_group all_;
  std::vector<std::thread> threads_;
};

struct message {
  std::uint32_t sender = 0;
  std::uint32_t number = 0;
};

// What receivers saw: each sender's messages once and in order, as far as one receiver can tell.
class tally {
 public:
  explicit tally(std::size_t senders) : received_(senders) {}
  class reader {
   public:
    explicit reader(tally& t) : all_(t), next_(t.received_.size()) {}
    void see(const message& m) {
      if (m.number < next_[m.sender]) ++all_.disorder_;
      next_[m.sender] = m.number + 1;
      ++all_.received_[m.sender];
    }

   private:
    tally& all_;
    std::vector<std::uint32_t> next_;
  };
  void expect(std::uint32_t each) const {
    for (const auto& n : received_) EXPECT_EQ(n, each);
    EXPECT_EQ(disorder_, 0u);
  }

 private:
  std::vector<std::atomic<std::uint32_t>> received_;
  std::atomic<std::uint32_t> disorder_{0};
};

TEST_F(talk, every_value_arrives_once_and_in_order) {
  on_all_processors([](base::random& random) {
    const std::uint32_t senders = 1 + random.below(4);
    const std::uint32_t receivers = 1 + random.below(4);
    const auto each = static_cast<std::uint32_t>(test::scaled(2'000, 200));
    const chan<message> c(random.below(2) == 0 ? 0 : random.below(200));
    tally seen(senders);
    crew all;
    wait_group sending;
    sending.add(static_cast<int>(senders));
    for (std::uint32_t s = 0; s < senders; ++s) {
      all.start(random, [&, s] {
        for (std::uint32_t i = 0; i < each; ++i) c.send({s, i});
        sending.done();
      });
    }
    for (std::uint32_t r = 0; r < receivers; ++r) {
      all.start(random, [&] {
        tally::reader mine(seen);
        for (const message& m : c) mine.see(m);
      });
    }
    sending.wait();
    c.close();
    all.join();
    seen.expect(each);
  });
}

// Long turns on one machine give it the bias (sched/bias.hpp); then somebody else comes.
TEST_F(talk, channels_wander_between_machines) {
  on_all_processors([](base::random& random) {
    const chan<std::uint64_t> values(1'000);
    const chan<int> turn(1);
    std::uint64_t sum = 0;  // guarded by the turn
    std::uint64_t count = 0;
    crew all;
    turn.send(0);
    for (int who = 0; who < 4; ++who) {
      const std::uint32_t length = 1 + random.below(700);
      all.start(random, [&, length] {
        for (int i = 0; i < test::scaled(10, 3); ++i) {
          (void)turn.recv();
          for (std::uint32_t k = 0; k < length; ++k) {
            values.send(k);
            ++count;
          }
          for (std::uint32_t k = 0; k < length; ++k) sum += *values.recv() + 1;
          turn.send(0);
          this_goroutine::yield();
        }
      });
    }
    all.join();
    EXPECT_EQ(values.size(), 0u);
    EXPECT_GE(sum, count);
  });
}

// Selects that send to each other and receive from each other, with time running out.
TEST_F(talk, selects_meet_selects) {
  on_all_processors([](base::random& random) {
    constexpr std::size_t channels = 3;
    const auto each = static_cast<std::uint32_t>(test::scaled(400, 50));
    const std::vector<chan<message>> c = {chan<message>(), chan<message>(), chan<message>(3)};
    const chan<int> over;
    std::atomic<std::uint64_t> sent{0};
    std::atomic<std::uint64_t> received{0};
    crew all;
    wait_group busy;
    constexpr std::uint32_t members = 6;
    busy.add(members);
    for (std::uint32_t who = 0; who < members; ++who) {
      const std::uint64_t seed = random.next();
      all.start(random, [&, who, seed] {
        base::random mine(seed);
        for (std::uint32_t i = 0; i < each; ++i) {
          message m{who, i};
          const std::size_t to = mine.below(channels);
          const std::size_t from = mine.below(channels);
          const auto got = [&](std::optional<message> v) { received += v.has_value(); };
          const auto gave = [&] { ++sent; };
          switch (mine.below(3)) {
            case 0:
              select(send(c[to], m, gave), recv(c[from], got), after(50us, [] {}));
              break;
            case 1:
              select(send(c[to], m, gave), recv(c[from], got), otherwise());
              break;
            default:
              select(recv(c[0], got), recv(c[1], got), recv(c[2], got), send(c[to], m, gave),
                     after(20us, [] {}));
              break;
          }
        }
        busy.done();
        // Until everybody is through, takes what is left.
        for (bool more = true; more;) {
          select(recv(c[0], [&](std::optional<message> v) { received += v.has_value(); }),
                 recv(c[1], [&](std::optional<message> v) { received += v.has_value(); }),
                 recv(c[2], [&](std::optional<message> v) { received += v.has_value(); }),
                 recv(over, [&](std::optional<int>) { more = false; }));
        }
      });
    }
    busy.wait();
    over.close();
    all.join();
    EXPECT_EQ(sent, received + c[2].size());
  });
}

// A channel with a value that is closed and then emptied is never both open and empty. What does
// not wait looks at its state word by word: signals hold it up between two of them.
TEST_F(talk, a_receive_that_does_not_wait_never_misses_a_close) {
  struct sigaction action{};
  struct sigaction before{};
  action.sa_handler = [](int) {
    const auto end = std::chrono::steady_clock::now() + 20us;
    while (std::chrono::steady_clock::now() < end) {
    }
  };
  ::sigaction(SIGUSR1, &action, &before);
  std::atomic<long> asked{0};
  std::atomic<long> answered{0};
  std::atomic<bool> over{false};
  std::atomic<long> missed{0};
  std::optional<chan<int>> c;
  std::thread receiver([&] {
    for (long n = 1;; ++n) {
      while (asked.load(std::memory_order_acquire) < n) {
        if (over) return;
      }
      const auto v = c->try_recv();
      if (!v && v.error() != chan_status::closed) ++missed;
      answered.store(n, std::memory_order_release);
    }
  });
  std::thread disturber([&, who = receiver.native_handle()] {
    while (!over) {
      ::pthread_kill(who, SIGUSR1);
      std::this_thread::sleep_for(20us);
    }
  });
  const auto end = std::chrono::steady_clock::now() + 1s;
  for (long n = 1; std::chrono::steady_clock::now() < end; ++n) {
    c.emplace(1);
    c->send(1);
    asked.store(n, std::memory_order_release);
    for (long i = n % 60; i != 0; --i) asm volatile("");
    c->close();
    c->recv();
    while (answered.load(std::memory_order_acquire) != n) {
    }
  }
  over = true;
  disturber.join();
  receiver.join();
  ::sigaction(SIGUSR1, &before, nullptr);
  EXPECT_EQ(missed, 0);
}

}  // namespace
}  // namespace weft
