// switch_state_test.cpp: what a goroutine keeps over a switch and takes along to another thread:
// C++ exceptions, errno, the floating-point control words; and what a new one finds.
//
// Everything thread-local is looked at through functions that are not inlined, because a compiler
// may keep the address of a thread_local over a call that changes the thread.
#include "runtime_fixture.hpp"
#include "thread_hop.hpp"

#include <weft/weft.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cfenv>
#include <cfloat>
#include <cstdint>
#include <exception>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace {

using weft::test::hop_to_another_thread;
using weft::test::procs_scope;
using weft::test::runtime_test;
using weft::test::scaled;
using weft::test::thread_id;

class exceptions : public runtime_test {};
class errno_value : public runtime_test {};
class floating_point : public runtime_test {};

// ------------------------------------------------------------------------------------ exceptions

struct numbered : std::runtime_error {
  explicit numbered(int n) : std::runtime_error("number " + std::to_string(n)), number(n) {}
  int number;
};

// Two goroutines in catch blocks on one thread: each must rethrow its own exception.
TEST_F(exceptions, a_goroutine_that_yields_in_a_handler_keeps_its_exception) {
  weft::run([] {
    for (const int procs : {1, 4}) {
      const procs_scope scope(procs);
      weft::wait_group all;
      for (int i = 0; i < 100; ++i) {
        all.go([i] {
          for (int turn = 0; turn < scaled(20, 4); ++turn) {
            try {
              try {
                throw numbered(i);
              } catch (const numbered& e) {
                weft::this_goroutine::yield();
                ASSERT_EQ(e.number, i);
                weft::this_goroutine::yield();
                throw;
              }
            } catch (const numbered& e) {
              ASSERT_EQ(e.number, i);
            }
          }
        });
      }
      all.wait();
    }
  });
}

// Handlers inside handlers: the stack of caught exceptions is the goroutine's, to any depth.
TEST_F(exceptions, nested_handlers_are_kept_to_any_depth) {
  struct nest {
    static void down(int id, int depth) {
      if (depth == 0) return;
      try {
        throw numbered(id * 100 + depth);
      } catch (const numbered& e) {
        weft::this_goroutine::yield();
        down(id, depth - 1);
        weft::this_goroutine::yield();
        ASSERT_EQ(e.number, id * 100 + depth);
        try {
          throw;
        } catch (const numbered& again) {
          ASSERT_EQ(again.number, id * 100 + depth);
          ASSERT_EQ(&again, &e);
        }
      }
    }
  };
  weft::run([] {
    for (const int procs : {1, 4}) {
      const procs_scope scope(procs);
      weft::wait_group all;
      for (int i = 0; i < 20; ++i) all.go([i] { nest::down(i, 10); });
      all.wait();
    }
  });
}

// A throw; after a move to another thread finds the exception there.
TEST_F(exceptions, are_rethrown_on_another_thread) {
  weft::run([] {
    const procs_scope one(1);
    try {
      try {
        throw numbered(1);
      } catch (const numbered&) {
        const pid_t before = thread_id();
        hop_to_another_thread();
        EXPECT_NE(thread_id(), before);
        EXPECT_NE(std::current_exception(), nullptr);
        throw;
      }
    } catch (const numbered& e) {
      EXPECT_EQ(e.number, 1);
    }
    EXPECT_EQ(std::current_exception(), nullptr);
  });
}

[[gnu::noinline]] int uncaught() { return std::uncaught_exceptions(); }

struct yields_when_destroyed {
  std::atomic<int>* wrong;
  int expected;
  ~yields_when_destroyed() {
    if (uncaught() != expected) ++*wrong;
    weft::this_goroutine::yield();
    if (uncaught() != expected) ++*wrong;
    hop_to_another_thread();
    if (uncaught() != expected) ++*wrong;
  }
};

