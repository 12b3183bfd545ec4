// local_test.cpp: goroutine-local variables.
#include "runtime_fixture.hpp"
#include "thread_hop.hpp"

#include <weft/weft.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using weft::test::eventually;
using weft::test::procs_scope;
using weft::test::runtime_test;
using weft::test::scaled;

class local : public runtime_test {};

static_assert(!std::is_copy_constructible_v<weft::local<int>>);
static_assert(!std::is_copy_assignable_v<weft::local<int>>);

weft::local<int> depth{7};
weft::local<std::string> label{std::string("initial")};
weft::local<std::vector<int>> list;

// Two goroutines that share one variable by mistake mix up their requests.
TEST_F(local, every_goroutine_has_its_own) {
  weft::run([] {
    const procs_scope four(4);
    weft::wait_group all;
    for (int i = 0; i < 200; ++i) {
      all.go([i] {
        EXPECT_EQ(*depth, 7);
        EXPECT_EQ(*label, "initial");
        EXPECT_TRUE(list->empty());
        *depth = i;
        *label += std::to_string(i);
        list->push_back(i);
        for (int turn = 0; turn < 20; ++turn) {
          weft::this_goroutine::yield();
          ASSERT_EQ(*depth, i);
          ASSERT_EQ(*label, "initial" + std::to_string(i));
          ASSERT_EQ(list->size(), 1u);
        }
      });
    }
    all.wait();
    EXPECT_EQ(*depth, 7);
  });
}

// A goroutine takes it along when it changes its thread, and the next one there has another.
TEST_F(local, goes_with_its_goroutine_to_another_thread) {
  weft::run([] {
    const procs_scope one(1);
    *depth = 1;
    int* const address = &*depth;
    weft::test::hop_to_another_thread();
    EXPECT_EQ(*depth, 1);
    EXPECT_EQ(&*depth, address);
    weft::wait_group all;
    all.go([] { EXPECT_EQ(*depth, 7); });
    all.wait();
  });
}

// On a plain thread it is a thread's own, and no goroutine sees it.
TEST_F(local, every_plain_thread_has_its_own) {
  *depth = 100;
  std::thread([] {
    EXPECT_EQ(*depth, 7);
    *depth = 200;
    weft::run([] {
      EXPECT_EQ(*depth, 7);
      *depth = 300;
    });
    EXPECT_EQ(*depth, 200);
  }).join();
  EXPECT_EQ(*depth, 100);
  *depth = 7;
}

struct counted {
  static inline std::atomic<int> alive{0};
  static inline std::atomic<int> copies{0};
  int value = 0;
  counted() { ++alive; }
  explicit counted(int v) : value(v) { ++alive; }
  counted(const counted& o) : value(o.value) {
    ++alive;
    ++copies;
  }
  counted(counted&& o) noexcept : value(o.value) { ++alive; }
  ~counted() { --alive; }
};

// The initial value is copied at the first use: a goroutine that never uses it pays nothing.
TEST_F(local, is_made_at_first_use_and_destroyed_at_the_end) {
  const weft::local<counted> variable{counted(5)};
  const int before = counted::alive;
  counted::copies = 0;
  weft::run([&] {
    weft::wait_group all;
    for (int i = 0; i < 50; ++i) {
      all.go([&, i] {
        if (i % 2 == 0) return;
        EXPECT_EQ(variable->value, 5);
        variable->value = i;
        EXPECT_EQ((*variable).value, i);
      });
    }
    all.wait();
    EXPECT_TRUE(eventually([&] { return counted::alive == before; }));
    EXPECT_EQ(counted::copies, 25);
  });
}

// As above, at the end of a plain thread.
TEST_F(local, is_destroyed_when_its_thread_ends) {
  const weft::local<counted> variable{counted(5)};
  const int before = counted::alive;
  std::thread([&] {
    variable->value = 1;
    EXPECT_EQ(counted::alive, before + 1);
  }).join();
  EXPECT_EQ(counted::alive, before);
}

