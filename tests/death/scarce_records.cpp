// scarce_records.cpp: functions of timers that become due when there is no memory for as many
// goroutines. Prints "all were called" at the end.
#include "scarce_address_space.hpp"

#include <weft/weft.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>

int main() {
  using namespace std::chrono_literals;
  constexpr int wanted = 20'000;
  std::atomic<int> called{0};
  weft::run([&] {
    weft::wait_group all;  // everything that needs memory once has it now
    for (int i = 0; i < 20; ++i) all.go([] { weft::this_goroutine::sleep_for(1ms); });
    all.wait();
    for (int round = 0; round < 3; ++round) {
      called = 0;
      for (int i = 0; i < wanted; ++i) {
        weft::after_func(300ms, [&] {
          weft::this_goroutine::sleep_for(1ms);
          ++called;
        });
      }
      const weft::test::scarce_address_space scarce(0);
      const auto deadline = weft::clock::now() + 30s;
      while (called < wanted && weft::clock::now() < deadline) weft::this_goroutine::sleep_for(1ms);
      if (called < wanted) break;
    }
  });
  std::printf(called == wanted ? "all were called\n" : "%d were called\n", called.load());
}
