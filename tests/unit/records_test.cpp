// records_test.cpp: where goroutine records come from and go to.
#include "sched/records.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace {

using weft::sched::goroutine;
using weft::sched::goroutine_list;
using weft::sched::record_cache;
using weft::sched::record_pool;

std::size_t count(const record_pool& pool) {
  std::size_t n = 0;
  pool.for_each([&](goroutine&) { ++n; });
  return n;
}

// Two goroutines in one record would be one goroutine.
TEST(record_pool, hands_out_different_records) {
  const auto pool = std::make_unique<record_pool>();
  constexpr std::size_t n = record_pool::records_per_slab + 100;  // more than one slab
  goroutine_list list;
  EXPECT_EQ(pool->take(list, n), n);
  std::set<goroutine*> different;
  while (goroutine* const g = list.pop_front()) {
    different.insert(g);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(g) % alignof(goroutine), 0u);
    ASSERT_EQ(g->get_status(), weft::sched::state::unused);
  }
  EXPECT_EQ(different.size(), n);
}

// A dump sees every record that was ever handed out, also when it has been given back.
TEST(record_pool, for_each_visits_every_record_ever_handed_out) {
  const auto pool = std::make_unique<record_pool>();
  EXPECT_EQ(count(*pool), 0u);
  goroutine_list list;
  pool->take(list, 5000);
  EXPECT_EQ(count(*pool), 5000u);
  std::set<goroutine*> seen;
  pool->for_each([&](goroutine& g) { seen.insert(&g); });
  pool->put(list);
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(count(*pool), 5000u);
  // Those given back are handed out again before new ones are made.
  pool->take(list, 5000);
  EXPECT_EQ(count(*pool), 5000u);
  while (goroutine* const g = list.pop_front()) EXPECT_TRUE(seen.contains(g));
}

// A processor that only starts goroutines, and one that only ends them, both go through the pool;
// a cache that kept everything would let the one eat memory while the other hoards it.
TEST(record_cache, gives_surplus_back_to_the_pool) {
  const auto pool = std::make_unique<record_pool>();
  record_cache starter;
  record_cache ender;
  for (int i = 0; i < 100'000; ++i) {
    goroutine* const g = starter.take(*pool);
    ASSERT_NE(g, nullptr);
    ender.put(g, *pool);
  }
  EXPECT_LT(count(*pool), 10'000u);
}

// What was just given back is taken first: its lines are still in the cache.
TEST(record_cache, is_last_in_first_out) {
  const auto pool = std::make_unique<record_pool>();
  record_cache cache;
  goroutine* const a = cache.take(*pool);
  goroutine* const b = cache.take(*pool);
  cache.put(a, *pool);
  cache.put(b, *pool);
  EXPECT_EQ(cache.take(*pool), b);
  EXPECT_EQ(cache.take(*pool), a);
}

// Caches of several threads on one pool: no record is in two hands.
TEST(record_cache, caches_share_a_pool_without_sharing_records) {
  const auto pool = std::make_unique<record_pool>();
  std::atomic<int> doubled{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      record_cache cache;
      std::vector<goroutine*> held;
      for (int round = 0; round < 20; ++round) {
        for (int i = 0; i < 3000; ++i) {
          goroutine* const g = cache.take(*pool);
          // status is relaxed and atomic: a mark of ours, seen by anyone else who has it.
          if (g->get_status() != weft::sched::state::unused) ++doubled;
          g->set_status(weft::sched::state::running);
          held.push_back(g);
        }
        for (goroutine* const g : held) {
          g->set_status(weft::sched::state::unused);
          cache.put(g, *pool);
        }
        held.clear();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(doubled, 0);
}

}  // namespace
