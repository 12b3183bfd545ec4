// handoff_test.cpp: goroutines that block their thread, announced or not. With one processor, so
// that a goroutine which keeps it stops all others.
#include "runtime_fixture.hpp"
#include "sched/call.hpp"
#include "sched/work.hpp"

#include <weft/weft.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <fcntl.h>
#include <functional>
#include <mutex>
#include <netdb.h>
#include <poll.h>
#include <semaphore.h>
#include <semaphore>
#include <stdexcept>
#include <string>
#include <sys/file.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using weft::debug::stats;
using weft::test::eventually;
using weft::test::grown;
using weft::test::procs_scope;
using weft::test::runtime_test;
using weft::test::scaled;
using steady = std::chrono::steady_clock;

class pipe_pair {
 public:
  pipe_pair() {
    if (::pipe2(ends_, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  }
  pipe_pair(const pipe_pair&) = delete;
  pipe_pair& operator=(const pipe_pair&) = delete;
  ~pipe_pair() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  char get() const {
    char c = 0;
    EXPECT_EQ(::read(ends_[0], &c, 1), 1);
    return c;
  }
  void put(char c) const { EXPECT_EQ(::write(ends_[1], &c, 1), 1); }
  int reader() const { return ends_[0]; }

 private:
  int ends_[2];
};

class handoff : public runtime_test {
 protected:
  const procs_scope one_{1};
};

// ------------------------------------------------------------------------------------- announced

TEST_F(handoff, blocking_lets_others_run_at_once) {
  const auto before = stats();
  pipe_pair p;
  weft::wait_group all;
  char got = 0;
  all.go([&] { got = weft::blocking([&] { return p.get(); }); });
  all.go([&] { p.put('x'); });  // runs only if the reader has not kept the processor
  all.wait();
  EXPECT_EQ(got, 'x');
  EXPECT_GE(grown(before, "handoff.blocking"), 1u);
}

TEST_F(handoff, blocking_returns_what_the_function_returns) {
  weft::run([] {
    int value = 1;
    int& same = weft::blocking([&]() -> int& { return value; });
    EXPECT_EQ(&same, &value);
    EXPECT_EQ(weft::blocking([] { return std::string("text"); }), "text");
    weft::blocking([&] { value = 2; });
    EXPECT_EQ(value, 2);
    const auto moved = weft::blocking([] { return std::make_unique<int>(3); });
    EXPECT_EQ(*moved, 3);
  });
}

TEST_F(handoff, blocking_lets_exceptions_through) {
  weft::run([] {
    EXPECT_THROW(weft::blocking([] { throw std::runtime_error("no"); }), std::runtime_error);
    weft::this_goroutine::yield();  // and the goroutine is a goroutine again
  });
}

TEST_F(handoff, blocking_keeps_the_thread_and_errno) {
  weft::run([] {
    const pid_t before = ::gettid();
    EXPECT_EQ(weft::blocking([] { return ::gettid(); }), before);
    const int error = weft::blocking([] {
      errno = EDOM;
      return errno;
    });
    EXPECT_EQ(error, EDOM);
  });
}

TEST_F(handoff, blocking_on_a_plain_thread_just_calls) {
  const auto before = stats();
  EXPECT_EQ(weft::blocking([] { return 7; }), 7);
  EXPECT_EQ(grown(before, "handoff.blocking"), 0u);
}

TEST_F(handoff, blocking_may_be_nested_and_use_weft) {
  weft::wait_group all;
  weft::chan<int> c;
  all.go([&] {
    weft::blocking([&] {
      weft::blocking([&] { c.send(1); });
      c.send(2);
      weft::this_goroutine::sleep_for(1ms);
      weft::blocking([&] { c.send(3); });
    });
    c.close();
  });
  std::vector<int> got;
  all.go([&] {
    for (const int i : c) got.push_back(i);
  });
  all.wait();
  EXPECT_EQ(got, (std::vector{1, 2, 3}));
}

TEST_F(handoff, blocking_works_for_a_goroutine_locked_to_its_thread) {
  pipe_pair p;
  weft::wait_group all;
  char got = 0;
  all.go([&] {
    weft::this_goroutine::lock_thread();
    const pid_t mine = ::gettid();
    got = weft::blocking([&] { return p.get(); });
    EXPECT_EQ(::gettid(), mine);
    weft::this_goroutine::unlock_thread();
  });
  all.go([&] { p.put('y'); });
  all.wait();
  EXPECT_EQ(got, 'y');
}

TEST_F(handoff, a_goroutine_may_end_in_a_blocking_call) {
  weft::wait_group all;
  all.go([] { weft::blocking([] { weft::this_goroutine::exit(); }); });
  all.wait();
}

TEST_F(handoff, many_blocking_calls_reuse_their_threads) {
  weft::wait_group all;
  const auto round = [&] {
    for (int i = 0; i < 20; ++i) {
      all.go([] { weft::blocking([] { std::this_thread::sleep_for(2ms); }); });
    }
    all.wait();
  };
  round();
  const std::uint64_t threads = stats()["machines"];
  for (int i = 0; i < 20; ++i) round();
  EXPECT_LE(stats()["machines"], threads + 20);
}

TEST_F(handoff, blocking_in_a_bubble_just_calls) {
  weft::test::bubble([] { EXPECT_EQ(weft::blocking([] { return 5; }), 5); });
}

// An announced call that is usually short keeps its processor, until it is not.
TEST_F(handoff, a_short_call_that_lasts_loses_its_processor) {
  const auto before = stats();
  pipe_pair p;
  weft::wait_group all;
  all.go([&] {
    const weft::sched::short_call announced;
    p.get();
  });
  all.go([&] { p.put('x'); });
  all.wait();
  EXPECT_GE(grown(before, "detach.call"), 1u);
}

TEST_F(handoff, short_calls_that_are_short_keep_it) {
  const auto before = stats();
  weft::run([] {
    for (int i = 0; i < 1000; ++i) {
      const weft::sched::short_call announced;
      (void)::getppid();
    }
  });
  EXPECT_LE(grown(before, "detach.call"), 5u);  // the kernel may take the core at any time
}

// ----------------------------------------------------------------------------------- unannounced

// One goroutine blocks as `block` does until another, which needs the only processor, lets it go.
void expect_detached(const std::function<void()>& block, const std::function<void()>& release) {
  const auto before = stats();
  weft::wait_group all;
  std::atomic<bool> blocks{false};
  all.go([&] {
    blocks = true;
    block();
  });
  all.go([&] {
    while (!blocks) weft::this_goroutine::yield();
    // Others keep their beat meanwhile.
    const auto start = steady::now();
    for (int i = 0; i < 10; ++i) weft::this_goroutine::sleep_for(1ms);
    EXPECT_LT(steady::now() - start, 5s);
    release();
  });
  all.wait();
  EXPECT_GE(grown(before, "detach.blocked") + grown(before, "loan.made"), 1u);
}

TEST_F(handoff, a_read_on_a_pipe) {
  pipe_pair p;
  expect_detached([&] { EXPECT_EQ(p.get(), 'z'); }, [&] { p.put('z'); });
}

TEST_F(handoff, poll) {
  pipe_pair p;
  expect_detached(
      [&] {
        pollfd f{p.reader(), POLLIN, 0};
        EXPECT_EQ(::poll(&f, 1, -1), 1);
      },
      [&] { p.put('z'); });
}

TEST_F(handoff, a_mutex_of_the_standard_library) {
  std::mutex m;
  std::binary_semaphore held{0};
  std::binary_semaphore enough{0};
  std::thread holder([&] {
    const std::lock_guard hold(m);
    held.release();
    enough.acquire();
  });
  held.acquire();
  expect_detached([&] { const std::lock_guard hold(m); }, [&] { enough.release(); });
  holder.join();
}

TEST_F(handoff, a_semaphore_of_the_system) {
  sem_t s;
  ASSERT_EQ(::sem_init(&s, 0, 0), 0);
  expect_detached([&] { EXPECT_EQ(::sem_wait(&s), 0); }, [&] { ::sem_post(&s); });
  ::sem_destroy(&s);
}

TEST_F(handoff, a_file_lock) {
  std::string path = "/tmp/weft_flock_XXXXXX";
  const int first = ::mkstemp(path.data());
  ASSERT_GE(first, 0);
  const int second = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(second, 0);
  ASSERT_EQ(::flock(first, LOCK_EX), 0);
  expect_detached([&] { EXPECT_EQ(::flock(second, LOCK_EX), 0); },
                  [&] { EXPECT_EQ(::flock(first, LOCK_UN), 0); });
  ::close(first);
  ::close(second);
  ::unlink(path.c_str());
}

TEST_F(handoff, waiting_for_a_child_process) {
  pipe_pair p;
  const pid_t child = ::fork();
  if (child == 0) {
    char c;
    ::_exit(::read(p.reader(), &c, 1) == 1 ? 3 : 4);
  }
  ASSERT_GT(child, 0);
  expect_detached(
      [&] {
        int status = 0;
        EXPECT_EQ(::waitpid(child, &status, 0), child);
        EXPECT_EQ(WEXITSTATUS(status), 3);
      },
      [&] { p.put('z'); });
}

TEST_F(handoff, joining_a_thread) {
  pipe_pair p;
  std::thread t([&] { p.get(); });
  expect_detached([&] { t.join(); }, [&] { p.put('z'); });
}

// Looks the name up in files: short, but code of others' that opens, reads and locks.
TEST_F(handoff, name_look_ups_beside_others) {
  weft::wait_group all;
  for (int i = 0; i < 20; ++i) {
    all.go([] {
      addrinfo hints{};
      hints.ai_family = AF_INET;
      addrinfo* found = nullptr;
      if (::getaddrinfo("localhost", "80", &hints, &found) == 0) ::freeaddrinfo(found);
    });
  }
  all.wait();
}

// A lock held across a wait: its owner needs the processor on which the other waits for the lock.
TEST_F(handoff, a_standard_mutex_held_across_a_wait) {
  std::mutex m;
  weft::wait_group all;
  for (int i = 0; i < 10; ++i) {
    all.go([&] {
      const std::lock_guard hold(m);
      weft::this_goroutine::sleep_for(1ms);
    });
  }
  all.wait();
}

TEST_F(handoff, two_hundred_sleepers_sleep_together) {
  const auto before = stats();
  weft::wait_group all;
  const auto start = steady::now();
  for (int i = 0; i < 200; ++i) all.go([] { std::this_thread::sleep_for(100ms); });
  all.wait();
  const auto took = steady::now() - start;
  EXPECT_GE(took, 100ms);
  EXPECT_LT(took, 2s * scaled(1, 5));  // one after the other: 20 s
  // Where threads start slowly, those that come back meanwhile take the processors that wait for
  // one.
  EXPECT_GE(grown(before, "detach.blocked"), static_cast<std::uint64_t>(100 / scaled(1, 5)));
}

// No goroutine waits for the processor, so it stays where it is.
TEST_F(handoff, a_lone_sleeper_keeps_its_processor) {
  const auto before = stats();
  weft::run([] { std::this_thread::sleep_for(20ms); });
  EXPECT_EQ(grown(before, "detach.blocked"), 0u);
}

// A detached goroutine that does not come back but computes is counted in before long.
TEST_F(handoff, who_computes_after_a_call_gets_in_line) {
  const auto before = stats();
  std::atomic<bool> stop{false};
  weft::wait_group all;
  for (int i = 0; i < 4; ++i) {
    all.go([&] {
      std::this_thread::sleep_for(20ms);
      while (!stop.load(std::memory_order_relaxed)) {
      }
    });
  }
  all.go([&] {
    for (int i = 0; i < 100; ++i) weft::this_goroutine::sleep_for(1ms);
    stop = true;
  });
  all.wait();
  EXPECT_GE(grown(before, "detach.blocked"), 1u);
  if (!weft::test::slow_build) {
    EXPECT_GE(grown(before, "pause.unattached") + grown(before, "pause.hog"), 1u);
  }
}

// While everything is idle the monitor sleeps; a goroutine that returns from a call and computes
// wakes it.
TEST_F(handoff, the_monitor_wakes_with_one_that_comes_back) {
  std::atomic<bool> computes{false};
  std::atomic<bool> stop{false};
  weft::wait_group all;
  all.go([&] {
    weft::blocking([] { std::this_thread::sleep_for(50ms); });
    computes = true;
    while (!stop.load(std::memory_order_relaxed)) {
    }
  });
  while (!computes) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(20ms);
  const auto start = steady::now();
  all.go([&] { stop = true; });  // from a plain thread, which needs the only processor
  all.wait();
  EXPECT_LT(steady::now() - start, 500ms * scaled(1, 4));
}

// A machine that sleeps in the poller loses its processor to a goroutine that comes back from a
// call, and may get it again at once, when that goroutine blocks anew. If events come in between,
// the machine must not look at a processor that another thread is about to give it; TSan tells.
TEST_F(handoff, events_come_while_a_machine_in_the_poller_has_lost_its_processor) {
  constexpr int readers = 32;
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  std::vector<weft::os::file> files;
  for (int i = 0; i < readers; ++i) {
    auto file = weft::os::file::adopt(::dup(ends[0]));  // so one write is an event for each of them
    ASSERT_TRUE(file);
    files.push_back(std::move(*file));
  }
  ::close(ends[0]);
  weft::wait_group all;
  for (weft::os::file& file : files) {
    all.go([&file] {
      std::byte into[1];
      for (auto n = file.read(into); n && *n != 0; n = file.read(into)) {
      }
    });
  }
  all.go([&] {
    const auto end = steady::now() + 1s;
    while (steady::now() < end) {
      weft::blocking([] { std::this_thread::sleep_for(200us); });  // the others lie down meanwhile
      EXPECT_EQ(::write(ends[1], "", 1), 1);
      // The first reader has been queued, and the machine queues the others: now it gets the
      // processor again, by the next call.
      const auto go_on = steady::now() + 1ms;
      while (!weft::sched::work_waits_hint() && steady::now() < go_on) {
      }
    }
    ::close(ends[1]);
  });
  all.wait();
}

}  // namespace
