// exit_swallowed.cpp: this_goroutine::exit meets a catch (...) that does not rethrow.
#include <weft/weft.hpp>

#include <cstdio>

namespace {

[[gnu::noinline]] void swallow() {
  try {
    weft::this_goroutine::exit();
  } catch (...) {
    std::puts("caught");
    std::fflush(stdout);
  }
}

}  // namespace

int main() {
  return weft::run([] {
    weft::wait_group all;
    all.go([] {
      swallow();
      std::puts("never");
      std::fflush(stdout);
    });
    all.wait();
  });
}
