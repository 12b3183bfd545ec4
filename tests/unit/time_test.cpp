// Timers and tickers, mostly in bubbles: what happens when is exact there.
#include "allocated.hpp"
#include "eventually.hpp"
#include "runtime_fixture.hpp"
#include "sched/scheduler.hpp"

#include <weft/test.hpp>
#include <weft/time.hpp>
#include <weft/weft.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <ratio>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using weft::clock;
using weft::test::bubble;
using weft::test::explore;
using weft::test::procs_scope;
using weft::test::scaled;

TEST(timer, delivers_the_time_when_it_is_due) {
  bubble([] {
    const auto start = clock::now();
    const weft::timer t(3h);
    const auto at = t.c().recv();
    EXPECT_EQ(*at, start + 3h);
    EXPECT_EQ(clock::now(), start + 3h);
    EXPECT_EQ(*weft::after(1min).recv(), start + 3h + 1min);
    EXPECT_EQ(*weft::after(-1min).recv(), start + 3h + 1min);
  });
}

// The value tells when it was due, however late it is received.
TEST(timer, a_late_receiver_gets_the_time_when_it_was_due) {
  bubble([] {
    const auto start = clock::now();
    const weft::timer t(10ms);
    const weft::receiver<clock::time_point> c = weft::after(20ms);
    weft::this_goroutine::sleep_for(1h);
    EXPECT_EQ(*t.c().recv(), start + 10ms);
    EXPECT_EQ(*c.recv(), start + 20ms);
    EXPECT_FALSE(t.c().try_recv()) << "once";
  });
}

// "For ever" and "long ago" are written as the largest and the smallest duration; what is due must
// wrap neither into the past nor into the future.
TEST(timer, takes_the_longest_and_the_shortest_durations) {
  bubble([] {
    const auto start = clock::now();
    int called = 0;
    std::vector<weft::timer> timers{
        weft::timer(std::chrono::nanoseconds::max()),
        weft::timer(std::chrono::hours::max()),
        weft::timer(std::chrono::duration<double>(1e300)),
        weft::after_func(std::chrono::hours::max(), [&] { ++called; }),
    };
    weft::ticker t(std::chrono::hours::max());
    const auto never = weft::with_timeout(weft::context::background(), std::chrono::hours::max());
    weft::this_goroutine::sleep_for(24h * 365 * 100);
    for (weft::timer& far : timers) {
      EXPECT_FALSE(far.c().try_recv());
      EXPECT_TRUE(far.stop());
    }
    EXPECT_EQ(called, 0);
    EXPECT_FALSE(t.c().try_recv());
    EXPECT_FALSE(never.ctx.err());
    never.cancel();
    EXPECT_EQ(clock::now(), start + 24h * 365 * 100);

    weft::after(std::chrono::nanoseconds::min()).recv();
    weft::after(std::chrono::hours::min()).recv();
    weft::timer again(1h);
    again.reset(std::chrono::hours::min());
    again.c().recv();
    weft::after_func(std::chrono::hours::min(), [&] { ++called; });
    EXPECT_EQ(clock::now(), start + 24h * 365 * 100);
    weft::this_goroutine::sleep_for(1ns);
    EXPECT_EQ(called, 1);
  });
}

// The functions that take a duration and those that take a time point, by one name each.
struct by_duration {
  static auto context(auto d) { return with_timeout(weft::context::background(), d).ctx; }
  static void sleep(auto d) { weft::this_goroutine::sleep_for(d); }
  static bool lock(auto& m, auto d) { return m.try_lock_for(d); }
  static bool lock_shared(auto& m, auto d) { return m.try_lock_shared_for(d); }
  static bool acquire(auto& s, auto d) { return s.try_acquire_for(d); }
  static auto wait(auto& waits, auto&&... how) { return waits.wait_for(how...); }
};
struct by_point {
  static auto context(auto t) { return with_deadline(weft::context::background(), t).ctx; }
  static void sleep(auto t) { weft::this_goroutine::sleep_until(t); }
  static bool lock(auto& m, auto t) { return m.try_lock_until(t); }
  static bool lock_shared(auto& m, auto t) { return m.try_lock_shared_until(t); }
  static bool acquire(auto& s, auto t) { return s.try_acquire_until(t); }
  static auto wait(auto& waits, auto&&... how) { return waits.wait_until(how...); }
};

