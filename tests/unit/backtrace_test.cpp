// backtrace_test.cpp: return addresses of one's own stack, of parked ones and of interrupted ones.

#include "base/backtrace.hpp"

#include "support/bare_fiber.hpp"

#include <gtest/gtest.h>

#include <cxxabi.h>
#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>
#include <unwind.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using weft::base::capture;
using weft::base::capture_from;
using weft::base::capture_interrupted;
using weft::base::frame_of;
using weft::base::long_stack;
using weft::base::saved_frame;
using weft::test::bare_fiber;

// Keeps the compiler from merging functions and from turning calls into jumps.
volatile int after_call = 0;

// Where the functions start to which the addresses belong.
std::vector<void*> functions_of(void* const* pcs, std::size_t n) {
  std::vector<void*> functions;
  for (std::size_t i = 0; i < n; ++i) functions.push_back(_Unwind_FindEnclosingFunction(pcs[i]));
  return functions;
}

template <class F>
void* start_of(F* function) {
  return reinterpret_cast<void*>(function);
}

// The wanted ones must all appear, in this order; others may stand between them.
testing::AssertionResult in_order(const std::vector<void*>& all, const std::vector<void*>& wanted) {
  auto at = all.begin();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    at = std::find(at, all.end(), wanted[i]);
    if (at == all.end()) {
      return testing::AssertionFailure() << "function " << i << " not among " << all.size();
    }
    ++at;
  }
  return testing::AssertionSuccess();
}

struct captured {
  void* pcs[32];
  std::size_t n = 0;
};

[[gnu::noinline]] void own_inner(captured& c, std::size_t skip) {
  c.n = capture(c.pcs, 32, skip);
  after_call = 1;
}
[[gnu::noinline]] void own_middle(captured& c, std::size_t skip) {
  own_inner(c, skip);
  after_call = 2;
}
[[gnu::noinline]] void own_outer(captured& c, std::size_t skip) {
  own_middle(c, skip);
  after_call = 3;
}

// Everything that prints a stack relies on this order and on where it starts.
TEST(backtrace, capture_starts_with_the_caller_and_goes_outwards) {
  captured c;
  own_outer(c, 0);
  const auto f = functions_of(c.pcs, c.n);
  ASSERT_GE(f.size(), 4u);
  EXPECT_EQ(f[0], start_of(&own_inner));
  EXPECT_EQ(f[1], start_of(&own_middle));
  EXPECT_EQ(f[2], start_of(&own_outer));
}

// The runtime leaves its own innermost frames out by number; one off shows a wrong function.
TEST(backtrace, skip_leaves_out_the_innermost_frames) {
  captured all;
  captured some;
  own_outer(all, 0);
  own_outer(some, 2);
  ASSERT_EQ(some.n + 2, all.n);
  EXPECT_EQ(functions_of(some.pcs, some.n)[0], start_of(&own_outer));
}

[[gnu::noinline]] void park_inner() {
  bare_fiber::suspend();
  after_call = 1;
}
[[gnu::noinline]] void park_outer(const int* depth) {
  if (*depth > 0) {
    const int less = *depth - 1;
    park_outer(&less);
  } else {
    park_inner();
  }
  after_call = 2;
}
void park(void* depth) {
  bare_fiber::started();
  park_outer(static_cast<const int*>(depth));
  bare_fiber::leave();
}

// A dump shows what every waiting goroutine waits in: the stack must be walked to its very end, and
// end there.
TEST(backtrace, a_parked_stack_shows_its_frames_up_to_the_entry) {
  int depth = 0;
  bare_fiber fiber(&park, &depth);
  fiber.resume();
  void* pcs[32];
  const std::size_t n = capture_from(fiber.parked_at(), pcs, 32);
  const auto f = functions_of(pcs, n);
  EXPECT_TRUE(in_order(f, {start_of(&park_inner), start_of(&park_outer), start_of(&park),
                           start_of(&weft_goroutine_entry)}));
  EXPECT_EQ(f.back(), start_of(&weft_goroutine_entry));
  fiber.resume();
}

