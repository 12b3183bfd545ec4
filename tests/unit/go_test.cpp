// go_test.cpp: starting goroutines, running a program in them, and what one can do to itself.
#include "runtime_fixture.hpp"
#include "sched/extra.hpp"

#include <weft/weft.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using weft::test::eventually;
using weft::test::procs_scope;
using weft::test::runtime_test;
using weft::test::scaled;

class run : public runtime_test {};
class go : public runtime_test {};
class options : public runtime_test {};
class yield : public runtime_test {};
class sleeping : public runtime_test {};
class blocking : public runtime_test {};
class goroutine_exit : public runtime_test {};

// ------------------------------------------------------------------------------------------- run

// The status of the whole program is what main returns.
TEST_F(run, returns_the_int_of_main) {
  EXPECT_EQ(weft::run([] { return 42; }), 42);
  EXPECT_EQ(weft::run([] { return -1; }), -1);
}

// A main without a result is a success.
TEST_F(run, returns_zero_for_a_main_that_returns_nothing) {
  bool ran = false;
  EXPECT_EQ(weft::run([&] { ran = true; }), 0);
  EXPECT_TRUE(ran);
}

// Whatever converts to int is a status; a program may return bool or an enum of its own.
TEST_F(run, converts_what_main_returns_to_int) {
  EXPECT_EQ(weft::run([] { return true; }), 1);
  EXPECT_EQ(weft::run([] { return short{7}; }), 7);
}

// main is called in place: it need be neither copyable nor movable, and keeps its state.
TEST_F(run, calls_main_itself_and_no_copy_of_it) {
  struct immovable {
    int calls = 0;
    immovable() = default;
    immovable(const immovable&) = delete;
    immovable& operator=(const immovable&) = delete;
    int operator()() & { return ++calls; }
    int operator()() && { return -1; }
  };
  immovable main;
  EXPECT_EQ(weft::run(main), 1);
  EXPECT_EQ(weft::run(main), 2);
  EXPECT_EQ(weft::run(std::move(main)), -1);
}

int plain_function() { return 5; }

// The most usual main of all.
TEST_F(run, takes_a_plain_function) {
  EXPECT_EQ(weft::run(plain_function), 5);
  EXPECT_EQ(weft::run(&plain_function), 5);
}

// The caller of run must be able to handle what main throws, with its type.
TEST_F(run, lets_an_exception_of_main_out) {
  try {
    weft::run([]() -> int { throw std::out_of_range("far away"); });
    FAIL() << "nothing was thrown";
  } catch (const std::out_of_range& e) {
    EXPECT_STREQ(e.what(), "far away");
  }
  EXPECT_THROW(weft::run([] { throw 3; }), int);
  EXPECT_EQ(weft::run([] { return 1; }), 1) << "run is usable after an exception";
}

// Goroutine 1 is run's main by contract: tools and people look for it.
TEST_F(run, main_is_goroutine_1_each_time) {
  for (int i = 0; i < 10; ++i) {
    std::uint64_t id = 0;
    weft::run([&] { id = weft::this_goroutine::id(); });
    EXPECT_EQ(id, 1u);
  }
}

// A second main at the same time cannot be number 1 too, or two goroutines would be confused.
TEST_F(run, two_runs_at_once_have_different_mains) {
  std::atomic<std::uint64_t> ids[2]{};
  std::atomic<int> inside{0};
  const auto one = [&](int me) {
    weft::run([&, me] {
      ids[me] = weft::this_goroutine::id();
      ++inside;
      EXPECT_TRUE(eventually([&] { return inside == 2; }));
    });
  };
  std::thread other(one, 1);
  one(0);
  other.join();
  EXPECT_NE(ids[0], ids[1]);
  EXPECT_TRUE(ids[0] == 1 || ids[1] == 1);
  EXPECT_TRUE(ids[0] != 0 && ids[1] != 0);
}

// Blocking a goroutine's machine in run would stall everything it has queued.
TEST_F(run, in_a_goroutine_is_a_logic_error) {
  weft::run([] {
    bool called = false;
    EXPECT_THROW(weft::run([&] { called = true; }), std::logic_error);
    EXPECT_FALSE(called);
  });
}

// run returns when main returns; the rest of the program must not stop with it.
TEST_F(run, others_keep_running_after_it_returned) {
  std::atomic<bool> stop{false};
  std::atomic<int> turns{0};
  weft::run([&] {
    weft::go([&] {
      while (!stop) {
        ++turns;
        weft::this_goroutine::yield();
      }
    });
  });
  const int then = turns;
  EXPECT_TRUE(eventually([&] { return turns > then + 100; }));
  stop = true;
  EXPECT_TRUE(eventually([] { return weft::num_goroutine() == for_ever(); }));
}

