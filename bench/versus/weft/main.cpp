// main.cpp: weft's entry in the comparison. The work of each case is bench/versus/spec.md's, the
// same in every runtime; each case checks its result. Usage: weft_bench CASE PROCESSORS, and for
// servers, which are checked by their clients, weft_bench CASE PROCESSORS HOST:PORT
#include "burn.hpp"
#include "copies.hpp"
#include "fairness.hpp"
#include "locked_ping.hpp"
#include "require.hpp"
#include "servers.hpp"

#include <weft/weft.hpp>

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

namespace {

using bench::require;

double resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::strtod(line.c_str() + 6, nullptr) * 1024;
  }
  return 0;
}

std::size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  return static_cast<std::size_t>(std::count(std::istreambuf_iterator<char>(maps), {}, '\n'));
}

volatile std::uint64_t sink;

[[gnu::noinline]] void work(int n, std::uint64_t x) {
  x = bench::multiply_add(x, n);
  if (x == 42) sink = x;
}

void work(int n) { work(n, static_cast<std::uint64_t>(n)); }

int fib(int n) {
  if (n < 2) return n;
  auto left = weft::async(fib, n - 1);
  const int right = fib(n - 2);
  return left.get() + right;
}

struct figure {
  double value;
  const char* unit = "ns";
};

class stopwatch {
 public:
  double ns() const {
    return std::chrono::duration<double, std::nano>(steady::now() - start_).count();
  }
  double ns_per(double n) const { return ns() / n; }

 private:
  steady::time_point start_ = steady::now();
};

figure spawn() {
  const stopwatch watch;
  std::atomic<int> ran{0};
  for (int round = 0; round < 1000; ++round) {
    weft::wait_group group;
    group.add(1000);
    for (int i = 0; i < 1000; ++i) weft::go([&group] { group.done(); });
    group.wait();
    ran.fetch_add(1000, std::memory_order_relaxed);
  }
  require(ran == 1'000'000, "spawn");
  return {watch.ns_per(1e6)};
}

figure yield() {
  constexpr int n = 3'000'000;
  const stopwatch watch;
  weft::wait_group group;
  std::atomic<int> yields{0};
  for (int g = 0; g < 2; ++g) {
    group.go([&] {
      for (int i = 0; i < n; ++i) weft::this_goroutine::yield();
      yields.fetch_add(n, std::memory_order_relaxed);
    });
  }
  group.wait();
  require(yields == 2 * n, "yield");
  return {watch.ns_per(2.0 * n)};
}