// A goroutine that has not run yet stands before the first instruction of its entry. Looked up like
// a return address, that would belong to whatever precedes the entry.
TEST(backtrace, a_context_that_never_ran_shows_its_entry_and_nothing_else) {
  int depth = 0;
  bare_fiber fiber(&park, &depth);
  void* pcs[32];
  const std::size_t n = capture_from(fiber.parked_at(), pcs, 32);
  ASSERT_EQ(n, 1u);
  EXPECT_EQ(pcs[0], static_cast<char*>(start_of(&weft_goroutine_entry)) + 1);
  EXPECT_EQ(functions_of(pcs, n)[0], start_of(&weft_goroutine_entry));
}

// The owner of the stack may be resumed right after; a byte written there would be its corruption.
TEST(backtrace, walking_a_parked_stack_writes_nothing_to_it) {
  int depth = 10;
  bare_fiber fiber(&park, &depth);
  fiber.resume();
  const auto size = static_cast<std::size_t>(fiber.stack_end() - fiber.stack_begin());
  std::vector<unsigned char> before(size);
  // Byte by byte, because part of the stack is off limits to instrumented code.
  const auto copy = [&](std::vector<unsigned char>& to) __attribute__((no_sanitize("address"))) {
    const volatile auto* from =
        reinterpret_cast<const volatile unsigned char*>(fiber.stack_begin());
    unsigned char* const data = to.data();
    for (std::size_t i = 0; i < size; ++i) data[i] = from[i];
  };
  copy(before);
  void* pcs[64];
  EXPECT_GT(capture_from(fiber.parked_at(), pcs, 64), 10u);
  std::vector<unsigned char> after(size);
  copy(after);
  EXPECT_TRUE(before == after);
  fiber.resume();
}

// The monitor and the dump look at stacks from other threads than those that will resume them.
TEST(backtrace, any_thread_may_walk_a_parked_stack) {
  int depth = 3;
  bare_fiber fiber(&park, &depth);
  fiber.resume();
  const saved_frame at = fiber.parked_at();
  void* here[32];
  void* there[32];
  const std::size_t n = capture_from(at, here, 32);
  std::size_t m = 0;
  std::thread([&] { m = capture_from(at, there, 32); }).join();
  ASSERT_EQ(n, m);
  EXPECT_TRUE(std::equal(here, here + n, there));
  fiber.resume();
}

