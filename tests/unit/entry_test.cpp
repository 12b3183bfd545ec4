// entry_test.cpp: the outermost frame of a goroutine, and exceptions and exits that reach it.

#include "arch/entry.hpp"

#include "base/backtrace.hpp"
#include "base/fatal.hpp"
#include "support/bare_fiber.hpp"

#include <gtest/gtest.h>

#include <cxxabi.h>
#include <pthread.h>
#include <unwind.h>

#include <cstddef>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using weft::test::bare_fiber;

// What the hooks and the fibers of one test saw.
struct record {
  std::vector<std::string> events;
  std::string exception;
  std::vector<void*> frames;
  weft::arch::unwind_storage storage;
};
record* seen = nullptr;

// Keeps the compiler from leaving a frame before its call returns.
volatile int after_call = 0;

bool contains_function(const std::vector<void*>& frames, void (*function)()) {
  for (void* pc : frames) {
    if (_Unwind_FindEnclosingFunction(pc) == reinterpret_cast<void*>(function)) return true;
  }
  return false;
}

void on_escaped_exception() {
  weft::base::text description;
  weft::base::describe_exception(description);
  seen->exception = description.view();
  void* pcs[64];
  const std::size_t n = weft::base::capture(pcs, 64, 0);
  seen->frames.assign(pcs, pcs + n);
  seen->events.push_back("escaped");
  if (seen->exception.find("another language") == std::string::npos) abi::__cxa_end_catch();
  bare_fiber::leave();
}

void on_goroutine_exit() {
  seen->events.push_back("exit");
  bare_fiber::leave();
}

class entry : public testing::Test {
 protected:
  entry() {
    seen = &record_;
    weft::arch::set_entry_hooks(
        {.on_escaped_exception = &on_escaped_exception, .on_goroutine_exit = &on_goroutine_exit});
  }
  ~entry() override {
    weft::arch::set_entry_hooks({});
    seen = nullptr;
  }

  // Runs `body` on a stack that begins in weft_goroutine_entry.
  static void run(void (*body)()) {
    struct start {
      static void on_fiber(void* body) {
        bare_fiber::started();
        reinterpret_cast<void (*)()>(body)();
        seen->events.push_back("returned");
        bare_fiber::leave();
      }
    };
    bare_fiber fiber(&start::on_fiber, reinterpret_cast<void*>(body));
    fiber.resume();
  }

  record record_;
};

struct announces_end {
  const char* name;
  ~announces_end() { seen->events.push_back(name); }
};

[[gnu::noinline]] void throw_boom() {
  announces_end local{"~local"};
  after_call = after_call + 1;
  throw std::runtime_error("boom");
}

// A goroutine's exceptions are its own business as long as it handles them: the entry must not
// take part.
TEST_F(entry, an_exception_caught_inside_works_as_everywhere) {
  run([] {
    try {
      throw_boom();
    } catch (const std::exception& e) {
      seen->events.push_back(e.what());
    }
  });
  EXPECT_EQ(seen->events, (std::vector<std::string>{"~local", "boom", "returned"}));
}

// The report of a death by exception is worth little without the stack of the throw: the hook has
// to run before anything is unwound.
TEST_F(entry, an_escaping_exception_finds_the_hook_on_top_of_the_throwing_function) {
  run([] {
    announces_end outer{"~outer"};
    throw_boom();
    after_call = after_call + 1;
  });
  EXPECT_EQ(seen->events, std::vector<std::string>{"escaped"}) << "a destructor ran before";
  EXPECT_EQ(seen->exception, "std::runtime_error: boom");
  EXPECT_TRUE(contains_function(seen->frames, &throw_boom));
  EXPECT_TRUE(contains_function(seen->frames, &weft_goroutine_entry));
  EXPECT_EQ(std::current_exception(), nullptr);
}

// What std::rethrow_exception throws is of another class than what throw does.
TEST_F(entry, a_rethrown_exception_pointer_escapes_by_its_own_name) {
  // A reference to it stays on the stack that is given up, so that it is never destroyed.
  static std::exception_ptr kept;
  kept = std::make_exception_ptr(std::out_of_range("far"));
  run([] { std::rethrow_exception(kept); });
  EXPECT_EQ(seen->events, std::vector<std::string>{"escaped"});
  EXPECT_EQ(seen->exception, "std::out_of_range: far");
}

// An exception may escape while another is being handled; the report is about the escaping one.
TEST_F(entry, the_exception_that_escapes_a_handler_is_the_one_reported) {
  run([] {
    try {
      throw 1;
    } catch (int) {
      throw std::logic_error("second");
    }
  });
  EXPECT_EQ(seen->exception, "std::logic_error: second");
  // The hook left from within the handler of the first; this thread's record of it goes with it.
  abi::__cxa_end_catch();
}