// Any thread may run a program of its own, also one that the first knows nothing of.
TEST_F(run, works_from_a_second_thread) {
  int status = 0;
  std::thread([&] { status = weft::run([] { return 9; }); }).join();
  EXPECT_EQ(status, 9);
}

// A main that ends itself must not leave the thread that called run asleep for ever.
TEST_F(run, returns_when_main_exits) {
  bool destroyed = false;
  const int status = weft::run([&]() -> int {
    struct guard {
      bool* flag;
      ~guard() { *flag = true; }
    } g{&destroyed};
    weft::this_goroutine::exit();
  });
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(destroyed);
}

// -------------------------------------------------------------------------------------------- go

// A goroutine that is started must run, whatever thread started it.
TEST_F(go, runs_the_function_once) {
  std::atomic<int> calls{0};
  weft::go([&] { ++calls; });
  EXPECT_TRUE(eventually([&] { return calls == 1; }));
  weft::run([&] {
    weft::go([&] { ++calls; });
    EXPECT_TRUE(eventually([&] { return calls == 2; }));
  });
}

// std::thread takes what can only be moved, so must go.
TEST_F(go, takes_a_move_only_callable_and_move_only_arguments) {
  weft::run([] {
    weft::wait_group all;
    int sum = 0;
    all.add(1);
    auto callable = [held = std::make_unique<int>(1), &sum, &all](std::unique_ptr<int> given) {
      sum = *held + *given;
      all.done();
    };
    weft::go(std::move(callable), std::make_unique<int>(2));
    all.wait();
    EXPECT_EQ(sum, 3);
  });
}

// Arguments are copied: a reference into the starter's frame would dangle. Only std::ref refers.
TEST_F(go, copies_its_arguments_as_thread_does) {
  weft::run([] {
    weft::wait_group all;
    std::string text = "before";
    std::string seen;
    const char literal[] = "array";
    int counted = 0;
    all.add(1);
    weft::go(
        [&](std::string& copy, const char* pointer, int& referred) {
          seen = copy + "/" + pointer;
          copy = "changed";
          referred = 7;
          all.done();
        },
        std::ref(text), literal, std::ref(counted));
    all.wait();
    EXPECT_EQ(seen, "before/array");
    EXPECT_EQ(text, "changed");
    EXPECT_EQ(counted, 7);

    text = "original";
    all.add(1);
    weft::go(
        [&](std::string copy) {
          seen = copy;
          all.done();
        },
        text);
    text = "overwritten";
    all.wait();
    EXPECT_EQ(seen, "original");
  });
}

// The callable is handed over as an rvalue, as std::thread does.
TEST_F(go, calls_the_copy_as_an_rvalue) {
  struct callable {
    std::atomic<int>* result;
    void operator()() & { *result = 1; }
    void operator()() && { *result = 2; }
  };
  std::atomic<int> result{0};
  callable c{&result};
  weft::go(c);
  EXPECT_TRUE(eventually([&] { return result != 0; }));
  EXPECT_EQ(result, 2);
}

struct counter {
  std::atomic<int> n{0};
  void add(int by) { n += by; }
  void add_const(int by) const { const_cast<counter*>(this)->n += by; }
};

// Everything that std::invoke calls can be started.
TEST_F(go, calls_member_functions_and_data_members) {
  weft::run([] {
    counter c;
    auto shared = std::make_shared<counter>();
    weft::go(&counter::add, &c, 1);
    weft::go(&counter::add, std::ref(c), 2);
    weft::go(&counter::add_const, shared, 4);
    weft::go(&counter::n, &c);  // reads it and does nothing
    EXPECT_TRUE(eventually([&] { return c.n == 3 && shared->n == 4; }));
    EXPECT_TRUE(eventually([&] { return shared.use_count() == 1; }));
  });
}

template <std::size_t Bytes>
struct sized {
  std::array<unsigned char, Bytes> bytes;
  std::atomic<int>* good;
  void operator()() {
    bool same = true;
    for (std::size_t i = 0; i < Bytes; ++i)
      same = same && bytes[i] == static_cast<unsigned char>(i);
    if (same) ++*good;
  }
};

template <std::size_t Bytes>
void start_sized(std::atomic<int>& good) {
  sized<Bytes> s{};
  for (std::size_t i = 0; i < Bytes; ++i) s.bytes[i] = static_cast<unsigned char>(i);
  s.good = &good;
  weft::go(s);
}

// Up to 128 bytes a callable lives in the record, above that on the heap. Neither edge may lose a
// byte of it.
TEST_F(go, keeps_callables_of_any_size_whole) {
  std::atomic<int> good{0};
  start_sized<1>(good);
  start_sized<112>(good);
  start_sized<120>(good);
  start_sized<121>(good);
  start_sized<128>(good);
  start_sized<4096>(good);
  start_sized<100'000>(good);
  EXPECT_TRUE(eventually([&] { return good == 7; }));
}

