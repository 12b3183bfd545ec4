// death_test.cpp: how a process ends that cannot go on, and what it says; and that one that can go
// on ends well. Runs the programs of tests/death.
#include "child_process.hpp"
#include "eventually.hpp"
#include "temporary_directory.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using weft::test::child_options;
using weft::test::child_result;
using weft::test::run_program;
using weft::test::scaled;
using weft::test::temporary_directory;

// The paragraphs of a report: one per goroutine.
std::vector<std::string> paragraphs(const std::string& text) {
  std::vector<std::string> out(1);
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (line.empty()) {
      if (!out.back().empty()) out.emplace_back();
    } else {
      out.back() += line + "\n";
    }
  }
  return out;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Returns: the paragraph that contains all of these, or an empty one.
std::string paragraph_with(const child_result& r, const std::vector<std::string>& parts) {
  for (const std::string& p : paragraphs(r.errors)) {
    bool all = true;
    for (const std::string& part : parts) all = all && contains(p, part);
    if (all) return p;
  }
  return {};
}

child_result escaped(const std::string& how) {
  return run_program("escaped_exception", {.arguments = {how}});
}

// --------------------------------------------------------------------- an exception that escapes

// An exception nobody handles is a bug; the report must tell which, thrown where, by whom, and who
// started that one.
TEST(escaped_exception, is_reported_with_type_what_and_where_it_was_thrown) {
  const child_result r = escaped("plain");
  EXPECT_EQ(r.status, 2) << r;
  EXPECT_TRUE(r.says("order_rejected")) << r;
  EXPECT_TRUE(r.says("too many apples")) << r;
  const std::string culprit = paragraph_with(r, {"throw_from_here", "goroutine "});
  EXPECT_TRUE(contains(culprit, "place_order")) << r;
  EXPECT_TRUE(contains(culprit, "escaped_exception.cpp:")) << r;
  EXPECT_TRUE(contains(culprit, "[running")) << r;
  EXPECT_TRUE(contains(culprit, "created by goroutine 1")) << r;
  EXPECT_TRUE(contains(culprit, "start_the_culprit")) << r;
}

TEST(escaped_exception, names_the_goroutine_and_its_place) {
  const child_result r = escaped("named");
  EXPECT_EQ(r.status, 2) << r;
  const std::string culprit = paragraph_with(r, {"throw_from_here"});
  EXPECT_TRUE(contains(culprit, "\"order desk\"")) << r;
  EXPECT_TRUE(contains(culprit, "created by goroutine 1 in ")) << r;
  EXPECT_TRUE(contains(culprit, "start_the_culprit")) << r;
}

TEST(escaped_exception, from_wait_group_go_is_the_same) {
  const child_result r = escaped("wait_group");
  EXPECT_EQ(r.status, 2) << r;
  EXPECT_TRUE(r.says("too many apples")) << r;
  EXPECT_FALSE(paragraph_with(r, {"throw_from_here", "place_order", "start_the_culprit"}).empty())
      << r;
}

// A waiter of the group must not go on as if the work were done, and end the process first.
TEST(escaped_exception, comes_before_the_wait_for_its_group_returns) {
  for (int i = 0; i < 2; ++i) {
    const child_result r = escaped("waited_for");
    EXPECT_EQ(r.status, 2) << r;
    EXPECT_EQ(r.output, "") << r;
    EXPECT_TRUE(r.says("too many apples")) << r;
  }
}

// Anything can be thrown, also what has no what().
TEST(escaped_exception, need_not_be_an_exception_class) {
  const child_result r = escaped("int");
  EXPECT_EQ(r.status, 2) << r;
  EXPECT_TRUE(r.says(": int")) << r;
  EXPECT_FALSE(paragraph_with(r, {"throw_from_here"}).empty()) << r;
}

// The others are in the report with what they wait for and where: the cause is often among them.
TEST(escaped_exception, shows_every_other_goroutine_with_its_wait_reason_and_stack) {
  const child_result r = escaped("plain");
  EXPECT_FALSE(
      paragraph_with(r, {"\"patient\"", "[waiting: wait_group wait]", "wait_for_ever_here"})
          .empty())
      << r;
  EXPECT_FALSE(paragraph_with(r, {"[waiting: sleep]", "sleep_for_ever_here"}).empty()) << r;
  EXPECT_FALSE(paragraph_with(r, {"goroutine 1 ["}).empty()) << r;
}

