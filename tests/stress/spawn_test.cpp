// Goroutines by the million: started, yielding, joined, ended in every way, on changing numbers of
// processors.
#include "stack/pool.hpp"
#include "stress_fixture.hpp"

#include <weft/go.hpp>
#include <weft/sync.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace weft {
namespace {

using namespace std::chrono_literals;

class spawn : public test::stress_test {};

// A goroutine that runs twice, or never, breaks everything built on it: each one started is counted
// once, however often it yields and whatever happens to the processors.
TEST_F(spawn, every_goroutine_runs_exactly_once_while_processors_come_and_go) {
  constexpr int procs[] = {1, 2, 4, 16};
  for (int part = 0; part < 4; ++part) {
    max_procs(procs[part]);
    std::uint64_t started = 0;
    std::atomic<std::uint64_t> ended{0};
    std::unique_ptr<test::procs_changer> changer;
    if (part == 3) changer = std::make_unique<test::procs_changer>(chance(1), 16, 2ms);
    base::random random = chance(2);
    do {
      const std::uint32_t n = 1 + random.below(test::scaled(3000, 300));
      const std::uint32_t yields = random.below(4);
      started += n;
      run([&] {
        wait_group all;
        for (std::uint32_t i = 0; i < n; ++i) {
          all.go([&, yields] {
            for (std::uint32_t y = 0; y < yields; ++y) this_goroutine::yield();
            ended.fetch_add(1, std::memory_order_relaxed);  // a count
          });
        }
        all.wait();
      });
    } while (!time_is_up(part + 1, 4));
    EXPECT_EQ(ended.load(std::memory_order_relaxed), started);
  }
}

std::uint64_t fib(int n) {
  if (n < 2) return static_cast<std::uint64_t>(n);
  future<std::uint64_t> left = async(fib, n - 1);
  const std::uint64_t right = fib(n - 2);
  return left.get() + right;
}

// Trees wait for their children on stacks that other goroutines ran on before: a stack handed out
// while somebody still stands on it, or a result read too early, gives a wrong sum.
TEST_F(spawn, trees_of_futures_add_up) {
  constexpr int procs[] = {1, 2, 4, 16};
  const int depth = test::scaled(18, 12);
  const std::uint64_t expected = test::scaled(2584, 144);
  for (int part = 0; part < 4; ++part) {
    max_procs(procs[part]);
    std::unique_ptr<test::procs_changer> changer;
    if (part == 3) changer = std::make_unique<test::procs_changer>(chance(1), 16, 2ms);
    do {
      std::uint64_t sum = 0;
      run([&] { sum = fib(depth); });
      ASSERT_EQ(sum, expected);
    } while (!time_is_up(part + 1, 4));
  }
}

struct counts_its_end {
  explicit counts_its_end(std::atomic<std::uint64_t>& c) : count(&c) {}
  counts_its_end(const counts_its_end&) = delete;
  counts_its_end& operator=(const counts_its_end&) = delete;
  ~counts_its_end() { count->fetch_add(1, std::memory_order_relaxed); }  // a count
  std::atomic<std::uint64_t>* count;
};

// Writes a mark into every kilobyte of its stack and checks that no other goroutine has changed it.
[[gnu::noinline]] bool use_stack(std::size_t bytes, std::uint32_t mark) {
  volatile std::uint32_t page[256];
  for (auto& word : page) word = mark;
  if (bytes > sizeof page * 2 && !use_stack(bytes - sizeof page * 2, mark + 1)) return false;
  if (bytes % 3 == 0) this_goroutine::yield();
  for (const auto& word : page) {
    if (word != mark) return false;
  }
  return true;
}

// A goroutine may end by returning, by exit() from any depth, or bound to its thread, and may have
// asked for a stack of its own; each way gives the record and the stack back by another path.
TEST_F(spawn, every_way_to_end_runs_every_destructor_and_gives_the_stack_back) {
  const test::procs_changer changer(chance(1), 4, 3ms);
  std::atomic<std::uint64_t> destroyed{0};
  std::atomic<std::uint64_t> damaged{0};
  std::uint64_t made = 0;
  base::random random = chance(2);
  stack::statistics first;
  for (int round = 0; !time_is_up(); ++round) {
    run([&] {
      wait_group all;
      for (int i = 0; i < test::scaled(400, 60); ++i) {
        const std::uint32_t how = random.below(16);
        const std::size_t sizes[] = {0, 16u << 10, 64u << 10, 1u << 20, 16u << 20};
        const std::size_t size = sizes[random.below(5)];
        const auto mark = static_cast<std::uint32_t>(random.next());
        ++made;
        all.add(1);
        go({.name = "one of many", .stack_size = how < 8 ? size : 0},
           [&all, &destroyed, &damaged, how, mark] {
             struct finisher {
               wait_group* all;
               ~finisher() { all->done(); }
             };
             const finisher last{&all};
             const counts_its_end counted(destroyed);
             if (how == 0) this_goroutine::lock_thread();
             if (how % 2 == 0) this_goroutine::yield();
             if (!use_stack(how < 8 && !base::sanitizer::active ? 4 << 10 : 2 << 10, mark)) {
               damaged.fetch_add(1, std::memory_order_relaxed);  // a count
             }
             if (how % 4 < 2) this_goroutine::exit();
           });
      }
      all.wait();
    });
    // Stacks in existence settle: each round needs no more than the rounds before it, give or take
    // what other processors keep at hand.
    const stack::statistics now = stack::central().stats();
    if (round == 20) first = now;
    if (round > 20) {
      ASSERT_LE(now.stacks, first.stacks * 2 + 2000) << "stacks leak";
      ASSERT_LE(now.arenas, first.arenas + 64) << "mappings leak";
    }
  }
  EXPECT_EQ(destroyed.load(std::memory_order_relaxed), made);
  EXPECT_EQ(damaged.load(std::memory_order_relaxed), 0u);
}

}  // namespace
}  // namespace weft