struct alignas(64) over_aligned {
  std::atomic<int>* good;
  void operator()() const {
    if (reinterpret_cast<std::uintptr_t>(this) % 64 == 0) ++*good;
  }
};

// A vector register spilled into a misplaced callable would fault.
TEST_F(go, aligns_an_over_aligned_callable) {
  std::atomic<int> good{0};
  for (int i = 0; i < 8; ++i) weft::go(over_aligned{&good});
  EXPECT_TRUE(eventually([&] { return good == 8; }));
}

struct throws_when_copied {
  std::shared_ptr<int> held;
  explicit throws_when_copied(std::shared_ptr<int> h) : held(std::move(h)) {}
  throws_when_copied(const throws_when_copied& o) : held(o.held) { throw std::runtime_error("no"); }
  void operator()() const { ADD_FAILURE() << "it was never started"; }
};

template <std::size_t Bytes>
struct large_and_throws : throws_when_copied {
  std::array<char, Bytes> ballast{};
  using throws_when_copied::throws_when_copied;
};

// What could not be copied was never started: no goroutine, no half of a callable may stay behind.
TEST_F(go, leaves_nothing_behind_when_a_copy_throws) {
  weft::run([] {
    auto held = std::make_shared<int>(1);
    const throws_when_copied small(held);
    const large_and_throws<500> large(held);
    for (int i = 0; i < 1000; ++i) {
      EXPECT_THROW(weft::go(small), std::runtime_error);
      EXPECT_THROW(weft::go(large), std::runtime_error);
      EXPECT_THROW(weft::go([](const throws_when_copied&) {}, small), std::runtime_error);
      EXPECT_THROW(weft::go({.name = "named", .stack_size = 1 << 20}, small), std::runtime_error);
      EXPECT_THROW((void)weft::async(small), std::runtime_error);
    }
    EXPECT_EQ(held.use_count(), 3);
    EXPECT_EQ(weft::num_goroutine(), for_ever() + 1);
  });
  EXPECT_EQ(weft::run([] { return weft::this_goroutine::id() == 1 ? 0 : 1; }), 0);
}

// What the callable holds is released when the goroutine ends, not when its record is used again.
TEST_F(go, destroys_callable_and_arguments_at_the_end) {
  auto held = std::make_shared<int>(1);
  weft::run([&] {
    weft::go([held] {});
    weft::go([](const std::shared_ptr<int>&) {}, held);
    weft::go([held, ballast = std::array<char, 500>{}] { (void)ballast; });
    weft::go([held] { weft::this_goroutine::exit(); });
    EXPECT_TRUE(eventually([&] { return held.use_count() == 1; }));
  });
}

// An id names one goroutine in dumps and traces; two with the same id cannot be told apart.
TEST_F(go, gives_every_goroutine_an_id_of_its_own) {
  constexpr int n = scaled(20'000, 2'000);
  std::vector<std::uint64_t> ids(n);
  weft::run([&] {
    weft::wait_group all;
    for (std::size_t i = 0; i < n; ++i) {
      all.go([&, i] { ids[i] = weft::this_goroutine::id(); });
    }
    all.wait();
  });
  const std::set<std::uint64_t> different(ids.begin(), ids.end());
  EXPECT_EQ(different.size(), std::size_t{n});
  EXPECT_FALSE(different.contains(0));
  EXPECT_FALSE(different.contains(1));
}

// 0 is how a program finds out that it is not in a goroutine.
TEST_F(go, id_is_0_on_a_plain_thread_and_never_changes_in_a_goroutine) {
  EXPECT_EQ(weft::this_goroutine::id(), 0u);
  weft::run([] {
    const procs_scope four(4);
    weft::wait_group all;
    for (int i = 0; i < 50; ++i) {
      all.go([] {
        const std::uint64_t id = weft::this_goroutine::id();
        for (int turn = 0; turn < 100; ++turn) {
          weft::this_goroutine::yield();
          ASSERT_EQ(weft::this_goroutine::id(), id);
        }
      });
    }
    all.wait();
  });
}

// num_goroutine is what people watch for leaks: started minus ended, and nothing of our own.
TEST_F(go, num_goroutine_counts_those_that_have_not_ended) {
  EXPECT_EQ(weft::num_goroutine(), for_ever());
  weft::run([] {
    EXPECT_EQ(weft::num_goroutine(), for_ever() + 1);
    weft::wait_group gate;
    weft::wait_group all;
    gate.add(1);
    for (int i = 0; i < 100; ++i) all.go([&] { gate.wait(); });
    EXPECT_EQ(weft::num_goroutine(), for_ever() + 101);
    EXPECT_TRUE(weft::test::until_waiting(100, weft::detail::wait_reason::wait_group));
    EXPECT_EQ(weft::num_goroutine(), for_ever() + 101);
    gate.done();
    all.wait();
    EXPECT_TRUE(eventually([] { return weft::num_goroutine() == for_ever() + 1; }));
  });
}

