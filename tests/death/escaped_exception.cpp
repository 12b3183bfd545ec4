// escaped_exception.cpp <how>: an exception leaves a goroutine while another one waits.
#include <weft/weft.hpp>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

struct order_rejected : std::runtime_error {
  using std::runtime_error::runtime_error;
};

weft::wait_group never;

[[gnu::noinline]] void throw_from_here(std::string_view what) {
  if (what == "int") throw 42;
  if (what == "long") throw order_rejected(std::string(3000, 'x') + "the end of what()");
  if (what == "control") {
    throw order_rejected(
        "red\x1b[31m\nline two\t\xff caf\xc3\xa9 \xc2\x9b"
        "2J");
  }
  throw order_rejected("too many apples");
}

// Not the last thing its caller does, so that the caller's frame is on the stack.
[[gnu::noinline]] void place_order(std::string_view what) {
  throw_from_here(what);
  std::puts("never");
}

[[gnu::noinline]] void wait_for_ever_here() {
  never.wait();
  std::puts("never");
}

[[gnu::noinline]] void sleep_for_ever_here() {
  weft::this_goroutine::sleep_for(std::chrono::hours(24));
  std::puts("never");
}

[[gnu::noinline]] void start_the_culprit(std::string_view how) {
  if (how == "wait_group") {
    static weft::wait_group group;
    group.go([how] { place_order(how); });
  } else if (how == "named") {
    weft::go({.name = "order desk"}, [how] { place_order(how); });
  } else if (how == "large_stack") {
    weft::go({.name = "order desk", .stack_size = 1 << 20}, [how] { place_order(how); });
  } else if (how == "control") {
    weft::go({.name = "desk\a"}, [how] { place_order(how); });
  } else if (how == "long_name") {
    const std::string name = std::string(3000, 'n') + "the end of the name";
    weft::go({.name = name}, [how] { place_order(how); });
  } else if (how == "rethrown") {
    weft::go([how] {
      try {
        place_order(how);
      } catch (...) {
        weft::this_goroutine::yield();
        throw;
      }
    });
  } else if (how == "locked") {
    weft::go([how] {
      weft::this_goroutine::lock_thread();
      weft::this_goroutine::yield();
      place_order(how);
    });
  } else {
    weft::go([how] { place_order(how); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view how = argc > 1 ? argv[1] : "plain";
  never.add(1);
  if (how == "from_thread") {  // no goroutine but the culprit
    start_the_culprit(how);
    never.wait();
  }
  return weft::run([&] {
    weft::go({.name = "patient"}, [] { wait_for_ever_here(); });
    weft::go([] { sleep_for_ever_here(); });
    for (int i = 0; i < 20; ++i) weft::this_goroutine::yield();
    weft::this_goroutine::sleep_for(std::chrono::milliseconds(20));
    if (how == "waited_for") {
      weft::wait_group group;
      group.go([how] { place_order(how); });
      group.wait();
      std::puts("went on");
      std::fflush(stdout);
      std::_Exit(0);
    }
    start_the_culprit(how);
    never.wait();
  });
}
