// symbolize_test.cpp: names and lines for addresses, and the text of a stack.
//
// With libbacktrace the tests expect names, files and lines of this very file. Without it, they
// expect what is left: an offset into the program.

#include "base/symbolize.hpp"

#include "base/backtrace.hpp"
#include "base/fatal.hpp"

#include <gtest/gtest.h>

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

// Functions of the runtime and of a program that uses it, as a stack would have them. Each calls
// what it is given and does something after, so that it keeps its frame.
namespace {
volatile int after_call = 0;
struct step;
using body = void (*)(const step*);
struct step {
  body next;
};
}  // namespace

#define WEFT_TEST_FRAME(name)                  \
  [[gnu::noinline]] void name(const step* s) { \
    s->next(s + 1);                            \
    after_call = after_call + 1;               \
  }

namespace weft::sched {
WEFT_TEST_FRAME(schedule_for_test)
}
namespace weft::arch {
namespace {
// A helper without linkage, inlined: GCC's debug information has only its bare name.
[[gnu::always_inline]] inline void helper_for_test(const step* s) { s->next(s + 1); }
}  // namespace
[[gnu::noinline]] void switch_for_test(const step* s) {
  helper_for_test(s);
  after_call = after_call + 1;
}
}  // namespace weft::arch
namespace weft::detail {
template <class T>
WEFT_TEST_FRAME(run_task_for_test)
template void run_task_for_test<int>(const step*);
}  // namespace weft::detail
namespace weft {
WEFT_TEST_FRAME(public_for_test)
}
namespace program {
WEFT_TEST_FRAME(handler)
}
extern "C" {
WEFT_TEST_FRAME(weft_test_trampoline)
}