// Time points and durations at the ends of their types, also of types coarser than a nanosecond and
// of odd periods: nothing overflows, what is past is past and what is far is far.
template <class By>
void wait_by(auto far, auto past) {
  weft::mutex m;
  weft::shared_mutex s;
  weft::condition_variable cv;
  weft::binary_semaphore sem(0);
  auto soon = weft::async([] { weft::this_goroutine::yield(); });
  m.lock();
  s.lock();
  EXPECT_EQ(By::context(past).err(), weft::errc::deadline_exceeded);
  EXPECT_FALSE(By::context(far).err());
  By::sleep(past);
  EXPECT_FALSE(By::lock(m, past));
  EXPECT_FALSE(By::lock(s, past));
  EXPECT_FALSE(By::lock_shared(s, past));
  EXPECT_FALSE(By::acquire(sem, past));
  EXPECT_EQ(By::wait(soon, far), std::future_status::ready);
  std::unique_lock<weft::mutex> held(m, std::adopt_lock);
  EXPECT_EQ(By::wait(cv, held, past), std::cv_status::timeout);
  EXPECT_FALSE(By::wait(cv, held, past, [] { return false; }));
  sem.release();
  EXPECT_TRUE(By::acquire(sem, far));
  held.unlock();
  EXPECT_TRUE(By::lock(m, far));
  m.unlock();
  s.unlock();
  EXPECT_TRUE(By::lock(s, far));
  s.unlock();
}

template <class D>
void take_all_kinds(D far, D past) {
  wait_by<by_duration>(far, past);
  EXPECT_FALSE(weft::this_goroutine::sleep_for(weft::context::background(), past));
  weft::after(past).recv();
  EXPECT_EQ(weft::select(weft::after(far, [] {}), weft::after(past, [] {})), 1u);
  EXPECT_FALSE(weft::after(far).try_recv());
  weft::ticker t(far);
  t.reset(far);
  EXPECT_FALSE(t.c().try_recv());
}

template <class Point>
void take_all_points() {
  constexpr Point far = Point::max();
  wait_by<by_point>(far, Point::min());
  weft::mutex m;
  weft::condition_variable cv;
  // And waits that something else ends.
  weft::wait_group all;
  const weft::chan<int> woken(1);
  auto [c, cancel] = with_deadline(weft::context::background(), far);
  all.go([&, c = c] {
    std::unique_lock<weft::mutex> lock(m);
    EXPECT_EQ(cv.wait_until(lock, far), std::cv_status::no_timeout);
    woken.send(1);
    c.done().recv();
  });
  while (!woken.try_recv()) {
    cv.notify_all();
    weft::this_goroutine::yield();
  }
  cancel();
  all.wait();
}

