// locked_ping.cpp: the price of a goroutine that is locked to its thread, with 1 and 2 processors.
// Usage: weft_locked_ping [ROUND_TRIPS [RUNS]]
//
// A locked goroutine runs on no other thread, so each message to it has to wake that thread and
// hand it a processor. The row `none` is the same ping-pong without a lock, for scale. Go's figures
// are those of bench/versus/run locked.
#include "locked_ping.hpp"

#include <weft/weft.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

struct form {
  bench::locked who;
  const char* name;
};

constexpr form forms[] = {
    {bench::locked::none, "none"}, {bench::locked::one, "one"}, {bench::locked::both, "both"}};

}  // namespace

int main(int argc, char** argv) {
  const int round_trips = argc > 1 ? std::atoi(argv[1]) : 20'000;
  const int runs = argc > 2 ? std::atoi(argv[2]) : 5;
  if (round_trips < 1 || runs < 1) {
    std::fprintf(stderr, "usage: %s [ROUND_TRIPS [RUNS]]\n", argv[0]);
    return 2;
  }
  std::printf("ns per round trip, median of %d (least - most)\n", runs);
  for (const int procs : {1, 2}) {
    weft::max_procs(procs);
    for (const form& f : forms) {
      std::vector<double> all;
      for (int i = 0; i < runs; ++i) {
        weft::run([&] { all.push_back(bench::round_trip_ns(f.who, round_trips)); });
      }
      std::sort(all.begin(), all.end());
      if (all.front() <= 0) {
        std::fprintf(stderr, "wrong result: %s locked, %d processors\n", f.name, procs);
        return 1;
      }
      std::printf("P=%d locked %-4s  %9.1f (%.1f - %.1f)\n", procs, f.name, all[all.size() / 2],
                  all.front(), all.back());
    }
  }
}
