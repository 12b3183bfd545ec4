// stack_overflow.cpp <stack size, 0: the default>: a goroutine recurses without end.
// stack_overflow.cpp frame: a goroutine enters a function with a frame larger than its stack.
// stack_overflow.cpp main: so does main, which has more.
// stack_overflow.cpp bubble, bubble_started, bubble_in_run: one in a bubble recurses; before the
// runtime has started, after that, and in a goroutine.
#include <weft/test.hpp>
#include <weft/weft.hpp>

#include <cstdlib>
#include <string_view>

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

// Touches only the far end, beyond any guard.
[[gnu::noinline]] int use_a_large_frame() {
  volatile char buffer[1 << 20];
  buffer[0] = 1;
  return buffer[0];
}

void overflow_in_a_bubble() {
  weft::test::bubble([] {
    weft::go({.name = "recursive"}, [] {
      volatile int zero = 0;
      (void)recurse_without_end(&zero);
    });
    weft::this_goroutine::yield();
  });
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view how = argc > 1 ? argv[1] : "0";
  if (how == "main") return weft::run([] { return use_a_large_frame() - 1; });
  if (how == "frame") {
    return weft::run([] {
      weft::wait_group other;
      other.go([] { (void)use_a_large_frame(); });
      other.wait();
    });
  }
  if (how == "bubble_started") weft::run([] {});
  if (how == "bubble_in_run") weft::run(&overflow_in_a_bubble);
  if (how.starts_with("bubble")) overflow_in_a_bubble();
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