// uncaught_exceptions tells scope guards whether to roll back: it is the goroutine's own number.
TEST_F(exceptions, a_destructor_that_yields_while_unwinding_sees_its_own_count) {
  weft::run([] {
    const procs_scope one(1);
    std::atomic<int> wrong{0};
    weft::wait_group all;
    for (int i = 0; i < 10; ++i) {
      all.go([&] {
        try {
          const yields_when_destroyed d{&wrong, 1};
          throw numbered(1);
        } catch (const numbered&) {
          if (uncaught() != 0) ++wrong;
        }
        if (uncaught() != 0) ++wrong;
      });
      all.go([&] {
        for (int turn = 0; turn < 20; ++turn) {
          if (uncaught() != 0) ++wrong;
          weft::this_goroutine::yield();
        }
        const yields_when_destroyed d{&wrong, 0};
      });
    }
    all.wait();
    EXPECT_EQ(wrong, 0);
  });
}

// A new goroutine, on the stack of one that is in the middle of handling, starts with a clean
// slate.
TEST_F(exceptions, a_new_goroutine_has_none) {
  weft::run([] {
    const procs_scope one(1);
    weft::wait_group all;
    try {
      throw numbered(1);
    } catch (const numbered&) {
      for (int i = 0; i < 5; ++i) {
        all.go([] {
          EXPECT_EQ(std::current_exception(), nullptr);
          EXPECT_EQ(uncaught(), 0);
        });
      }
      all.wait();
      EXPECT_NE(std::current_exception(), nullptr);
    }
  });
}

// An exception_ptr may be thrown in one goroutine and rethrown in another, at the same time.
TEST_F(exceptions, pointers_travel_between_goroutines) {
  weft::run([] {
    const procs_scope four(4);
    std::exception_ptr kept;
    weft::wait_group first;
    first.go([&] {
      try {
        throw numbered(5);
      } catch (...) {
        kept = std::current_exception();
      }
    });
    first.wait();
    weft::wait_group all;
    std::atomic<int> good{0};
    for (int i = 0; i < 50; ++i) {
      all.go([&] {
        try {
          std::rethrow_exception(kept);
        } catch (const numbered& e) {
          weft::this_goroutine::yield();
          if (e.number == 5) ++good;
        }
      });
    }
    all.wait();
    EXPECT_EQ(good, 50);
  });
}

// ----------------------------------------------------------------------------------------- errno

[[gnu::noinline]] void set_errno(int n) {
  errno = n;
  asm volatile("" ::: "memory");
}
[[gnu::noinline]] int get_errno() {
  asm volatile("" ::: "memory");
  return errno;
}

// Between a failed call and the look at errno there may be a yield, in a logging function say.
TEST_F(errno_value, survives_yields_parks_and_sleeps) {
  weft::run([] {
    for (const int procs : {1, 4}) {
      const procs_scope scope(procs);
      weft::wait_group all;
      weft::wait_group gate;
      gate.add(1);
      for (int i = 1; i <= 50; ++i) {
        all.go([&, i] {
          set_errno(i);
          weft::this_goroutine::yield();
          ASSERT_EQ(get_errno(), i);
          weft::this_goroutine::sleep_for(std::chrono::microseconds(50));
          ASSERT_EQ(get_errno(), i);
          gate.wait();
          ASSERT_EQ(get_errno(), i);
          weft::go([] { set_errno(-1); });
          weft::this_goroutine::yield();
          ASSERT_EQ(get_errno(), i);
        });
      }
      EXPECT_TRUE(weft::test::until_waiting(50, weft::detail::wait_reason::wait_group));
      gate.done();
      all.wait();
    }
  });
}

// It is the thread's variable, so it has to be carried over.
TEST_F(errno_value, goes_along_to_another_thread) {
  weft::run([] {
    const procs_scope one(1);
    for (int i = 1; i <= 20; ++i) {
      set_errno(i);
      hop_to_another_thread();
      ASSERT_EQ(get_errno(), i);
    }
  });
}

