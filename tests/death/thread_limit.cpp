// thread_limit.cpp <when>: the kernel refuses threads, from the start or later. Only RLIMIT_NPROC
// of a user other than root can do that, so root becomes nobody. <when> is `later`, or what uses
// weft first: `start`, `timer`, `after_func` or `deadline`.
#include <weft/weft.hpp>

#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <system_error>

namespace {

void allow_no_more_threads() {
  if (::getuid() == 0 && ::setuid(65534) != 0) std::abort();
  const rlimit limit{1, 1};
  if (::setrlimit(RLIMIT_NPROC, &limit) != 0) std::abort();
}

void use_first(std::string_view what) {
  if (what == "start") weft::go([] {});
  if (what == "timer") (void)weft::after(std::chrono::seconds(1));
  if (what == "after_func") weft::after_func(std::chrono::seconds(1), [] {});
  if (what == "deadline") {
    (void)weft::with_timeout(weft::context::background(), std::chrono::seconds(1));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view when = argc > 1 ? argv[1] : "start";
  if (when != "later") {
    allow_no_more_threads();
    try {
      use_first(when);
      std::puts("started");
    } catch (const std::system_error& e) {
      std::puts(e.code() == std::errc::resource_unavailable_try_again ? "EAGAIN" : e.what());
    }
    return 0;
  }
  weft::run([] {});
  allow_no_more_threads();
  weft::max_procs(8);
  weft::run([] {
    weft::wait_group all;
    std::atomic<int> n{0};
    for (int i = 0; i < 2000; ++i) {
      all.go([&] {
        weft::this_goroutine::yield();
        ++n;
      });
    }
    all.wait();
    std::printf("%d\n", n.load());
    // Threads are started by one of their own, which may come late to it.
    const auto end = weft::clock::now() + std::chrono::milliseconds(500);
    while (weft::clock::now() < end) {
      for (int i = 0; i < 100; ++i) all.go([] { weft::this_goroutine::yield(); });
      all.wait();
    }
  });
  return 0;
}
