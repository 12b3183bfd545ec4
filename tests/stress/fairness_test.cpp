// A goroutine that can run does run, and soon, whatever the others do.
//
// Every test keeps all processors busy in one way and measures the goroutines that have to wait:
// equals, newcomers, sleepers, readers, the third beside a pair. The limits are a little above what
// Go's scheduler needs under the same load. A plain thread measures how late this machine is
// anyway, and twice that is added to limits of time. Shares and numbers of turns need no such
// allowance.
#include "beat.hpp"
#include "lateness.hpp"
#include "plain_socket.hpp"
#include "stress_fixture.hpp"
#include "stress_hog.hpp"
#include "stress_noise.hpp"

#include <weft/weft.hpp>

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace weft {
namespace {

using namespace std::chrono_literals;
using test::compute_for;
using test::noise_meter;
using test::scaled;
using test::steady;

constexpr auto slice = 10ms;
constexpr int slowness = test::slow_build ? 5 : 1;

// Goroutines that keep processors busy until they are told to stop. One kind in each crowd.
class crowd {
 public:
  crowd() = default;
  crowd(const crowd&) = delete;
  crowd& operator=(const crowd&) = delete;
  ~crowd() { stop(); }

  // Each computes for one turn and yields.
  void add_yielders(int n, steady::duration turn) {
    add(n, [this, turn](std::atomic<std::uint64_t>& turns) {
      while (!stops()) {
        count(turns);
        compute_for(turn);
        this_goroutine::yield();
      }
    });
  }

  // Each never enters the runtime.
  void add_hogs(int n) {
    add(n, [this](std::atomic<std::uint64_t>& turns) {
      while (!stops()) count(turns);
    });
  }

  // Two goroutines with one token; the one that has it computes for one turn.
  void add_pairs(int n, steady::duration turn) {
    for (int i = 0; i < n; ++i) {
      const chan<int> there;
      const chan<int> back;
      all_.go([this, there, back, turn] {
        while (!stops()) {
          compute_for(turn);
          there.send(1);
          back.recv();
        }
        there.close();
      });
      all_.go([there, back, turn] {
        while (there.recv()) {
          compute_for(turn);
          back.send(1);
        }
      });
    }
  }

  // So many timers at a time, spread over `within`, each of which computes for one turn.
  void add_timers(int n, steady::duration within, steady::duration turn) {
    all_.go([this, n, within, turn] {
      while (!stops()) {
        wait_group fired;
        fired.add(n);
        for (int i = 0; i < n; ++i) {
          after_func(i * 7 % n * within / n, [&fired, turn] {
            compute_for(turn);
            fired.done();
          });
        }
        fired.wait();
      }
    });
  }

  void stop() {
    stop_.store(true, std::memory_order_relaxed);
    all_.wait();
  }

  // How many turns each yielder has had, or how far each hog has come.
  std::vector<double> turns() const {
    std::vector<double> all;
    for (const one& o : turns_) {
      all.push_back(static_cast<double>(o.turns.load(std::memory_order_relaxed)));
    }
    return all;
  }

 private:
  // On a cache line of its own: counting must not be slowed by sharing.
  struct alignas(64) one {
    std::atomic<std::uint64_t> turns{0};  // relaxed: written by its goroutine only
  };

  template <class F>
  void add(int n, F work) {
    turns_ = std::vector<one>(static_cast<std::size_t>(n));
    for (one& o : turns_) all_.go([work, &o] { work(o.turns); });
  }
  static void count(std::atomic<std::uint64_t>& turns) {
    turns.store(turns.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  bool stops() const { return stop_.load(std::memory_order_relaxed); }

  std::atomic<bool> stop_{false};  // relaxed: nothing else is passed along
  std::vector<one> turns_;
  wait_group all_;
};

// Jain's index: 1 if all have as much, 1/n if one of n has everything.
double jain(const std::vector<double>& shares) {
  double sum = 0;
  double sum_of_squares = 0;
  for (const double s : shares) {
    sum += s;
    sum_of_squares += s * s;
  }
  return sum * sum / (static_cast<double>(shares.size()) * sum_of_squares);
}

// How many of this process's threads run, or would if there were a core, but for the one that
// looks. That is the same on machines with few and with many cores, idle or not.
class threads_that_compute {
 public:
  void look() {
    std::this_thread::sleep_for(10ms);
    ++looks_;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream file(task.path() / "stat");
      std::string stat;
      std::getline(file, stat);  // number (name) state ...; gone threads have none
      const std::size_t name_end = stat.rfind(')');
      if (name_end != std::string::npos && stat[name_end + 2] == 'R') ++seen_;
    }
    --seen_;
  }
  double mean() const { return looks_ == 0 ? 0 : static_cast<double>(seen_) / looks_; }

 private:
  int looks_ = 0;
  long seen_ = 0;
};

// How many cores the processors can have.
int cores_in_use() {
  return std::min(max_procs(), static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
}

long in_us(steady::duration d) {
  return static_cast<long>(std::chrono::duration_cast<std::chrono::microseconds>(d).count());
}

class fairness : public test::stress_test {
 protected:
  // Machines that are stopped at random would be what is measured.
  fairness() : stress_test(shaking::off) {}

  // Expects that one who sleeps 10 ms again and again wakes in time on one and on two processors,
  // beside a crowd that `fill` makes.
  template <class F>
  static void expect_beat_beside(F fill, test::lateness_limits limits) {
    for (const int procs : {1, 2}) {
      SCOPED_TRACE(std::to_string(procs) + " processors");
      max_procs(procs);
      test::beat beat(10ms);  // first: how soon a newcomer runs is another test's matter
      crowd others;
      fill(others);
      std::this_thread::sleep_for(1100ms);
      beat.expect_kept(limits);
    }
  }

  // Expects that an echo comes in time, beside a crowd that `fill` makes.
  template <class F>
  static void expect_echo_beside(F fill, int procs, test::lateness_limits limits) {
    SCOPED_TRACE(std::to_string(procs) + " processors");
    max_procs(procs);
    auto listener = net::listen("tcp", "127.0.0.1:0").value();
    wait_group server;
    server.go([&listener] {
      auto c = listener.accept();
      std::byte buffer[16];
      while (c) {
        const auto n = c->read(buffer);
        if (!n || *n == 0 || !c->write(std::span(buffer, *n))) return;
      }
    });
    std::vector<steady::duration> echoes;
    std::vector<steady::duration> naps;
    {
      test::plain_socket client(listener.local_address());
      ASSERT_TRUE(client.send_all("x"));
      ASSERT_EQ(client.receive_exactly(1), "x");
      crowd others;
      fill(others);
      for (const auto end = steady::now() + 1100ms; steady::now() < end;) {
        const auto begin = steady::now();
        std::this_thread::sleep_for(2ms);
        const auto sent = steady::now();
        ASSERT_TRUE(client.send_all("x"));
        ASSERT_EQ(client.receive_exactly(1), "x");
        naps.push_back(sent - begin - 2ms);
        echoes.push_back(steady::now() - sent);
      }
    }
    server.wait();
    std::printf("echo, P = %d, late by (us):    median      p99    worst   echoes\n", procs);
    test::expect_in_time(test::lateness(echoes), test::lateness(naps), limits);
  }

  // Yields for `time`, computing for `turn` in between. Returns: the waits of more than a
  // millisecond. Requires: a goroutine calls it.
  static std::vector<steady::duration> long_waits(steady::duration time,
                                                  steady::duration turn = 0ns) {
    std::vector<steady::duration> waits;
    const auto begin = steady::now();
    for (auto last = begin; last - begin < time;) {
      compute_for(turn);
      this_goroutine::yield();
      const auto now = steady::now();
      if (now - last > 1ms) waits.push_back(now - last);
      last = now;
    }
    return waits;
  }

  // Expects that no wait was longer than `limit` and what the machine's noise adds, but for two
  // that may be the machine's own (lateness.hpp).
  static void expect_waits_within(steady::duration limit, std::vector<steady::duration> waits,
                                  const noise_meter& noise) {
    const test::lateness late(std::move(waits));
    std::printf("waits of up to %ld us, but for two %ld us\n", in_us(late.worst),
                in_us(late.third_worst));
    EXPECT_LE(late.third_worst, slowness * limit + 2 * noise.worst());
  }
};

// Tests that take too long for `make test`.
class fairness_soak : public fairness {};

// ------------------------------------------------------------------------------ equal progress

// How far equals have come.
struct progress {
  std::vector<double> turns;  // least first
  long never;                 // so many had none
  double had;                 // the part of its processors' time that the kernel gave this process

  double index() const { return jain(turns); }
  // Those in the queue of a thread that the kernel keeps waiting lose what other processes gain.
  bool shows_shares() const { return had >= 0.9; }
  // Go's index is .995 and more.
  bool is_fair() const {
    return never == 0 && (!shows_shares() || index() >= (test::slow_build ? 0.9 : 0.98));
  }
};

std::chrono::nanoseconds time_on_cores() {
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

// Has n goroutines compute and yield for a while.
progress progress_of_equals(int n, steady::duration turn) {
  const noise_meter noise;
  crowd equals;
  equals.add_yielders(n, turn);
  const std::vector<double> before = equals.turns();  // had while the others were being made
  const auto begin = steady::now();
  const auto used_before = time_on_cores();
  // A machine that the kernel stops for a while costs those in its queue that much.
  const auto long_enough = [&] {
    const auto least = std::max<steady::duration>(250ms, slowness * 12 * n * turn / cores_in_use());
    return std::max(least, std::min<steady::duration>(20 * noise.worst(), 3s));
  };
  while (steady::now() - begin < long_enough()) std::this_thread::sleep_for(10ms);
  std::vector<double> turns = equals.turns();
  const std::chrono::duration<double> used = time_on_cores() - used_before;
  const std::chrono::duration<double> could = (steady::now() - begin) * cores_in_use();
  equals.stop();
  const long never = std::ranges::count(turns, 0.0);
  std::ranges::transform(turns, before, turns.begin(), std::minus<>());
  std::ranges::sort(turns);
  return {std::move(turns), never, used / could};
}

// Equals that do not get equal shares: requests that came at the same time are served seconds
// apart, and some not at all.
TEST_F(fairness_soak, equals_make_equal_progress) {
  for (const int procs : {1, 2, 4}) {
    max_procs(procs);
    for (const int n : {3, 10, scaled(200, 50), scaled(1000, 100)}) {
      // Then each has a thread of its own, and it is the kernel that shares out the cores.
      if (n < procs && procs > cores_in_use()) continue;
      for (const steady::duration turn : {10us, 100us}) {
        progress p = progress_of_equals(n, turn);
        // Other processes may have been at it. A scheduler that is not fair never is.
        const auto shows = [](const progress& q) { return q.is_fair() && q.shows_shares(); };
        for (int again = 0; again < 2 && !shows(p); ++again) p = progress_of_equals(n, turn);
        std::printf("P = %d, %4d that compute %3ld us: turns %.0f to %.0f, Jain %.3f%s\n", procs, n,
                    in_us(turn), p.turns.front(), p.turns.back(), p.index(),
                    p.shows_shares() ? "" : ", on a machine that is busy with others");
        EXPECT_TRUE(p.is_fair()) << n << " on " << procs << " processors, turns of " << in_us(turn)
                                 << " us: Jain " << p.index() << ", " << p.never << " never ran";
      }
    }
  }
}

// Hogs are equals, too, though each keeps the thread it was stopped on.
TEST_F(fairness, hogs_make_equal_progress) {
  max_procs(2);
  crowd hogs;
  hogs.add_hogs(scaled(50, 10));
  std::this_thread::sleep_for(2s);
  std::vector<double> turns = hogs.turns();
  hogs.stop();
  std::ranges::sort(turns);
  const double median = turns[turns.size() / 2];
  constexpr double factor = 5;  // Go's least has half to a quarter of the median's after 2 s
  std::printf("progress from %.2f to %.2f of the median's\n", turns.front() / median,
              turns.back() / median);
  EXPECT_GT(turns.front(), median / factor);
  EXPECT_LT(turns.back(), median * factor);
}

// Go's TestPingPongHog. A pair that wakes each other shares one slice: if each wake-up began a new
// one, a pair that computes little between two of them would hardly ever run.
TEST_F(fairness, pairs_of_different_grain_get_comparable_time) {
  max_procs(1);
  for (int round = 0; round < 3; ++round) {
    const chan<bool> done;
    const chan<bool> coarse;
    const chan<bool> fine;
    std::atomic<std::uint64_t> coarse_steps{0};  // relaxed, both: the token's holder counts
    std::atomic<std::uint64_t> fine_steps{0};
    const auto work = [&done](std::uint64_t steps, std::atomic<std::uint64_t>& count,
                              const chan<bool>& token) {
      bool goes_on = true;
      while (goes_on) {
        select(recv(done, [&] { goes_on = false; }), recv(token, [&] {
                 for (std::uint64_t i = 0; i < steps; ++i) {
                   count.store(count.load(std::memory_order_relaxed) + 1,
                               std::memory_order_relaxed);
                 }
                 token.send(true);
               }));
      }
    };
    wait_group all;
    for (int i = 0; i < 2; ++i) {
      all.go([&] { work(1'000'000, coarse_steps, coarse); });
      all.go([&] { work(1'000, fine_steps, fine); });
    }
    run([&] {
      coarse.send(true);
      fine.send(true);
      this_goroutine::sleep_for(300ms);
      done.close();
      coarse.recv();
      fine.recv();
    });
    all.wait();
    const double ratio =
        static_cast<double>(coarse_steps.load()) / static_cast<double>(fine_steps.load());
    std::printf("the coarse pair came %.2f times as far\n", ratio);
    EXPECT_LT(ratio, 20);
    EXPECT_GT(ratio, 1 / 20.0);
  }
}

// Hogs that cannot be stopped because too many are: all of them have their turn, and still no more
// compute at a time than there are processors, then and when most have gone.
TEST_F(fairness_soak, hogs_beyond_those_that_can_be_paused) {
  constexpr int n = scaled(400, 40);
  max_procs(1);
  crowd some;
  crowd most;
  some.add_hogs(n / 4);
  most.add_hogs(n - n / 4);
  const auto all_ran = [&] {
    const auto ran = [](double turns) { return turns > 0; };
    return std::ranges::all_of(some.turns(), ran) && std::ranges::all_of(most.turns(), ran);
  };
  const auto begin = steady::now();
  // One round takes n slices.
  const auto patience = slowness * (3 * n * slice + 5s);
  threads_that_compute at_first;
  while (!all_ran() && steady::now() - begin < patience) at_first.look();
  std::printf("all had a turn after %ld us\n", in_us(steady::now() - begin));
  EXPECT_TRUE(all_ran());
  most.stop();
  threads_that_compute at_last;
  for (int i = 0; i < 50; ++i) at_last.look();
  std::printf("on average %.1f threads could run, and when most had gone %.1f\n", at_first.mean(),
              at_last.mean());
  if (test::can_pause_in_libraries) {
    EXPECT_LT(at_first.mean(), 2);
    EXPECT_LT(at_last.mean(), 2);
  }
}

// ----------------------------------------------------------------------------------- newcomers

// A goroutine that was just made and finds no way past those that yield: work that is handed to
// others takes seconds to begin.
TEST_F(fairness, a_new_goroutine_runs_within_ten_turns_of_others) {
  constexpr std::size_t newcomers = 20;
  max_procs(1);
  std::atomic<bool> stop{false};
  std::atomic<std::size_t> ran{0};
  std::atomic<std::uint64_t> turns{0};  // relaxed: one processor, and only the number matters
  std::vector<std::uint64_t> waited(newcomers);
  wait_group all;
  const auto take_turn = [&] {
    compute_for(1ms);
    turns.fetch_add(1, std::memory_order_relaxed);
    this_goroutine::yield();
  };
  all.go([&] {
    const auto give_up = steady::now() + 3s;
    for (std::size_t i = 0; ran < newcomers && steady::now() < give_up;) {
      for (int k = 0; k < 5; ++k) take_turn();
      if (i == newcomers) continue;
      all.go([&, i, from = turns.load(std::memory_order_relaxed)] {
        waited[i] = turns.load(std::memory_order_relaxed) - from;
        ++ran;
      });
      ++i;
    }
    stop = true;
  });
  all.go([&] {
    while (!stop) take_turn();
  });
  all.wait();
  EXPECT_EQ(ran, newcomers) << "the others were not even made";
  EXPECT_LE(*std::ranges::max_element(waited), 10u);
}

// ------------------------------------------------------------ sleepers, and who waits for I/O

// A sleeper whose time has come queues behind everybody who yields: timeouts, heartbeats and rate
// limits are late by the length of the queue.
// New goroutines that each start the next one and end: the newest of them goes first, and those
// that have not begun must get their turn all the same. More of them than a ring holds.
TEST_F(fairness, those_that_start_their_successors_let_others_begin) {
  max_procs(1);
  constexpr std::size_t chains = 400;
  std::vector<steady::time_point> seen(chains, steady::now());
  std::vector<steady::duration> waits(chains, steady::duration(0));
  std::atomic<bool> over{false};
  wait_group all;
  std::function<void(std::size_t)> step = [&](std::size_t i) {
    const steady::time_point now = steady::now();
    waits[i] = std::max(waits[i], now - std::exchange(seen[i], now));
    if (!over.load(std::memory_order_relaxed)) all.go([&step, i] { step(i); });
  };
  const noise_meter noise;
  for (std::size_t i = 0; i < chains; ++i) all.go([&step, i] { step(i); });
  std::this_thread::sleep_for(2s);
  over = true;
  all.wait();
  // Goroutines that had no turn at first have had one by now.
  const steady::duration longest = std::ranges::max(waits);
  EXPECT_LE(longest, slowness * 1s + 2 * noise.worst()) << in_us(longest) << " us";
}

TEST_F(fairness, a_sleeper_wakes_in_time_beside_many_that_yield) {
  expect_beat_beside([](crowd& c) { c.add_yielders(scaled(1000, 100), 100us); },
                     {.median = 5ms, .p99 = 20ms, .worst = 40ms});
}

TEST_F(fairness, a_sleeper_wakes_in_time_beside_some_that_yield_seldom) {
  expect_beat_beside([](crowd& c) { c.add_yielders(scaled(100, 20), 1ms); },
                     {.median = 5ms, .p99 = 20ms, .worst = 40ms});
}

// Those who wake each other never empty the queue that they are in.
TEST_F(fairness, a_sleeper_wakes_in_time_beside_pairs) {
  expect_beat_beside([](crowd& c) { c.add_pairs(scaled(500, 50), 100us); },
                     {.median = 5ms, .p99 = 20ms, .worst = 40ms});
}

// Only the runtime can make hogs give up a turn.
TEST_F(fairness_soak, a_sleeper_wakes_in_time_beside_hogs) {
  for (const int hogs : {2, scaled(100, 10), scaled(500, 20)}) {
    SCOPED_TRACE(std::to_string(hogs) + " hogs");
    expect_beat_beside([hogs](crowd& c) { c.add_hogs(hogs); },
                       {.median = 15ms, .p99 = 50ms, .worst = 100ms});
  }
}

// Whose bytes have come waits for a turn like a sleeper whose time has.
TEST_F(fairness, an_echo_comes_in_time_beside_some_that_yield_seldom) {
  for (const int procs : {1, 2}) {
    expect_echo_beside([](crowd& c) { c.add_yielders(scaled(100, 20), 1ms); }, procs,
                       {.median = 5ms, .p99 = 20ms, .worst = 40ms});
  }
}

// Timers alone could use more than the processor, so some always wait; but no longer than one round
// of them takes.
TEST_F(fairness, an_echo_comes_in_time_beside_more_timers_than_can_be_served) {
  expect_echo_beside(
      [](crowd& c) {
        c.add_yielders(3, 150us);
        for (int i = 0; i < 3; ++i) c.add_timers(scaled(500, 50), 5ms, 10us);
      },
      1, {.median = 30ms, .p99 = 50ms, .worst = 60ms});
}

// A timer of a thread that is no machine: some machine has to be told, and all of them compute.
TEST_F(fairness, a_plain_threads_timer_fires_in_time_beside_hogs) {
  max_procs(2);
  crowd hogs;
  hogs.add_hogs(2);
  std::this_thread::sleep_for(100ms);
  std::vector<steady::duration> timers;
  std::vector<steady::duration> naps;
  base::random random = chance();
  for (int i = 0; i < 120; ++i) {
    const auto nap = 5ms + std::chrono::microseconds(random.below(4000));
    const auto begin = steady::now();
    std::this_thread::sleep_for(nap);
    const auto set = steady::now();
    naps.push_back(set - begin - nap);
    std::atomic<steady::duration> fired{};  // since it was set
    const timer t = after_func(500us, [&] { fired.store(steady::now() - set); });
    while (fired.load() == 0ns) std::this_thread::sleep_for(200us);
    timers.push_back(fired.load() - 500us);
  }
  hogs.stop();
  std::printf("timer, late by (us):          median      p99    worst   timers\n");
  test::expect_in_time(test::lateness(timers), test::lateness(naps),
                       {.median = 400us, .p99 = 4ms, .worst = 40ms});
}

// ------------------------------------------------------------- who keeps a processor to itself

// Two that wake each other run one after the other, ahead of the queue. Together they have one
// slice, or the queue would never move.
TEST_F(fairness, a_pair_shares_one_slice) {
  const noise_meter noise;
  max_procs(1);
  crowd pair;
  pair.add_pairs(1, 5ms);
  std::vector<steady::duration> waits;
  run([&] { waits = long_waits(700ms); });
  expect_waits_within(30ms, waits, noise);
}

// The same if each wakes the next one and goes to sleep, so that none of them is ever in a position
// to yield: a token that goes round over channels with room for it.
TEST_F(fairness, a_ring_shares_one_slice) {
  const noise_meter noise;
  max_procs(1);
  constexpr int size = 10;
  std::atomic<bool> stop{false};
  std::vector<chan<int>> channels;
  for (int i = 0; i < size; ++i) channels.emplace_back(1);
  wait_group all;
  for (int i = 0; i < size; ++i) {
    all.go([&stop, in = channels[i], out = channels[(i + 1) % size]] {
      while (in.recv() && !stop) {
        compute_for(10us);
        out.send(1);
      }
      out.close();
    });
  }
  std::vector<steady::duration> waits;
  run([&] {
    channels[0].send(1);
    waits = long_waits(700ms);
  });
  stop = true;
  all.wait();
  ASSERT_FALSE(waits.empty()) << "the ring never ran";
  expect_waits_within(30ms, waits, noise);
}

// Code that polls with short sleeps neither computes for a slice nor blocks for long. It keeps its
// processor all the same.
TEST_F(fairness, one_that_polls_with_short_sleeps_does_not_keep_its_processor) {
  const noise_meter noise;
  max_procs(1);
  std::atomic<bool> stop{false};
  wait_group all;
  all.go([&] {
    while (!stop) ::usleep(50);
  });
  std::vector<steady::duration> waits;
  run([&] { waits = long_waits(1500ms, 20us); });
  stop = true;
  all.wait();
  expect_waits_within(45ms, waits, noise);
}

// A goroutine that has computed for a slice has been asked to yield, and then blocks in the kernel
// before it could. What waits in its processor's queue must not wait for that call, least of all if
// another processor has nothing to do.
class a_call_after_a_slice : public fairness {
 protected:
  // The caller starts others, computes for `turn` and calls. The other processor is busy for a
  // little longer than that.
  template <class Others, class Call>
  static void compute_and_call(steady::duration turn, Others start_others, Call call) {
    max_procs(2);
    std::atomic<bool> is_busy{false};
    wait_group all;
    all.go([&] {
      is_busy = true;
      compute_for(turn + 1ms);
    });
    run([&] {
      while (!is_busy) this_goroutine::sleep_for(1ms);
    });
    all.go([&] {
      start_others(all);
      compute_for(turn);
      call();
    });
    all.wait();
  }
};

TEST_F(a_call_after_a_slice, does_not_delay_those_in_its_queue) {
  const noise_meter noise;
  std::vector<steady::duration> waits;
  for (int round = 0; round < 20; ++round) {
    steady::time_point called;
    std::vector<steady::time_point> ran(5);
    compute_and_call(
        slice + 300us + round % 10 * 300us,
        [&](wait_group& all) {
          for (auto& at : ran) all.go([&at] { at = steady::now(); });
        },
        [&] {
          called = steady::now();
          ::usleep(120'000);
        });
    waits.push_back(*std::ranges::max_element(ran) - called);
  }
  expect_waits_within(20ms, waits, noise);
}

// The same on one processor, beside one that a timer wakes more often than it takes to notice that
// a thread has gone to sleep.
TEST_F(a_call_after_a_slice, is_noticed_beside_a_ticker) {
  const noise_meter noise;
  max_procs(1);
  std::atomic<bool> stop{false};
  wait_group ticker;
  ticker.go([&stop] {
    while (!stop) this_goroutine::sleep_for(500us);
  });
  std::vector<steady::duration> waits;
  for (int round = 0; round < 20; ++round) {
    steady::time_point called;
    steady::time_point ran;
    wait_group all;
    all.go([&] {
      all.go([&ran] { ran = steady::now(); });
      compute_for(3ms);
      called = steady::now();
      ::usleep(100'000);
    });
    all.wait();
    waits.push_back(ran - called);
  }
  stop = true;
  ticker.wait();
  expect_waits_within(10ms, waits, noise);
}

// The same if it waits for one of them. Nothing but the runtime can end that.
TEST_F(a_call_after_a_slice, may_wait_for_one_in_its_queue) {
  const noise_meter noise;
  std::vector<steady::duration> waits;
  for (int round = 0; round < 100; ++round) {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_done = false;  // guarded by mutex
    compute_and_call(
        slice + 2ms + round % 10 * 100us,
        [&](wait_group& all) {
          all.go([&] {
            const std::lock_guard hold(mutex);
            is_done = true;
            changed.notify_all();
          });
        },
        [&] {
          const auto called = steady::now();
          std::unique_lock hold(mutex);
          // Ends after a while, because a test that fails says more than a test that hangs.
          changed.wait_for(hold, 2s, [&] { return is_done; });
          waits.push_back(steady::now() - called);
        });
    ASSERT_LT(waits.back(), 1s) << "nobody ended the wait";
  }
  expect_waits_within(20ms, waits, noise);
}

}  // namespace
}  // namespace weft
