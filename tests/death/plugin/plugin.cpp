// plugin.cpp: a library with weft inside, for unload.cpp. Its goroutines are still there when it is
// closed.
#include <weft/weft.hpp>

#include <atomic>
#include <chrono>

extern "C" [[gnu::visibility("default")]] int use_weft() {
  using namespace std::chrono_literals;
  static std::atomic<int> n{0};
  return weft::run([] {
    weft::wait_group all;
    for (int i = 0; i < 100; ++i) {
      all.go([] {
        weft::this_goroutine::sleep_for(1ms);
        n.fetch_add(1, std::memory_order_relaxed);
      });
    }
    all.wait();
    for (int i = 0; i < 4; ++i) {
      weft::go([] {
        for (;;) weft::this_goroutine::sleep_for(1ms);
      });
    }
    return n.load(std::memory_order_relaxed);
  });
}