// On a stack of its own size, on a locked thread, after a handler, started by a thread.
TEST(escaped_exception, is_reported_wherever_the_goroutine_runs) {
  for (const char* const how : {"large_stack", "locked", "from_thread"}) {
    const child_result r = escaped(how);
    EXPECT_EQ(r.status, 2) << how << r;
    EXPECT_TRUE(r.says("too many apples")) << how << r;
    EXPECT_FALSE(paragraph_with(r, {"throw_from_here", "created by"}).empty()) << how << r;
  }
  const child_result r = escaped("rethrown");
  EXPECT_EQ(r.status, 2) << r;
  EXPECT_TRUE(r.says("too many apples")) << r;
}

// Text that is too long is cut, but what follows it is still there, on a line of its own.
TEST(escaped_exception, long_texts_do_not_swallow_the_report) {
  const child_result what = escaped("long");
  EXPECT_EQ(what.status, 2) << what;
  EXPECT_FALSE(paragraph_with(what, {"goroutine ", "[running", "throw_from_here"}).empty()) << what;
  EXPECT_TRUE(contains(what.errors, "\n\ngoroutine ")) << what;

  const child_result name = escaped("long_name");
  EXPECT_EQ(name.status, 2) << name;
  EXPECT_FALSE(paragraph_with(name, {"goroutine ", "nnnn", "[running", "throw_from_here"}).empty())
      << name;
}

// What an exception says may come from anywhere: it must not reach the terminal as it is.
TEST(escaped_exception, control_characters_are_escaped) {
  const child_result r = escaped("control");
  EXPECT_EQ(r.status, 2) << r;
  EXPECT_TRUE(r.says("red\\x1b[31m\\nline two\\t\\xff caf\xc3\xa9")) << r;
  EXPECT_TRUE(r.says("\"desk\\x07\"")) << r;
  EXPECT_FALSE(r.says("\x1b")) << r;
}

// If many die at the same time, one of them prints a whole report, and the process ends.
TEST(escaped_exception, ends_the_process_every_time) {
  for (int i = 0; i < scaled(30, 3); ++i) {
    const child_result r = escaped("plain");
    ASSERT_EQ(r.status, 2) << r;
  }
}

// -------------------------------------------------------------------------------- stack overflow

// Endless recursion is a fault below the stack; it is told as what it is, with the function that
// recurses and the goroutine, not as a bare crash.
TEST(stack_overflow, is_reported_with_goroutine_and_function) {
  for (const char* const guard : {"guard=madvise", "guard=mprotect"}) {
    for (const char* const bytes : {"0", "16384", "1048576", "67108864"}) {
      const child_result r = run_program(
          "stack_overflow", {.arguments = {bytes}, .environment = {{"WEFT_DEBUG", guard}}});
      EXPECT_EQ(r.status, 2) << guard << " " << bytes << r;
      EXPECT_EQ(r.signal, 0) << guard << " " << bytes << r;
      EXPECT_TRUE(r.says("stack overflow")) << guard << " " << bytes << r;
      const std::string culprit = paragraph_with(r, {"goroutine ", "\"recursive\""});
      EXPECT_TRUE(contains(culprit, "recurse_without_end")) << guard << " " << bytes << r;
      EXPECT_TRUE(contains(culprit, "created by goroutine 1")) << guard << " " << bytes << r;
    }
  }
}

// So is one in a bubble, whose goroutines run on a thread of the user's.
TEST(stack_overflow, in_a_bubble_is_reported_like_any_other) {
  for (const char* const how : {"bubble", "bubble_started", "bubble_in_run"}) {
    const child_result r = run_program("stack_overflow", {.arguments = {how}});
    EXPECT_EQ(r.status, 2) << how << r;
    EXPECT_TRUE(r.says("stack overflow: goroutine 2 ")) << how << r;
    const std::string culprit = paragraph_with(r, {"goroutine 2", "\"recursive\""});
    EXPECT_TRUE(contains(culprit, "recurse_without_end")) << how << r;
    EXPECT_TRUE(contains(culprit, "created by goroutine 1")) << how << r;
  }
}