TEST(timer, durations_and_time_points_of_every_size_fit) {
  using namespace std::chrono;
  using frames = duration<std::int64_t, std::ratio<1, 60>>;
  using thirds = duration<std::int64_t, std::ratio<7, 3>>;
  weft::run([] {
    take_all_kinds(nanoseconds::max(), nanoseconds::min());
    take_all_kinds(seconds::max(), seconds::min());
    take_all_kinds(hours::max(), hours::min());
    take_all_kinds(frames::max(), frames::min());
    take_all_kinds(frames(60LL * 3'600 * 24 * 365 * 200), frames(-60LL * 3'600 * 24 * 365 * 200));
    take_all_kinds(thirds::max(), thirds::min());
    take_all_kinds(duration<double>::max(), duration<double>::min());
    take_all_kinds(duration<float, std::micro>(1e30f), duration<float, std::micro>(-1e30f));
    take_all_points<clock::time_point>();
    take_all_points<steady_clock::time_point>();
    take_all_points<system_clock::time_point>();
    take_all_points<sys_seconds>();
    take_all_points<sys_days>();
    take_all_points<time_point<steady_clock, hours>>();
    take_all_points<time_point<system_clock, frames>>();
  });
  EXPECT_EQ(weft::detail::to_ns(frames(60)), 1'000'000'000);
  EXPECT_EQ(weft::detail::to_ns(frames(1)), 16'666'667);
  EXPECT_EQ(weft::detail::to_ns(thirds(3)), 7'000'000'000);
  EXPECT_EQ(weft::detail::to_ns(duration<double>(std::nan(""))), 0);
}

// Deadlines of files and sockets do not overflow, either.
TEST(timer, deadlines_at_the_ends_of_time_fit) {
  weft::run([] {
    auto pipe = weft::os::pipe();
    ASSERT_TRUE(pipe);
    auto& [in, out] = *pipe;
    auto listener = weft::net::listen("tcp", "127.0.0.1:0");
    ASSERT_TRUE(listener);
    std::array<std::byte, 1> byte{};
    for (const auto past : {clock::time_point::min(), clock::time_point(1ns)}) {
      EXPECT_FALSE(in.set_deadline(past));
      EXPECT_EQ(in.read(byte).error(), weft::errc::timed_out);
      listener->set_deadline(past);
      EXPECT_EQ(listener->accept().error(), weft::errc::timed_out);
    }
    EXPECT_FALSE(in.set_read_deadline(std::chrono::hours::min()));
    EXPECT_EQ(in.read(byte).error(), weft::errc::timed_out);
    const auto answer_after = [&](auto set) {
      weft::wait_group all;
      set();
      all.go([&] { EXPECT_EQ(in.read(byte), 1u); });
      EXPECT_TRUE(weft::test::until_waiting(1, weft::detail::wait_reason::io));
      EXPECT_EQ(out.write(std::array<std::byte, 1>{}), 1u);
      all.wait();
    };
    answer_after([&] { EXPECT_FALSE(in.set_read_deadline(clock::time_point::max())); });
    answer_after([&] { EXPECT_FALSE(in.set_read_deadline(std::chrono::hours::max())); });
    answer_after([&] { EXPECT_FALSE(in.set_deadline(std::chrono::nanoseconds::max())); });
  });
}

// A test's clock may come to the end of time, and tick there.
TEST(ticker, of_the_longest_period_ticks_at_the_end_of_time) {
  bubble([] {
    weft::ticker t(std::chrono::nanoseconds::max());
    t.c().recv();
    weft::this_goroutine::sleep_for(std::chrono::hours::max());
    EXPECT_FALSE(t.c().try_recv());
  });
}

// One that is due at once fires each time, new, used again, or with a function.
TEST(timer, of_no_time_fires_each_time) {
  const auto look = [](int n) {
    weft::timer used_again(0s);
    for (int i = 0; i < n; ++i) {
      used_again.c().recv();
      EXPECT_FALSE(used_again.reset(0s));
      weft::timer(0s).c().recv();
      const weft::chan<int> called(1);
      weft::after_func(0s, [called] { called.send(1); });
      called.recv();
    }
    EXPECT_TRUE(used_again.stop());
  };
  bubble([&] { look(100); });
  for (const int procs : {1, 2, 8}) {
    const procs_scope p(procs);
    weft::run([&] { look(scaled(2'000, 200)); });
  }
}

TEST(timer, fires_in_the_order_of_time) {
  bubble([] {
    std::string order;
    weft::wait_group all;
    for (const int n : {5, 2, 8, 1, 9, 3}) {
      all.go([&order, n] {
        weft::after(std::chrono::milliseconds(n)).recv();
        order += std::to_string(n);
      });
    }
    all.wait();
    EXPECT_EQ(order, "123589");
  });
}

// Stop and reset say whether there was still something to stop, and leave no stale value.
TEST(timer, stop_tells_whether_it_was_in_time) {
  bubble([] {
    weft::timer t(1s);
    EXPECT_TRUE(t.stop());
    EXPECT_FALSE(t.stop());
    EXPECT_FALSE(t.reset(1s));
    weft::this_goroutine::sleep_for(2s);
    EXPECT_TRUE(t.stop()) << "the value was not received";
    EXPECT_FALSE(t.c().try_recv()) << "and is gone";
    t.reset(1s);
    t.c().recv();
    EXPECT_FALSE(t.stop()) << "the value was received";
    EXPECT_FALSE(t.reset(1s));
    EXPECT_TRUE(t.reset(5s));
    const auto start = clock::now();
    t.c().recv();
    EXPECT_EQ(clock::now(), start + 5s);
  });
}

// A goroutine that waits already gets the value of the last reset, at its time, and none of a
// stopped timer.
TEST(timer, stop_and_reset_count_for_a_goroutine_that_waits_already) {
  bubble([] {
    const auto start = clock::now();
    weft::timer t(10s);
    weft::wait_group all;
    std::vector<clock::duration> got;
    const auto receive = [&] {
      got.push_back(*t.c().recv() - start);
      EXPECT_EQ(clock::now() - start, got.back());
    };
    all.go(receive);
    weft::test::wait();
    EXPECT_TRUE(t.reset(1s));  // earlier
    all.wait();
    all.go(receive);
    weft::test::wait();
    EXPECT_FALSE(t.reset(1s));
    EXPECT_TRUE(t.reset(1h));  // later
    weft::this_goroutine::sleep_for(1min);
    EXPECT_EQ(got.size(), 1u);
    EXPECT_TRUE(t.stop());
    weft::this_goroutine::sleep_for(2h);
    EXPECT_EQ(got.size(), 1u);
    EXPECT_FALSE(t.reset(1s));
    all.wait();
    EXPECT_EQ(got, (std::vector<clock::duration>{1s, 1s + 1min + 2h + 1s}));
  });
}

TEST(timer, a_copy_is_a_handle_on_the_same_timer) {
  bubble([] {
    weft::timer a(1s);
    weft::timer b = a;
    EXPECT_TRUE(b.stop());
    EXPECT_FALSE(a.stop());
    EXPECT_EQ(a.c(), b.c());
  });
}

// Whatever a stop races with, its answer is right: false means that the value was received.
TEST(timer, stop_races_with_the_firing) {
  explore({.runs = weft::test::runs(5'000)}, [] {
    weft::timer t(1ms);
    bool received = false;
    weft::wait_group all;
    all.go([&] { received = weft::select(weft::recv(t.c()), weft::after(2ms, [] {})) == 0; });
    weft::this_goroutine::sleep_for(1ms);
    const bool stopped = t.stop();
    all.wait();
    EXPECT_NE(stopped, received);
  });
}

// The same for a reset, against one who looks and does not wait: false means that the value was
// received, and the next one is that of the reset.
TEST(timer, reset_races_with_the_firing) {
  explore({.runs = weft::test::runs(5'000)}, [] {
    weft::timer t(1ms);
    bool received = false;
    bool reset = false;
    weft::wait_group all;
    all.go([&] {
      weft::this_goroutine::sleep_for(2ms);
      const bool late = reset;
      received = t.c().try_recv().has_value();
      EXPECT_FALSE(late && received) << "a stale value";
    });
    weft::this_goroutine::sleep_for(2ms);
    const auto begin = clock::now();
    const bool was_running = t.reset(1h);
    reset = true;
    all.wait();
    EXPECT_NE(was_running, received);
    EXPECT_GE(*t.c().recv() - begin, 1h);
  });
}

TEST(timer, resets_may_race) {
  explore({.runs = weft::test::runs(3'000)}, [] {
    weft::timer t(1ms);
    weft::wait_group all;
    for (int i = 0; i < 2; ++i) all.go([&, i] { t.reset(std::chrono::milliseconds(5 + i)); });
    all.wait();
    t.stop();
  });
}

TEST(after_func, calls_in_a_goroutine_of_its_own) {
  bubble([] {
    int calls = 0;
    weft::timer t = weft::after_func(1s, [&, owned = std::make_unique<int>(5)] {
      calls += *owned;
      EXPECT_NE(weft::this_goroutine::id(), 1u);
    });
    EXPECT_FALSE(t.c());
    weft::this_goroutine::sleep_for(999ms);
    EXPECT_EQ(calls, 0);
    weft::this_goroutine::sleep_for(2ms);
    EXPECT_EQ(calls, 5);
    EXPECT_FALSE(t.stop());
    EXPECT_FALSE(t.reset(1s));
    weft::this_goroutine::sleep_for(2s);
    EXPECT_EQ(calls, 10);
    EXPECT_FALSE(t.reset(1s));
    EXPECT_TRUE(t.stop());
    weft::this_goroutine::sleep_for(2s);
    EXPECT_EQ(calls, 10);
    // Dropping the timer stops nothing.
    weft::after_func(1s, [&] { ++calls; });
    weft::this_goroutine::sleep_for(2s);
    EXPECT_EQ(calls, 11);
  });
}

// Each is called at its time, and each may start the next, or itself anew.
TEST(after_func, is_called_in_the_order_of_time_and_may_start_itself_anew) {
  bubble([] {
    const auto start = clock::now();
    std::string order;
    for (const int n : {5, 2, 8, 1, 9, 3}) {
      weft::after_func(std::chrono::milliseconds(n), [&order, start, n] {
        EXPECT_EQ(clock::now() - start, std::chrono::milliseconds(n));
        order += std::to_string(n);
      });
    }
    weft::this_goroutine::sleep_for(1s);
    EXPECT_EQ(order, "123589");

    int left = 100;
    const weft::chan<int> done;
    const std::function<void()> count_down = [&] {
      if (--left == 0) {
        done.close();
      } else {
        weft::after_func(1s, count_down);
      }
    };
    weft::after_func(1s, count_down);
    done.recv();
    EXPECT_EQ(clock::now() - start, 1s + 100s);

    int turns = 0;
    weft::chan<weft::timer> itself(1);
    itself.send(weft::after_func(1s, [&turns, itself] {
      weft::timer me = itself.recv().value();
      if (++turns < 10) me.reset(1s);
      itself.send(me);
    }));
    weft::this_goroutine::sleep_for(1min);
    EXPECT_EQ(turns, 10);
    EXPECT_FALSE(itself.recv()->stop());
  });
}

TEST(after_func, is_not_called_after_a_stop_that_was_in_time) {
  explore({.runs = weft::test::runs(5'000)}, [] {
    int calls = 0;
    weft::timer t = weft::after_func(1ms, [&] { ++calls; });
    weft::this_goroutine::sleep_for(1ms);
    const bool stopped = t.stop();
    weft::this_goroutine::sleep_for(100ms);
    EXPECT_EQ(calls, stopped ? 0 : 1);
  });
}

TEST(ticker, ticks_without_drift_and_drops_what_nobody_received) {
  bubble([] {
    const auto start = clock::now();
    weft::ticker t(10ms);
    for (int i = 1; i <= 5; ++i) EXPECT_EQ(*t.c().recv(), start + i * 10ms);
    weft::this_goroutine::sleep_for(35ms);  // three ticks, of which one is kept
    EXPECT_EQ(*t.c().recv(), start + 60ms);
    EXPECT_EQ(*t.c().recv(), start + 90ms);
    t.reset(1s);
    const auto again = clock::now();
    EXPECT_EQ(*t.c().recv(), again + 1s);
    t.stop();
    EXPECT_EQ(weft::select(weft::recv(t.c()), weft::after(1h, [] {})), 1u);
  });
}

// After a stop or a reset there is no tick from before.
TEST(ticker, stop_and_reset_leave_no_stale_tick) {
  bubble([] {
    weft::ticker t(10ms);
    weft::this_goroutine::sleep_for(15ms);
    t.stop();
    EXPECT_FALSE(t.c().try_recv());
    weft::this_goroutine::sleep_for(1h);
    EXPECT_FALSE(t.c().try_recv()) << "stopped is stopped";
    const auto start = clock::now();
    t.reset(20ms);
    EXPECT_EQ(*t.c().recv() - start, 20ms);
    EXPECT_EQ(*t.c().recv() - start, 40ms);
    weft::this_goroutine::sleep_for(25ms);
    t.reset(1s);
    EXPECT_FALSE(t.c().try_recv());
    EXPECT_EQ(*t.c().recv() - start, 65ms + 1s);
    t = weft::ticker(1min);  // stops the old one
    EXPECT_EQ(*t.c().recv() - start, 65ms + 1s + 1min);
  });
}

// Go's time.Tick: the channel of a temporary goes on, in a range-for for instance.
TEST(ticker, the_channel_of_a_temporary_ticks) {
  bubble([] {
    const auto start = clock::now();
    int ticks = 0;
    for (const auto at : weft::ticker(10ms).c()) {
      EXPECT_EQ(at - start, ++ticks * 10ms);
      if (ticks == 5) break;
    }
    EXPECT_EQ(ticks, 5);
    weft::ticker t(10ms);
    const auto c = std::move(t).c();
    EXPECT_EQ(*c.recv() - start, 60ms);
    t.stop();
    EXPECT_FALSE(t.c()) << "it was given away";
  });
}

TEST(ticker, one_that_was_moved_from_says_so) {
  weft::ticker t(1h);
  const weft::ticker u = std::move(t);
  t.stop();
  EXPECT_FALSE(t.c());
  EXPECT_THROW(t.reset(1s), std::logic_error);
}

TEST(ticker, wants_a_positive_period) {
  EXPECT_THROW(weft::ticker(0s), std::invalid_argument);
  EXPECT_THROW(weft::ticker(-1s), std::invalid_argument);
  weft::ticker t(1h);
  EXPECT_THROW(t.reset(0s), std::invalid_argument);
}

// A function that is still to be called when the test ends was forgotten.
TEST(after_func, one_that_is_left_behind_fails_an_exploration) {
  const auto r = weft::test::try_explore({.runs = 1}, [] { weft::after_func(1s, [] {}); });
  EXPECT_NE(r.failure.find("timer is left behind"), std::string::npos) << r.report;
}

// The usual way to limit a wait must not fail a test when the answer comes in time: the timer has
// no handle any more.
TEST(timer, one_without_a_handle_is_not_left_behind) {
  const auto body = [] {
    const weft::chan<int> answer(1);
    answer.send(1);
    weft::select(weft::recv(answer), weft::after(10ms));  // time may pass in an exploration
    (void)weft::after(1h);
    const weft::timer dropped(1h);
    EXPECT_FALSE(dropped.c().try_recv());
    weft::receiver<clock::time_point> ticks = weft::ticker(1s).c();
    ticks.recv();
    const weft::receiver<clock::time_point> copy = ticks;
    ticks = nullptr;
    copy.recv();
    weft::selector s;
    s.add(weft::after(1h));
    s.add(weft::otherwise());
    EXPECT_EQ(s.wait(), 1u);
  };
  bubble(body);
  explore({.runs = 100}, body);
}

// As long as one handle is left, on the timer or on its channel, it fires; and a goroutine may drop
// the last one while it fires.
TEST(timer, the_last_handle_goes_while_it_fires) {
  explore({.runs = weft::test::runs(3'000)}, [] {
    weft::wait_group all;
    int heard = 0;
    {
      weft::timer t(1ms);
      all.go([&heard, c = t.c()] { heard += weft::select(weft::recv(c), weft::after(2ms)) == 0; });
      all.go([t] { weft::this_goroutine::sleep_for(1ms); });
    }
    weft::this_goroutine::sleep_for(1ms);
    all.wait();
    EXPECT_LE(heard, 1);
  });
  for (const int procs : {1, 2, 8}) {
    const procs_scope p(procs);
    weft::run([] {
      weft::wait_group all;
      for (int g = 0; g < 4; ++g) {
        all.go([g] {
          for (int i = 0; i < scaled(5'000, 500); ++i) {
            const auto c = weft::after(std::chrono::microseconds(i % 20));
            if (i % 3 == 0) weft::this_goroutine::yield();
            if (i % 4 == g) c.recv();
            (void)weft::timer(std::chrono::microseconds(i % 7)).c();
            (void)weft::ticker(std::chrono::microseconds(1 + i % 7)).c().try_recv();
          }
        });
      }
      all.wait();
    });
  }
}

// A timer that has fired, or was made, in a test may be dropped outside of it.
TEST(timer, of_a_test_may_be_dropped_after_it) {
  std::vector<weft::receiver<clock::time_point>> kept;
  bubble([&] {
    weft::timer t(1ms);
    kept.push_back(t.c());
    weft::this_goroutine::sleep_for(1s);
    kept.push_back(weft::after(0s));
    weft::this_goroutine::sleep_for(1s);
    t.stop();
  });
  kept.clear();
}

// Servers make a timer for each request. What they drop must not stay until its time.
TEST(timer, dropped_ones_are_given_back) {
  weft::run([] {
    const weft::chan<int> answer(1);
    const auto serve = [&](int n) {
      for (int i = 0; i < n; ++i) {
        answer.send(1);
        weft::select(weft::recv(answer), weft::after(1h));
        (void)weft::after(1h);
        const weft::timer t(1h);
        (void)weft::ticker(1h).c();
      }
    };
    constexpr int n = scaled(20'000, 1'000);
    serve(100);
    const std::size_t used = weft::test::allocated_bytes();
    serve(n);
    EXPECT_LT(weft::test::allocated_bytes(), used + 200'000) << "10 bytes for each would be more";
  });
}

// A function that is to be called has to stay, but nothing else: no goroutine, no stack.
TEST(after_func, one_that_waits_takes_little_memory) {
  weft::run([] {
    constexpr std::size_t n = scaled(100'000, 10'000);
    std::vector<weft::timer> timers;
    timers.reserve(n);
    weft::after_func(1h, [] {}).stop();
    const auto count_records = [] {
      std::size_t all = 0;
      weft::sched::the_scheduler.records.for_each([&](const auto&) { ++all; });
      return all;
    };
    const std::size_t records = count_records();
    const std::size_t used = weft::test::allocated_bytes();
    for (std::size_t i = 0; i < n; ++i) timers.push_back(weft::after_func(1h, [] {}));
    if (!weft::base::sanitizer::active) {
      EXPECT_LT((weft::test::allocated_bytes() - used) / n, 250u);
    }
    EXPECT_LT(count_records(), records + 1'000);
    for (weft::timer& t : timers) t.stop();
  });
}

// ---- The real clock ----

TEST(timer, never_fires_early_and_works_from_plain_threads) {
  for (const auto d : {50us, 1000us, 5000us}) {
    const auto start = clock::now();
    weft::after(d).recv();
    EXPECT_GE(clock::now() - start, d);
  }
  weft::timer t(10s);
  EXPECT_TRUE(t.stop());
  std::atomic<bool> called{false};
  weft::after_func(1ms, [&] { called = true; });
  while (!called) std::this_thread::sleep_for(1ms);
}

// A timer may be set for a time before which no machine would wake up. Then the machine that sleeps
// until the next timer is woken.
TEST(timer, one_that_is_moved_forward_wakes_the_machine_that_keeps_time) {
  for (const int procs : {1, 4}) {
    const procs_scope p(procs);
    for (int i = 0; i < 10; ++i) {
      weft::timer t(1h);
      weft::wait_group all;
      all.go([&] { t.c().recv(); });
      EXPECT_TRUE(weft::test::until_waiting(1, weft::detail::wait_reason::chan_receive));
      const auto begin = clock::now();
      EXPECT_TRUE(t.reset(1ms));
      all.wait();
      EXPECT_GE(clock::now() - begin, 1ms);
      EXPECT_LT(clock::now() - begin, 20s);
    }
  }
}

// Two goroutines that never leave their processor to others do not keep it from looking at the
// time.
TEST(timer, fires_while_two_throw_a_ball_on_one_processor) {
  const procs_scope one(1);
  weft::run([] {
    const weft::chan<int> there;
    const weft::chan<int> back;
    std::atomic<bool> called{false};
    weft::wait_group all;
    all.go([&] {
      for (const int v : there) back.send(v);
    });
    weft::after_func(1ms, [&] { called = true; });
    const auto deadline = clock::now() + 20s;
    while (!called && clock::now() < deadline) {
      there.send(1);
      back.recv();
    }
    there.close();
    all.wait();
    EXPECT_TRUE(called);
  });
}

// A period as short as can be: the ticks that nobody can receive are dropped, and all others get
// their turn, many readers as well as one.
TEST(ticker, of_a_nanosecond_keeps_nobody_from_working) {
  for (const int procs : {1, 2, 8}) {
    const procs_scope p(procs);
    weft::run([] {
      weft::ticker t(1ns);
      std::atomic<int> left{scaled(2'000, 200)};
      weft::wait_group all;
      for (int g = 0; g < 10; ++g) {
        all.go([&, c = t.c()] {
          auto last = clock::time_point::min();
          while (left-- > 0) {
            const auto at = *c.recv();
            EXPECT_GE(at, last);
            EXPECT_LE(at, clock::now());
            last = at;
          }
        });
      }
      all.wait();
      t.stop();
    });
  }
}

// Several who receive from one timer and set it anew: each value wakes one of them, and none is
// lost on its way, or nobody would set it again.
TEST(timer, many_receivers_share_one) {
  for (const int procs : {2, 8}) {
    const procs_scope p(procs);
    weft::run([] {
      weft::timer t(1us);
      const weft::chan<int> done;
      int turns = 0;  // the receiver of the value has the turn
      weft::wait_group all;
      for (int g = 0; g < 4; ++g) {
        all.go([&] {
          while (weft::select(weft::recv(t.c()), weft::recv(done)) == 0) {
            if (++turns == scaled(500, 100)) {
              done.close();
              return;
            }
            t.reset(1us);
          }
        });
      }
      EXPECT_EQ(weft::select(weft::recv(done), weft::after(30s, [] {})), 0u);
      all.wait();
      EXPECT_FALSE(t.stop());
    });
  }
}

// A signal interrupts the system call in which a thread sleeps; the sleep neither ends early nor
// starts over.
TEST(timer, signals_neither_shorten_nor_prolong_a_wait) {
  struct sigaction action = {};
  action.sa_handler = [](int) {};  // no SA_RESTART
  struct sigaction old = {};
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &old), 0);
  std::atomic<bool> over{false};
  std::thread sleeper([&] {
    weft::binary_semaphore s(0);
    const auto begin = clock::now();
    weft::this_goroutine::sleep_for(3ms);
    EXPECT_GE(clock::now() - begin, 3ms);
    weft::after(3ms).recv();
    EXPECT_GE(clock::now() - begin, 6ms);
    EXPECT_FALSE(s.try_acquire_for(3ms));
    EXPECT_GE(clock::now() - begin, 9ms);
    EXPECT_LT(clock::now() - begin, 20s);
    over = true;
  });
  while (!over) {
    ::pthread_kill(sleeper.native_handle(), SIGUSR1);
    std::this_thread::yield();
  }
  sleeper.join();
  ::sigaction(SIGUSR1, &old, nullptr);
}

TEST(timer, a_hundred_thousand_live_and_stopped_ones) {
  weft::run([] {
    std::vector<weft::timer> timers;
    constexpr int n = 100'000;
    timers.reserve(n);
    for (int i = 0; i < n; ++i) timers.emplace_back(1h + std::chrono::microseconds(i % 1000));
    int stopped = 0;
    for (weft::timer& t : timers) stopped += t.stop() ? 1 : 0;
    EXPECT_EQ(stopped, n);
  });
}

TEST(timer, many_goroutines_stop_and_reset_at_once) {
  const int before = weft::max_procs(8);
  weft::run([] {
    std::atomic<int> fired{0};
    std::vector<weft::timer> shared;
    for (int i = 0; i < 4; ++i) shared.push_back(weft::after_func(50us, [&] { ++fired; }));
    const auto stop_and_reset = [&](std::size_t g) {
      for (std::size_t i = 0; i < 2'000; ++i) {
        weft::timer& t = shared[(i + g) % 4];
        if (i % 3 == 0) {
          t.stop();
        } else {
          t.reset(std::chrono::microseconds(i % 50));
        }
        if (i % 7 == 0) weft::this_goroutine::yield();
      }
    };
    // Whether one fires between two resets is a matter of chance.
    for (int round = 0; round == 0 || (fired == 0 && round < 1'000); ++round) {
      weft::wait_group all;
      for (std::size_t g = 0; g < 8; ++g) all.go([&, g] { stop_and_reset(g); });
      all.wait();
    }
    for (weft::timer& t : shared) t.stop();
    EXPECT_GT(fired, 0);
    weft::this_goroutine::sleep_for(5ms);  // those on their way
  });
  weft::max_procs(before);
}

// Resets that meet come one after the other: it runs, or its value waits, but never both.
TEST(timer, resets_that_meet_leave_one_of_their_results) {
  explore({.runs = weft::test::runs(5'000)}, [] {
    weft::timer t(1h);
    weft::wait_group all;
    all.go([&] { t.reset(0s); });
    all.go([&] { t.reset(1h); });
    all.wait();
    weft::this_goroutine::sleep_for(50ms);
    const bool fired = t.c().try_recv().has_value();
    EXPECT_NE(t.stop(), fired);
  });
}
TEST(timer, a_stop_and_a_reset_come_one_after_the_other) {
  explore({.runs = weft::test::runs(5'000)}, [] {
    weft::timer t(1h);
    bool stopped = false;
    weft::wait_group all;
    all.go([&] { stopped = t.stop(); });
    all.go([&] { t.reset(0s); });
    all.wait();
    weft::this_goroutine::sleep_for(50ms);
    // Before the reset it was running, and so it was after it until it fired.
    EXPECT_TRUE(stopped || !t.c().try_recv());
  });
}

}  // namespace
