// segmentation_fault.cpp <where>: a fault that is no stack overflow, in a goroutine or a thread.
#include <weft/weft.hpp>

#include <csignal>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>

namespace {

// As good as null, but not to a sanitizer that looks for null itself.
int* nearly_null() { return reinterpret_cast<int*>(16); }

[[gnu::noinline]] void fault_here(volatile int* at) { *at = 1; }

void own_handler(int) {
  constexpr std::string_view words = "the program's own handler\n";
  (void)!::write(STDERR_FILENO, words.data(), words.size());
  ::_exit(7);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view how = argc > 1 ? argv[1] : "null";
  if (how == "own_handler") ::signal(SIGSEGV, &own_handler);
  if (how == "thread") {
    weft::run([] {});
    fault_here(nearly_null());
  }
  return weft::run([&] {
    weft::wait_group all;
    all.go([&] {
      if (how == "sent") {
        ::kill(::getpid(), SIGSEGV);
        ::sleep(10);
      } else if (how == "protected") {
        fault_here(static_cast<int*>(
            ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)));
      } else {
        fault_here(nearly_null());
      }
    });
    all.wait();
  });
}