// The runtime makes system calls of its own inside go, yield and max_procs.
TEST_F(errno_value, is_left_alone_by_the_runtime) {
  const auto look = [] {
    set_errno(77);
    weft::wait_group all;
    for (int i = 0; i < 2'000; ++i) {
      weft::go([&all] { all.done(); });
      all.add(1);
    }
    EXPECT_EQ(get_errno(), 77);
    all.wait();
    EXPECT_EQ(get_errno(), 77);
    (void)weft::max_procs();
    (void)weft::num_goroutine();
    weft::go({.stack_size = 1 << 20}, [] {});
    EXPECT_EQ(get_errno(), 77);
    const int procs = weft::max_procs(8);
    weft::max_procs(procs);
    EXPECT_EQ(get_errno(), 77);
    weft::this_goroutine::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(get_errno(), 77);
  };
  weft::run(look);
}

// -------------------------------------------------------------------------------- floating point

volatile double one = 1.0;
volatile double three = 3.0;
volatile long double one_long = 1.0L;
volatile long double three_long = 3.0L;

[[gnu::noinline]] double third() { return one / three; }
[[gnu::noinline]] long double third_long() { return one_long / three_long; }

struct thirds {
  double up, down, nearest;
  long double up_long, down_long, nearest_long;
};

thirds all_thirds() {
  thirds t{};
  std::fesetround(FE_UPWARD);
  t.up = third();
  t.up_long = third_long();
  std::fesetround(FE_DOWNWARD);
  t.down = third();
  t.down_long = third_long();
  std::fesetround(FE_TONEAREST);
  t.nearest = third();
  t.nearest_long = third_long();
  return t;
}

// Interval arithmetic sets the rounding mode and calls other code; the mode is the goroutine's own.
TEST_F(floating_point, the_rounding_mode_belongs_to_the_goroutine) {
  const thirds expected = all_thirds();
  ASSERT_NE(expected.up, expected.down);
  weft::run([&] {
    for (const int procs : {1, 4}) {
      const procs_scope scope(procs);
      weft::wait_group all;
      for (int i = 0; i < 60; ++i) {
        all.go([&, i] {
          EXPECT_EQ(std::fegetround(), FE_TONEAREST);
          const int mode = i % 3 == 0 ? FE_UPWARD : i % 3 == 1 ? FE_DOWNWARD : FE_TONEAREST;
          std::fesetround(mode);
          for (int turn = 0; turn < 20; ++turn) {
            weft::this_goroutine::yield();
            ASSERT_EQ(std::fegetround(), mode);
            ASSERT_EQ(third(), i % 3 == 0   ? expected.up
                               : i % 3 == 1 ? expected.down
                                            : expected.nearest);
            ASSERT_EQ(third_long(), i % 3 == 0   ? expected.up_long
                                    : i % 3 == 1 ? expected.down_long
                                                 : expected.nearest_long);
          }
        });
      }
      all.wait();
    }
  });
}

// It goes along to another thread, whose own mode is another.
TEST_F(floating_point, the_rounding_mode_goes_along_to_another_thread) {
  const thirds expected = all_thirds();
  weft::run([&] {
    const procs_scope scope(1);
    std::fesetround(FE_UPWARD);
    for (int i = 0; i < 5; ++i) {
      hop_to_another_thread();
      ASSERT_EQ(std::fegetround(), FE_UPWARD);
      ASSERT_EQ(third(), expected.up);
      ASSERT_EQ(third_long(), expected.up_long);
    }
    // And the thread it came to is as it was for the next one.
    weft::wait_group all;
    all.go([&] { EXPECT_EQ(third(), expected.nearest); });
    all.wait();
    std::fesetround(FE_TONEAREST);
  });
}

