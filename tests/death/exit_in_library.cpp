// exit_in_library.cpp <printf, malloc, throw, local_time>: the process exits while goroutines are
// in the C library most of the time, and have its locks. It is linked statically, too
// (exit_in_library_static), where that library is a part of the program.
#include <weft/weft.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

// Needs the locks.
struct last {
  ~last() {
    std::fprintf(stdout, "bye\n");
    void* volatile p = std::malloc(300'000);
    std::free(p);
    for (std::size_t size = 16; size < 100'000; size *= 2) {
      p = std::malloc(size);
      std::free(p);
    }
    try {
      throw std::runtime_error("caught");
    } catch (const std::exception&) {
    }
    const std::time_t now = 0;
    std::tm local{};
    ::localtime_r(&now, &local);
    std::fputs("exited\n", stderr);
  }
};
const last the_last;

void keep_busy(std::string_view how) {
  for (int k = 0;; ++k) {
    if (how == "printf") {
      std::printf("line %d %f\n", k, k * 1.5);
    } else if (how == "malloc") {
      std::map<int, std::string> map;
      for (int i = 0; i < 20; ++i) map[i] = std::string(static_cast<std::size_t>(i) * 200, 'x');
    } else if (how == "throw") {
      try {
        throw std::runtime_error("often");
      } catch (const std::exception&) {
      }
    } else {
      const std::time_t now = k;
      std::tm local{};
      ::localtime_r(&now, &local);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view how = argc > 1 ? argv[1] : "printf";
  weft::run([how] {
    for (int i = 0; i < 4; ++i) weft::go([how] { keep_busy(how); });
    weft::this_goroutine::sleep_for(std::chrono::milliseconds(5));
  });
  return 7;
}
