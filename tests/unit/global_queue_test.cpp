// global_queue_test.cpp: the global queues and the overflow, with their counts, and the list they
// are made of.
#include "sched/global_queue.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace {

using weft::sched::global_queue;
using weft::sched::goroutine;
using weft::sched::goroutine_list;
using from = weft::sched::global_queue::from;

// A chain that loses its tail or its count loses goroutines.
TEST(goroutine_list, is_first_in_first_out) {
  std::array<goroutine, 5> g;
  goroutine_list list;
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(list.pop_front(), nullptr);
  for (goroutine& x : g) list.push_back(&x);
  EXPECT_EQ(list.size(), 5u);
  for (goroutine& x : g) EXPECT_EQ(list.pop_front(), &x);
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(list.size(), 0u);
  list.push_back(&g[3]);  // works again after it was empty
  EXPECT_EQ(list.pop_front(), &g[3]);
}

TEST(goroutine_list, appends_whole_lists_in_order) {
  std::array<goroutine, 6> g;
  goroutine_list a;
  goroutine_list b;
  a.append(b);  // nothing to nothing
  EXPECT_TRUE(a.empty());
  for (std::size_t i = 0; i < 3; ++i) b.push_back(&g[i]);
  a.append(b);  // something to nothing
  EXPECT_TRUE(b.empty());
  EXPECT_EQ(b.size(), 0u);
  for (std::size_t i = 3; i < 6; ++i) b.push_back(&g[i]);
  a.append(b);
  a.append(b);  // nothing to something
  EXPECT_EQ(a.size(), 6u);
  for (goroutine& x : g) EXPECT_EQ(a.pop_front(), &x);
  EXPECT_TRUE(a.empty());
}

// The counts are what everyone looks at before taking the lock: a count that stays at 0 leaves a
// goroutine lying there, one that stays above it makes machines spin.
TEST(global_queue, counts_what_is_in_it) {
  std::array<goroutine, 10> g;
  global_queue q;
  EXPECT_EQ(q.size_hint(from::shared), 0u);
  EXPECT_EQ(q.size_hint(from::overflow), 0u);
  for (std::size_t i = 0; i < 4; ++i) q.push(from::shared, &g[i]);
  goroutine_list batch;
  for (std::size_t i = 4; i < 10; ++i) batch.push_back(&g[i]);
  q.push(from::overflow, batch);
  EXPECT_TRUE(batch.empty());
  EXPECT_EQ(q.size_hint(from::shared), 4u);
  EXPECT_EQ(q.size_hint(from::overflow), 6u);

  goroutine_list out;
  EXPECT_EQ(q.take(from::shared, 3, out), 3u);
  EXPECT_EQ(q.size_hint(from::shared), 1u);
  EXPECT_EQ(q.take(from::overflow, 2, out), 2u);
  EXPECT_EQ(q.size_hint(from::overflow), 4u);
  EXPECT_EQ(q.taken_hint(from::overflow), 2u);
  for (const std::size_t i : {0u, 1u, 2u, 4u, 5u}) EXPECT_EQ(out.pop_front(), &g[i]);

  EXPECT_EQ(q.take(from::shared, 100, out), 1u) << "no more than there are";
  EXPECT_EQ(q.take(from::shared, 1, out), 0u);
  EXPECT_EQ(q.take(from::overflow, 100, out), 4u);
  EXPECT_EQ(q.size_hint(from::shared), 0u);
  EXPECT_EQ(q.size_hint(from::overflow), 0u);
  EXPECT_EQ(q.taken_hint(from::overflow), 6u);
}

// What a look compares with the queues of its processor: a queue that seems younger than it is
// starves, one that seems older is served before its time.
TEST(global_queue, tells_since_when_its_first_one_waits) {
  std::array<goroutine, 3> g;
  for (std::size_t i = 0; i < 3; ++i) g[i].since_ns = static_cast<std::int64_t>(100 + i);
  global_queue q;
  EXPECT_EQ(q.since_hint(from::shared), weft::base::never);
  for (goroutine& one : g) q.push(from::shared, &one);
  EXPECT_EQ(q.since_hint(from::shared), 100);
  EXPECT_EQ(q.since_hint(from::woken), weft::base::never);
  EXPECT_EQ(q.take_one(from::shared), &g[0]);
  EXPECT_EQ(q.since_hint(from::shared), 101);
  g[2].how = weft::sched::mode::paused;
  EXPECT_FALSE(q.first_has_own_thread());
  EXPECT_EQ(q.take_with_own_thread(), &g[2]);
  EXPECT_EQ(q.take_with_own_thread(), nullptr);
  EXPECT_EQ(q.size_hint(), 1u);
  EXPECT_EQ(q.take_one(from::shared), &g[1]);
  EXPECT_EQ(q.since_hint(from::shared), weft::base::never);
}

// Many threads put and take: each goroutine comes out exactly once.
TEST(global_queue, loses_and_doubles_nobody) {
  constexpr std::size_t threads = 4;
  constexpr std::size_t each = 5'000;
  std::vector<goroutine> g(threads * each);
  std::vector<std::atomic<int>> taken(threads * each);
  global_queue q;
  std::atomic<std::size_t> total{0};
  std::vector<std::thread> all;
  for (std::size_t t = 0; t < threads; ++t) {
    all.emplace_back([&, t] {
      for (std::size_t i = 0; i < each; ++i) {
        goroutine* const mine = &g[t * each + i];
        if (i % 2 == 0) {
          q.push(from::shared, mine);
        } else {
          goroutine_list one;
          one.push_back(mine);
          q.push(from::overflow, one);
        }
      }
    });
    all.emplace_back([&, t] {
      goroutine_list out;
      while (total < g.size()) {
        q.take(t % 2 == 0 ? from::shared : from::overflow, 1 + t, out);
        while (goroutine* const one = out.pop_front()) {
          ++taken[static_cast<std::size_t>(one - g.data())];
          ++total;
        }
      }
    });
  }
  for (std::thread& t : all) t.join();
  for (const std::atomic<int>& n : taken) ASSERT_EQ(n, 1);
  EXPECT_EQ(q.size_hint(from::shared), 0u);
  EXPECT_EQ(q.size_hint(from::overflow), 0u);
}

}  // namespace