// One goroutine in six leaves the mode changed when it ends, and the next one runs on its very
// stack without a switch between them.
TEST_F(floating_point, a_new_goroutine_starts_with_the_default_on_the_same_stack) {
  const thirds expected = all_thirds();
  weft::run([&] {
    const procs_scope scope(1);
    weft::wait_group all;
    constexpr int goroutines = 60;
    std::vector<std::uintptr_t> frames(goroutines);
    std::atomic<std::size_t> begun{0};  // one that loses its processor runs beside the next
    for (int i = 0; i < goroutines; ++i) {
      all.go([&, i] {
        frames[begun++] = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
        EXPECT_EQ(std::fegetround(), FE_TONEAREST);
        EXPECT_EQ(third(), expected.nearest);
        EXPECT_EQ(third_long(), expected.nearest_long);
        std::fesetround(i % 2 == 0 ? FE_UPWARD : FE_TOWARDZERO);
        if (i % 3 == 0) weft::this_goroutine::exit();
      });
    }
    all.wait();
    // Otherwise this test would prove nothing. One that the kernel kept waiting may have lost its
    // processor to another thread, whose goroutines have another stack.
    std::size_t on_the_same = 0;
    for (std::size_t i = 1; i < frames.size(); ++i) {
      const auto [low, high] = std::minmax(frames[i - 1], frames[i]);
      if (high - low < std::uintptr_t{64} << 10) ++on_the_same;
    }
    EXPECT_GE(on_the_same, frames.size() / 2);
  });
}

// The thread that first used weft may have had a mode of its own; what a goroutine changes must not
// come back to plain threads.
TEST_F(floating_point, plain_threads_are_not_affected) {
  std::fesetround(FE_DOWNWARD);
  weft::run([] { std::fesetround(FE_UPWARD); });
  EXPECT_EQ(std::fegetround(), FE_DOWNWARD);
  std::fesetround(FE_TONEAREST);
}

#if defined(__x86_64__)

constexpr unsigned flush_to_zero = 0x8000;
constexpr unsigned denormals_are_zero = 0x0040;
volatile float tiny = std::numeric_limits<float>::min();
volatile float half = 0.5f;

[[gnu::noinline]] float below_normal() { return tiny * half; }

// Audio and graphics code sets FTZ and DAZ by intrinsics that <cfenv> knows nothing of.
TEST_F(floating_point, flush_to_zero_and_denormals_are_zero_belong_to_the_goroutine) {
  weft::run([] {
    for (const int procs : {1, 4}) {
      const procs_scope scope(procs);
      weft::wait_group all;
      for (int i = 0; i < 40; ++i) {
        all.go([i] {
          EXPECT_EQ(_mm_getcsr() & (flush_to_zero | denormals_are_zero), 0u);
          EXPECT_NE(below_normal(), 0.0f);
          if (i % 2 == 0) _mm_setcsr(_mm_getcsr() | flush_to_zero | denormals_are_zero);
          for (int turn = 0; turn < 20; ++turn) {
            weft::this_goroutine::yield();
            ASSERT_EQ(below_normal() == 0.0f, i % 2 == 0);
          }
          if (i % 4 == 0) weft::test::hop_to_another_thread();
          ASSERT_EQ(below_normal() == 0.0f, i % 2 == 0);
        });
      }
      all.wait();
    }
  });
}

std::uint16_t x87_control() {
  std::uint16_t word = 0;
  asm volatile("fnstcw %0" : "=m"(word));
  return word;
}
void set_x87_control(std::uint16_t word) { asm volatile("fldcw %0" : : "m"(word)); }

// The precision control of the x87 unit is in no other register.
TEST_F(floating_point, the_x87_control_word_belongs_to_the_goroutine) {
  weft::run([] {
    const procs_scope scope(1);
    const std::uint16_t normal = x87_control();
    const auto single = static_cast<std::uint16_t>(normal & ~0x300);  // 24 bits of mantissa
    weft::wait_group all;
    for (int i = 0; i < 20; ++i) {
      all.go([=] {
        ASSERT_EQ(x87_control(), normal);
        if (i % 2 == 0) set_x87_control(single);
        weft::this_goroutine::yield();
        ASSERT_EQ(x87_control(), i % 2 == 0 ? single : normal);
        hop_to_another_thread();
        ASSERT_EQ(x87_control(), i % 2 == 0 ? single : normal);
      });
    }
    all.wait();
    EXPECT_EQ(x87_control(), normal);
  });
}

#endif

}  // namespace