// The guard is a page; what uses weft is compiled so that it cannot be jumped over.
TEST(stack_overflow, by_a_frame_larger_than_the_guard_is_reported) {
  const child_result r = run_program("stack_overflow", {.arguments = {"frame"}});
  EXPECT_EQ(r.status, 2) << r;
  EXPECT_TRUE(r.says("stack overflow")) << r;
}

// Code that was in main() finds there what it was used to.
TEST(stack_overflow, is_not_where_main_uses_a_megabyte) {
  const child_result r = run_program("stack_overflow", {.arguments = {"main"}});
  EXPECT_EQ(r.status, 0) << r;
}

// WEFT_STACK is the size of stacks for which none was chosen, and the report says how large it was.
TEST(stack_overflow, tells_the_size_of_the_stack) {
  const child_result r = run_program("stack_overflow", {.environment = {{"WEFT_STACK", "64k"}}});
  EXPECT_EQ(r.status, 2) << r;
  EXPECT_TRUE(r.says("stack of 6")) << r;  // 65,536 less a little
  EXPECT_TRUE(r.says("WEFT_STACK")) << r;
}

// --------------------------------------------------------------------------- ends that are fatal

// A goroutine that went on after its exit was swallowed would be in an undefined state.
TEST(fatal_ends, exit_that_is_swallowed) {
  const child_result r = run_program("exit_swallowed");
  EXPECT_EQ(r.status, 2) << r;
  EXPECT_EQ(r.output, "caught\n") << r;
  EXPECT_TRUE(r.says("weft: fatal:")) << r;
  EXPECT_TRUE(r.says("exit")) << r;
  EXPECT_FALSE(paragraph_with(r, {"goroutine ", "swallow"}).empty()) << r;
}

// A lock is released that is not held: the program is wrong about the holders of its locks.
TEST(fatal_ends, unlock_of_what_is_not_locked) {
  for (const std::string how :
       {"never_locked", "twice", "after_a_waiter", "shared_never_locked", "shared_by_nobody",
        "shared_of_a_writer", "exclusive_of_a_reader", "shared_twice", "exclusive_twice"}) {
    const child_result r = run_program("unlock", {.arguments = {how}});
    EXPECT_EQ(r.status, 2) << how << r;
    const std::string what = contains(how, "shared") || contains(how, "exclusive")
                                 ? "weft: fatal: unlock of an unlocked shared_mutex"
                                 : "weft: fatal: unlock of an unlocked mutex";
    EXPECT_TRUE(r.says(what)) << how << r;
    EXPECT_TRUE(r.says("goroutine 1")) << how << r;
  }
}

// No goroutine can go on: every goroutine's wait is reported, and the process ends.
TEST(fatal_ends, deadlock) {
  if (sizeof(WEFT_EMULATOR) > 1) {
    GTEST_SKIP() << "an emulator does not tell how many threads there are, so none is reported";
  }
  struct end {
    const char* how;
    const char* reason;
  };
  for (const auto& [how, reason] : {
           end{"receive", "chan receive"},
           end{"send_to_nobody", "chan send"},
           end{"nil_channel", "chan receive (nil chan)"},
           end{"empty_select", "select (no cases)"},
           end{"lock_twice", "mutex lock"},
           end{"wait_for_nobody", "wait_group wait"},
           end{"notified_by_nobody", "condition_variable wait"},
           end{"each_other", "left"},
           end{"bound", "chan receive"},
           end{"after_a_timer", "chan receive"},
           end{"stopped_timer", "chan receive"},
           end{"after_a_crowd", "chan receive"},
           end{"with_a_thread_that_waits_too", "chan receive"},
           end{"after_a_thread_has_ended", "chan receive"},
           end{"after_a_long_timer_was_stopped", "chan receive"},
           end{"after_a_bound_goroutine_has_ended", "chan receive"},
           end{"with_an_open_socket", "chan receive"},
           end{"after_a_socket_was_closed", "chan receive"},
       }) {
    const child_result r = run_program("deadlock", {.arguments = {how}});
    EXPECT_EQ(r.status, 2) << how << r;
    EXPECT_TRUE(r.says("all goroutines are asleep - deadlock!")) << how << r;
    EXPECT_TRUE(r.says("goroutine 1")) << how << r;
    EXPECT_TRUE(r.says(reason)) << how << r;
  }
}

