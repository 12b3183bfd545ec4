// Goroutines that wait for each other and for plain threads: pairs and crowds, with and without
// deadlines, on changing numbers of processors.
#include "stress_fixture.hpp"

#include <weft/go.hpp>
#include <weft/sync.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <thread>
#include <vector>

namespace weft {
namespace {

using namespace std::chrono_literals;

class park : public test::stress_test {};

// A ball that two players throw to each other: a wait group for each throw. The player that waited
// for it destroys it as soon as the wait is over.
class game {
 public:
  explicit game(std::size_t throws) : balls_(throws + 1) {
    for (auto& ball : balls_) {
      ball = std::make_unique<wait_group>();
      ball->add(1);
    }
  }

  void begin() { balls_.front()->done(); }
  void end() { balls_.back()->wait(); }

  void play(std::size_t side) {
    for (std::size_t i = side; i + 1 < balls_.size(); i += 2) {
      balls_[i]->wait();
      balls_[i].reset();
      balls_[i + 1]->done();
    }
  }

 private:
  std::vector<std::unique_ptr<wait_group>> balls_;
};

enum class player : std::uint8_t { goroutine, bound_goroutine, thread };

void start_player(player who, game& g, std::size_t side, std::vector<std::thread>& threads) {
  switch (who) {
    case player::goroutine:
      go([&g, side] { g.play(side); });
      break;
    case player::bound_goroutine:
      go([&g, side] {
        this_goroutine::lock_thread();
        g.play(side);
        if (side == 0) this_goroutine::unlock_thread();
      });
      break;
    case player::thread:
      threads.emplace_back([&g, side] { g.play(side); });
      break;
  }
}

// Each throw is one park and one wake-up; one of them lost and the pair stands still for ever.
TEST_F(park, pairs_throw_a_ball_to_each_other_and_never_drop_it) {
  constexpr int procs[] = {1, 2, 4, 16};
  for (int part = 0; part < 4; ++part) {
    max_procs(procs[part]);
    std::unique_ptr<test::procs_changer> changer;
    if (part == 3) changer = std::make_unique<test::procs_changer>(chance(1), 16, 1ms);
    base::random random = chance(2 + static_cast<std::uint64_t>(part));
    do {
      constexpr std::size_t pairs = 6;
      std::vector<std::unique_ptr<game>> games;
      std::vector<std::thread> threads;
      for (std::size_t i = 0; i < pairs; ++i) {
        games.push_back(std::make_unique<game>(1 + random.below(test::scaled(2000, 200))));
        for (std::size_t side = 0; side < 2; ++side) {
          const std::uint32_t which = random.below(8);
          const player who = which == 0   ? player::thread
                             : which == 1 ? player::bound_goroutine
                                          : player::goroutine;
          start_player(who, *games.back(), side, threads);
        }
      }
      for (auto& g : games) g->begin();
      for (auto& g : games) g->end();
      for (auto& t : threads) t.join();
      expect_quiet();  // the players that do not touch the last ball have ended, too
    } while (!time_is_up(part + 1, 4) && !HasFailure());
  }
}

// A plain thread wakes goroutines at the very moment at which they go to sleep. So one that leaves
// its machine picks another that has not quite left its own yet, and that one perhaps the first:
// they must not wait for each other.
TEST_F(park, goroutines_woken_while_they_leave_may_find_each_other) {
  constexpr std::size_t crowd = 8;
  constexpr std::uint32_t turns = 500;
  struct seat {
    std::atomic<std::uint32_t> arrived{0};  // relaxed: wait() orders what matters
    std::unique_ptr<wait_group[]> turn = std::make_unique<wait_group[]>(turns);
  };
  for (int round = 0; !time_is_up(); ++round) {
    max_procs(2 + round % 3);
    seat seats[crowd];
    wait_group all;
    for (seat& s : seats) {
      for (std::uint32_t t = 0; t < turns; ++t) s.turn[t].add(1);
      all.go([&s] {
        for (std::uint32_t t = 0; t < turns; ++t) {
          s.arrived.store(t + 1, std::memory_order_relaxed);
          s.turn[t].wait();
        }
      });
    }
    std::uint32_t done[crowd] = {};
    for (std::uint32_t left = crowd * turns; left != 0;) {
      for (std::size_t i = 0; i < crowd; ++i) {
        if (seats[i].arrived.load(std::memory_order_relaxed) == done[i]) continue;
        seats[i].turn[done[i]++].done();
        --left;
      }
    }
    all.wait();
  }
}

// Many goroutines wait for one counter, and some come too late to wait at all. The last one that is
// through destroys it.
TEST_F(park, crowds_wait_for_one_counter_and_destroy_it) {
  const test::procs_changer changer(chance(1), 4, 1ms);
  base::random random = chance(2);
  while (!time_is_up()) {
    const int waiters = 1 + static_cast<int>(random.below(20));
    const int doers = 1 + static_cast<int>(random.below(8));
    struct shared {
      wait_group counter;
      std::atomic<int> users;
      std::atomic<int> work{0};
      explicit shared(int n) : users(n) {}
      void drop() {
        if (users.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
      }
    };
    // The goroutines that count down do not keep the latch alive: that is the promise.
    auto* const s = new shared(waiters + 1);
    s->counter.add(doers);
    wait_group all;
    std::atomic<int> too_early{0};
    const auto wait_and_drop = [s, doers, &too_early] {
      s->counter.wait();
      if (s->work.load(std::memory_order_relaxed) != doers) {
        too_early.fetch_add(1, std::memory_order_relaxed);  // a count
      }
      s->drop();
    };
    for (int i = 0; i < waiters; ++i) all.go(wait_and_drop);
    for (int i = 0; i < doers; ++i) {
      all.go([s] {
        s->work.fetch_add(1, std::memory_order_relaxed);  // ordered by done and wait
        s->counter.done();
      });
    }
    wait_and_drop();  // a plain thread
    all.wait();
    ASSERT_EQ(too_early.load(std::memory_order_relaxed), 0);
  }
}

// A deadline and a wake-up that come at the same instant: exactly one of them wins, a time-out
// never comes early, and the next wait finds everything as it should be.
TEST_F(park, timed_waits_race_with_what_they_wait_for) {
  const test::procs_changer changer(chance(1), 4, 2ms);
  std::atomic<std::uint64_t> early{0};
  std::atomic<std::uint64_t> wrong{0};
  base::random seeds = chance(2);
  while (!time_is_up()) {
    run([&] {
      wait_group all;
      for (int i = 0; i < test::scaled(64, 24); ++i) {
        all.go([&early, &wrong, random = base::random(seeds.next())]() mutable {
          const auto delay = std::chrono::microseconds(random.below(300));
          const std::uint64_t value = random.next();
          future<std::uint64_t> f = async([delay, value] {
            if (delay > 20us) this_goroutine::sleep_for(delay);
            return value;
          });
          for (;;) {
            const auto patience = std::chrono::microseconds(random.below(300));
            const auto before = test::steady::now();
            if (f.wait_for(patience) == std::future_status::ready) break;
            // relaxed, both: counts.
            if (test::steady::now() - before < patience) {
              early.fetch_add(1, std::memory_order_relaxed);
            }
          }
          if (f.get() != value) wrong.fetch_add(1, std::memory_order_relaxed);
        });
      }
      all.wait();
    });
  }
  EXPECT_EQ(early.load(std::memory_order_relaxed), 0u);
  EXPECT_EQ(wrong.load(std::memory_order_relaxed), 0u);
}

}  // namespace
}  // namespace weft