// A deep tree of goroutines is started from goroutines that have already ended.
TEST_F(go, goroutines_start_goroutines) {
  constexpr int depth = scaled(14, 10);
  std::atomic<int> leaves{0};
  const std::function<void(int)> grow = [&](int level) {
    if (level == 0) {
      ++leaves;
      return;
    }
    weft::go(grow, level - 1);
    weft::go(grow, level - 1);
  };
  weft::run([&] {
    weft::go(grow, depth);
    EXPECT_TRUE(eventually([&] { return leaves == 1 << depth; }));
  });
  EXPECT_TRUE(
      eventually([] { return weft::num_goroutine() == for_ever(); }));  // `grow` is still needed
}

// --------------------------------------------------------------------------------------- options

std::string name_of_this_goroutine() {
  const auto* const extra =
      weft::sched::this_machine()->g->extra.load(std::memory_order_relaxed);  // our own
  return extra != nullptr && extra->name != nullptr ? extra->name : "";
}

// The name is copied: the starter's string may be gone when the goroutine is dumped.
TEST_F(options, the_name_is_copied) {
  weft::run([] {
    weft::wait_group all;
    std::string seen;
    all.add(1);
    {
      std::string name = "a name that does not fit into a small string";
      weft::go({.name = name}, [&] {
        seen = name_of_this_goroutine();
        all.done();
      });
      name.assign(name.size(), 'x');
    }
    all.wait();
    EXPECT_EQ(seen, "a name that does not fit into a small string");
  });
}

// A record that is used again must not keep the name of the goroutine that had it before.
TEST_F(options, a_name_does_not_outlive_its_goroutine) {
  weft::run([] {
    for (int i = 0; i < 100; ++i) {
      weft::wait_group all;
      all.add(2);
      weft::go({.name = "named"}, [&] { all.done(); });
      all.go([&] {
        EXPECT_EQ(name_of_this_goroutine(), "");
        all.done();
      });
      all.wait();
    }
  });
}

// Where a goroutine was created is the line of the go, not one in weft's own header.
TEST_F(options, where_is_the_line_of_the_caller) {
  weft::run([] {
    weft::wait_group all;
    all.add(1);
    unsigned line = 0;
    std::string file;
    const auto look = [&] {
      const auto* const extra =
          weft::sched::this_machine()->g->extra.load(std::memory_order_relaxed);  // our own
      line = extra->line;
      file = extra->file;
      all.done();
    };
    const unsigned here = __LINE__ + 1;
    weft::go({.name = "x"}, look);
    all.wait();
    EXPECT_EQ(line, here);
    EXPECT_NE(file.find("go_test.cpp"), std::string::npos) << file;
  });
}

// Options may be kept in a variable, and arguments follow the function as without them.
TEST_F(options, an_lvalue_of_options_and_arguments_work_together) {
  weft::run([] {
    weft::wait_group all;
    all.add(1);
    const weft::go_options how{.name = "worker", .stack_size = 1 << 20};
    int sum = 0;
    weft::go(
        how,
        [&](std::unique_ptr<int> a, int b) {
          sum = *a + b;
          all.done();
        },
        std::make_unique<int>(1), 2);
    all.wait();
    EXPECT_EQ(sum, 3);
  });
}

// Touches `bytes` of stack.
[[gnu::noinline]] int use_stack(std::size_t bytes) {
  auto* const memory = static_cast<volatile char*>(__builtin_alloca(bytes));
  // From the top down, page by page, as frames do.
  for (std::size_t i = bytes; i > 0; i -= std::min<std::size_t>(i, 4096)) memory[i - 1] = 1;
  return memory[bytes - 1];
}

std::size_t stack_bytes_here() { return weft::sched::this_machine()->g->stack->bytes(); }

// The size asked for is a promise: less than that is an overflow in somebody's recursion.
TEST_F(options, a_goroutine_has_at_least_the_stack_it_asked_for) {
  weft::run([] {
    weft::wait_group all;
    for (const std::size_t kib : {16u, 64u, 100u, 256u, 512u, 1024u, 8192u, 65536u}) {
      all.add(1);
      const std::size_t bytes = kib << 10;
      weft::go({.stack_size = bytes}, [&, bytes] {
        // The first frames and the colour of the stack take a little of it.
        EXPECT_GE(stack_bytes_here() + 4096, bytes);
        if (!weft::base::sanitizer::active) {
          EXPECT_EQ(use_stack(bytes - 12 * 1024), 1);
        }
        weft::this_goroutine::yield();
        all.done();
      });
    }
    all.wait();
  });
}

