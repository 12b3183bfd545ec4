// scarce_threads.cpp <n>: the runtime gets n threads and no more. Work that would like eight runs
// on those there are. Prints what became of it.
//
// pthread_create is replaced, so that the number is exact and no privilege is needed.
#include <weft/weft.hpp>

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <thread>

namespace {

std::atomic<int> threads_left{0};
std::atomic<int> refused{0};

}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*main)(void*), void* argument) noexcept {
  using function = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto real = reinterpret_cast<function>(::dlsym(RTLD_NEXT, "pthread_create"));
  if (threads_left.fetch_sub(1) <= 0) {
    threads_left.fetch_add(1);
    ++refused;
    return EAGAIN;
  }
  return real(thread, attributes, main, argument);
}

namespace {

// Everything a machine is woken for: new work, yields, timers, results, plain threads.
void work() {
  for (int round = 0; round < 5; ++round) {
    weft::wait_group all;
    std::atomic<int> n{0};
    for (int i = 0; i < 200; ++i) {
      all.go([&n, i] {
        if (i % 3 == 0) weft::this_goroutine::yield();
        if (i % 5 == 0) weft::this_goroutine::sleep_for(std::chrono::microseconds(200));
        if (i % 7 == 0) n += weft::async([] { return 0; }).get();
        ++n;
      });
    }
    all.wait();
    if (n != 200) std::abort();
  }
}

}  // namespace

int main(int argc, char** argv) {
  threads_left = argc > 1 ? std::atoi(argv[1]) : 0;
  try {
    weft::max_procs(8);
  } catch (const std::system_error& e) {
    std::printf("%s\n",
                e.code() == std::errc::resource_unavailable_try_again ? "EAGAIN" : e.what());
  }
  try {
    weft::go([] {});
  } catch (const std::system_error& e) {
    std::printf("%s\n",
                e.code() == std::errc::resource_unavailable_try_again ? "EAGAIN" : e.what());
    // Better times come, and the next use starts the runtime after all.
    threads_left = 1000;
  }
  weft::run([] { work(); });
  for (int i = 0; i < 20; ++i) {  // from outside, with all machines asleep in between
    while (weft::num_goroutine() != 0) std::this_thread::yield();
    weft::wait_group g;
    g.go([] {});
    g.wait();
  }
  threads_left = 1000;
  weft::run([] { work(); });
  std::printf("%s\n", refused > 0 ? "refused" : "had enough");
  std::fflush(stdout);
  return 0;
}