// Something that is not a goroutine still can let one go on.
TEST(fatal_ends, no_deadlock_is_told_where_there_is_none) {
  for (const char* how :
       {"a_thread_sends", "a_thread_comes_back_twice", "a_timer_is_set", "a_timer_of_a_context",
        "a_goroutine_blocks_in_the_kernel", "a_bound_goroutine_blocks_in_the_kernel",
        "a_signal_may_come", "a_connection_may_come"}) {
    const child_result r = run_program("deadlock", {.arguments = {how}});
    EXPECT_EQ(r.status, 0) << how << r;
    EXPECT_EQ(r.output, "went on\n") << how << r;
  }
}

// A process may enter a sandbox after its runtime has started, and the runtime's barriers may be
// refused from then on. Without them locks let in two at a time, and wake-ups are lost: going on as
// if nothing had happened would be the worst of ends.
TEST(fatal_ends, a_sandbox_that_refuses_membarrier) {
  if (sizeof(WEFT_EMULATOR) > 1) GTEST_SKIP() << "a filter sees the emulator's system calls";
  for (int i = 0; i < 3; ++i) {
    const child_result r = run_program("sandboxed_membarrier");
    if (r.output == "no sandbox\n") GTEST_SKIP() << "no filter can be installed here";
    if (r.status == 0) {
      EXPECT_EQ(r.output, "went on\n") << r;
    } else {
      EXPECT_EQ(r.status, 2) << r;
      // In that line: further down it is part of the program's name.
      const std::string cause = r.errors.substr(0, r.errors.find('\n'));
      EXPECT_TRUE(contains(cause, "weft: fatal:") && contains(cause, "membarrier")) << r;
    }
  }
}

// A goroutine that waits for a descriptor would wait for ever. (A number may have become another
// file's by then, so that it is not noticed at once; but it is when it is used.)
TEST(fatal_ends, a_process_that_closes_the_runtimes_descriptors) {
  const temporary_directory folder;
  for (const std::string what :
       {"net", "waiting", "file", "reused", "eventfds", "epolls", "swapped", "crossed"}) {
    const child_result r =
        run_program("closed_descriptors", {.arguments = {what, folder / "file"}, .patience = 20s});
    if (contains(r.output, "blocking calls")) continue;  // files need no descriptor of ours then
    EXPECT_EQ(r.status, 2) << what << r;
    EXPECT_TRUE(r.says("weft: fatal: a descriptor that the runtime had opened")) << what << r;
  }
}

#if !WEFT_TSAN  // ThreadSanitizer itself forbids it on any stack but a thread's first
// The thread is the machine's, and other goroutines rely on it.
TEST(fatal_ends, pthread_exit_in_a_goroutine) {
  const child_result r = run_program("pthread_exit");
  EXPECT_EQ(r.status, 2) << r;
  EXPECT_TRUE(r.says("weft: fatal: pthread_exit called in a goroutine")) << r;
}
#endif

// A wild pointer is reported with its goroutine; core dumps and debuggers must see the fault
// itself.
TEST(fatal_ends, a_plain_fault) {
  for (const std::string how : {"null", "protected", "thread"}) {
    const child_result r = run_program("segmentation_fault", {.arguments = {how}});
    EXPECT_FALSE(r.says("stack overflow: goroutine")) << how << r;
    if (WEFT_ASAN || WEFT_TSAN) {  // they have a handler of their own, which comes before
      EXPECT_TRUE(r.says("SEGV")) << how << r;
    } else {
      EXPECT_EQ(r.signal, SIGSEGV) << how << r;
      EXPECT_EQ(r.says("weft: SIGSEGV in goroutine "), how != "thread") << how << r;
      EXPECT_EQ(r.says("fault_here"), how != "thread") << how << r;
    }
  }
}

TEST(fatal_ends, a_fault_signal_that_somebody_sends) {
  const child_result r = run_program("segmentation_fault", {.arguments = {"sent"}});
  if (WEFT_ASAN || WEFT_TSAN) {
    EXPECT_TRUE(r.says("SEGV")) << r;
  } else {
    EXPECT_EQ(r.signal, SIGSEGV) << r;
  }
}

#if !WEFT_ASAN && !WEFT_TSAN  // they have something of their own to say first
// A signal handler that calls weft in the middle of weft would damage it; it is told what to do
// instead.
TEST(fatal_ends, weft_is_called_in_a_signal_handler) {
  for (const char* const how : {"sleep", "lock", "try_send", "thread"}) {
    const child_result r = run_program("in_handler", {.arguments = {how}});
    EXPECT_TRUE(r.status == 2 || r.signal == SIGSEGV) << how << r;
    EXPECT_TRUE(r.says("weft must not be called in a signal handler")) << how << r;
  }
}
#endif

