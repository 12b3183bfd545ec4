// scarce_address_space.hpp: a process that gets hardly any memory.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <fstream>

// AddressSanitizer ends the process if a thread that begins gets no alternate signal stack, and a
// thread of the runtime may begin when memory is scarce already. Machines have their own.
extern "C" [[gnu::weak, gnu::used, gnu::visibility("default")]] const char*
__asan_default_options() {
  return "use_sigaltstack=0";
}

namespace weft::test {

// Allows `bytes` of address space more than there is now, as long as it lives: at the end of the
// process a leak checker needs some for itself.
class scarce_address_space {
 public:
  explicit scarce_address_space(std::size_t bytes) {
    std::ifstream statm("/proc/self/statm");
    std::size_t pages = 0;
    statm >> pages;
    if (::getrlimit(RLIMIT_AS, &before_) != 0) std::abort();
    rlimit limit = before_;
    limit.rlim_cur = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) + bytes;
    if (::setrlimit(RLIMIT_AS, &limit) != 0) std::abort();
  }
  scarce_address_space(const scarce_address_space&) = delete;
  scarce_address_space& operator=(const scarce_address_space&) = delete;
  ~scarce_address_space() { ::setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

}  // namespace weft::test