// 0 is the default, and a size too small to live on is rounded up instead of crashing.
TEST_F(options, tiny_stack_sizes_are_rounded_up) {
  weft::run([] {
    weft::wait_group all;
    std::size_t size_of_0 = 0;
    std::size_t size_of_1 = 0;
    std::size_t size_of_none = 0;
    all.add(2);
    weft::go({.stack_size = 0}, [&] {
      size_of_0 = stack_bytes_here();
      all.done();
    });
    weft::go({.stack_size = 1}, [&] {
      size_of_1 = stack_bytes_here();
      all.done();
    });
    all.go([&] { size_of_none = stack_bytes_here(); });
    all.wait();
    EXPECT_GE(size_of_1, std::size_t{12} << 10);
    EXPECT_LE(size_of_1, std::size_t{64} << 10);
    EXPECT_GE(size_of_0 + 4096, std::size_t{256} << 10);
    EXPECT_GE(size_of_none + 4096, std::size_t{256} << 10);
  });
}

// 1 GiB is the limit we document, so it works, and its memory comes only when touched.
TEST_F(options, the_largest_stack_works) {
  weft::run([] {
    weft::wait_group all;
    for (int i = 0; i < 6; ++i) {
      all.add(1);
      weft::go({.stack_size = std::size_t{1} << 30}, [&] {
        EXPECT_GE(stack_bytes_here() + 4096, std::size_t{1} << 30);
        EXPECT_EQ(use_stack(16 << 20), 1);
        weft::this_goroutine::yield();
        all.done();
      });
    }
    all.wait();
  });
}

// A size that is impossible is an error of the caller; the message names the size and the limit.
TEST_F(options, more_than_the_largest_stack_is_an_error_that_says_so) {
  weft::run([] {
    for (const std::size_t bytes : {std::size_t{1} << 40, (std::size_t{1} << 30) + 1, SIZE_MAX}) {
      try {
        weft::go({.stack_size = bytes}, [] { ADD_FAILURE() << "it was never started"; });
        ADD_FAILURE() << "nothing was thrown for " << bytes;
      } catch (const std::system_error& e) {
        const std::string what = e.what();
        EXPECT_NE(what.find(std::to_string(bytes)), std::string::npos) << what;
        EXPECT_NE(what.find("1 GiB"), std::string::npos) << what;
      }
    }
    EXPECT_EQ(weft::num_goroutine(), for_ever() + 1);
  });
}

