// os_signal_test.cpp: signals as messages, and what they do when no channel listens.
#include "child_process.hpp"
#include "eventually.hpp"
#include "runtime_fixture.hpp"

#include <weft/weft.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <optional>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>

namespace {

namespace os = weft::os;
using namespace std::chrono_literals;
using weft::test::child_result;
using weft::test::eventually;
using weft::test::run_program;
using weft::test::runtime_test;
using weft::test::scaled;

class os_signal : public runtime_test {};

void send_self(int s) { ASSERT_EQ(::kill(::getpid(), s), 0); }

std::optional<int> receive(const weft::chan<int>& c) {
  std::optional<int> got;
  weft::select(weft::recv(c, [&](std::optional<int> v) { got = v; }), weft::after(30s));
  return got;
}

std::atomic<int> earlier_handler_calls{0};
void earlier_handler(int) { earlier_handler_calls.fetch_add(1); }

TEST_F(os_signal, comes_as_a_message) {
  weft::run([] {
    const weft::chan<int> c(1);
    os::notify(c, {SIGUSR1});
    for (int i = 0; i < 10; ++i) {
      send_self(SIGUSR1);
      EXPECT_EQ(receive(c), SIGUSR1);
    }
    os::stop(c);
  });
}

TEST_F(os_signal, every_channel_gets_a_copy) {
  const weft::chan<int> one(4);
  const weft::chan<int> two(4);
  os::notify(one, {SIGUSR1});
  os::notify(two, {SIGUSR1, SIGUSR2});
  os::notify(one, {SIGUSR1});  // once is enough
  send_self(SIGUSR1);
  EXPECT_EQ(receive(one), SIGUSR1);
  EXPECT_EQ(receive(two), SIGUSR1);
  send_self(SIGUSR2);
  EXPECT_EQ(receive(two), SIGUSR2);
  EXPECT_EQ(one.size(), 0u);
  os::stop(one);
  send_self(SIGUSR1);
  EXPECT_EQ(receive(two), SIGUSR1);
  EXPECT_EQ(one.size(), 0u);
  os::stop(two);
}

// The service never waits for a channel that is full, unbuffered or closed.
TEST_F(os_signal, what_does_not_fit_is_dropped) {
  const weft::chan<int> full(1);
  const weft::chan<int> unbuffered;
  const weft::chan<int> closed(1);
  const weft::chan<int> witness(100);
  for (const auto& c : {full, unbuffered, closed, witness}) os::notify(c, {SIGUSR1});
  closed.close();
  for (int i = 0; i < 5; ++i) {
    send_self(SIGUSR1);
    EXPECT_EQ(receive(witness), SIGUSR1);
  }
  EXPECT_EQ(full.size(), 1u);
  for (const auto& c : {full, unbuffered, closed, witness}) os::stop(c);
}

TEST_F(os_signal, stop_brings_back_what_was_before) {
  struct sigaction mine{};
  mine.sa_handler = &earlier_handler;
  mine.sa_flags = SA_RESTART;
  ::sigaddset(&mine.sa_mask, SIGWINCH);
  ASSERT_EQ(::sigaction(SIGUSR2, &mine, nullptr), 0);
  const int calls = earlier_handler_calls.load();
  const weft::chan<int> one(1);
  const weft::chan<int> two(1);
  os::notify(one, {SIGUSR2});
  os::notify(two, {SIGUSR2});
  send_self(SIGUSR2);
  EXPECT_EQ(receive(one), SIGUSR2);
  EXPECT_EQ(receive(two), SIGUSR2);
  os::stop(one);
  send_self(SIGUSR2);
  EXPECT_EQ(receive(two), SIGUSR2);
  EXPECT_EQ(earlier_handler_calls.load(), calls);
  os::stop(two);
  os::stop(two);  // not there any more
  struct sigaction now{};
  ASSERT_EQ(::sigaction(SIGUSR2, nullptr, &now), 0);
  EXPECT_EQ(now.sa_handler, &earlier_handler);
  EXPECT_NE(::sigismember(&now.sa_mask, SIGWINCH), 0);
  send_self(SIGUSR2);
  EXPECT_TRUE(eventually([&] { return earlier_handler_calls.load() == calls + 1; }));
  EXPECT_EQ(one.size() + two.size(), 0u);
  ::signal(SIGUSR2, SIG_DFL);
}

TEST_F(os_signal, no_list_means_all_that_can_be_caught) {
  const weft::chan<int> c(10);
  os::notify(c, {});
  for (const int s : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGALRM, SIGCHLD, SIGTSTP, SIGPIPE,
                      SIGRTMIN + 5}) {
    send_self(s);
    EXPECT_EQ(receive(c), s);
  }
  for (const int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGURG}) {
    struct sigaction a{};
    ASSERT_EQ(::sigaction(s, nullptr, &a), 0);
    const weft::chan<int> named(1);
    os::notify(named, {s});
    struct sigaction b{};
    ASSERT_EQ(::sigaction(s, nullptr, &b), 0);
    if (s != SIGURG) {  // which has the runtime's handler all the time
      EXPECT_NE(a.sa_sigaction, b.sa_sigaction) << s;
    }
    os::stop(named);
    ASSERT_EQ(::sigaction(s, nullptr, &b), 0);
    EXPECT_EQ(a.sa_sigaction, b.sa_sigaction) << s;
  }
  os::stop(c);
  struct sigaction now{};
  ASSERT_EQ(::sigaction(SIGTERM, nullptr, &now), 0);
  EXPECT_EQ(now.sa_handler, SIG_DFL);
}

