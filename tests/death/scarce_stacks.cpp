// scarce_stacks.cpp <how>: address space for only some hundred stacks, and thousands of goroutines
// that want one. Prints "all ran" at the end.
//
//   gate     goroutines wait for a gate, which main opens when go refuses or no more get through
//   sleep    they sleep for a while and go by themselves
//   forget   the same as gate, started by a plain thread
//   long     those that have a stack keep it for six seconds
//   nobody   not one has a stack until main frees memory; with a default size (WEFT_STACK) that
//            does not fit
//   locked   as gate, beside goroutines that are locked to their threads
#include "scarce_address_space.hpp"
#include "sched/scheduler.hpp"
#include "thread_hop.hpp"

#include <weft/weft.hpp>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string_view>
#include <system_error>
#include <thread>

namespace {

using namespace std::chrono_literals;

constexpr int wanted = 3000;
std::atomic<int> running{0};
std::atomic<int> finished{0};

bool shortage() {
  return weft::sched::the_scheduler.stack_shortage.load(std::memory_order_relaxed);
}

template <class F>
int start(F f, int most = wanted) {
  int started = 0;
  for (; started < most; ++started) {
    try {
      weft::go(f);
    } catch (const std::system_error& e) {
      if (e.code() != std::errc::not_enough_memory) throw;
      break;
    } catch (const std::bad_alloc&) {  // no memory for the words of the other exception either
      break;
    }
    if (started % 64 == 0) weft::this_goroutine::yield();
  }
  return started;
}

template <class Condition>
void until(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + 30s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) {
      std::printf("%d running, %d finished\n", running.load(), finished.load());
      std::fflush(stdout);
      std::_Exit(4);
    }
    weft::this_goroutine::yield();
  }
}

weft::wait_group gate;

int through_the_gate() {
  gate.add(1);
  const int started = start([] {
    ++running;
    gate.wait();
    ++finished;
  });
  until([=] { return running == started || shortage(); });
  gate.done();
  return started;
}

int asleep(std::chrono::milliseconds time, int most = wanted) {
  return start(
      [time] {
        ++running;
        weft::this_goroutine::sleep_for(time);
        ++finished;
      },
      most);
}

// Goroutines that yield all the time, and must stay on their threads when there is no memory too.
class locked_ones {
 public:
  explicit locked_ones(int n) {
    for (int i = 0; i < n; ++i) {
      all_.go([this] {
        weft::this_goroutine::lock_thread();
        weft::this_goroutine::lock_thread();
        const pid_t mine = weft::test::thread_id();
        while (!stop_) {
          weft::this_goroutine::yield();
          weft::this_goroutine::unlock_thread();  // still one lock
          weft::this_goroutine::yield();
          weft::this_goroutine::lock_thread();
          if (weft::test::thread_id() != mine) std::_Exit(5);
        }
      });
    }
  }
  locked_ones(const locked_ones&) = delete;
  locked_ones& operator=(const locked_ones&) = delete;
  ~locked_ones() {
    stop_ = true;
    all_.wait();
  }

 private:
  std::atomic<bool> stop_{false};
  weft::wait_group all_;
};

int body(std::string_view how) {
  const locked_ones locked(how == "locked" ? 2 : 0);
  const int started = how == "sleep"  ? asleep(100ms)
                      : how == "long" ? asleep(6000ms, 1000)  // two batches at most
                                      : through_the_gate();
  until([=] { return finished == started; });
  // Better times: go works again.
  std::atomic<bool> again{false};
  until([&] {
    try {
      weft::go([&] { again = true; });
      return true;
    } catch (const std::system_error&) {
      return false;
    } catch (const std::bad_alloc&) {
      return false;
    }
  });
  until([&] { return again.load(); });
  return started;
}

// Main is a plain thread, so that it needs no stack of ours.
int when_nobody_has_a_stack() {
  weft::max_procs(2);  // starts the runtime
  int started = 0;
  {
    const weft::test::scarce_address_space scarce(std::size_t{200} << 20);
    for (; started < 10 && !shortage(); ++started) weft::go([] { ++finished; });
    std::this_thread::sleep_for(4s);  // they say so every three seconds
    if (finished != 0) std::puts("there was memory");
  }
  until([=] { return finished == started; });
  return started;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view how = argc > 1 ? argv[1] : "gate";
  if (how == "nobody") {
    std::puts(when_nobody_has_a_stack() == finished ? "all ran" : "some did not run");
    return 0;
  }
  weft::run([] {
    weft::wait_group all;  // everything that needs memory once has it now
    for (int i = 0; i < 20; ++i) all.go([] { weft::this_goroutine::yield(); });
    // And threads: with all of them locked, no thread could run the rest.
    for (int i = 0; i < 8; ++i) {
      all.go([] {
        weft::this_goroutine::lock_thread();
        weft::this_goroutine::sleep_for(5ms);
        weft::this_goroutine::unlock_thread();
      });
    }
    all.wait();
  });
  const weft::test::scarce_address_space scarce(std::size_t{200} << 20);
  int started = 0;
  if (how == "forget") {
    started = body(how);
  } else {
    weft::run([&] { started = body(how); });
  }
  std::puts(started == finished ? "all ran" : "some did not run");
  std::fflush(stdout);
  return 0;
}