// Stacks of all sizes come and go; a stack given back to the wrong place would soon be shared.
TEST_F(options, stacks_of_all_sizes_are_used_again) {
  weft::run([] {
    weft::wait_group all;
    std::atomic<int> good{0};
    constexpr int n = scaled(2'000, 300);
    for (int i = 0; i < n; ++i) {
      all.add(1);
      const std::size_t bytes = std::size_t{16} << 10 << (i % 8);
      weft::go({.stack_size = bytes}, [&, i] {
        volatile int mine[64];
        for (int& slot : const_cast<int(&)[64]>(mine)) slot = i;
        weft::this_goroutine::yield();
        bool same = true;
        for (const int& slot : const_cast<int(&)[64]>(mine)) same = same && slot == i;
        if (same) ++good;
        all.done();
      });
    }
    all.wait();
    EXPECT_EQ(good, n);
  });
}

// ----------------------------------------------------------------------------------------- yield

// With one processor no other goroutine gets a turn unless yield gives it.
TEST_F(yield, lets_others_run_on_a_single_processor) {
  weft::run([] {
    const procs_scope one(1);
    int turn = 0;
    bool done = false;
    weft::go([&] {
      for (int i = 0; i < 1000; ++i) {
        ++turn;
        weft::this_goroutine::yield();
      }
      done = true;
    });
    int seen = 0;
    while (!done) {
      const int before = turn;
      weft::this_goroutine::yield();
      if (turn != before) ++seen;
    }
    EXPECT_GT(seen, 500);
  });
}

// On a plain thread there is no goroutine to switch from; it must simply come back.
TEST_F(yield, comes_back_on_a_plain_thread_and_when_alone) {
  weft::this_goroutine::yield();
  weft::run([] {
    const procs_scope one(1);
    for (int i = 0; i < 1000; ++i) weft::this_goroutine::yield();
  });
}

// A crowd that only yields must not lose anyone, whatever queue each of them is in.
TEST_F(yield, a_crowd_of_yielders_all_finish) {
  weft::run([] {
    const procs_scope four(4);
    constexpr int n = 1000;
    constexpr int turns = scaled(200, 20);
    std::atomic<int> total{0};
    weft::wait_group all;
    for (int i = 0; i < n; ++i) {
      all.go([&] {
        for (int turn = 0; turn < turns; ++turn) {
          weft::this_goroutine::yield();
          total.fetch_add(1, std::memory_order_relaxed);  // read after wait()
        }
      });
    }
    all.wait();
    EXPECT_EQ(total, n * turns);
  });
}

// ------------------------------------------------------------------------------------- sleep_for

// "Nothing fires early": retry loops and rate limits rely on it.
TEST_F(sleeping, never_ends_early) {
  const auto look = [] {
    for (const auto d : {1us, 100us, 1000us, 5000us, 20000us}) {
      const auto start = std::chrono::steady_clock::now();
      weft::this_goroutine::sleep_for(d);
      EXPECT_GE(std::chrono::steady_clock::now() - start, d);
    }
  };
  look();
  weft::run(look);
}

// Many sleepers with different times, in heaps of several processors, all wake, none early.
TEST_F(sleeping, many_sleepers_all_wake_and_none_early) {
  weft::run([] {
    const procs_scope four(4);
    weft::wait_group all;
    std::atomic<int> early{0};
    constexpr int n = scaled(5'000, 500);
    for (int i = 0; i < n; ++i) {
      all.go([&, i] {
        const auto until =
            std::chrono::steady_clock::now() + std::chrono::microseconds(i * 7 % 50'000);
        weft::this_goroutine::sleep_until(until);
        if (std::chrono::steady_clock::now() < until) ++early;
      });
    }
    all.wait();
    EXPECT_EQ(early, 0);
  });
}

// Zero and the past are no sleep at all, not a very long one.
TEST_F(sleeping, zero_and_negative_return_at_once) {
  const auto look = [] {
    const auto start = std::chrono::steady_clock::now();
    weft::this_goroutine::sleep_for(0s);
    weft::this_goroutine::sleep_for(-1h);
    weft::this_goroutine::sleep_for(std::chrono::nanoseconds::min());
    weft::this_goroutine::sleep_for(std::chrono::hours::min());
    weft::this_goroutine::sleep_for(std::chrono::duration<double>(-1e300));
    weft::this_goroutine::sleep_for(std::chrono::duration<double>(0.0));
    weft::this_goroutine::sleep_until(std::chrono::steady_clock::time_point::min());
    weft::this_goroutine::sleep_until(std::chrono::steady_clock::now() - 1h);
    weft::this_goroutine::sleep_until(std::chrono::system_clock::time_point{});
    weft::this_goroutine::sleep_until(std::chrono::system_clock::now() - 1h);
    EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);
  };
  look();
  weft::run(look);
}

// "For ever" is written as the largest duration; added to now it must not wrap into the past.
TEST_F(sleeping, huge_durations_do_not_overflow) {
  static std::atomic<int> woke{0};  // the sleepers outlive the test
  constexpr int n = 8;
  weft::run([] {
    weft::go([&] {
      weft::this_goroutine::sleep_for(std::chrono::hours::max());
      ++woke;
    });
    weft::go([&] {
      weft::this_goroutine::sleep_for(std::chrono::nanoseconds::max());
      ++woke;
    });
    weft::go([&] {
      weft::this_goroutine::sleep_for(std::chrono::years(290));
      ++woke;
    });
    weft::go([&] {
      weft::this_goroutine::sleep_for(std::chrono::years(1'000'000));
      ++woke;
    });
    weft::go([&] {
      weft::this_goroutine::sleep_for(std::chrono::duration<double>(1e300));
      ++woke;
    });
    weft::go([&] {
      weft::this_goroutine::sleep_for(std::chrono::duration<long double, std::ratio<86400>>(1e30L));
      ++woke;
    });
    weft::go([&] {
      weft::this_goroutine::sleep_until(std::chrono::steady_clock::time_point::max());
      ++woke;
    });
    weft::go([&] {
      weft::this_goroutine::sleep_until(std::chrono::system_clock::time_point::max());
      ++woke;
    });
    EXPECT_TRUE(weft::test::until_waiting(for_ever() + n, weft::detail::wait_reason::sleep));
    // A goroutine that sleeps to the end of time must not keep a short sleeper from its turn.
    weft::this_goroutine::sleep_for(2ms);
    EXPECT_EQ(woke, 0);
  });
  stay_for_ever(n);  // nothing can wake them
}

// Any representation of a duration: fractions are rounded up, so that they too are never early.
TEST_F(sleeping, takes_any_representation) {
  weft::run([] {
    const auto start = std::chrono::steady_clock::now();
    weft::this_goroutine::sleep_for(std::chrono::duration<double>(0.0015));
    weft::this_goroutine::sleep_for(std::chrono::duration<float, std::milli>(1.5f));
    weft::this_goroutine::sleep_for(std::chrono::duration<unsigned, std::micro>(1500u));
    weft::this_goroutine::sleep_for(std::chrono::duration<double, std::nano>(0.25));
    EXPECT_GE(std::chrono::steady_clock::now() - start, 4500us);
  });
}

// A clock of one's own, that stands still for a while: sleep_until asks that clock, not ours.
struct slow_clock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<slow_clock>;
  static constexpr bool is_steady = true;
  static time_point now() {
    // Runs at half speed.
    return time_point(
        std::chrono::duration_cast<duration>((std::chrono::steady_clock::now() - start) / 2));
  }
  static inline const std::chrono::steady_clock::time_point start =
      std::chrono::steady_clock::now();
};

TEST_F(sleeping, until_asks_the_clock_of_its_time_point) {
  weft::run([] {
    const auto system = std::chrono::system_clock::now() + 5ms;
    weft::this_goroutine::sleep_until(system);
    EXPECT_GE(std::chrono::system_clock::now(), system);

    const auto steady = std::chrono::steady_clock::now() + 5ms;
    weft::this_goroutine::sleep_until(steady);
    EXPECT_GE(std::chrono::steady_clock::now(), steady);

    const auto slow = slow_clock::now() + 5ms;
    weft::this_goroutine::sleep_until(slow);
    EXPECT_GE(slow_clock::now(), slow);

    const auto coarse = std::chrono::ceil<std::chrono::seconds>(std::chrono::steady_clock::now());
    weft::this_goroutine::sleep_until(coarse);
    EXPECT_GE(std::chrono::steady_clock::now(), coarse);
  });
}

// A timer is armed on the processor where its goroutine went to sleep. If that processor then
// computes for long while another is idle, the idle one has to wake the sleeper.
TEST_F(sleeping, a_sleeper_wakes_while_its_processor_computes_and_another_is_idle) {
  const procs_scope two(2);
  weft::run([] {
    std::atomic<bool> woke{false};
    weft::go([&] {
      weft::this_goroutine::sleep_for(5ms);
      woke = true;
    });
    // Lets it go to sleep, on this processor or on the other, and then never enters the runtime.
    EXPECT_TRUE(weft::test::until_waiting(for_ever() + 1, weft::detail::wait_reason::sleep));
    const auto patience = std::chrono::steady_clock::now() + 10s;
    while (!woke && std::chrono::steady_clock::now() < patience) {
    }
    EXPECT_TRUE(woke);
    EXPECT_TRUE(eventually([&] { return woke.load(); }));
  });
}

// -------------------------------------------------------------------------------------- blocking

// blocking passes the result on as it is: a value, a reference, nothing, an exception.
TEST_F(blocking, delivers_what_the_function_delivers) {
  const auto look = [] {
    int x = 1;
    EXPECT_EQ(weft::blocking([] { return 5; }), 5);
    static_assert(std::is_same_v<decltype(weft::blocking([&]() -> int& { return x; })), int&>);
    static_assert(std::is_same_v<decltype(weft::blocking([] {})), void>);
    static_assert(std::is_same_v<decltype(weft::blocking([] { return std::unique_ptr<int>(); })),
                                 std::unique_ptr<int>>);
    EXPECT_EQ(&weft::blocking([&]() -> int& { return x; }), &x);
    EXPECT_EQ(*weft::blocking([] { return std::make_unique<int>(3); }), 3);
    EXPECT_THROW(weft::blocking([] { throw std::runtime_error("x"); }), std::runtime_error);
    EXPECT_EQ(weft::blocking(plain_function), 5);
  };
  look();  // on a plain thread it just calls
  weft::run(look);
}

// Inside, the goroutine is still itself and may use all of weft.
TEST_F(blocking, the_function_may_use_weft) {
  weft::run([] {
    weft::wait_group all;
    const auto id = weft::this_goroutine::id();
    weft::blocking([&] {
      EXPECT_EQ(weft::this_goroutine::id(), id);
      all.go([] {});
      all.wait();
      weft::blocking([&] { weft::this_goroutine::yield(); });
    });
    EXPECT_EQ(weft::this_goroutine::id(), id);
  });
}

// ------------------------------------------------------------------------------------------ exit

struct note {
  std::vector<int>* order;
  int number;
  ~note() { order->push_back(number); }
};

// Does not let the compiler know that it never returns.
[[gnu::noinline]] void leave() {
  static volatile bool really = true;
  if (really) weft::this_goroutine::exit();
}

[[gnu::noinline]] void exit_below(std::vector<int>* order, int depth) {
  const note n{order, depth};
  if (depth == 0) leave();
  if (depth > 0) exit_below(order, depth - 1);
  order->push_back(-1);  // never
}

// Locks and files are released by destructors; exit must run all of them, innermost first.
TEST_F(goroutine_exit, runs_every_destructor_innermost_first) {
  weft::run([] {
    weft::wait_group all;
    std::vector<int> order;
    all.go([&] {
      const note outer{&order, 100};
      exit_below(&order, 5);
    });
    all.wait();
    EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5, 100}));
  });
}

