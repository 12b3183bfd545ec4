// locked_ping.hpp: what a goroutine pays for being locked to its thread: a ping-pong over two
// channels with neither, one or both of the goroutines locked.
#pragma once

#include <weft/weft.hpp>

#include <chrono>
#include <cstdint>

namespace bench {

enum class locked { none, one, both };

// Returns: the ns of one of `n` round trips; 0 if a value was lost or changed on its way.
inline double round_trip_ns(locked who, int n) {
  using steady = std::chrono::steady_clock;
  const weft::chan<int> there;
  const weft::chan<int> back;
  weft::wait_group gone;
  gone.go([&] {
    if (who == locked::both) weft::this_goroutine::lock_thread();
    for (const int v : there) back.send(v);
    if (who == locked::both) weft::this_goroutine::unlock_thread();
  });
  double each = 0;
  gone.go([&] {
    if (who != locked::none) weft::this_goroutine::lock_thread();
    std::int64_t sum = 0;
    const auto begin = steady::now();
    for (int i = 0; i < n; ++i) {
      there.send(i);
      sum += *back.recv();
    }
    const std::chrono::duration<double, std::nano> took = steady::now() - begin;
    there.close();
    if (sum == std::int64_t{n} * (n - 1) / 2) each = took.count() / n;
    if (who != locked::none) weft::this_goroutine::unlock_thread();
  });
  gone.wait();
  return each;
}

}  // namespace bench