// A goroutine that exits or whose async throws ends too.
TEST_F(local, is_destroyed_after_exit_and_after_an_exception) {
  const weft::local<counted> variable{counted(5)};
  const int before = counted::alive;
  weft::run([&] {
    weft::wait_group all;
    all.go([&] {
      variable->value = 1;
      weft::this_goroutine::exit();
    });
    all.wait();
    EXPECT_THROW(weft::async([&] {
                   variable->value = 1;
                   throw 1;
                 }).get(),
                 int);
    EXPECT_TRUE(eventually([&] { return counted::alive == before; }));
  });
}

weft::local<int> seen_in_destructor{1};
std::atomic<int> destructor_saw{0};

struct uses_weft_when_destroyed {
  bool armed = false;
  ~uses_weft_when_destroyed() {
    if (!armed) return;
    // It runs in the goroutine it belonged to: everything works there, also another local.
    weft::this_goroutine::yield();
    destructor_saw += *seen_in_destructor;
    weft::wait_group g;
    g.go([] {});
    g.wait();
  }
};

// A destructor of a goroutine-local value is ordinary code of its goroutine.
TEST_F(local, its_destructor_may_wait_and_use_other_locals) {
  static weft::local<uses_weft_when_destroyed> variable;
  destructor_saw = 0;
  weft::run([] {
    const procs_scope four(4);
    for (int i = 0; i < 100; ++i) {
      weft::go([] {
        *seen_in_destructor = 2;  // older than the other, so it is destroyed after it
        variable->armed = true;
      });
      weft::go([] { variable->armed = true; });  // makes the other one only when it is destroyed
    }
    EXPECT_TRUE(eventually([] { return destructor_saw == 300; }));
  });
}

// Values of many variables in one goroutine, each its own.
TEST_F(local, many_variables_do_not_mix) {
  constexpr std::size_t n = 100;
  std::vector<std::unique_ptr<weft::local<std::size_t>>> variables;
  for (std::size_t i = 0; i < n; ++i) {
    variables.push_back(std::make_unique<weft::local<std::size_t>>(i));
  }
  weft::run([&] {
    weft::wait_group all;
    for (std::size_t g = 0; g < 10; ++g) {
      all.go([&, g] {
        for (std::size_t i = 0; i < n; ++i) {
          ASSERT_EQ(**variables[i], i);
          **variables[i] += g * 1000;
        }
        weft::this_goroutine::yield();
        for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(**variables[i], i + g * 1000);
      });
    }
    all.wait();
  });
}

// A new variable at the address of one that is gone must not find the old one's values.
TEST_F(local, a_variable_that_is_gone_leaves_no_value_for_the_next) {
  weft::run([] {
    for (int i = 0; i < 100; ++i) {
      weft::local<int> variable{i};
      ASSERT_EQ(*variable, i);
      *variable = -1;
    }
  });
}

// T need only be copyable: classes without default constructor, smart pointers.
TEST_F(local, takes_any_copyable_type) {
  struct no_default {
    explicit no_default(int v) : value(v) {}
    int value;
  };
  const weft::local<no_default> a{no_default(3)};
  const weft::local<std::shared_ptr<int>> b{std::make_shared<int>(4)};
  weft::run([&] {
    EXPECT_EQ(a->value, 3);
    EXPECT_EQ(**b, 4);
  });
}

// A copy that throws leaves the variable unmade; the next use tries again.
TEST_F(local, a_copy_that_throws_is_tried_again) {
  struct fussy {
    static bool& refuse() {
      static bool value = false;
      return value;
    }
    fussy() = default;
    fussy(const fussy&) {
      if (refuse()) throw std::runtime_error("no");
    }
  };
  const weft::local<fussy> variable;
  weft::run([&] {
    fussy::refuse() = true;
    EXPECT_THROW((void)*variable, std::runtime_error);
    fussy::refuse() = false;
    EXPECT_NO_THROW((void)*variable);
  });
}

}  // namespace
