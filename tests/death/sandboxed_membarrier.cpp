// sandboxed_membarrier.cpp: a process that enters a sandbox when it already uses goroutines. The
// sandbox refuses membarrier, which the runtime relied on until then. The process must say so and
// end, or go on with locks that still let in one at a time; it prints what became of it.
#include "sandbox.hpp"

#include <weft/weft.hpp>

#include <sys/syscall.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <vector>

namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

void refuse_membarrier() {
  if (weft::test::refuse_call(SYS_membarrier, EPERM)) return;
  std::printf("no sandbox\n");
  std::fflush(stdout);
  std::_Exit(0);
}

// Memory that is in no cache: a store to it stays in the core's buffer for long, and with it those
// that come after it.
class cold_memory {
 public:
  void touch() {
    for (int i = 0; i < 40; ++i) {
      x_ ^= x_ << 13;
      x_ ^= x_ >> 7;
      x_ ^= x_ << 17;
      bytes_[x_ % bytes_.size()] = 1;
    }
  }

 private:
  std::uint64_t x_ = 88172645463325252u;
  std::vector<unsigned char> bytes_ = std::vector<unsigned char>(128 << 20);
};

// One goroutine uses the mutex so often that it becomes its own; then another wants it, too.
// Returns: false if both were in at a time.
bool excludes(cold_memory& cold) {
  struct {
    weft::mutex mutex;
    std::uint64_t both = 0;  // guarded by mutex
    std::uint64_t first = 0;
    std::uint64_t second = 0;
    std::atomic<bool> is_owned{false};
    std::atomic<bool> stop{false};
  } s;
  weft::wait_group all;
  all.go([&] {
    const auto use = [&] {
      const std::lock_guard hold(s.mutex);
      ++s.both;
      ++s.first;
    };
    for (int i = 0; i < 3000; ++i) use();
    s.is_owned = true;
    while (!s.stop.load(std::memory_order_relaxed)) {
      cold.touch();
      use();
    }
  });
  all.go([&] {
    while (!s.is_owned) {  // on the other processor
    }
    for (int i = 0; i < 50; ++i) {
      const std::lock_guard hold(s.mutex);
      ++s.both;
      ++s.second;
    }
    s.stop = true;
  });
  all.wait();
  return s.both == s.first + s.second;
}

}  // namespace

int main() {
  return weft::run([] {
    weft::max_procs(2);
    cold_memory cold;
    if (!excludes(cold)) return 1;
    refuse_membarrier();
    for (const auto end = steady::now() + 2s; steady::now() < end;) {
      if (!excludes(cold)) {
        std::printf("two at a time\n");
        return 1;
      }
    }
    std::printf("went on\n");
    return 0;
  });
}
