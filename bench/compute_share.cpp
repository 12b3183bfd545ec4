// compute_share.cpp: what sharing processors costs work that only computes.
// Usage: weft_compute_share [RUNS [PROCESSORS]]     without the second: 2 processors, then 1
//
// Eight hogs, each a fixed chain of multiply-adds, as goroutines and as plain threads on the same
// CPUs, in turns. Threads get their share from the kernel, goroutines by being paused; the work is
// the same, so the ratio of the wall times is the price of pausing. The CPU times tell a cost in
// instructions from CPUs that were left idle. Each number of processors has a child process, whose
// affinity is narrowed before the runtime and its monitor start.
#include "burn.hpp"

#include <weft/weft.hpp>

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

constexpr int hogs = 8;
constexpr int steps = 240'000'000;  // some 300 ms at 3 GHz: each waits for the one before it

[[gnu::noinline]] std::uint64_t compute(std::uint64_t x) { return bench::multiply_add(x, steps); }

struct outcome {
  double wall_ms;
  double cpu_ms;
  std::uint64_t sum;
};

// Times `share`, which is given the eight results to fill.
template <class F>
outcome timed(F share) {
  std::uint64_t results[hogs] = {};
  const double cpu = bench::cpu_ms();
  const auto begin = std::chrono::steady_clock::now();
  share(results);
  const std::chrono::duration<double, std::milli> wall = std::chrono::steady_clock::now() - begin;
  outcome o{.wall_ms = wall.count(), .cpu_ms = bench::cpu_ms() - cpu, .sum = 0};
  for (const std::uint64_t r : results) o.sum += r;
  return o;
}

outcome with_threads() {
  return timed([](std::uint64_t* results) {
    std::vector<std::thread> all;
    for (int i = 0; i < hogs; ++i) {
      all.emplace_back([results, i] { results[i] = compute(static_cast<std::uint64_t>(i)); });
    }
    for (std::thread& t : all) t.join();
  });
}

outcome with_goroutines() {
  return timed([](std::uint64_t* results) {
    weft::run([results] {
      weft::wait_group all;
      for (int i = 0; i < hogs; ++i) {
        all.go([results, i] { results[i] = compute(static_cast<std::uint64_t>(i)); });
      }
      all.wait();
    });
  });
}

double median(std::vector<double> all) {
  std::sort(all.begin(), all.end());
  const std::size_t half = all.size() / 2;
  return all.size() % 2 == 1 ? all[half] : (all[half - 1] + all[half]) / 2;
}

// Leaves this process the first `n` of its CPUs. Returns: whether it has that many.
bool narrow_to(int n) {
  cpu_set_t mine;
  if (sched_getaffinity(0, sizeof mine, &mine) != 0) return false;
  cpu_set_t few;
  CPU_ZERO(&few);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&few) < n; ++cpu) {
    if (CPU_ISSET(cpu, &mine)) CPU_SET(cpu, &few);
  }
  return CPU_COUNT(&few) == n && sched_setaffinity(0, sizeof few, &few) == 0;
}

int compare(int procs, int runs) {
  if (!narrow_to(procs)) {
    std::fprintf(stderr, "weft_compute_share: there are no %d CPUs\n", procs);
    return 1;
  }
  weft::max_procs(procs);
  weft::run([] {});  // starting the runtime is not part of the first run
  std::printf("%d hogs of %d multiply-adds, %d processors\n", hogs, steps, procs);
  std::vector<double> threads;
  std::vector<double> goroutines;
  std::uint64_t expected = 0;
  for (int i = 0; i < runs; ++i) {
    const outcome t = with_threads();
    if (i == 0) expected = t.sum;
    std::printf("  threads     %8.1f ms, %8.1f ms of CPU\n", t.wall_ms, t.cpu_ms);

    const auto before = weft::debug::stats();
    const outcome g = with_goroutines();
    const auto after = weft::debug::stats();
    const auto grown = [&](const char* name) {
      return static_cast<unsigned long long>(after[name] - before[name]);
    };
    std::printf(
        "  goroutines  %8.1f ms, %8.1f ms of CPU; pause.hog %llu, resume %llu, detach.hog %llu\n",
        g.wall_ms, g.cpu_ms, grown("pause.hog"), grown("resume"), grown("detach.hog"));
    std::fflush(stdout);
    if (t.sum != expected || g.sum != expected) {
      std::fprintf(stderr, "wrong result: the sums differ\n");
      return 1;
    }
    threads.push_back(t.wall_ms);
    goroutines.push_back(g.wall_ms);
  }
  std::printf("  medians: threads %.1f ms, goroutines %.1f ms, ratio %.3f\n", median(threads),
              median(goroutines), median(goroutines) / median(threads));
  return 0;
}

// Compares in a child process: affinity and number of processors are the process's.
int compare_in_child(int procs, int runs) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) std::exit(compare(procs, runs));
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) {
    std::perror("weft_compute_share");
    return 1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const int runs = argc > 1 ? std::atoi(argv[1]) : 5;
  const int procs = argc > 2 ? std::atoi(argv[2]) : 0;
  if (runs < 1 || procs < 0) {
    std::fprintf(stderr, "usage: %s [RUNS [PROCESSORS]]\n", argv[0]);
    return 2;
  }
  if (procs > 0) return compare_in_child(procs, runs);
  const int of_two = compare_in_child(2, runs);
  const int of_one = compare_in_child(1, runs);
  return of_two != 0 ? of_two : of_one;
}
