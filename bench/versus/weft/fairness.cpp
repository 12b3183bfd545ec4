#include "fairness.hpp"

#include "require.hpp"

#include <weft/weft.hpp>

#include <time.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace bench {
namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

constexpr auto measured = 5s;

// Computes for so long by the wall clock, without entering the runtime.
void compute_for(steady::duration d) {
  const auto end = steady::now() + d;
  while (steady::now() < end) {
  }
}

double us(steady::duration d) { return std::chrono::duration<double, std::micro>(d).count(); }
double ms(steady::duration d) { return us(d) / 1e3; }

void print(std::string_view name, double value, const char* unit) {
  std::printf("%s %d %.1f %s\n", std::string(name).c_str(), weft::max_procs(), value, unit);
}

// A blocking call that is not announced. If the runtime interrupts the call, the case fails.
void nap(std::chrono::milliseconds d) {
  const timespec t{.tv_sec = d / 1s, .tv_nsec = d % 1s / 1ns};
  require(nanosleep(&t, nullptr) == 0, "nanosleep was interrupted");
}

// ------------------------------------------------------------------------------------- progress

// relaxed, all: its goroutine writes them, the one that counts reads them some time later.
struct alignas(64) progress_of_one {
  std::atomic<std::int64_t> turns{0};
  std::atomic<steady::duration> last{};  // since the beginning; when its last turn began
  std::atomic<steady::duration> longest_wait{};
};

void progress(std::string_view name, std::size_t n) {
  static constexpr steady::duration turn = 100us;
  const auto all = std::make_shared<std::vector<progress_of_one>>(n);
  const auto begin = steady::now();
  for (std::size_t i = 0; i < n; ++i) {
    weft::go([all, i, begin] {
      progress_of_one& self = (*all)[i];
      for (;;) {
        const auto now = steady::now() - begin;
        const auto waited = now - self.last.load(std::memory_order_relaxed);
        self.turns.fetch_add(1, std::memory_order_relaxed);
        self.last.store(now, std::memory_order_relaxed);
        if (waited > self.longest_wait.load(std::memory_order_relaxed)) {
          self.longest_wait.store(waited, std::memory_order_relaxed);
        }
        compute_for(turn);
        weft::this_goroutine::yield();
      }
    });
  }
  // The goroutine that counts takes no processor meanwhile.
  weft::blocking([] { nap(measured); });
  const auto passed = steady::now() - begin;

  std::size_t never = 0;
  double sum = 0;
  double sum_of_squares = 0;
  steady::duration longest_wait{};
  for (const progress_of_one& one : *all) {
    const auto turns = static_cast<double>(one.turns.load(std::memory_order_relaxed));
    never += turns == 0 ? 1 : 0;
    sum += turns;
    sum_of_squares += turns * turns;
    longest_wait = std::max({longest_wait, one.longest_wait.load(std::memory_order_relaxed),
                             passed - one.last.load(std::memory_order_relaxed)});
  }
  const double computed = sum * us(turn) / us(passed) / weft::max_procs();
  require(computed > 0.2 && computed < 1.5, "progress: too few turns, or more than there is time");
  const double jain = sum * sum / (static_cast<double>(n) * sum_of_squares);
  print(std::string(name) + "-never", static_cast<double>(never), "goroutines");
  print(std::string(name) + "-unfair", (1 - jain) * 1000, "permille");
  print(name, ms(longest_wait), "ms-max");
}

// ---------------------------------------------------------------------------------------- fresh

void fresh(std::string_view name) {
  constexpr std::size_t n = 100;
  constexpr auto turn = 1ms;
  constexpr auto period = 20ms;
  constexpr auto patience = 20s;
  std::atomic<bool> stop{false};
  std::atomic<std::size_t> ran{0};
  std::vector<steady::duration> delays(n);  // each written by its goroutine, read after both waits
  std::size_t started = 0;
  weft::wait_group busy;
  weft::wait_group started_ones;
  busy.go([&] {
    const auto begin = steady::now();
    auto last = begin;
    while (ran.load(std::memory_order_relaxed) < n && steady::now() - begin < patience) {
      compute_for(turn);
      if (steady::now() - last > period && started < n) {
        last = steady::now();
        started_ones.go([&delay = delays[started++], &ran, last] {
          delay = steady::now() - last;
          ran.fetch_add(1, std::memory_order_relaxed);
        });
      }
      weft::this_goroutine::yield();
    }
    stop.store(true, std::memory_order_relaxed);
  });
  busy.go([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      compute_for(turn);
      weft::this_goroutine::yield();
    }
  });
  busy.wait();
  started_ones.wait();
  require(ran == started && started >= n / 4, "fresh");
  delays.resize(started);
  std::ranges::sort(delays);
  require(delays.front() > 0ns, "fresh: started before it was made");
  print(name, us(delays[delays.size() / 2]), "us-p50");
  print(name, us(delays.back()), "us-max");
}

// ----------------------------------------------------------------------------------------- tick

using turns_taken = std::shared_ptr<std::atomic<std::int64_t>>;