figure fib_case() {
  const stopwatch watch;
  require(fib(27) == 196'418, "fib");
  return {watch.ns() / 1e6, "ms"};
}

figure sleep_case() {
  weft::wait_group group;
  std::atomic<int> slept{0};
  for (int i = 0; i < 100'000; ++i) {
    group.go([&slept, i] {
      weft::this_goroutine::sleep_for(std::chrono::milliseconds(i % 100 + 1));
      slept.fetch_add(1, std::memory_order_relaxed);
    });
  }
  group.wait();
  require(slept == 100'000, "sleep");
  return {bench::cpu_ms(), "ms-cpu"};
}

figure parked() {
  constexpr int n = 1'000'000;
  weft::wait_group gate;
  gate.add(1);
  const double base = resident_bytes();
  const stopwatch watch;
  weft::wait_group arrived;
  weft::wait_group gone;
  for (int i = 0; i < n; ++i) {
    arrived.add(1);
    gone.add(1);
    weft::go([&] {
      arrived.done();
      gate.wait();
      gone.done();
    });
  }
  arrived.wait();
  weft::this_goroutine::sleep_for(50ms);
  const double each = watch.ns_per(n);
  require(weft::num_goroutine() == n + 1, "parked");
  const double bytes = (resident_bytes() - base) / n;
  std::fprintf(stderr, "parked: %.0f ns each to spawn and park, %zu mappings\n", each, mappings());
  gate.done();
  gone.wait();
  return {bytes, "B"};
}

figure idle() {
  weft::wait_group gate;
  gate.add(1);
  weft::wait_group gone;
  for (int i = 0; i < 10'000; ++i) gone.go([&] { gate.wait(); });
  weft::this_goroutine::sleep_for(100ms);
  const double base = bench::cpu_ms();
  weft::this_goroutine::sleep_for(3s);
  const double used = bench::cpu_ms() - base;
  gate.done();
  gone.wait();
  return {used, "ms-cpu"};
}

figure grain(int size) {
  const int n = 40'000'000 / (size + 200);
  const stopwatch watch;
  weft::wait_group group;
  for (int i = 0; i < n; ++i) {
    group.add(1);
    weft::go([&group, size] {
      work(size);
      group.done();
    });
  }
  group.wait();
  return {watch.ns_per(n)};
}

figure start() {
  std::vector<double> late;
  for (int i = 0; i < 500; ++i) {
    const auto begin = steady::now();
    auto ran = weft::async([begin] { return steady::now() - begin; });
    work(300'000);
    late.push_back(std::chrono::duration<double, std::nano>(ran.get()).count());
    weft::this_goroutine::sleep_for(200us);
  }
  std::sort(late.begin(), late.end());
  return {late[250]};
}

figure pingpong() {
  constexpr int n = 1'000'000;
  weft::chan<int> a;
  weft::chan<int> b;
  const stopwatch watch;
  weft::go([a, b] {
    for (int i = 0; i < n; ++i) b.send(*a.recv());
  });
  std::int64_t sum = 0;
  for (int i = 0; i < n; ++i) {
    a.send(i);
    sum += *b.recv();
  }
  require(sum == std::int64_t{n} * (n - 1) / 2, "pingpong");
  return {watch.ns_per(n)};
}

// pingpong in which a context could end each operation, but is never cancelled.
figure pingpongctx() {
  constexpr int n = 1'000'000;
  const auto [ctx, cancel] = weft::with_cancel(weft::context::background());
  const weft::chan<int> a;
  const weft::chan<int> b;
  const stopwatch watch;
  weft::go([a, b, c = ctx] {
    for (int i = 0; i < n; ++i) require(!b.send(c, *a.recv(c)), "pingpongctx");
  });
  std::int64_t sum = 0;
  for (int i = 0; i < n; ++i) {
    require(!a.send(ctx, i), "pingpongctx");
    sum += *b.recv(ctx);
  }
  require(sum == std::int64_t{n} * (n - 1) / 2, "pingpongctx");
  return {watch.ns_per(n)};
}

figure buffered() {
  constexpr int n = 10'000'000;
  weft::chan<int> c(128);
  const stopwatch watch;
  weft::go([c] {
    for (int i = 0; i < n; ++i) c.send(i);
    c.close();
  });
  std::int64_t sum = 0;
  for (const int v : c) sum += v;
  require(sum == std::int64_t{n} * (n - 1) / 2, "buffered");
  return {watch.ns_per(n)};
}

figure mpmc() {
  constexpr int n = 1'000'000;
  weft::chan<int> c(128);
  const stopwatch watch;
  weft::wait_group producers;
  weft::wait_group consumers;
  std::atomic<std::int64_t> sum{0};
  for (int g = 0; g < 4; ++g) {
    producers.go([c] {
      for (int i = 0; i < n; ++i) c.send(i);
    });
    consumers.go([c, &sum] {
      std::int64_t mine = 0;
      for (const int v : c) mine += v;
      sum.fetch_add(mine, std::memory_order_relaxed);
    });
  }
  producers.wait();
  c.close();
  consumers.wait();
  require(sum == 4 * (std::int64_t{n} * (n - 1) / 2), "mpmc");
  return {watch.ns_per(4.0 * n)};
}

figure select_case() {
  constexpr int n = 1'000'000;
  weft::chan<int> a;
  weft::chan<int> b;
  const stopwatch watch;
  for (const weft::chan<int>& c : {a, b}) {
    weft::go([c] {
      for (int i = 0; i < n; ++i) c.send(i);
    });
  }
  std::int64_t sum = 0;
  const auto add = [&sum](std::optional<int> v) { sum += *v; };
  for (int i = 0; i < 2 * n; ++i) weft::select(weft::recv(a, add), weft::recv(b, add));
  require(sum == std::int64_t{n} * (n - 1), "select");
  return {watch.ns_per(2.0 * n)};
}

figure mutex_case() {
  constexpr int n = 500'000;
  weft::mutex m;
  std::int64_t count = 0;
  const stopwatch watch;
  weft::wait_group group;
  for (int g = 0; g < 8; ++g) {
    group.go([&] {
      for (int i = 0; i < n; ++i) {
        m.lock();
        ++count;
        m.unlock();
      }
    });
  }
  group.wait();
  require(count == 8 * n, "mutex");
  return {watch.ns_per(8.0 * n)};
}

void skynet_node(const weft::chan<std::int64_t>& c, std::int64_t number, std::int64_t size) {
  if (size == 1) return c.send(number);
  const weft::chan<std::int64_t> children;
  for (int i = 0; i < 10; ++i) {
    weft::go(skynet_node, children, number + i * (size / 10), size / 10);
  }
  std::int64_t sum = 0;
  for (int i = 0; i < 10; ++i) sum += *children.recv();
  c.send(sum);
}

figure skynet() {
  const stopwatch watch;
  const weft::chan<std::int64_t> c;
  weft::go(skynet_node, c, std::int64_t{0}, std::int64_t{1'000'000});
  require(*c.recv() == 499'999'500'000, "skynet");
  return {watch.ns() / 1e6, "ms"};
}

figure pipe(int size) {
  const int n = 40'000'000 / (size + 200);
  weft::chan<int> c(128);
  const stopwatch watch;
  weft::go([c, n, size] {
    for (int i = 0; i < n; ++i) {
      work(size);
      c.send(i);
    }
    c.close();
  });
  std::int64_t sum = 0;
  for (const int v : c) {
    work(size);
    sum += v;
  }
  require(sum == std::int64_t{n} * (n - 1) / 2, "pipe");
  return {watch.ns_per(n)};
}

// Prints the median itself and returns the 99th percentile. The loops still run when the process
// exits, which is part of the case.
figure hogs(const char* name, int more) {
  const int procs = weft::max_procs();
  for (int i = 0; i < procs + more; ++i) {
    weft::go([] {
      for (;;) asm volatile("" ::: "memory");
    });
  }
  std::vector<double> late;
  for (int i = 0; i < 500; ++i) {
    const auto begin = steady::now();
    weft::this_goroutine::sleep_for(1ms);
    const auto slept = std::chrono::duration_cast<std::chrono::microseconds>(steady::now() - begin);
    late.push_back(static_cast<double>(slept.count()) - 1000);
  }
  std::sort(late.begin(), late.end());
  require(late[0] >= 0, name);
  std::printf("%s %d %.0f us-p50\n", name, procs, late[250]);
  return {late[495], "us-p99"};
}

figure blocking() {
  const int procs = weft::max_procs();
  const stopwatch watch;
  weft::wait_group group;
  std::atomic<int> slept{0};
  for (int i = 0; i < 200; ++i) {
    group.go([&slept] {
      // Unannounced: the runtime has to find out by itself. A call that the runtime interrupts
      // fails and is not counted.
      const timespec nap{.tv_sec = 0, .tv_nsec = 50'000'000};
      if (nanosleep(&nap, nullptr) == 0) slept.fetch_add(1, std::memory_order_relaxed);
    });
  }
  for (int i = 0; i < procs; ++i) {
    group.go([i] { work(100'000'000, static_cast<std::uint64_t>(i)); });
  }
  group.wait();
  require(slept == 200, "blocking");
  return {watch.ns() / 1e6, "ms"};
}

// Prints the figure with one goroutine locked itself and returns the one with both.
figure locked() {
  constexpr int n = 20'000;
  const double one = bench::round_trip_ns(bench::locked::one, n);
  const double both = bench::round_trip_ns(bench::locked::both, n);
  require(one > 0 && both > 0, "locked");
  std::printf("locked-one %d %.1f ns\n", weft::max_procs(), one);
  return {both};
}

// Prints the CPU time and returns the time of the wall clock.
figure readat() {
  constexpr std::size_t blocks = 32'768;
  constexpr std::size_t bytes = 4096;
  constexpr int readers = 64;
  constexpr int each = 20'000;
  std::string path = "/tmp/weft_bench.XXXXXX";
  auto f = weft::os::file::adopt(::mkstemp(path.data()));
  require(f && std::remove(path.c_str()) == 0, "readat: a file");
  std::vector<std::uint64_t> block(bytes / sizeof(std::uint64_t));
  for (std::size_t i = 0; i < blocks; ++i) {
    block[0] = i;
    require(f->write(std::as_bytes(std::span(block))).value_or(0) == bytes, "readat: writing");
  }
  std::atomic<int> right{0};
  const double cpu = bench::cpu_ms();
  const stopwatch watch;
  weft::wait_group all;
  for (int r = 0; r < readers; ++r) {
    all.go([&, x = static_cast<std::uint64_t>(r)]() mutable {
      std::vector<std::uint64_t> into(bytes / sizeof(std::uint64_t));
      int mine = 0;
      for (int i = 0; i < each; ++i) {
        x = bench::multiply_add(x, 1);
        const std::size_t which = static_cast<std::size_t>(x >> 33) % blocks;
        const auto n = f->pread(std::as_writable_bytes(std::span(into)), which * bytes);
        if (n.value_or(0) == bytes && into[0] == which) ++mine;
      }
      right.fetch_add(mine, std::memory_order_relaxed);
    });
  }
  all.wait();
  const double ns = watch.ns_per(readers * each);
  require(right == readers * each, "readat");
  const double cpu_ns = (bench::cpu_ms() - cpu) * 1e6 / (readers * each);
  std::printf("readat-cpu %d %.1f ns\n", weft::max_procs(), cpu_ns);
  return {ns};
}

figure measure(std::string_view name) {
  if (name == "spawn") return spawn();
  if (name == "yield") return yield();
  if (name == "fib") return fib_case();
  if (name == "pingpong") return pingpong();
  if (name == "pingpongctx") return pingpongctx();
  if (name == "buffered") return buffered();
  if (name == "mpmc") return mpmc();
  if (name == "select") return select_case();
  if (name == "mutex") return mutex_case();
  if (name == "skynet") return skynet();
  if (name.starts_with("pipe")) return pipe(std::atoi(name.data() + 4));
  if (name == "sleep") return sleep_case();
  if (name == "parked") return parked();
  if (name == "idle") return idle();
  if (name == "start") return start();
  if (name == "hogs") return hogs("hogs", 0);
  if (name == "hogs4") return hogs("hogs4", 4);
  if (name == "blocking") return blocking();
  if (name == "locked") return locked();
  if (name == "readat") return readat();
  if (name.starts_with("grain")) return grain(std::atoi(name.data() + 5));
  std::fprintf(stderr, "weft_bench: there is no case %s\n", name.data());
  std::exit(2);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(
        stderr,
        "usage: %s CASE PROCESSORS [HOST:PORT]\n"
        "cases: spawn yield pingpong pingpongctx buffered mpmc select mutex skynet fib sleep "
        "parked "
        "idle start hogs hogs4 blocking locked readat filecopy sendfile proxy grainN pipeN (N: 200 "
        "1000 5000 20000)\n"
        "fairness: progressN fresh tickyieldN tickpairsN tickhogsN pair plea\n"
        "servers, with HOST:PORT: echo http\n",
        argv[0]);
    return 2;
  }
  const int procs = std::atoi(argv[2]);
  weft::max_procs(procs);
  for (const auto& [name, serve] :
       {std::pair{"echo", &bench::serve_echo}, {"http", &bench::serve_http}}) {
    if (argc < 4 || std::strcmp(argv[1], name) != 0) continue;
    weft::run([&] { serve(argv[3]); });
    return 1;
  }
  figure f{};
  bool is_printed = false;
  weft::run([&] {
    is_printed = bench::measure_fairness(argv[1]) || bench::measure_copies(argv[1]);
    if (!is_printed) f = measure(argv[1]);
  });
  if (is_printed) return 0;
  const char* const name = std::strcmp(argv[1], "locked") == 0 ? "locked-both" : argv[1];
  std::printf("%s %d %.1f %s\n", name, procs, f.value, f.unit);
}
