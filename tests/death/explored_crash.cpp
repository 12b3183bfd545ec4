// explored_crash.cpp <how>: a program that ends the process in some orders of its steps.
#include <weft/test.hpp>
#include <weft/weft.hpp>

#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace {

// As good as null, but neither a sanitizer nor the compiler sees that coming.
int* nearly_null() {
  volatile std::uintptr_t address = 16;
  return reinterpret_cast<int*>(address);
}

[[gnu::noinline]] void fault_here(volatile int* at) { *at = 1; }

[[gnu::noinline]] int overflow(int depth) {
  volatile char room[4096];
  room[0] = 1;
  return depth == 0 ? 0 : overflow(depth - 1) + room[0];
}

void crash(std::string_view how) {
  if (how == "fault") fault_here(nearly_null());
  if (how == "abort") std::abort();
  if (how == "overflow") (void)overflow(1'000'000);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view how = argc > 1 ? argv[1] : "fault";
  weft::test::explore({.runs = 1'000}, [how] {
    weft::test::atomic<int> n{0, "n"};
    weft::wait_group all;
    all.go([&] { n.store(1); });
    all.go([&] {
      if (n.load() == 1) crash(how);
    });
    all.wait();
  });
  return 0;
}
