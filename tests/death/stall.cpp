// Holds its processor for too long: computing, or asleep in a call while no other goroutine wants
// to run.
#include <weft/weft.hpp>

#include <chrono>
#include <cstring>
#include <thread>

namespace {

using namespace std::chrono_literals;

[[gnu::noinline]] void compute_for(std::chrono::milliseconds d) {
  const auto end = std::chrono::steady_clock::now() + d;
  while (std::chrono::steady_clock::now() < end) {
    for (int i = 0; i < 1000; ++i) asm volatile("" ::: "memory");
  }
}

}  // namespace

int main(int, char** argv) {
  const bool computes = std::strcmp(argv[1], "computes") == 0;
  weft::wait_group all;
  all.add(1);
  weft::go({.name = "slow"}, [&] {
    for (int i = 0; i < 3; ++i) {
      if (computes) {
        compute_for(200ms);
      } else {
        std::this_thread::sleep_for(200ms);
      }
      weft::this_goroutine::yield();
    }
    all.done();
  });
  all.wait();
}
