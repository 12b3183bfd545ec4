// scarce_records.cpp [again]: functions of timers that become due when there is no memory for as
// many goroutines. Prints "all were called" at the end. With `again`, one timer becomes due several
// times before there is memory.
#include "scarce_address_space.hpp"

#include <weft/weft.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <string_view>
#include <system_error>
#include <vector>

#include <unistd.h>

namespace {

using namespace std::chrono_literals;

template <class F>
bool wait_for(F is_so) {
  const auto deadline = weft::clock::now() + 30s;
  while (!is_so() && weft::clock::now() < deadline) weft::this_goroutine::sleep_for(1ms);
  return is_so();
}

// Takes all the records of goroutines that there are, and gives them back.
class all_records {
 public:
  all_records() { records_.reserve(100'000); }
  void take() {
    try {
      for (;;) records_.push_back(weft::detail::begin_start(weft::detail::start_as::child));
    } catch (const std::system_error&) {
    }
  }
  all_records(const all_records&) = delete;
  all_records& operator=(const all_records&) = delete;
  ~all_records() { give_back(); }
  void give_back() {
    for (weft::detail::goroutine* const g : records_) weft::detail::abort_start(g);
    records_.clear();
  }

 private:
  std::vector<weft::detail::goroutine*> records_;
};

// Returns: how many calls are missing; negative if there were too many.
int call_many() {
  constexpr int wanted = 20'000;
  std::atomic<int> called{0};
  for (int i = 0; i < wanted; ++i) {
    weft::after_func(300ms, [&] {
      weft::this_goroutine::sleep_for(1ms);
      ++called;
    });
  }
  const weft::test::scarce_address_space scarce(0);
  (void)wait_for([&] { return called >= wanted; });
  return wanted - called;
}

int call_again() {
  int fired = 0;
  std::atomic<int> called{0};
  weft::timer timers[] = {weft::after_func(1h, [&] { ++called; }),
                          weft::after_func(1h, [&] { ++called; })};
  all_records records;
  {
    const weft::test::scarce_address_space scarce(0);
    records.take();
    for (int i = 0; i < 10; ++i) {
      for (weft::timer& t : timers) {
        t.reset(0s);
        weft::this_goroutine::sleep_for(100us);
        fired += !t.stop();
      }
    }
    records.give_back();
  }
  (void)wait_for([&] { return called >= fired; });
  weft::this_goroutine::sleep_for(20ms);  // in which there could be calls that are too many
  return fired == 0 ? -1'000'000 : fired - called;
}

}  // namespace

int main(int argc, char** argv) {
  const bool again = argc > 1 && std::string_view(argv[1]) == "again";
  int missing = 0;
  weft::run([&] {
    // Everything that needs memory once has it afterwards, threads too: AddressSanitizer ends the
    // process if it has no memory for one that begins.
    weft::wait_group all;
    for (int i = 0; i < 20; ++i) all.go([] { weft::this_goroutine::sleep_for(1ms); });
    for (int i = 0; i < 10; ++i) {
      all.go([] { weft::blocking([] { ::usleep(20'000); }); });
    }
    all.wait();
    for (int round = 0; round < 3 && missing == 0; ++round) {
      missing = again ? call_again() : call_many();
    }
  });
  if (missing == 0) {
    std::puts("all were called");
  } else {
    std::printf("%d calls are missing\n", missing);
  }
}
