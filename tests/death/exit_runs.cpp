// exit_runs.cpp <what>: goroutines are stopped at awkward moments when the process exits. The
// status is 7, whatever happens.
//
// io       A goroutine's read has just timed out; a destructor waits for that goroutine.
// context  A goroutine waits for a context that ends in an hour; the same.
// late     A destructor's wait was given up; what it waited for comes during that of the next one.
// memset   A goroutine is in a call into the C library that takes long and does not sleep.
#include <weft/weft.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>

namespace {

using namespace std::chrono_literals;

constexpr int status = 7;
constexpr std::size_t large = std::size_t{200} << 20;

std::string what;

// Never destroyed.
weft::chan<int>& first_channel = *new weft::chan<int>;
weft::chan<int>& second_channel = *new weft::chan<int>;
std::atomic<long>& turns = *new std::atomic<long>{0};
std::atomic<bool>& is_destroyed = *new std::atomic<bool>{false};

void compute_for_ever() {
  for (;;) turns.fetch_add(1, std::memory_order_relaxed);
}

// Whether the goroutine computes, some time after the process has begun to exit.
bool computes() {
  std::this_thread::sleep_for(200ms);
  const long before = turns;
  std::this_thread::sleep_for(50ms);
  return turns != before;
}

struct second {
  ~second() {
    if (what != "late") return;
    weft::go([] {
      first_channel.send(1);
      weft::this_goroutine::sleep_for(20ms);
      second_channel.send(2);
    });
    std::printf("got %d\n", second_channel.recv().value_or(-1));
  }
};
const second the_second;

struct first {
  ~first() {
    is_destroyed = true;
    if (what == "memset") {
      std::puts(computes() ? "computes" : "is stopped");
    } else {
      first_channel.recv();
    }
  }
};
const first the_first;

void exit_after_a_read_timed_out() {
  weft::max_procs(1);
  static auto& pipe = *new auto(weft::os::pipe());
  const auto when = weft::clock::now() + 50ms;
  (void)pipe->first.set_read_deadline(when + 1us);
  weft::go([] {
    char byte = 0;
    (void)pipe->first.read(std::span<char>(&byte, 1));
  });
  weft::go([when] {
    weft::this_goroutine::sleep_for(when - weft::clock::now());
    std::exit(status);
  });
  weft::this_goroutine::sleep_for(1h);
}

void start() {
  if (what == "io") return exit_after_a_read_timed_out();
  if (what == "context") {
    weft::go([] {
      const auto limit = weft::with_timeout(weft::context::background(), 1h);
      limit.ctx.done().recv();
    });
  } else if (what == "memset") {
    weft::go([memory = std::make_unique_for_overwrite<char[]>(large)] {
      while (!is_destroyed) {
        std::memset(memory.get(), 1, large);
        asm volatile("" : : "r"(memory.get()) : "memory");
        // A goroutine is not stopped within the C library. This one is elsewhere for a moment that
        // the exiting thread can find, tens of milliseconds apart.
        for (int i = 0; i < 1'000'000; ++i) asm volatile("");
      }
      compute_for_ever();
    });
  }
  weft::this_goroutine::sleep_for(100ms);
}

}  // namespace

int main(int argc, char** argv) {
  what = argc > 1 ? argv[1] : "";
  weft::max_procs(2);
  weft::run([] { start(); });
  std::exit(status);
}
