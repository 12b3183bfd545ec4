// explore_test.cpp: the explorer finds the bugs it is meant to find, and counts right.
//
// A model checker that overlooks executions passes every test, so most of these hold it against a
// protocol that is known to be broken, or against a number known from elsewhere.
#include "model/explore.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace weft::model {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;
constexpr auto acq_rel = std::memory_order_acq_rel;
constexpr auto seq_cst = std::memory_order_seq_cst;

constexpr options unbounded{.preemptions = -1};

// ---- Counting. ----

make_function two_threads_of(int steps, std::set<std::vector<int>>* orders) {
  return [steps, orders](world& w) {
    struct state {
      atomic<int> turn{0};
      std::vector<int> order;
    };
    auto s = std::make_shared<state>();
    s->order.resize(static_cast<std::size_t>(2 * steps));
    for (int t = 0; t < 2; ++t) {
      w.thread(t == 0 ? "zero" : "one", [s, steps, t] {
        for (int i = 0; i < steps; ++i) {
          s->order[static_cast<std::size_t>(s->turn.fetch_add(1, seq_cst))] = t;
        }
      });
    }
    if (orders != nullptr) w.at_end([s, orders] { orders->insert(s->order); });
  };
}

// Each interleaving of two threads of ten steps that all depend on each other is visited, and none
// twice: the binomial coefficient of 20 over 10.
TEST(explore, visits_each_interleaving_exactly_once) {
  const result r = explore(unbounded, two_threads_of(10, nullptr));
  EXPECT_TRUE(r.ok) << r.report;
  EXPECT_TRUE(r.exhausted);
  EXPECT_EQ(r.executions, 184'756U);
  EXPECT_EQ(r.pruned, 0U);
}

TEST(explore, visits_different_interleavings) {
  std::set<std::vector<int>> orders;
  const result r = explore(unbounded, two_threads_of(5, &orders));
  EXPECT_TRUE(r.exhausted);
  EXPECT_EQ(r.executions, 252U);
  EXPECT_EQ(orders.size(), 252U);
}

// With k preemptions allowed the blocks of steps that the two threads take turns with number k + 2
// at most: 2 without any, and two threads of five steps give 2 * 4 more with one, because the first
// block may be cut in four places, with either thread first.
TEST(explore, the_bound_on_preemptions_bounds_preemptions) {
  EXPECT_EQ(explore({.preemptions = 0}, two_threads_of(5, nullptr)).executions, 2U);
  EXPECT_EQ(explore({.preemptions = 1}, two_threads_of(5, nullptr)).executions, 2U + 2U * 4U);
}

// Steps on different words commute, so their order is explored once. If pruning did not work,
// models of the size we need would not finish.
TEST(explore, prunes_what_commutes) {
  const auto make = [](world& w) {
    auto words = std::make_shared<std::array<atomic<int>, 3>>();
    for (std::size_t t = 0; t < 3; ++t) {
      w.thread("t", [words, t] {
        for (int i = 0; i < 6; ++i) (*words)[t].fetch_add(1, seq_cst);
      });
    }
  };
  const result r = explore(unbounded, make);
  EXPECT_TRUE(r.exhausted);
  EXPECT_LT(r.executions, 1000U);  // of 17,153,136
}

// ---- Outcomes. ----

struct instruction {
  enum kind { load, store, store_seq_cst, exchange, fence, heavy } what;
  int word;
};
using program = std::vector<std::vector<instruction>>;

// Runs `p`, where each store writes a value of its own. Returns: all outcomes, an outcome being
// what each load read and what is in memory at the end.
std::set<std::vector<int>> outcomes(const options& o, const program& p) {
  std::set<std::vector<int>> all;
  const result r = explore(o, [&](world& w) {
    struct state {
      std::array<atomic<int>, 3> words;
      std::vector<std::vector<int>> read;
    };
    auto s = std::make_shared<state>();
    s->read.resize(p.size());
    for (std::size_t t = 0; t < p.size(); ++t) {
      w.thread("t", [s, t, &p] {
        int value = static_cast<int>(t + 1) * 10;
        for (const instruction& i : p[t]) {
          auto& word = s->words[static_cast<std::size_t>(i.word)];
          switch (i.what) {
            case instruction::load:
              s->read[t].push_back(word.load(relaxed));
              break;
            case instruction::store:
              word.store(++value, relaxed);
              break;
            case instruction::store_seq_cst:
              word.store(++value, seq_cst);
              break;
            case instruction::exchange:
              s->read[t].push_back(word.exchange(++value, acq_rel));
              break;
            case instruction::fence:
              platform::fence(seq_cst);
              break;
            case instruction::heavy:
              platform::heavy_barrier();
              break;
          }
        }
      });
    }
    w.at_end([s, &all] {
      std::vector<int> outcome;
      for (const auto& reads : s->read) outcome.insert(outcome.end(), reads.begin(), reads.end());
      for (const auto& word : s->words) outcome.push_back(word.load(relaxed));
      all.insert(outcome);
    });
  });
  EXPECT_TRUE(r.ok) << r.report;
  EXPECT_TRUE(r.exhausted);
  return all;
}

// As above, without the final memory.
std::set<std::vector<int>> reads(const program& p, std::size_t count) {
  std::set<std::vector<int>> all;
  for (const auto& outcome : outcomes(unbounded, p)) {
    all.emplace(outcome.begin(), outcome.begin() + static_cast<std::ptrdiff_t>(count));
  }
  return all;
}

using ins = instruction;

// The one reordering that TSO allows, and the only outcome that the fence takes away.
TEST(memory, stores_linger_in_the_buffer) {
  using set = std::set<std::vector<int>>;
  EXPECT_EQ(reads({{{ins::store, 0}, {ins::load, 1}}, {{ins::store, 1}, {ins::load, 0}}}, 2),
            (set{{0, 0}, {0, 11}, {21, 0}, {21, 11}}));
  EXPECT_EQ(reads({{{ins::store, 0}, {ins::fence, 0}, {ins::load, 1}},
                   {{ins::store_seq_cst, 1}, {ins::load, 0}}},
                  2),
            (set{{0, 11}, {21, 0}, {21, 11}}));
  EXPECT_EQ(
      reads({{{ins::store, 0}, {ins::load, 1}}, {{ins::store, 1}, {ins::heavy, 0}, {ins::load, 0}}},
            2),
      (set{{0, 11}, {21, 0}, {21, 11}}));
  // An exchange of any word drains the buffer.
  EXPECT_EQ(reads({{{ins::store, 0}, {ins::exchange, 2}, {ins::load, 1}},
                   {{ins::store, 1}, {ins::fence, 0}, {ins::load, 0}}},
                  3),
            (set{{0, 0, 11}, {0, 21, 0}, {0, 21, 11}}));
}

// What TSO forbids must not be reported as a bug: stores arrive in order, loads happen in order,
// and all threads agree on the order in which stores arrive.
TEST(memory, nothing_else_is_reordered) {
  using set = std::set<std::vector<int>>;
  const set message =
      reads({{{ins::store, 0}, {ins::store, 1}}, {{ins::load, 1}, {ins::load, 0}}}, 2);
  EXPECT_EQ(message, (set{{0, 0}, {0, 11}, {12, 11}}));

  const set four = reads({{{ins::store, 0}},
                          {{ins::store, 1}},
                          {{ins::load, 0}, {ins::load, 1}},
                          {{ins::load, 1}, {ins::load, 0}}},
                         4);
  EXPECT_EQ(four.count({11, 0, 21, 0}), 0U);
  EXPECT_EQ(four.size(), 15U);

  const set load_buffering =
      reads({{{ins::load, 0}, {ins::store, 1}}, {{ins::load, 1}, {ins::store, 0}}}, 2);
  EXPECT_EQ(load_buffering, (set{{0, 0}, {0, 11}, {21, 0}}));
}

// A thread sees its own stores at once, others later; that is more than "stores are late".
TEST(memory, a_thread_reads_its_own_buffer) {
  using set = std::set<std::vector<int>>;
  const set forwarded = reads({{{ins::store, 0}, {ins::load, 0}, {ins::load, 1}},
                               {{ins::store, 1}, {ins::load, 1}, {ins::load, 0}}},
                              4);
  EXPECT_EQ(forwarded, (set{{11, 0, 21, 0}, {11, 0, 21, 11}, {11, 21, 21, 0}, {11, 21, 21, 11}}));
}

// Pruning must not lose outcomes. The reference is the search that tries everything.
TEST(memory, pruning_loses_no_outcome_of_random_programs) {
  std::uint64_t random = 42;
  const auto next = [&random](std::uint64_t n) {
    random = random * 6364136223846793005 + 1442695040888963407;
    return (random >> 33) % n;
  };
  for (int round = 0; round < 150; ++round) {
    program p(2 + next(2));
    std::string text;
    for (auto& thread : p) {
      const std::uint64_t length = p.size() == 2 ? 2 + next(3) : 1 + next(2);
      for (std::uint64_t i = 0; i < length; ++i) {
        // Loads and buffered stores are what is interesting.
        constexpr instruction::kind kinds[] = {
            ins::load,  ins::load,  ins::load,          ins::store,    ins::store,
            ins::store, ins::fence, ins::store_seq_cst, ins::exchange, ins::heavy};
        thread.push_back({kinds[next(10)], static_cast<int>(next(2))});
        text += std::to_string(thread.back().what) + "/" + std::to_string(thread.back().word) + " ";
      }
      text += "| ";
    }
    EXPECT_EQ(outcomes(unbounded, p), outcomes({.preemptions = -1, .prune = false}, p)) << text;
    EXPECT_EQ(outcomes({.preemptions = 1}, p), outcomes({.preemptions = 1, .prune = false}, p))
        << text;
  }
}

// ---- Mutual exclusion. ----

enum class barrier_kind { none, light_and_heavy, heavy_only_where_light_belongs, seq_cst_stores };

make_function dekker(barrier_kind kind) {
  return [kind](world& w) {
    struct state {
      atomic<int> hot{0}, cold{0};
      exclusive section{"the section"};
    };
    auto s = std::make_shared<state>();
    s->hot.name("hot");
    s->cold.name("cold");
    const auto order = kind == barrier_kind::seq_cst_stores ? seq_cst : relaxed;
    w.thread("owner", [s, kind, order] {
      s->hot.store(1, order);
      if (kind == barrier_kind::light_and_heavy) platform::light_barrier();
      if (s->cold.load(acquire) == 0) exclusive::stay here(s->section);
      s->hot.store(0, release);
    });
    w.thread("claimer", [s, kind, order] {
      s->cold.store(1, order);
      if (kind == barrier_kind::light_and_heavy) platform::heavy_barrier();
      if (kind == barrier_kind::heavy_only_where_light_belongs) platform::light_barrier();
      if (s->hot.load(acquire) == 0) exclusive::stay here(s->section);
      s->cold.store(0, release);
    });
  };
}

// The bug for which this explorer exists: it must not be mistaken for correct.
TEST(explore, finds_that_dekker_needs_its_heavy_barrier) {
  for (const auto kind : {barrier_kind::none, barrier_kind::heavy_only_where_light_belongs}) {
    const result r = explore({}, dekker(kind));
    EXPECT_FALSE(r.ok);
    EXPECT_NE(r.message.find("is inside"), std::string::npos) << r.report;
    EXPECT_NE(r.report.find("store hot = 1 (buffered)"), std::string::npos) << r.report;
  }
  for (const auto kind : {barrier_kind::light_and_heavy, barrier_kind::seq_cst_stores}) {
    const result r = explore(unbounded, dekker(kind));
    EXPECT_TRUE(r.ok) << r.report;
    EXPECT_TRUE(r.exhausted);
  }
  // Without buffers every order is sequentially consistent and there is no bug to find.
  EXPECT_TRUE(explore({.preemptions = -1, .buffer_entries = 0}, dekker(barrier_kind::none)).ok);
}

TEST(explore, random_strategies_find_it_too) {
  for (const auto how : {strategy::random, strategy::priorities}) {
    const result broken =
        explore({.how = how, .random_executions = 5'000}, dekker(barrier_kind::none));
    EXPECT_FALSE(broken.ok);
    EXPECT_NE(broken.message.find("is inside"), std::string::npos) << broken.report;
    const result right =
        explore({.how = how, .random_executions = 5'000}, dekker(barrier_kind::light_and_heavy));
    EXPECT_TRUE(right.ok) << right.report;
    EXPECT_FALSE(right.exhausted);
    EXPECT_EQ(right.executions, 5'000U);
  }
}

// Where the search is given up, walks go on; the result must not claim that all was seen.
TEST(explore, walks_at_random_when_the_search_takes_too_long) {
  const result r = explore({.preemptions = -1, .max_executions = 100, .random_executions = 50},
                           two_threads_of(10, nullptr));
  EXPECT_TRUE(r.ok);
  EXPECT_FALSE(r.exhausted);
  EXPECT_EQ(r.executions, 150U);
  EXPECT_NE(r.seed, 0U);
}

make_function peterson(std::memory_order order) {
  return [order](world& w) {
    struct state {
      std::array<atomic<bool>, 2> wants;
      atomic<int> last{0};
      var<int> count{0, "count"};
      exclusive section{"the section"};
    };
    auto s = std::make_shared<state>();
    for (int me = 0; me < 2; ++me) {
      w.thread(me == 0 ? "zero" : "one", [s, order, me] {
        const auto mine = static_cast<std::size_t>(me);
        s->wants[mine].store(true, order);
        s->last.store(me, order);
        while (s->wants[1 - mine].load(acquire) && s->last.load(acquire) == me) platform::pause();
        {
          exclusive::stay here(s->section);
          s->count.set(s->count.get() + 1);
        }
        s->wants[mine].store(false, release);
      });
    }
    w.at_end([s] { check(s->count.get() == 2, "both came in"); });
  };
}

TEST(explore, finds_that_peterson_needs_sequential_consistency) {
  const result broken = explore({}, peterson(release));
  EXPECT_FALSE(broken.ok);
  const result right = explore(unbounded, peterson(seq_cst));
  EXPECT_TRUE(right.ok) << right.report;
  EXPECT_TRUE(right.exhausted);
}

// ---- Sleeping and waking. ----

// The waker comes between the look and the sleep.
TEST(explore, finds_a_lost_wake_up) {
  const auto make = [](world& w) {
    struct state {
      atomic<std::uint32_t> ready{0};
      atomic<std::uint32_t> queue{0};
    };
    auto s = std::make_shared<state>();
    s->ready.name("ready");
    s->queue.name("queue");
    w.thread("sleeper", [s] {
      if (s->ready.load(seq_cst) == 0) platform::futex_wait(s->queue, 0);
    });
    w.thread("waker", [s] {
      s->ready.store(1, seq_cst);
      platform::futex_wake(s->queue, 1);
    });
  };
  const result r = explore({}, make);
  EXPECT_FALSE(r.ok);
  EXPECT_EQ(r.message, "deadlock: sleeper sleeps");
  EXPECT_NE(r.report.find("futex_wait queue = 0: sleeps"), std::string::npos) << r.report;
}

TEST(explore, passes_a_parker_that_sleeps_on_the_word_it_looked_at) {
  for (const std::memory_order order : {release, seq_cst}) {
    const result r = explore(unbounded, [order](world& w) {
      auto ready = std::make_shared<atomic<std::uint32_t>>(0U);
      w.thread("sleeper", [ready] {
        while (ready->load(acquire) == 0) platform::futex_wait(*ready, 0);
      });
      w.thread("waker", [ready, order] {
        ready->store(1, order);
        platform::futex_wake(*ready, 1);
      });
    });
    EXPECT_TRUE(r.ok) << r.report;
    EXPECT_TRUE(r.exhausted);
  }
}

// The kernel may wake either of two sleepers. A protocol that counts on the first one is broken.
TEST(explore, wakes_any_of_the_sleepers) {
  std::set<int> first_awake;
  const result r = explore({}, [&first_awake](world& w) {
    struct state {
      atomic<std::uint32_t> word{0};
      atomic<int> asleep{0};
      atomic<int> first{-1};
    };
    auto s = std::make_shared<state>();
    for (int t = 0; t < 2; ++t) {
      w.thread("sleeper", [s, t] {
        // Zero goes to sleep before one does.
        while (s->asleep.load(seq_cst) != t) platform::pause();
        s->asleep.store(t + 1, seq_cst);
        platform::futex_wait(s->word, 0);
        int nobody = -1;
        s->first.compare_exchange_strong(nobody, t, seq_cst);
        platform::futex_wake(s->word, 1);
      });
    }
    w.thread("waker", [s] {
      while (s->asleep.load(seq_cst) != 2) platform::pause();
      s->word.store(1, seq_cst);
      platform::futex_wake(s->word, 1);
    });
    w.at_end([s, &first_awake] { first_awake.insert(s->first.load(relaxed)); });
  });
  EXPECT_TRUE(r.ok) << r.report;
  EXPECT_TRUE(r.exhausted);
  EXPECT_EQ(first_awake, (std::set<int>{0, 1}));
}

// A futex may return without a reason, which kills a waiter that does not look again.
TEST(explore, finds_a_waiter_that_trusts_its_wake_up) {
  const auto make = [](world& w) {
    auto ready = std::make_shared<atomic<std::uint32_t>>(0U);
    w.thread("sleeper", [ready] {
      platform::futex_wait(*ready, 0);
      check(ready->load(acquire) == 1, "awake too early");
    });
    w.thread("waker", [ready] {
      ready->store(1, release);
      platform::futex_wake(*ready, 1);
    });
  };
  EXPECT_TRUE(explore({.whims = 0}, make).ok);
  const result r = explore({.whims = 1}, make);
  EXPECT_FALSE(r.ok);
  EXPECT_EQ(r.message, "awake too early");
}

// A timed wait ends by a wake-up or by its timeout, and both must be tried, also when the wake-up
// never comes.
TEST(explore, tries_both_ends_of_a_timed_wait) {
  for (const bool wakes : {true, false}) {
    std::set<bool> ends;
    const result r = explore({}, [&ends, wakes](world& w) {
      auto ready = std::make_shared<atomic<std::uint32_t>>(0U);
      auto in_time = std::make_shared<bool>(true);
      w.thread("sleeper", [ready, in_time] {
        while (ready->load(acquire) == 0 && *in_time) {
          *in_time = platform::futex_wait_timed(*ready, 0);
        }
      });
      w.thread("waker", [ready, wakes] {
        if (!wakes) return;
        ready->store(1, release);
        platform::futex_wake(*ready, 1);
      });
      w.at_end([in_time, &ends] { ends.insert(*in_time); });
    });
    EXPECT_TRUE(r.ok) << r.report;
    EXPECT_EQ(ends, wakes ? (std::set<bool>{false, true}) : (std::set<bool>{false}));
  }
}

// ---- Waiting for ever. ----

TEST(explore, finds_a_deadlock_of_two_locks) {
  const result r = explore({}, [](world& w) {
    struct lock {
      atomic<std::uint32_t> word{0};
      void take() {
        while (word.exchange(1, acquire) != 0) platform::futex_wait(word, 1);
      }
      void give() {
        word.store(0, release);
        platform::futex_wake(word, 1);
      }
    };
    auto locks = std::make_shared<std::array<lock, 2>>();
    for (std::size_t t = 0; t < 2; ++t) {
      w.thread(t == 0 ? "left" : "right", [locks, t] {
        (*locks)[t].take();
        (*locks)[1 - t].take();
        (*locks)[1 - t].give();
        (*locks)[t].give();
      });
    }
  });
  EXPECT_FALSE(r.ok);
  EXPECT_EQ(r.message, "deadlock: left sleeps, right sleeps");
}

TEST(explore, finds_a_livelock_of_two_spinners) {
  const result r = explore({}, [](world& w) {
    auto flags = std::make_shared<std::array<atomic<int>, 2>>();
    for (std::size_t t = 0; t < 2; ++t) {
      w.thread(t == 0 ? "left" : "right", [flags, t] {
        while ((*flags)[1 - t].load(acquire) == 0) platform::pause();
        (*flags)[t].store(1, release);
      });
    }
  });
  EXPECT_FALSE(r.ok);
  EXPECT_EQ(r.message, "livelock: left spins, right spins");
}

// Two threads that keep undoing each other's work change memory for ever.
TEST(explore, finds_a_livelock_that_keeps_busy) {
  const result r = explore({.max_steps = 500}, [](world& w) {
    auto word = std::make_shared<atomic<int>>(0);
    for (int t = 1; t <= 2; ++t) {
      w.thread("t", [word, t] {
        do {
          word->store(t, seq_cst);
          platform::pause();
        } while (word->load(acquire) != 0);
      });
    }
  });
  EXPECT_FALSE(r.ok);
  EXPECT_EQ(r.message, "no end after 500 steps: t runnable, t spins");
}

// If the first reads were forgotten, this would be reported as a livelock, wrongly.
TEST(explore, a_loop_that_reads_much_goes_on_after_every_change) {
  for (const std::size_t changes : {0U, 30U, 69U}) {
    const result r = explore({}, [changes](world& w) {
      auto words = std::make_shared<std::array<atomic<int>, 70>>();
      w.thread("reader", [words] {
        for (;;) {
          int sum = 0;
          for (const auto& word : *words) sum += word.load(acquire);
          if (sum != 0) return;
          platform::pause();
        }
      });
      w.thread("writer", [words, changes] { (*words)[changes].store(1, release); });
    });
    EXPECT_TRUE(r.ok) << r.report;
    EXPECT_TRUE(r.exhausted);
  }
}

// A loop that gives up after some turns is neither a livelock nor stuck.
TEST(explore, lets_a_loop_that_counts_come_to_its_end) {
  const result r = explore(unbounded, [](world& w) {
    auto word = std::make_shared<atomic<std::uint32_t>>(0U);
    w.thread("sleeper", [word] {
      for (int turn = 0; turn < 10; ++turn) {
        if (word->load(acquire) != 0) return;
        platform::pause();
      }
      while (word->load(acquire) == 0) platform::futex_wait(*word, 0);
    });
    w.thread("waker", [word] {
      for (int turn = 0; turn < 10; ++turn) platform::pause();
      word->store(1, release);
      platform::futex_wake(*word, 1);
    });
  });
  EXPECT_TRUE(r.ok) << r.report;
  EXPECT_TRUE(r.exhausted);
}

// A goroutine in test::wait runs only when the others are done or asleep, and sees what they did.
TEST(explore, rest_comes_when_nothing_else_can_happen) {
  const result r = explore(unbounded, [](world& w) {
    struct state {
      atomic<std::uint32_t> word{0};
      var<int> data{0, "data"};
    };
    auto s = std::make_shared<state>();
    w.thread("observer", [s] {
      await_rest();
      check(s->data.get() == 1, "too early");
      s->word.store(1, release);
      platform::futex_wake(s->word, 2);
    });
    w.thread("writer", [s] {
      s->data.set(1);
      s->word.load(relaxed);
    });
    for (int i = 0; i < 2; ++i) {
      w.thread("sleeper", [s] {
        while (s->word.load(acquire) == 0) platform::futex_wait(s->word, 0);
      });
    }
  });
  EXPECT_TRUE(r.ok) << r.report;
  EXPECT_TRUE(r.exhausted);
}

// ---- Memory that is used again. ----

struct treiber_stack {
  struct item {
    atomic<item*> next{nullptr};
    exclusive owner{"an item"};
  };

  std::array<item, 3> items;
  atomic<item*> top{nullptr};

  void push(item* i) {
    item* old = top.load(relaxed);
    do {
      i->next.store(old, relaxed);
    } while (!top.compare_exchange_weak(old, i, release, relaxed));
  }

  item* pop() {
    item* old = top.load(acquire);
    while (old != nullptr &&
           !top.compare_exchange_weak(old, old->next.load(relaxed), acquire, acquire)) {
    }
    return old;
  }
};

// A slow pop exchanges the top for a `next` that has become stale while the item was away and came
// back. An item is then in two hands at once.
TEST(explore, finds_aba_in_a_stack_of_reused_items) {
  const auto make = [](world& w) {
    auto s = std::make_shared<treiber_stack>();
    s->top.name("top");
    for (auto& i : s->items) s->push(&i);
    w.thread("slow", [s] {
      if (treiber_stack::item* i = s->pop()) exclusive::stay mine(i->owner);
    });
    w.thread("fast", [s] {
      treiber_stack::item* first = s->pop();
      treiber_stack::item* second = s->pop();
      if (second != nullptr) second->owner.enter();
      if (first != nullptr) s->push(first);
      // `second` is still ours; another thread can get it only through a stale `next`.
      if (treiber_stack::item* again = s->pop()) exclusive::stay mine(again->owner);
      if (second != nullptr) second->owner.leave();
    });
    w.thread("third", [s] {
      if (treiber_stack::item* i = s->pop()) exclusive::stay mine(i->owner);
    });
  };
  const result r = explore({}, make);
  EXPECT_FALSE(r.ok);
  EXPECT_NE(r.message.find("enters an item while"), std::string::npos) << r.report;
}

// The waiter destroys what the last one to leave still touches.
TEST(explore, finds_a_use_after_destruction) {
  enum class last_touch { store, load_after_store, wake_after_store };
  const auto make = [](last_touch touch) {
    return [touch](world& w) {
      auto s = std::make_shared<storage<atomic<std::uint32_t>>>();
      s->emplace(0U);
      w.thread("waiter", [s] {
        while ((*s)->load(acquire) == 0) platform::pause();
        s->destroy();
      });
      w.thread("finisher", [s, touch] {
        auto& word = s->get();
        word.store(1, release);
        if (touch == last_touch::load_after_store) word.load(relaxed);
        if (touch == last_touch::wake_after_store) platform::futex_wake(word, 1);
      });
    };
  };
  EXPECT_TRUE(explore(unbounded, make(last_touch::store)).ok);
  EXPECT_TRUE(explore(unbounded, make(last_touch::wake_after_store)).ok);
  const result r = explore(unbounded, make(last_touch::load_after_store));
  EXPECT_FALSE(r.ok);
  EXPECT_NE(r.message.find("after its destruction"), std::string::npos) << r.report;
}

// A wait on a word that is gone must be a finding, not the end of the process.
TEST(explore, finds_a_wait_after_destruction) {
  const result r = explore({}, [](world& w) {
    auto s = std::make_shared<storage<atomic<std::uint32_t>>>();
    s->emplace(0U);
    w.thread("sleeper", [s] { platform::futex_wait(s->get(), 0); });
    w.thread("destroyer", [s] {
      platform::futex_wake(s->get(), 1);
      s->destroy();
    });
  });
  EXPECT_FALSE(r.ok);
  EXPECT_NE(r.message.find("after its destruction"), std::string::npos) << r.report;
}

// A second store that is still in the buffer would land in memory that is no longer ours.
TEST(explore, finds_a_store_that_lands_after_destruction) {
  const result r = explore(unbounded, [](world& w) {
    auto s = std::make_shared<storage<std::array<atomic<std::uint32_t>, 2>>>();
    s->emplace();
    w.thread("waiter", [s] {
      while (s->get()[0].load(acquire) == 0) platform::pause();
      s->destroy();
    });
    w.thread("finisher", [s] {
      auto& words = s->get();
      words[0].store(1, release);
      words[1].store(1, release);
    });
  });
  EXPECT_FALSE(r.ok);
  EXPECT_NE(r.message.find("destr"), std::string::npos) << r.report;
}

// ---- Plain data. ----

make_function message(std::memory_order publish, std::memory_order observe) {
  return [publish, observe](world& w) {
    struct state {
      var<int> data{0, "data"};
      atomic<int> flag{0};
    };
    auto s = std::make_shared<state>();
    w.thread("writer", [s, publish] {
      s->data.set(7);
      s->flag.store(1, publish);
    });
    w.thread("reader", [s, observe] {
      while (s->flag.load(observe) == 0) platform::pause();
      check(s->data.get() == 7, "stale data");
    });
  };
}

// On x86-64 the data arrives all the same; in C++, and on ARM, it is a race.
TEST(explore, finds_a_missing_release_or_acquire_before_plain_data) {
  EXPECT_TRUE(explore(unbounded, message(release, acquire)).ok);
  for (const auto& r :
       {explore({}, message(relaxed, acquire)), explore({}, message(release, relaxed))}) {
    EXPECT_FALSE(r.ok);
    EXPECT_NE(r.message.find("race on data: reader reads it"), std::string::npos) << r.report;
  }
}

// A heavy barrier is a fence between its caller and every thread, also one that has ended.
TEST(explore, a_heavy_barrier_orders_plain_data) {
  for (const bool has_barrier : {true, false}) {
    const result r = explore(unbounded, [has_barrier](world& w) {
      struct state {
        var<int> data{0, "data"};
        atomic<int> flag{0};
      };
      auto s = std::make_shared<state>();
      w.thread("writer", [s] {
        s->data.set(7);
        s->flag.store(1, relaxed);
      });
      w.thread("reader", [s, has_barrier] {
        while (s->flag.load(relaxed) == 0) platform::pause();
        if (has_barrier) platform::heavy_barrier();
        check(s->data.get() == 7, "stale data");
      });
    });
    EXPECT_EQ(r.ok, has_barrier) << r.report;
  }
}

// A relaxed read-modify-write continues a release sequence, a relaxed store ends it.
TEST(explore, knows_release_sequences) {
  const auto make = [](bool modifies) {
    return [modifies](world& w) {
      struct state {
        var<int> data{0, "data"};
        atomic<int> flag{0};
      };
      auto s = std::make_shared<state>();
      w.thread("writer", [s] {
        s->data.set(7);
        s->flag.store(1, release);
      });
      w.thread("between", [s, modifies] {
        while (s->flag.load(relaxed) != 1) platform::pause();
        if (modifies) {
          s->flag.fetch_add(1, relaxed);
        } else {
          s->flag.store(2, relaxed);
        }
      });
      w.thread("reader", [s] {
        while (s->flag.load(acquire) != 2) platform::pause();
        s->data.get();
      });
    };
  };
  EXPECT_TRUE(explore(unbounded, make(true)).ok);
  // The store is a race only if the reader has not seen the writer's 1 before.
  EXPECT_FALSE(explore(unbounded, make(false)).ok);
}

// Two writers with nothing between them race in every order, so one execution is enough.
TEST(explore, finds_a_race_in_whatever_order) {
  const result r = explore({}, [](world& w) {
    auto data = std::make_shared<var<int>>(0, "data");
    w.thread("one", [data] { data->set(1); });
    w.thread("two", [data] { data->set(2); });
  });
  EXPECT_FALSE(r.ok);
  EXPECT_EQ(r.executions, 1U);
}

// ---- Reports. ----

// A schedule that does not reproduce its failure is worth nothing.
TEST(explore, a_schedule_replays_its_failure_a_hundred_times) {
  const std::vector<make_function> broken = {dekker(barrier_kind::none), peterson(release),
                                             message(relaxed, acquire)};
  for (const auto& make : broken) {
    const result found = explore({}, make);
    ASSERT_FALSE(found.ok);
    for (int i = 0; i < 100; ++i) {
      const result again = replay({}, found.schedule, make);
      ASSERT_FALSE(again.ok);
      ASSERT_EQ(again.message, found.message);
      ASSERT_EQ(again.schedule, found.schedule);
      ASSERT_EQ(again.report, found.report);
    }
  }
}

// What walks at random find must be replayable like the rest.
TEST(explore, a_random_failure_replays_too) {
  for (const auto how : {strategy::random, strategy::priorities}) {
    const result found = explore({.how = how}, peterson(release));
    ASSERT_FALSE(found.ok);
    const result again = replay({}, found.schedule, peterson(release));
    EXPECT_FALSE(again.ok);
    EXPECT_EQ(again.message, found.message);
  }
}

TEST(explore, says_so_when_a_schedule_belongs_to_another_model) {
  const result r = replay({}, "00000000077", dekker(barrier_kind::none));
  EXPECT_FALSE(r.ok);
  EXPECT_EQ(r.message, "the schedule does not fit this model");
}

// Without places, which not every build knows, and with columns of no width.
std::string condensed(std::string report) {
  const std::string head = "lines of explore_test.cpp\n";
  if (const std::size_t at = report.find(head); at != std::string::npos)
    report.erase(at, head.size());
  for (std::size_t at; (at = report.find(" (:")) != std::string::npos;) {
    report.erase(at, report.find(')', at) + 1 - at);
  }
  const std::string gap(7, ' ');
  for (std::size_t at; (at = report.find(gap)) != std::string::npos;) {
    report.replace(at, report.find_first_not_of(' ', at) - at, " | ");
  }
  return report;
}

TEST(explore, lists_one_column_per_thread) {
  const result r = explore({.preemptions = 1, .buffer_entries = 0}, [](world& w) {
    auto word = std::make_shared<atomic<int>>(0);
    word->name("word");
    w.thread("left", [word] { word->store(1, relaxed); });
    w.thread("right", [word] { check(word->exchange(2, relaxed) == 0, "too late"); });
  });
  EXPECT_EQ(condensed(r.report),
            "too late\n"
            "schedule: 0-1-2\n"
            "\n"
            "      left | right\n"
            "   1  store word = 1\n"
            "   2  ends\n"
            "   3 | exchange word: 1 -> 2\n"
            "   4 | FAILS\n");
}

TEST(explore, reports_an_exception_and_a_failed_check_at_the_end) {
  const result thrown =
      explore({}, [](world& w) { w.thread("t", [] { throw std::runtime_error("oh dear"); }); });
  EXPECT_FALSE(thrown.ok);
  EXPECT_EQ(thrown.message, "t threw std::runtime_error: oh dear");

  const result at_end = explore({}, [](world& w) {
    w.thread("t", [] {});
    w.at_end([] { check(false, "at the end"); });
  });
  EXPECT_FALSE(at_end.ok);
  EXPECT_EQ(at_end.message, "at the end");

  const result hangs = explore({}, [](world& w) {
    w.thread("t", [] {});
    w.at_end([] {
      for (;;) platform::pause();
    });
  });
  EXPECT_FALSE(hangs.ok);
}

// Every member of the atomic computes what std::atomic's does.
TEST(explore, atomics_compute_like_std_atomic) {
  const result r = explore({}, [](world& w) {
    w.thread("t", [] {
      enum class color : std::uint8_t { red, green };
      atomic<std::uint8_t> byte{250};
      check(byte.fetch_add(10, relaxed) == 250 && byte.load(relaxed) == 4, "add wraps");
      check(byte.fetch_sub(5, relaxed) == 4 && byte.load(relaxed) == 255, "sub wraps");
      check(byte.fetch_and(0x0f, relaxed) == 255 && byte.load(relaxed) == 15, "and");
      check(byte.fetch_or(0x30, relaxed) == 15 && byte.load(relaxed) == 0x3f, "or");
      check(byte.fetch_xor(0xff, relaxed) == 0x3f && byte.load(relaxed) == 0xc0, "xor");
      atomic<std::int64_t> wide{-1};
      check(wide.fetch_sub(1, relaxed) == -1 && wide.load(relaxed) == -2, "negative");
      atomic<color> paint{color::red};
      color expected = color::green;
      check(!paint.compare_exchange_strong(expected, color::green, acq_rel), "must fail");
      check(expected == color::red, "expected is updated");
      check(paint.compare_exchange_weak(expected, color::green, acq_rel, acquire), "must succeed");
      check(paint.exchange(color::red, relaxed) == color::green, "exchange");
      int array[4];
      atomic<int*> pointer{array};
      check(pointer.fetch_add(3, relaxed) == array, "pointer add");
      check(pointer.fetch_sub(1, relaxed) == array + 3, "pointer sub");
      check(pointer.load(relaxed) == array + 2, "pointer");
    });
  });
  EXPECT_TRUE(r.ok) << r.report;
}

}  // namespace
}  // namespace weft::model