void start_yielders(std::size_t n, steady::duration turn, const turns_taken& turns) {
  for (std::size_t i = 0; i < n; ++i) {
    weft::go([turn, turns] {
      for (;;) {
        compute_for(turn);
        turns->fetch_add(1, std::memory_order_relaxed);
        weft::this_goroutine::yield();
      }
    });
  }
}

void start_pairs(std::size_t n, steady::duration turn, const turns_taken& turns) {
  for (std::size_t i = 0; i < n; ++i) {
    const weft::chan<int> there;
    const weft::chan<int> back;
    weft::go([=] {
      for (;;) {
        compute_for(turn);
        turns->fetch_add(1, std::memory_order_relaxed);
        there.send(1);
        back.recv();
      }
    });
    weft::go([=] {
      for (;;) {
        there.recv();
        compute_for(turn);
        turns->fetch_add(1, std::memory_order_relaxed);
        back.send(1);
      }
    });
  }
}

// They never enter the runtime. A turn is just what is counted.
void start_hogs(std::size_t n, const turns_taken& turns) {
  for (std::size_t i = 0; i < n; ++i) {
    weft::go([turns] {
      for (;;) {
        compute_for(1ms);
        turns->fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
}

// How late 10 ms sleeps end beside whatever takes turns.
void tick(std::string_view name, const turns_taken& turns) {
  constexpr auto pause = 10ms;
  std::vector<steady::duration> late;
  const auto begin = steady::now();
  for (auto now = begin; now - begin < measured;) {
    weft::this_goroutine::sleep_for(pause);
    const auto woke = steady::now();
    late.push_back(woke - now - pause);
    now = woke;
  }
  require(turns->load(std::memory_order_relaxed) > 100, "tick: the others did not run");
  std::ranges::sort(late);
  require(late.front() >= 0ns, "tick: woke early");
  print(name, us(late[late.size() / 2]), "us-p50");
  print(name, us(late[late.size() * 99 / 100]), "us-p99");
  print(name, us(late.back()), "us-max");
}

// ----------------------------------------------------------------------------------------- pair

void pair(std::string_view name) {
  constexpr auto turn = 5ms;
  constexpr auto time = 3s;
  const auto turns = std::make_shared<std::atomic<std::int64_t>>(0);
  start_pairs(1, turn, turns);
  steady::duration longest_wait{};
  std::int64_t ran = 0;
  const auto begin = steady::now();
  for (auto last = begin; last - begin < time; ++ran) {
    weft::this_goroutine::yield();
    const auto now = steady::now();
    longest_wait = std::max(longest_wait, now - last);
    last = now;
  }
  require(turns->load(std::memory_order_relaxed) > 10 && ran > 3, "pair: somebody did not run");
  print(name, ms(longest_wait), "ms-max");
}

// ----------------------------------------------------------------------------------------- plea

void plea(std::string_view name) {
  constexpr int rounds = 30;
  constexpr int queued = 5;
  constexpr auto blocked = 200ms;
  steady::duration worst{};
  for (int round = 0; round < rounds; ++round) {
    const auto turn = 10'300us + round % 15 * 200us;
    std::atomic<bool> is_busy{false};
    std::atomic<int> ran{0};
    steady::time_point last[queued];
    steady::time_point begin;
    weft::wait_group all;
    // The other processor is busy until shortly after the call has begun.
    all.go([&] {
      is_busy.store(true, std::memory_order_relaxed);
      compute_for(turn + 1ms);
    });
    while (!is_busy.load(std::memory_order_relaxed)) weft::this_goroutine::sleep_for(1ms);
    all.go([&] {
      for (auto& at : last) {
        all.go([&] {
          at = steady::now();
          ran.fetch_add(1, std::memory_order_relaxed);
        });
      }
      compute_for(turn);
      begin = steady::now();
      nap(blocked);
    });
    all.wait();
    require(ran == queued, "plea: somebody did not run");
    worst = std::max(worst, *std::ranges::max_element(last) - begin);
  }
  print(name, std::max(0.0, ms(worst)), "ms-max");
}

// Whether the name is that prefix with a number.
bool is_numbered(std::string_view name, std::string_view prefix, std::size_t& n) {
  if (!name.starts_with(prefix)) return false;
  const char* const end = name.data() + name.size();
  const auto [last, error] = std::from_chars(name.data() + prefix.size(), end, n);
  return error == std::errc{} && last == end && n > 0;
}

}  // namespace

bool measure_fairness(std::string_view name) {
  constexpr steady::duration round = 100ms;  // of one processor, through all that compute and yield
  const auto turns = std::make_shared<std::atomic<std::int64_t>>(0);
  std::size_t n = 0;
  if (is_numbered(name, "progress", n)) {
    progress(name, n);
  } else if (name == "fresh") {
    fresh(name);
  } else if (is_numbered(name, "tickyield", n)) {
    start_yielders(n, round / n, turns);
    tick(name, turns);
  } else if (is_numbered(name, "tickpairs", n)) {
    start_pairs(n, round / (2 * n), turns);
    tick(name, turns);
  } else if (is_numbered(name, "tickhogs", n)) {
    start_hogs(n, turns);
    tick(name, turns);
  } else if (name == "pair") {
    pair(name);
  } else if (name == "plea") {
    plea(name);
  } else {
    return false;
  }
  return true;
}

}  // namespace bench
