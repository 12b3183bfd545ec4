// signal_stack.hpp: the stack that signal handlers run on. They cannot use a goroutine's stack,
// which may have overflowed or have only 100 bytes left.
#pragma once

#include <csignal>
#include <cstddef>
#include <sys/mman.h>

namespace weft::base {

// Gives the calling thread such a stack for as long as this object lives.
class signal_stack {
 public:
  signal_stack() noexcept {
    memory_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory_ == MAP_FAILED) return;  // then an overflow ends the process without a report
    stack_t alternate{};
    alternate.ss_sp = memory_;
    alternate.ss_size = bytes;
    ::sigaltstack(&alternate, &before_);
  }
  signal_stack(const signal_stack&) = delete;
  signal_stack& operator=(const signal_stack&) = delete;
  ~signal_stack() {
    if (memory_ == MAP_FAILED) return;
    ::sigaltstack(&before_, nullptr);
    ::munmap(memory_, bytes);
  }

 private:
  static constexpr std::size_t bytes = 64 << 10;

  void* memory_;
  stack_t before_{};
};

}  // namespace weft::base