namespace {

using weft::base::frame;

std::vector<void*> stack;
[[gnu::noinline]] void take_stack(const step*) {
  stack.resize(4096);
  stack.resize(weft::base::capture(stack.data(), stack.size(), 1));
  after_call = after_call + 1;
}

// Calls the functions, the outermost first, and returns the addresses of their frames alone.
std::vector<void*> stack_of(std::vector<step> calls) {
  const step nothing[] = {{&take_stack}};
  take_stack(nothing);
  const std::size_t below = stack.size();
  calls.push_back({&take_stack});
  calls[0].next(calls.data() + 1);
  stack.resize(stack.size() - below);
  return stack;
}

std::string text_of(const std::vector<void*>& pcs, weft::base::symbolize_options options = {}) {
  std::string out;
  weft::base::format_stack(
      pcs.data(), pcs.size(),
      [](void* to, std::string_view piece) { static_cast<std::string*>(to)->append(piece); }, &out,
      options);
  return out;
}

struct owned_frame {
  std::string function;
  std::string file;
  int line;
  std::uintptr_t offset;
  bool inlined;
};
std::vector<owned_frame> frames_of(const void* pc, weft::base::symbolize_options options = {}) {
  std::vector<owned_frame> frames;
  weft::base::symbolize(
      pc,
      [](void* to, const frame& f) {
        static_cast<std::vector<owned_frame>*>(to)->push_back(
            {f.function != nullptr ? f.function : "", f.file != nullptr ? f.file : "", f.line,
             f.offset, f.inlined});
      },
      &frames, options);
  return frames;
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}
std::size_t count(const std::string& text, std::string_view part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}
bool knows_lines() { return weft::base::symbolizer_knows_lines(); }

int here_line = 0;
[[gnu::noinline]] void* here() {
  void* pc[1] = {nullptr};
  here_line = __LINE__ + 1;
  weft::base::capture(pc, 1, 0);
  after_call = after_call + 1;
  return pc[0];
}

// The point of a backtrace: the right function, file and line. One byte off is the next line.
TEST(symbolize, gives_function_file_and_line_of_a_call) {
  weft::base::prepare_symbolizer();
  const auto frames = frames_of(here());
  ASSERT_FALSE(frames.empty());
  const owned_frame& f = frames.back();
  EXPECT_FALSE(f.inlined);
  EXPECT_GT(f.offset, 0u);
  if (knows_lines()) {
    EXPECT_EQ(f.function, "(anonymous namespace)::here()");
    EXPECT_TRUE(f.file.ends_with("symbolize_test.cpp")) << f.file;
    EXPECT_FALSE(contains(f.file, "//")) << f.file;
    EXPECT_EQ(f.line, here_line);
  } else {
    EXPECT_TRUE(contains(f.file, "symbolize_test")) << f.file;
    EXPECT_EQ(f.line, 0);
  }
}

int inlined_line = 0;
[[gnu::always_inline]] inline void* inlined_capture() {
  void* pc[1] = {nullptr};
  inlined_line = __LINE__ + 1;
  weft::base::capture(pc, 1, 0);
  after_call = after_call + 1;
  return pc[0];
}
[[gnu::noinline]] void* inlining_function() { return inlined_capture(); }

// Optimised programs consist of inlined functions; without them the stack has holes.
TEST(symbolize, lists_inlined_calls_from_the_inside_out) {
  const auto frames = frames_of(inlining_function());
  if (!knows_lines()) {
    ASSERT_EQ(frames.size(), 1u);
    return;
  }
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_TRUE(contains(frames[0].function, "inlined_capture"));
  EXPECT_EQ(frames[0].line, inlined_line);
  EXPECT_TRUE(frames[0].inlined);
  EXPECT_EQ(frames[1].function, "(anonymous namespace)::inlining_function()");
  EXPECT_FALSE(frames[1].inlined);
}

// The demangler allocates, which must not happen if the crash was in malloc.
TEST(symbolize, leaves_names_mangled_in_a_signal_handler) {
  if (!knows_lines()) {
    EXPECT_EQ(frames_of(here(), {.in_signal = true}).size(), 1u);
    return;
  }
  const auto frames = frames_of(here(), {.in_signal = true});
  EXPECT_EQ(frames.back().function, "_ZN12_GLOBAL__N_14hereEv");
}

// Functions of libraries have no lines, as a rule, but they have names.
TEST(symbolize, names_functions_of_shared_libraries) {
  const auto* const inside = reinterpret_cast<const char*>(&std::strtol) + 4;
  const auto frames = frames_of(inside);
  ASSERT_FALSE(frames.empty());
  // The same address has several names in the C library.
  EXPECT_TRUE(contains(frames.back().function, "strto")) << frames.back().function;
}

// Addresses in no code at all come from damaged stacks; the report must survive them.
TEST(symbolize, survives_addresses_that_belong_to_nobody) {
  for (const std::uintptr_t address :
       {std::uintptr_t{1}, std::uintptr_t{0x1000}, ~std::uintptr_t{0}}) {
    const auto frames = frames_of(reinterpret_cast<void*>(address));
    ASSERT_EQ(frames.size(), 1u);
    EXPECT_EQ(frames[0].function, "");
    EXPECT_EQ(frames[0].line, 0);
    EXPECT_EQ(frames[0].offset, address);
  }
  EXPECT_EQ(text_of({reinterpret_cast<void*>(0x1000)}), "?\n\t? +0x1000\n");
}

// People and tools read this form.
TEST(format_stack, writes_the_function_and_on_the_next_line_where_it_is) {
  const std::string text = text_of(stack_of({{&program::handler}, {&weft::public_for_test}}));
  if (!knows_lines()) {
    EXPECT_EQ(count(text, "\n"), 4u) << text;
    EXPECT_TRUE(contains(text, "\n\t")) << text;
    return;
  }
  const std::size_t inner = text.find("weft::public_for_test(");
  const std::size_t outer = text.find("program::handler(");
  ASSERT_NE(inner, std::string::npos) << text;
  ASSERT_NE(outer, std::string::npos) << text;
  EXPECT_LT(inner, outer);
  const std::string place = text.substr(text.find("\n\t", outer));
  EXPECT_TRUE(contains(place, "symbolize_test.cpp:")) << text;
  EXPECT_TRUE(contains(place, " +0x")) << text;
}

// Readers look for their own functions; the scheduler's around them are the same every time.
TEST(format_stack, hides_the_runtimes_frames_at_both_ends) {
  if (!knows_lines()) {
    // Nothing has a name, so nothing can be hidden.
    const auto pcs = stack_of({{&weft::detail::run_task_for_test<int>}, {&program::handler}});
    EXPECT_EQ(count(text_of(pcs), "\n\t"), 2u);
    return;
  }
  const std::string text = text_of(stack_of({{&weft_test_trampoline},
                                             {&weft::detail::run_task_for_test<int>},
                                             {&program::handler},
                                             {&weft::sched::schedule_for_test},
                                             {&weft::public_for_test},
                                             {&weft::sched::schedule_for_test},
                                             {&weft::arch::switch_for_test}}));
  EXPECT_FALSE(contains(text, "weft_test_trampoline")) << text;
  EXPECT_FALSE(contains(text, "run_task_for_test")) << text;
  EXPECT_FALSE(contains(text, "switch_for_test")) << text;
  EXPECT_FALSE(contains(text, "helper_for_test")) << text;
  EXPECT_TRUE(contains(text, "program::handler(")) << text;
  EXPECT_TRUE(contains(text, "weft::public_for_test(")) << text;
  EXPECT_EQ(count(text, "weft::sched::schedule_for_test("), 1u)
      << "in the middle it stays: " << text;
}

// A stack of the runtime alone belongs in a bug report.
TEST(format_stack, shows_the_runtimes_frames_if_there_are_no_others) {
  const auto pcs = stack_of({{&weft::sched::schedule_for_test}, {&weft::arch::switch_for_test}});
  ASSERT_EQ(pcs.size(), 2u);
  const std::string text = text_of(pcs);
  EXPECT_GE(count(text, "\n\t"), 2u) << text;
  if (knows_lines()) {
    EXPECT_TRUE(contains(text, "weft::sched::schedule_for_test(")) << text;
    EXPECT_TRUE(contains(text, "weft::arch::switch_for_test(")) << text;
  }
  EXPECT_EQ(text_of({}), "");
}

// An endless recursion must not bury its cause, nor fill the disk.
TEST(format_stack, shows_50_frames_of_each_end_and_how_many_are_left_out) {
  std::vector<void*> pcs(230);
  for (std::size_t i = 0; i < pcs.size(); ++i) pcs[i] = reinterpret_cast<void*>(1 + i);
  std::string text = text_of(pcs);
  EXPECT_EQ(count(text, "?\n\t?"), 100u);
  EXPECT_TRUE(contains(text, " +0x32\n...130 frames elided...\n?\n\t? +0xb5\n")) << text;
  EXPECT_TRUE(text.ends_with(" +0xe6\n")) << text;

  pcs.resize(100);
  text = text_of(pcs);
  EXPECT_EQ(count(text, "?\n\t?"), 100u);
  EXPECT_FALSE(contains(text, "elided"));
}

// The two ends that capture_interrupted() keeps of a deep stack print like the whole.
TEST(print_stack, prints_both_ends_of_a_long_stack) {
  weft::base::long_stack s;
  constexpr std::size_t end = weft::base::long_stack::end_size;
  s.total = 1000;
  s.outer_size = end;
  for (std::size_t i = 0; i < end; ++i) {
    s.inner[i] = reinterpret_cast<void*>(1 + i);
    s.outer[i] = reinterpret_cast<void*>(1001 - end + i);
  }
  testing::internal::CaptureStderr();
  weft::base::print_stack(s);
  std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(count(text, "?\n\t?"), 100u);
  EXPECT_TRUE(contains(text, " +0x32\n...900 frames elided...\n?\n\t? +0x3b7\n")) << text;
  EXPECT_TRUE(text.ends_with(" +0x3e8\n")) << text;

  s.total = 3;
  s.outer_size = 0;
  testing::internal::CaptureStderr();
  weft::base::print_stack(s);
  text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(text, "?\n\t? +0x1\n?\n\t? +0x2\n?\n\t? +0x3\n");
}

template <class... T>
[[gnu::noinline]] void* long_name() {
  void* pc[1] = {nullptr};
  weft::base::capture(pc, 1, 0);
  after_call = after_call + 1;
  return pc[0];
}
template <class A, class B>
struct pair_of_types {};

// Names of templates can be longer than any buffer; the lines must stay lines.
TEST(format_stack, cuts_endless_names_but_not_the_line) {
  using t1 = pair_of_types<std::string, std::vector<std::string>>;
  using t2 = pair_of_types<t1, std::vector<t1>>;
  using t3 = pair_of_types<t2, std::vector<t2>>;
  using t4 = pair_of_types<t3, std::vector<t3>>;
  const std::string text = text_of({long_name<t4, t3, t2>()});
  EXPECT_TRUE(contains(text, "\n\t")) << text;
  EXPECT_TRUE(text.ends_with("\n"));
  EXPECT_EQ(count(text, "\n"), 2u) << text;
  EXPECT_LT(text.size(), 1024u);
  if (knows_lines()) {
    EXPECT_TRUE(contains(text, "...\n\t")) << text;
    EXPECT_TRUE(contains(text, "symbolize_test.cpp:")) << text;
  }
}

// Whatever printing waits for, the process has to end, and with the status of a crash. The worst
// case is a handler that blocks every signal.
TEST(deadline, ends_a_process_that_hangs_with_all_signals_blocked) {
  EXPECT_EXIT(
      {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, nullptr);
        weft::base::arm_deadline(1);
        for (;;) pause();
      },
      testing::ExitedWithCode(2), "");
}

}  // namespace

