// hello.cpp: the first minute with weft.
#include <weft/weft.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>

using namespace std::chrono_literals;

static int fib(int n) {
  if (n < 2) return n;
  auto left = weft::async(fib, n - 1);  // a goroutine for every call
  const int right = fib(n - 2);
  return left.get() + right;
}

int main() {
  return weft::run([] {
    std::printf("goroutine %llu runs on %d processors\n",
                static_cast<unsigned long long>(weft::this_goroutine::id()), weft::max_procs());

    // A hundred thousand goroutines that all sleep at the same time.
    weft::wait_group all;
    std::atomic<int> woken{0};
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 100'000; ++i) {
      all.go([&] {
        weft::this_goroutine::sleep_for(100ms);
        woken.fetch_add(1, std::memory_order_relaxed);
      });
    }
    std::printf("%zu goroutines are alive\n", weft::num_goroutine());
    all.wait();
    const std::chrono::duration<double, std::milli> slept =
        std::chrono::steady_clock::now() - start;
    std::printf("%d of them slept for 100 ms, together: %.0f ms\n", woken.load(), slept.count());

    std::printf("fib(20), a goroutine per call: %d\n", fib(20));
  });
}
