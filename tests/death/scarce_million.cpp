// scarce_million.cpp <how many> <ms>: so many goroutines that sleep for so long, in the address
// space there is. Where go refuses one, main waits a little and tries again. Prints how many ran,
// how many there were at most at the same time, and how many milliseconds it took.
#include <weft/weft.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <system_error>

namespace {

using namespace std::chrono_literals;

std::atomic<long> ran{0};
std::atomic<long> at_once{0};
std::atomic<long> at_once_most{0};

void sleep_and_count(std::chrono::milliseconds time) {
  // relaxed, all of them: read when all is over.
  const long now = at_once.fetch_add(1, std::memory_order_relaxed) + 1;
  long most = at_once_most.load(std::memory_order_relaxed);
  while (now > most && !at_once_most.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
  weft::this_goroutine::sleep_for(time);
  at_once.fetch_sub(1, std::memory_order_relaxed);
  ran.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

int main(int argc, char** argv) {
  const long wanted = argc > 1 ? std::atol(argv[1]) : 1'000'000;
  const std::chrono::milliseconds time(argc > 2 ? std::atol(argv[2]) : 20);
  const auto begin = std::chrono::steady_clock::now();
  weft::run([&] {
    weft::wait_group all;
    for (long started = 0; started < wanted;) {
      try {
        all.go([time] { sleep_and_count(time); });
        ++started;
        continue;
      } catch (const std::system_error& e) {
        if (e.code() != std::errc::not_enough_memory) throw;
      } catch (const std::bad_alloc&) {  // no memory for the words of the other exception either
      }
      weft::this_goroutine::sleep_for(1ms);
    }
    all.wait();
  });
  const auto took = std::chrono::steady_clock::now() - begin;
  std::printf(
      "%ld %ld %ld\n", ran.load(), at_once_most.load(),
      static_cast<long>(std::chrono::duration_cast<std::chrono::milliseconds>(took).count()));
}