// An exception without a C++ type must be reported too and not crash the report.
TEST_F(entry, an_exception_of_another_language_escapes_without_a_name) {
  static _Unwind_Exception foreign;
  foreign = {};
  foreign.exception_class = 0x54455354'4c414e47;
  run([] { _Unwind_RaiseException(&foreign); });
  EXPECT_EQ(seen->events, std::vector<std::string>{"escaped"});
  EXPECT_EQ(seen->exception, "an exception of another language");
  abi::__cxa_end_catch();
}

[[gnu::noinline]] void exit_deep_inside() {
  announces_end a{"~a"};
  announces_end b{"~b"};
  weft::arch::unwind_goroutine(seen->storage);
}

// this_goroutine::exit() promises what return promises: destructors, innermost first, each once.
TEST_F(entry, exit_runs_every_destructor_in_order_and_then_the_hook) {
  run([] {
    announces_end outer{"~outer"};
    exit_deep_inside();
    seen->events.push_back("came back");
  });
  EXPECT_EQ(seen->events, (std::vector<std::string>{"~b", "~a", "~outer", "exit"}));
}

// A handler that cleans up and rethrows must not end an exit.
TEST_F(entry, exit_passes_through_handlers_that_rethrow) {
  run([] {
    try {
      try {
        exit_deep_inside();
      } catch (const std::exception&) {
        seen->events.push_back("wrong handler");
      }
    } catch (...) {
      seen->events.push_back("catch");
      throw;
    }
  });
  EXPECT_EQ(seen->events, (std::vector<std::string>{"~b", "~a", "catch", "exit"}));
  EXPECT_EQ(std::uncaught_exceptions(), 0);
}

// The same, by the name that the C++ library gives to forced unwinding. It binds the reference to
// nothing, which is its way, not ours.
__attribute__((no_sanitize("null"))) void catch_forced_unwind() {
  try {
    exit_deep_inside();
  } catch (abi::__forced_unwind&) {
    seen->events.push_back("forced");
    throw;
  }
}
TEST_F(entry, exit_can_be_caught_as_forced_unwind) {
  run(&catch_forced_unwind);
  EXPECT_EQ(seen->events, (std::vector<std::string>{"~b", "~a", "forced", "exit"}));
}

// A goroutine may exit while it handles an exception, which must then be destroyed.
TEST_F(entry, exit_from_within_a_handler_destroys_the_exception_handled) {
  run([] {
    try {
      throw announces_end{"~exception"};
    } catch (const announces_end&) {
      seen->events.clear();  // copies made on the way
      weft::arch::unwind_goroutine(seen->storage);
    }
  });
  EXPECT_EQ(seen->events, (std::vector<std::string>{"~exception", "exit"}));
  EXPECT_EQ(std::current_exception(), nullptr);
}

// Stacks are used again: whatever unwinding leaves behind must not hurt the next goroutine.
TEST_F(entry, a_thousand_exits_and_escapes_leave_nothing_behind) {
  for (int i = 0; i < 1000; ++i) {
    seen->events.clear();
    run([] { exit_deep_inside(); });
    ASSERT_EQ(seen->events.back(), "exit");
    run([] { throw_boom(); });
    ASSERT_EQ(seen->events.back(), "escaped");
  }
  EXPECT_EQ(std::uncaught_exceptions(), 0);
}

// Profilers and debuggers that follow frame pointers must find an end: the frame pointer that the
// first function saves has to be zero.
void record_the_callers_frame_pointer(void*) {
  bare_fiber::started();
  void* const* const frame = static_cast<void* const*>(__builtin_frame_address(0));
  seen->events.push_back(*frame == nullptr ? "zero" : "not zero");
  bare_fiber::leave();
}
TEST_F(entry, the_chain_of_frame_pointers_ends_at_the_entry) {
  bare_fiber fiber(&record_the_callers_frame_pointer, nullptr);
  fiber.resume();
  EXPECT_EQ(seen->events, std::vector<std::string>{"zero"});
}

using entry_death = entry;

// A goroutine that silently survived its own exit would go on in an undefined state.
TEST_F(entry_death, a_handler_that_swallows_an_exit_is_fatal) {
  EXPECT_EXIT(run([] {
                try {
                  exit_deep_inside();
                } catch (...) {
                }
              }),
              testing::ExitedWithCode(2),
              "this_goroutine::exit was swallowed by a catch \\(\\.\\.\\.\\) that did not rethrow");
}

#if !WEFT_TEST_TSAN  // whose pthread_exit does not get as far as ours, on any fiber
// pthread_exit would take the machine away from all its goroutines.
TEST_F(entry_death, pthread_exit_in_a_goroutine_is_fatal) {
  EXPECT_EXIT(run([] { pthread_exit(nullptr); }), testing::ExitedWithCode(2),
              "pthread_exit called in a goroutine");
}
#endif

// Without a scheduler there is still a message and the right status.
TEST_F(entry_death, without_hooks_an_escaping_exception_is_fatal) {
  weft::arch::set_entry_hooks({});
  EXPECT_EXIT(run([] { throw_boom(); }), testing::ExitedWithCode(2),
              "an exception left a goroutine");
}

}  // namespace