// A catch (...) that rethrows is passed, as with pthread_exit; typed handlers are not entered.
TEST_F(goroutine_exit, passes_through_handlers_that_rethrow) {
  weft::run([] {
    weft::wait_group all;
    std::atomic<int> all_handlers{0};
    std::atomic<int> typed_handlers{0};
    all.go([&] {
      try {
        try {
          try {
            weft::this_goroutine::exit();
          } catch (const std::exception&) {
            ++typed_handlers;
          } catch (int) {
            ++typed_handlers;
          }
        } catch (...) {
          ++all_handlers;
          weft::this_goroutine::yield();  // a handler may wait before it rethrows
          throw;
        }
      } catch (...) {
        ++all_handlers;
        throw;
      }
      ADD_FAILURE() << "exit returned";
    });
    all.wait();
    EXPECT_EQ(all_handlers, 2);
    EXPECT_EQ(typed_handlers, 0);
  });
}

// Ending while an exception is being handled must drop that exception, and not confuse the next
// goroutine on the same stack.
TEST_F(goroutine_exit, inside_a_handler_releases_the_exception) {
  struct held_by_exception {
    std::shared_ptr<int> held;
  };
  weft::run([] {
    const procs_scope one(1);
    weft::wait_group all;
    auto held = std::make_shared<int>(1);
    for (int i = 0; i < 10; ++i) {
      all.go([&] {
        try {
          throw held_by_exception{held};
        } catch (const held_by_exception&) {
          weft::this_goroutine::exit();
        }
      });
      all.go([] {
        EXPECT_EQ(std::uncaught_exceptions(), 0);
        EXPECT_EQ(std::current_exception(), nullptr);
      });
    }
    all.wait();
    EXPECT_EQ(held.use_count(), 1);
  });
}