// A goroutine caught in endless recursion has more frames than can be kept.
TEST(backtrace, a_deep_parked_stack_is_cut_at_max) {
  int depth = 10'000;
  bare_fiber fiber(&park, &depth, std::size_t{16} << 20);
  fiber.resume();
  const saved_frame at = fiber.parked_at();

  void* pcs[101];
  void* const untouched = &depth;
  pcs[100] = untouched;
  ASSERT_EQ(capture_from(at, pcs, 100), 100u);
  EXPECT_EQ(pcs[100], untouched);
  EXPECT_EQ(functions_of(pcs, 100)[99], start_of(&park_outer));
  EXPECT_EQ(capture_from(at, pcs, 0), 0u);

  std::vector<void*> all(20'000);
  const std::size_t n = capture_from(at, all.data(), all.size());
  EXPECT_GT(n, 10'000u);
  EXPECT_LT(n, 10'010u);
  EXPECT_EQ(functions_of(all.data(), n).back(), start_of(&weft_goroutine_entry));
  fiber.resume();
}

// A zeroed context is what a record holds before its goroutine has one.
TEST(backtrace, a_context_without_a_program_counter_has_no_frames) {
  void* pcs[4];
  EXPECT_EQ(capture_from(saved_frame{}, pcs, 4), 0u);
}

// Everything below runs a handler on an alternate stack and leaves it by siglongjmp.
sigjmp_buf resume_point;
captured interrupted;     // by capture_interrupted
captured from_registers;  // by capture_from(frame_of())
long_stack interrupted_ends;

void capture_in_handler(int, siginfo_t*, void* ucontext) {
  interrupted.n = capture_interrupted(ucontext, interrupted.pcs, 32);
  from_registers.n = capture_from(frame_of(ucontext), from_registers.pcs, 32);
  capture_interrupted(ucontext, interrupted_ends);
  bare_fiber::before_jump_back();
  siglongjmp(resume_point, 1);
}

class backtrace_of_signal : public testing::Test {
 protected:
  backtrace_of_signal() : stack_(256 * 1024) {
    const stack_t alternate = {.ss_sp = stack_.data(), .ss_flags = 0, .ss_size = stack_.size()};
    sigaltstack(&alternate, &old_stack_);
    struct sigaction action = {};
    action.sa_sigaction = &capture_in_handler;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (std::size_t i = 0; i < std::size(signals); ++i) {
      sigaction(signals[i], &action, &old_[i]);
    }
    interrupted.n = from_registers.n = interrupted_ends.total = 0;
  }
  ~backtrace_of_signal() override {
    for (std::size_t i = 0; i < std::size(signals); ++i) sigaction(signals[i], &old_[i], nullptr);
    sigaltstack(&old_stack_, nullptr);
  }

  static constexpr int signals[] = {SIGSEGV, SIGBUS};
  std::vector<char> stack_;
  stack_t old_stack_ = {};
  struct sigaction old_[std::size(signals)] = {};
};

// Not __builtin_trap(), which compilers move out of the function, away from the hot code.
int* volatile no_address = nullptr;
[[gnu::noinline]] __attribute__((no_sanitize("null", "address", "thread"))) void trapping_leaf() {
  int* const p = no_address;
  *static_cast<volatile int*>(p) = 1;
}
[[gnu::noinline]] void trapping_caller() {
  trapping_leaf();
  after_call = 2;
}
[[gnu::noinline]] void trap() {
  if (sigsetjmp(resume_point, 1) == 0) trapping_caller();
  after_call = 3;
}

// A report about a crash must name the function that crashed, not its handler, nor the function
// before it in memory.
TEST_F(backtrace_of_signal, starts_with_the_interrupted_function) {
  trap();
  const auto f = functions_of(interrupted.pcs, interrupted.n);
  ASSERT_GE(f.size(), 3u);
  EXPECT_EQ(f[0], start_of(&trapping_leaf));
  EXPECT_EQ(f[1], start_of(&trapping_caller));
  EXPECT_EQ(f[2], start_of(&trap));
}

// A thread that looks at one paused in a handler has only the registers. A leaf function may have
// its return address in one of them.
TEST_F(backtrace_of_signal, the_saved_registers_alone_give_the_same_frames) {
  trap();
  ASSERT_GE(interrupted.n, 3u);
  ASSERT_EQ(from_registers.n, interrupted.n);
  EXPECT_TRUE(std::equal(interrupted.pcs, interrupted.pcs + interrupted.n, from_registers.pcs));
}

[[gnu::noinline]] void capture_from_no_handler() {
  ucontext_t here;
  getcontext(&here);
  interrupted.n = capture_interrupted(&here, interrupted.pcs, 32);
  capture_interrupted(&here, interrupted_ends);
  after_call = 1;
}

// A handler installed with a trampoline that the unwinder does not know is cut off from the code it
// interrupted. The saved registers are all there is then.
TEST_F(backtrace_of_signal, does_without_the_frames_of_the_handler_if_they_lead_nowhere) {
  capture_from_no_handler();
  ASSERT_GE(interrupted.n, 2u);
  ASSERT_EQ(interrupted_ends.total, interrupted.n);
  const auto f = functions_of(interrupted.pcs, interrupted.n);
  EXPECT_EQ(f[0], start_of(&capture_from_no_handler));
  EXPECT_EQ(functions_of(interrupted_ends.inner, 2), (std::vector<void*>{f[0], f[1]}));
}

[[gnu::noinline]] void trap_at_depth(const int* depth) {
  if (*depth > 0) {
    const int less = *depth - 1;
    trap_at_depth(&less);
  } else {
    trapping_caller();
  }
  after_call = 2;
}
[[gnu::noinline]] void trap_on_fiber(void* depth) {
  bare_fiber::started();
  if (sigsetjmp(resume_point, 1) == 0) trap_at_depth(static_cast<const int*>(depth));
  bare_fiber::leave();
}

// Of a stack too deep to keep, both ends are shown; a frame lost or shown twice where they meet
// would mislead.
TEST_F(backtrace_of_signal, both_ends_of_a_stack_fit_together_at_every_depth) {
  constexpr std::size_t end = long_stack::end_size;
  std::size_t shallowest = 0;
  for (int depth : {0, 1, 20, 30, 50, 61, 62, 63, 64, 65, 66, 120, 124, 126, 128, 130, 1000}) {
    bare_fiber fiber(&trap_on_fiber, &depth, std::size_t{4} << 20);
    fiber.resume();
    const long_stack& s = interrupted_ends;
    if (depth == 0) shallowest = s.total;
    ASSERT_EQ(s.total, shallowest + static_cast<std::size_t>(depth));
    ASSERT_EQ(s.outer_size, s.total <= end ? 0 : std::min(end, s.total - end));

    const auto inner = functions_of(s.inner, std::min(s.total, end));
    const auto outer = functions_of(s.outer, s.outer_size);
    EXPECT_EQ(inner[0], start_of(&trapping_leaf));
    const auto& last = outer.empty() ? inner : outer;
    EXPECT_EQ(last.back(), start_of(&weft_goroutine_entry));
    if (last.size() > 1) {
      EXPECT_EQ(last[last.size() - 2], start_of(&trap_on_fiber));
    }
  }
}

volatile int recursion_end = 0;
[[gnu::noinline]] int recurse_for_ever(volatile int* outer_level) {
  volatile int level = *outer_level + 1;
  if (recursion_end != 0) return level;
  return recurse_for_ever(&level) + level;
}
[[gnu::noinline]] void overflow(void*) {
  bare_fiber::started();
  volatile int level = 0;
  if (sigsetjmp(resume_point, 1) == 0) recurse_for_ever(&level);
  bare_fiber::leave();
}

// At an overflow there is no stack left to run on, and the instruction that failed may be any, a
// push in the middle of a prologue included.
TEST_F(backtrace_of_signal, a_stack_overflow_shows_the_recursion_and_who_started_it) {
  bare_fiber fiber(&overflow, nullptr, 256 * 1024);
  fiber.resume();
  ASSERT_GT(interrupted_ends.total, 2 * long_stack::end_size);
  const auto inner = functions_of(interrupted_ends.inner, long_stack::end_size);
  EXPECT_GE(std::count(inner.begin(), inner.end(), start_of(&recurse_for_ever)), 60);
  const auto outer = functions_of(interrupted_ends.outer, interrupted_ends.outer_size);
  ASSERT_EQ(outer.size(), long_stack::end_size);
  EXPECT_TRUE(in_order(
      outer, {start_of(&recurse_for_ever), start_of(&overflow), start_of(&weft_goroutine_entry)}));
}

std::string describe() {
  weft::base::text t;
  return weft::base::describe_exception(t) ? std::string(t.view())
                                           : "none: " + std::string(t.view());
}

struct own_error : std::logic_error {
  using std::logic_error::logic_error;
};

// The first line of a death by exception.
TEST(describe_exception, gives_type_and_message) {
  try {
    throw std::runtime_error("boom");
  } catch (...) {
    EXPECT_EQ(describe(), "std::runtime_error: boom");
    EXPECT_EQ(describe(), "std::runtime_error: boom") << "describing changed it";
  }
  try {
    throw own_error("mine");
  } catch (const std::exception&) {
    EXPECT_EQ(describe(), "(anonymous namespace)::own_error: mine");
  }
  EXPECT_EQ(std::current_exception(), nullptr);
}

// Anything can be thrown.
TEST(describe_exception, gives_the_type_alone_if_there_is_no_message) {
  try {
    throw 42;
  } catch (...) {
    EXPECT_EQ(describe(), "int");
  }
  try {
    throw "text";
  } catch (...) {
    EXPECT_EQ(describe(), "char const*");
  }
  try {
    throw std::runtime_error("");
  } catch (...) {
    EXPECT_EQ(describe(), "std::runtime_error");
  }
}

// The report may be about something that is no exception at all.
TEST(describe_exception, says_that_there_is_none) { EXPECT_EQ(describe(), "none: "); }

// The innermost of nested handlers is the one that counts.
TEST(describe_exception, takes_the_one_handled_last) {
  try {
    throw 1;
  } catch (...) {
    try {
      throw std::out_of_range("inner");
    } catch (...) {
      EXPECT_EQ(describe(), "std::out_of_range: inner");
    }
    EXPECT_EQ(describe(), "int");
  }
}

// Whose memory holds no C++ type where ours would.
TEST(describe_exception, knows_exceptions_of_other_languages) {
  static _Unwind_Exception foreign;
  foreign.exception_class = 0x54455354'4c414e47;
  try {
    _Unwind_RaiseException(&foreign);
  } catch (...) {
    EXPECT_EQ(describe(), "an exception of another language");
  }
}

}  // namespace