// Sent by others they are signals like all; and the runtime's own is not disturbed.
TEST_F(os_signal, faults_and_the_runtimes_own_when_others_send_them) {
  for (const int s : {SIGSEGV, SIGBUS, SIGFPE, SIGURG}) {
    const weft::chan<int> c(1);
    os::notify(c, {s});
    send_self(s);
    EXPECT_EQ(receive(c), s);
    os::stop(c);
  }
  const child_result r = run_program("signals", {.arguments = {"fault"}});
  if (weft::base::sanitizer::active) {
    EXPECT_NE(r.status, 0) << r;  // a sanitizer reports it itself
  } else {
    EXPECT_EQ(r.signal, SIGSEGV) << r;
  }
}

TEST_F(os_signal, what_cannot_be_asked_for) {
  const weft::chan<int> c(1);
  EXPECT_THROW(os::notify(nullptr, {SIGUSR1}), std::invalid_argument);
  for (const int s : {0, -1, 65, 1000, 32, SIGKILL, SIGSTOP}) {
    EXPECT_THROW(os::notify(c, {SIGUSR1, s}), std::invalid_argument) << s;
  }
  struct sigaction now{};
  ASSERT_EQ(::sigaction(SIGUSR1, nullptr, &now), 0);
  EXPECT_EQ(now.sa_handler, SIG_DFL);  // nothing was done by halves
  os::stop(c);
  os::stop(nullptr);
}

TEST_F(os_signal, ends_a_context) {
  auto [ctx, stop] = os::notify_context(weft::context::background(), {SIGUSR1, SIGUSR2});
  EXPECT_FALSE(ctx.err());
  send_self(SIGUSR2);
  ctx.done().recv();
  EXPECT_EQ(ctx.err(), weft::errc::canceled);
  try {
    std::rethrow_exception(ctx.cause());
  } catch (const os::signal_received& e) {
    EXPECT_EQ(e.signal(), SIGUSR2);
    EXPECT_EQ(e.code(), weft::errc::canceled);
    EXPECT_NE(std::string(e.what()).find("signal received"), std::string::npos);
  }
  stop();
  stop();
  struct sigaction now{};
  ASSERT_EQ(::sigaction(SIGUSR1, nullptr, &now), 0);
  EXPECT_EQ(now.sa_handler, SIG_DFL);
}

TEST_F(os_signal, stop_ends_a_context_too_and_so_does_its_parent) {
  auto [parent, cancel] = weft::with_cancel(weft::context::background());
  const auto first = os::notify_context(parent, {SIGUSR1});
  const auto second = os::notify_context(parent, {SIGUSR1});
  first.stop();
  EXPECT_EQ(first.ctx.err(), weft::errc::canceled);
  EXPECT_FALSE(second.ctx.err());
  cancel();
  EXPECT_EQ(second.ctx.err(), weft::errc::canceled);
  second.stop();
}