// A handler that the program had before the runtime began still gets its signals.
TEST(fatal_ends, the_programs_own_fault_handler_is_called) {
  child_options options{.arguments = {"own_handler"}};
  // The sanitizers do not let a program have one unless asked.
  options.environment = {{"ASAN_OPTIONS", "allow_user_segv_handler=1"},
                         {"TSAN_OPTIONS", "allow_user_segv_handler=1"}};
  const child_result r = run_program("segmentation_fault", options);
  EXPECT_EQ(r.status, 7) << r;
  EXPECT_TRUE(r.says("the program's own handler")) << r;
}

// ----------------------------------------------------------------------------------- exploration

// An order of steps that kills the process would be lost with it; so it is told, and shown when it
// is run again.
TEST(explored_crash, is_replayed_from_the_line_that_it_prints) {
  for (const std::string how : {"fault", "abort", "overflow"}) {
    const child_result r = run_program("explored_crash", {.arguments = {how}});
    EXPECT_TRUE(r.signal != 0 || r.status > 0) << how << r;
    const std::string before = "replay: WEFT_SEED=";
    const std::size_t at = r.errors.find(before);
    ASSERT_NE(at, std::string::npos) << how << r;
    const std::string line = r.errors.substr(at + before.size());
    child_options options{.arguments = {how}};
    options.environment = {{"WEFT_SEED", line.substr(0, line.find(' '))}};
    const child_result again = run_program("explored_crash", options);
    EXPECT_EQ(again.signal, r.signal) << how << again;
    EXPECT_EQ(again.status, r.status) << how << again;
    EXPECT_TRUE(again.says("load n = 1 (:")) << how << again;
  }
}

// ------------------------------------------------------------------------------------------ fork

int fork_status(const std::string& where, const std::string& what) {
  child_options options{.arguments = {where, what}};
  // The child's copy of the leak checker may wait for a lock that a thread of the parent held.
  options.environment = {{"ASAN_OPTIONS", "detect_leaks=0"}};
  const child_result r = run_program("fork_in_goroutine", options);
  EXPECT_FALSE(r.timed_out) << where << " " << what << r;
  if (r.status != 17 && r.status != 18 && r.status != 19) {
    EXPECT_EQ(r.status, 2) << where << " " << what << r;
    EXPECT_TRUE(r.says("fork")) << where << " " << what << r;
    EXPECT_TRUE(r.says("exec")) << where << " " << what << r;
  }
  return r.status;
}

// Programs are started by fork and exec from anywhere, while everybody else is busy.
TEST(fork, the_child_may_exec_or_exit) {
  for (const char* const where : {"goroutine", "thread"}) {
    for (int i = 0; i < scaled(10, 2); ++i) {
      EXPECT_EQ(fork_status(where, "exec"), 17);
      EXPECT_EQ(fork_status(where, "_exit"), 18);
    }
  }
}

// exit in the child runs the handlers that were registered in the parent.
TEST(fork, the_child_may_call_exit) {
  EXPECT_EQ(fork_status("goroutine", "exit"), 19);
  EXPECT_EQ(fork_status("thread", "exit"), 19);
}

// The child has none of the runtime's threads. Using weft there would hang, so it ends with a
// message.
TEST(fork, the_use_of_weft_in_the_child_is_fatal) {
  for (const char* const what : {"go", "yield", "wait", "sleep"}) {
    EXPECT_EQ(fork_status("goroutine", what), 2) << what;
  }
  for (const char* const what : {"go", "wait", "sleep", "run", "max_procs"}) {
    EXPECT_EQ(fork_status("thread", what), 2) << what;
  }
}

// A fork before the first use of weft leaves nothing out: parent and child each start their own.
TEST(fork, before_the_first_use_both_have_a_runtime) {
  const child_result r = run_program("fork_in_goroutine", {.arguments = {"before"}});
  EXPECT_EQ(r.status, 21) << r;
}

// ------------------------------------------------------------------------------ dlclose

