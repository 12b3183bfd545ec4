// run_queue_test.cpp: the two ends of a processor's queue, and what a thief may conclude from
// outside.
#include "sched/run_queue.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>

namespace {

using weft::sched::goroutine;
using weft::sched::run_queue;

std::array<goroutine, run_queue::capacity + 1> records;

// Woken goroutines are served in the order in which they came.
TEST(run_queue, front_is_first_in_first_out) {
  const auto r = std::make_unique<run_queue>();
  for (std::size_t i = 0; i < 5; ++i) r->push_back(&records[i]);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(r->pop_front(), &records[i]);
  EXPECT_EQ(r->pop_front(), nullptr);
}

// Fresh ones are taken newest first by their processor.
TEST(run_queue, back_is_last_in_first_out) {
  const auto r = std::make_unique<run_queue>();
  for (std::size_t i = 0; i < 5; ++i) r->push_back(&records[i]);
  for (std::size_t i = 5; i > 0; --i) EXPECT_EQ(r->pop_back(), &records[i - 1]);
  EXPECT_EQ(r->pop_back(), nullptr);
}

// All 256 places can be used, and the 257th is the caller's business.
TEST(run_queue, holds_exactly_its_capacity) {
  const auto r = std::make_unique<run_queue>();
  for (std::size_t i = 0; i < run_queue::capacity; ++i) {
    EXPECT_FALSE(r->full());
    r->push_back(&records[i]);
  }
  EXPECT_TRUE(r->full());
  EXPECT_EQ(r->size(), run_queue::capacity);
  for (std::size_t i = 0; i < run_queue::capacity; ++i) EXPECT_EQ(r->pop_front(), &records[i]);
  EXPECT_TRUE(r->empty());
}

// Peeking changes nothing and agrees with popping.
TEST(run_queue, peeks_at_what_would_be_popped) {
  const auto r = std::make_unique<run_queue>();
  EXPECT_EQ(r->peek_back(), nullptr);
  EXPECT_EQ(r->peek_front(), nullptr);
  r->push_back(&records[0]);
  r->push_back(&records[1]);
  EXPECT_EQ(r->peek_front(), &records[0]);
  EXPECT_EQ(r->peek_back(), &records[1]);
  EXPECT_EQ(r->size(), 2u);
}

// A thief that sees the same front and epoch twice concludes that the same goroutine has waited all
// the while (I3). If the run_queue was empty in between, the epoch must differ.
TEST(run_queue, the_epoch_tells_that_it_was_empty_in_between) {
  const auto r = std::make_unique<run_queue>();
  r->push_back(&records[0]);
  const run_queue::look before = r->look_hint();
  r->pop_back();  // front does not move when the back is popped
  r->push_back(&records[1]);
  const run_queue::look after = r->look_hint();
  EXPECT_EQ(before.front, after.front);
  EXPECT_NE(before.epoch, after.epoch);

  r->push_back(&records[2]);
  const run_queue::look two = r->look_hint();
  r->pop_back();
  EXPECT_EQ(r->look_hint().epoch, two.epoch) << "it was never empty";
  r->pop_front();
  EXPECT_NE(r->look_hint().epoch, two.epoch);
}

// A look taken while the owner works may be torn; it must never show a size of billions.
TEST(run_queue, a_torn_look_is_not_huge) {
  constexpr run_queue::look torn{.front = 10, .back = 9, .epoch = 0};
  EXPECT_EQ(torn.size(), 0u);
}

// A full run_queue lets its newest half overflow, in order: what was queued first runs first.
TEST(run_queue, gives_its_newest_in_order) {
  const auto r = std::make_unique<run_queue>();
  for (std::size_t i = 0; i < 6; ++i) r->push_back(&records[i]);
  weft::sched::goroutine_list out;
  r->take_newest(4, out);
  for (std::size_t i = 2; i < 6; ++i) EXPECT_EQ(out.pop_front(), &records[i]);
  EXPECT_EQ(r->size(), 2u);
  const std::uint64_t epoch = r->look_hint().epoch;
  r->take_newest(2, out);
  EXPECT_TRUE(r->empty());
  EXPECT_NE(r->look_hint().epoch, epoch);
}

// Many steps at random against a deque, through many turns of the run_queue.
TEST(run_queue, behaves_as_a_deque) {
  const auto r = std::make_unique<run_queue>();
  std::deque<goroutine*> model;
  std::mt19937 random(1);
  for (int step = 0; step < 200'000; ++step) {
    goroutine* const g = &records[random() % records.size()];
    switch (random() % 3) {
      case 0:
        if (!r->full()) {
          r->push_back(g);
          model.push_back(g);
        }
        break;
      case 1: {
        goroutine* const expected = model.empty() ? nullptr : model.front();
        if (!model.empty()) model.pop_front();
        ASSERT_EQ(r->pop_front(), expected);
        break;
      }
      case 2: {
        goroutine* const expected = model.empty() ? nullptr : model.back();
        if (!model.empty()) model.pop_back();
        ASSERT_EQ(r->pop_back(), expected);
        break;
      }
    }
    ASSERT_EQ(r->size(), model.size());
    ASSERT_EQ(r->empty(), model.empty());
    ASSERT_EQ(r->look_hint().size(), model.size());
  }
}

}  // namespace