// A template of the runtime, as if it stood in a header of its own.
#line 1 "header_of_the_runtime.hpp"
namespace weft::detail {
template <class F>
[[gnu::noinline]] void call_inlined_for_test(F f) {
  f();
  after_call = after_call + 1;
}
}  // namespace weft::detail
#line 1000 "symbolize_test.cpp"

namespace {

// Most goroutines are lambdas, and compilers inline them into the runtime's function that calls
// them. To hide them with it would hide the program.
TEST(format_stack, shows_a_lambda_that_was_inlined_into_the_runtime) {
  std::vector<void*> pcs(1);
  int line = 0;
  weft::detail::call_inlined_for_test([&]() __attribute__((always_inline)) {
    line = __LINE__ + 1;
    weft::base::capture(pcs.data(), 1, 0);
    after_call = after_call + 1;
  });
  const std::string text = text_of(pcs);
  if (!knows_lines()) {
    EXPECT_EQ(count(text, "\n\t"), 1u) << text;
    return;
  }
  EXPECT_TRUE(contains(text, "symbolize_test.cpp:" + std::to_string(line))) << text;
  EXPECT_FALSE(contains(text, "call_inlined_for_test(")) << text;
  EXPECT_EQ(count(text, "\n\t"), 1u) << text;
}

}  // namespace