#if !WEFT_ASAN && !WEFT_TSAN
// The runtime's threads run code of the library that contains it, so that stays loaded.
TEST(unload, a_library_with_weft_inside_stays_loaded) {
  if (sizeof(WEFT_EMULATOR) > 1) GTEST_SKIP() << "there is no such library for another machine";
  for (int i = 0; i < 5; ++i) {
    const child_result r =
        run_program("unload", {.arguments = {std::string(WEFT_DEATH_DIR) + "/plugin.so"}});
    EXPECT_EQ(r.status, 0) << r;
    EXPECT_EQ(r.output, "100\n200\n300\n") << r;
    EXPECT_EQ(r.errors, "") << r;
  }
}
#endif

// ------------------------------------------------------------------------------- a peaceful exit

void expect_peaceful_exits(const std::string& who, const std::string& how, int times) {
  for (int i = 0; i < times; ++i) {
    const child_result r = run_program("exit_while_running", {.arguments = {who, how}});
    ASSERT_FALSE(r.timed_out) << who << " " << how << " the " << i << "th time\n" << r;
    ASSERT_EQ(r.signal, 0) << who << " " << how << " the " << i << "th time\n" << r;
    ASSERT_EQ(r.status, 0) << who << " " << how << " the " << i << "th time\n" << r;
    ASSERT_EQ(r.errors, "") << who << " " << how << " the " << i << "th time\n" << r;
  }
}

// main returns, static objects are destroyed, and goroutines that still use them must have been
// stopped before; a crash at exit is the most annoying of all.
TEST(process_exit, stops_goroutines_that_yield) {
  expect_peaceful_exits("yielders", "return", scaled(100, 10));
}
TEST(process_exit, does_not_wait_for_goroutines_that_wait_for_connections) {
  expect_peaceful_exits("acceptors", "return", scaled(20, 5));
  expect_peaceful_exits("acceptors", "inside", scaled(20, 5));
}
TEST(process_exit, stops_goroutines_that_start_others) {
  expect_peaceful_exits("spawners", "return", scaled(100, 10));
}
TEST(process_exit, stops_goroutines_that_sleep) {
  expect_peaceful_exits("sleepers", "return", scaled(100, 10));
}
TEST(process_exit, leaves_goroutines_that_wait_alone) {
  expect_peaceful_exits("waiters", "return", scaled(20, 5));
}
// Those that compute never come by to be stopped.
TEST(process_exit, stops_goroutines_that_compute) {
  expect_peaceful_exits("hogs", "return", scaled(100, 10));
}
// To stop them takes a while, because each is met outside of libc only now and then; but not longer
// than a person has patience.
TEST(process_exit, does_not_wait_for_hundreds_that_are_always_in_libc) {
  const auto begin = std::chrono::steady_clock::now();
  expect_peaceful_exits("crowd", "return", 1);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(scaled(7, 20)));
}
// Stopped in the middle of malloc or printf they would hold locks that the destructors need.
TEST(process_exit, does_not_hang_when_goroutines_allocate_print_and_throw) {
  expect_peaceful_exits("allocators", "return", scaled(100, 10));
}
TEST(process_exit, stops_everyone_at_once) {
  expect_peaceful_exits("all", "return", scaled(100, 10));
}
// Without run there is no point at which the end was foreseeable.
TEST(process_exit, stops_goroutines_of_a_program_without_run) {
  expect_peaceful_exits("yielders", "no_run", scaled(50, 5));
}
// exit may be called by a goroutine.
TEST(process_exit, may_be_called_in_a_goroutine) {
  expect_peaceful_exits("yielders", "inside", scaled(50, 5));
  expect_peaceful_exits("spawners", "inside", scaled(50, 5));
}

// Destructors and exit handlers may use weft like other code. What they start runs, on the thread
// that exits, and ends; and those that were there before do not run any more.
TEST(exit_waits, end_by_themselves_or_by_goroutines_that_are_started_then) {
  for (const char* const how : {"return", "atexit", "inside", "bound", "thread"}) {
    for (const char* const what :
         {"run", "go", "async", "sleep", "after", "ticker", "deadline", "yield", "accept"}) {
      const child_result r = run_program("exit_waits", {.arguments = {what, how}});
      EXPECT_EQ(r.status, 7) << what << " " << how << r;
      EXPECT_EQ(r.output, "done\nthe rest\nand once more\n") << what << " " << how << r;
      EXPECT_EQ(r.errors, "") << what << " " << how << r;
    }
  }
}

