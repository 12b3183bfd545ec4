// stack_overflow.cpp <stack size, 0: the default>: a goroutine recurses without end.
#include <weft/weft.hpp>

#include <cstdlib>

namespace {

volatile int limit = -1;  // what depth never is, though the compiler cannot know
volatile int depth = 0;

[[gnu::noinline]] int recurse_without_end(volatile int* caller) {
  // Large enough that 64 MiB are used up before ThreadSanitizer's own stack of calls is, and less
  // than a page, so that the guard is not missed.
  volatile int mine[512] = {};
  mine[0] = *caller + 1;
  depth = depth + 1;
  if (depth == limit) return 0;
  const int below = recurse_without_end(mine);
  return below + mine[0];
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t bytes = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
  return weft::run([&] {
    weft::wait_group never;
    never.add(1);
    weft::go({.name = "recursive", .stack_size = bytes}, [] {
      volatile int zero = 0;
      (void)recurse_without_end(&zero);
    });
    never.wait();
  });
}