struct waits_when_destroyed {
  std::atomic<int>* count;
  ~waits_when_destroyed() {
    weft::this_goroutine::yield();
    weft::this_goroutine::sleep_for(std::chrono::microseconds(100));
    ++*count;
  }
};

// Destructors that run during exit may wait like any code, also on a lock that another goroutine
// holds.
TEST_F(goroutine_exit, destructors_may_wait) {
  weft::run([] {
    const procs_scope four(4);
    weft::wait_group all;
    std::atomic<int> count{0};
    constexpr int n = scaled(500, 50);
    for (int i = 0; i < n; ++i) {
      all.go([&] {
        const waits_when_destroyed outer{&count};
        const waits_when_destroyed inner{&count};
        weft::this_goroutine::exit();
      });
    }
    all.wait();
    EXPECT_EQ(count, 2 * n);
  });
}

// A stack whose goroutine was unwound is used again at once; nothing of it may be left over.
TEST_F(goroutine_exit, thousands_in_a_row_leave_nothing_behind) {
  weft::run([] {
    weft::wait_group all;
    auto held = std::make_shared<int>(1);
    constexpr int n = scaled(20'000, 1'000);
    for (int i = 0; i < n; ++i) {
      all.go([held, i] {
        const auto deep = [&](auto&& self, int depth) -> void {
          const auto copy = held;
          if (depth == 0) leave();
          if (depth > 0) self(self, depth - 1);
        };
        deep(deep, i % 20);
      });
    }
    all.wait();
    EXPECT_EQ(held.use_count(), 1);
  });
}

// On a plain thread there is nothing to end but the program.
TEST_F(goroutine_exit, on_a_plain_thread_is_a_logic_error) {
  EXPECT_THROW(weft::this_goroutine::exit(), std::logic_error);
  std::thread([] { EXPECT_THROW(weft::this_goroutine::exit(), std::logic_error); }).join();
}

// An exception between two exits, on the same stack, must still find its handler.
TEST_F(goroutine_exit, exceptions_work_as_before_afterwards) {
  weft::run([] {
    const procs_scope one(1);
    weft::wait_group all;
    std::atomic<int> caught{0};
    for (int i = 0; i < 100; ++i) {
      all.go([] { weft::this_goroutine::exit(); });
      all.go([&] {
        try {
          throw std::runtime_error("x");
        } catch (const std::runtime_error&) {
          ++caught;
        }
      });
    }
    all.wait();
    EXPECT_EQ(caught, 100);
  });
}

}  // namespace