// A wait that nothing can end any more must not keep the process from ending, with the status that
// it was given and with all other destructors.
TEST(exit_waits, that_nothing_can_end_are_given_up) {
  const auto expect_end = [](const std::string& what, const std::string& how) {
    const child_result r = run_program("exit_waits", {.arguments = {what, how}});
    EXPECT_EQ(r.status, 7) << what << " " << how << r;
    EXPECT_EQ(r.output, "the rest\nand once more\n") << what << " " << how << r;
    EXPECT_TRUE(r.says("weft: exit: gave up a wait (")) << what << " " << how << r;
  };
  for (const char* const how : {"return", "atexit", "inside", "bound"}) {
    for (const char* const what : {"group", "wait_group", "future", "receive", "lock", "select"}) {
      expect_end(what, how);
    }
  }
  // There is a thread left that might do so, some time: it gets a few seconds.
  expect_end("group", "thread");
}

// Those that wait are the destructors of exit_runs.cpp.
TEST(exit_runs, waits_for_stopped_goroutines_are_given_up_whatever_those_were_about) {
  for (const char* const what : {"io", "context"}) {
    const child_result r = run_program("exit_runs", {.arguments = {what}});
    EXPECT_EQ(r.status, 7) << what << r;
    EXPECT_TRUE(r.says("weft: exit: gave up a wait (chan receive)")) << what << r;
  }
}
TEST(exit_runs, what_comes_after_a_wait_was_given_up_does_not_end_the_next_one) {
  const child_result r = run_program("exit_runs", {.arguments = {"late"}});
  EXPECT_EQ(r.status, 7) << r;
  EXPECT_EQ(r.output, "got 2\n") << r;
}
// A goroutine that was stopped is still in the context's list and in the queue of what it waits
// for, when these are destroyed or cancelled.
TEST(exit_runs, contexts_outlive_the_goroutines_that_wait_with_them) {
  const child_result dropped = run_program("exit_contexts", {.arguments = {"dropped"}});
  EXPECT_EQ(dropped.status, 7) << dropped;
  EXPECT_EQ(dropped.output, "") << dropped;
  const child_result cancelled = run_program("exit_contexts", {.arguments = {"cancelled"}});
  EXPECT_EQ(cancelled.status, 7) << cancelled;
  EXPECT_EQ(cancelled.output, "cancelled\n") << cancelled;
}
// One that fills a lot of memory stays at one place of the C library as if it slept.
TEST(exit_runs, a_goroutine_in_a_long_call_is_stopped) {
  if (WEFT_TSAN) {
    GTEST_SKIP()
        << "TSan delays signals until a call has returned, so the handler cannot tell where "
           "the goroutine is";
  }
  for (int i = 0; i < scaled(5, 1); ++i) {
    const child_result r = run_program("exit_runs", {.arguments = {"memset"}});
    EXPECT_EQ(r.status, 7) << r;
    EXPECT_EQ(r.output, "is stopped\n") << r;
  }
}

// What a destructor starts may itself call exit.
TEST(exit_waits, may_end_by_another_exit) {
  const child_result r = run_program("exit_waits", {.arguments = {"group", "nested"}});
  EXPECT_EQ(r.status, 7) << r;
  EXPECT_EQ(r.output, "the rest\nand once more\n") << r;
  EXPECT_EQ(r.errors, "") << r;
}

// The locks of the C library and of the allocator, wherever these are: in a library that can be
// told by its name, or in the program itself.
TEST(exit_in_library, leaves_no_thread_stopped_with_a_lock) {
  std::vector<std::pair<std::string, std::string>> programs = {{"exit_own_allocator", ""}};
  for (const char* const how : {"printf", "malloc", "throw", "local_time"}) {
    programs.emplace_back("exit_in_library", how);
#if WEFT_CAN_LINK_STATICALLY
    programs.emplace_back("exit_in_library_static", how);
#endif
  }
  for (const auto& [program, how] : programs) {
    for (int i = 0; i < scaled(10, 2); ++i) {
      const child_result r = run_program(program, {.arguments = {how}});
      ASSERT_EQ(r.status, 7) << program << " " << how << " the " << i << "th time\n" << r;
      ASSERT_EQ(r.errors, "exited\n") << program << " " << how << " the " << i << "th time\n" << r;
    }
  }
}

}  // namespace