// A handler that disturbed errno would make calls fail for no reason, anywhere.
TEST_F(os_signal, errno_is_left_alone) {
  const weft::chan<int> c(1);
  os::notify(c, {SIGUSR1});
  const pthread_t me = ::pthread_self();
  std::atomic<bool> over{false};
  std::thread sender([&] {
    for (int i = 0; i < 2000; ++i) ::pthread_kill(me, SIGUSR1);
    over = true;
  });
  errno = 123;
  while (!over.load(std::memory_order_relaxed)) {
    if (errno != 123) break;
  }
  EXPECT_EQ(errno, 123);
  sender.join();
  os::stop(c);
}

// Goroutines that wait for nothing but a signal are no deadlock.
TEST_F(os_signal, wakes_a_program_that_waits_for_nothing_else) {
  weft::run([] {
    const weft::chan<int> c(1);
    os::notify(c, {SIGUSR1});
    std::thread([] {
      std::this_thread::sleep_for(100ms);
      ::kill(::getpid(), SIGUSR1);
    }).detach();
    EXPECT_EQ(c.recv(), SIGUSR1);
    os::stop(c);
  });
}

// Signals from everywhere while channels come and go: nothing is sent to one after its stop().
TEST_F(os_signal, many_of_them_beside_notify_and_stop) {
  ::signal(SIGUSR1, SIG_IGN);  // in between
  std::atomic<bool> over{false};
  std::thread sender([&] {
    while (!over.load()) {
      ::kill(::getpid(), SIGUSR1);
      std::this_thread::yield();
    }
  });
  weft::wait_group all;
  std::atomic<int> received{0};
  for (int g = 0; g < 4; ++g) {
    all.go([&] {
      for (int i = 0; i < scaled(200, 20); ++i) {
        const weft::chan<int> c(1);
        os::notify(c, {SIGUSR1});
        if (i % 2 == 0 && receive(c) == SIGUSR1) received.fetch_add(1);
        os::stop(c);
        while (c.try_recv()) {
        }
        weft::this_goroutine::yield();
        EXPECT_EQ(c.size(), 0u);
      }
    });
  }
  all.wait();
  over = true;
  sender.join();
  EXPECT_EQ(received.load(), 4 * scaled(100, 10));
  struct sigaction now{};
  ASSERT_EQ(::sigaction(SIGUSR1, nullptr, &now), 0);
  EXPECT_EQ(now.sa_handler, SIG_IGN);
  ::signal(SIGUSR1, SIG_DFL);
}

// --------------------------------------------------------------------------------- other processes

// Either the channel gets it or the process dies of it: never neither.
TEST_F(os_signal, none_is_lost_around_stop) {
  const child_result r = run_program("signals", {.arguments = {"around_stop"}});
  EXPECT_TRUE(r.signal == SIGINT || r.status == 0) << r;
}

TEST_F(os_signal, the_default_is_back_after_stop) {
  EXPECT_EQ(run_program("signals", {.arguments = {"default"}}).signal, SIGTERM);
}

TEST_F(os_signal, a_closed_standard_output_kills) {
  for (const char* const how : {"stdout", "stderr", "stdout_blocking"}) {
    const child_result r = run_program("signals", {.arguments = {how}});
    EXPECT_EQ(r.signal, SIGPIPE) << how << r;
  }
}

TEST_F(os_signal, a_closed_peer_does_not_kill) {
  const child_result r = run_program("signals", {.arguments = {"peer"}});
  EXPECT_EQ(r.status, 0) << r;
}

// What is executed has the default back: `yes | head` must end below a server, too.
TEST_F(os_signal, children_get_the_default_of_a_broken_pipe) {
  const child_result r = run_program("signals", {.arguments = {"exec"}});
  EXPECT_EQ(r.signal, SIGPIPE) << r;
}

TEST_F(os_signal, a_broken_pipe_can_be_asked_for) {
  const child_result r = run_program("signals", {.arguments = {"notify_pipe"}});
  EXPECT_EQ(r.status, 0) << r;
}

}  // namespace
