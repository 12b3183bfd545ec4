// exit_while_running.cpp <who>: main returns while goroutines use static objects, which are about
// to be destroyed. The goroutines must be stopped before that.
#include <weft/weft.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

namespace {

using namespace std::chrono_literals;

std::atomic<int> uses{0};

// A goroutine that uses this object after its destruction ends the process with a special status.
class watched {
 public:
  watched() : text_(std::make_unique<std::string>("alive")) {}
  watched(const watched&) = delete;
  watched& operator=(const watched&) = delete;
  ~watched() {
    gone_ = true;
    // Time for a goroutine that has not been stopped to show itself.
    const auto until = std::chrono::steady_clock::now() + 2ms;
    while (std::chrono::steady_clock::now() < until) {
    }
    text_.reset();
    weft::blocking([] {});  // no goroutine is left that could use the processor
    // Needs the locks that a goroutine stopped at the wrong place would hold for ever.
    text_ = std::make_unique<std::string>(std::string(1000, 'x'));
    std::fprintf(stdout, "%zu\n", text_->size());
  }
  void use() const {
    if (gone_.load(std::memory_order_relaxed)) {
      std::fputs("used after the end\n", stderr);
      std::_Exit(3);
    }
    uses.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  std::atomic<bool> gone_{false};
  std::unique_ptr<std::string> text_;
};

watched early;

// Made after the runtime has started, so destroyed before what was made earlier.
const watched& late() {
  static const watched object;
  return object;
}

const watched* other = &early;

void start(std::string_view who) {
  const bool all = who == "all";
  if (all || who == "yielders") {
    for (int i = 0; i < 8; ++i) {
      weft::go([] {
        for (;;) {
          early.use();
          other->use();
          weft::this_goroutine::yield();
        }
      });
    }
  }
  if (all || who == "spawners") {
    for (int i = 0; i < 4; ++i) {
      weft::go([] {
        for (;;) {
          weft::wait_group g;
          for (int k = 0; k < 4; ++k) g.go([] { other->use(); });
          g.wait();
        }
      });
    }
  }
  if (all || who == "sleepers") {
    for (int i = 0; i < 50; ++i) {
      weft::go([] {
        for (;;) {
          weft::this_goroutine::sleep_for(20us);
          other->use();
        }
      });
    }
  }
  if (all || who == "hogs") {  // never enter the runtime
    for (int i = 0; i < 2; ++i) {
      weft::go([] {
        for (;;) early.use();
      });
    }
  }
  if (who ==
      "allocators") {  // never enter the runtime, and are in malloc or stdio most of the time
    for (int i = 0; i < 2; ++i) {
      weft::go([] {
        for (;;) {
          std::map<int, std::string> map;
          for (int k = 0; k < 20; ++k) map[k] = std::string(static_cast<std::size_t>(k) * 50, 'x');
          std::fprintf(stdout, "%d\n", static_cast<int>(map.size()));
          try {
            throw map;
          } catch (const std::map<int, std::string>&) {
            early.use();
          }
        }
      });
    }
  }
  if (who == "crowd") {      // hundreds that are nearly always in libc; not all can be stopped
    static char text[4096];  // has no destructor, unlike a string
    std::fill_n(text, sizeof text - 1, 'x');
    for (int i = 0; i < 400; ++i) {
      weft::go([] {
        early.use();
        while (std::strchr(text, 'y') == nullptr) asm volatile("" ::: "memory");  // each time anew
      });
    }
  }
  if (who == "acceptors") {  // hold a lock of the listener while they wait
    static auto listener = weft::net::listen("tcp", "127.0.0.1:0");
    for (int i = 0; i < 100; ++i) {
      weft::go([] {
        other->use();
        (void)listener->accept();
      });
    }
  }
  if (who == "waiters") {
    static weft::wait_group never;
    never.add(1);
    for (int i = 0; i < 100; ++i) {
      weft::go([] {
        other->use();
        never.wait();
      });
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view who = argc > 1 ? argv[1] : "all";
  const std::string_view how = argc > 2 ? argv[2] : "return";
  if (how == "no_run") {
    other = &late();
    start(who);
  } else {
    weft::run([&] {
      // With `inside`, exit is called before run has returned, and destroys late() before any
      // goroutine can be told to stop.
      if (how != "inside") other = &late();
      start(who);
      if (how == "inside") {  // exit is called by a goroutine
        while (uses < 100) weft::this_goroutine::yield();
        // exit destroys the listener before it stops the goroutines: an acceptor that has not begun
        // to wait by then would use what is gone.
        if (who == "acceptors") weft::this_goroutine::sleep_for(std::chrono::milliseconds(50));
        std::exit(0);
      }
    });
  }
  while (uses < 100) std::this_thread::yield();
  return 0;
}
