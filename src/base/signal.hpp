// signal.hpp: what everybody who catches signals needs: to tell a fault from a message, and to
// install a handler that fits into the runtime.
#pragma once

#include <csignal>

namespace weft::base {

// Whether a thread does this to itself, by what it has just done.
constexpr bool is_fault_signal(int signal) noexcept {
  switch (signal) {
    case SIGSEGV:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGTRAP:
    case SIGSYS:
      return true;
    default:
      return false;
  }
}

using signal_handler = void (*)(int signal, siginfo_t* info, void* ucontext);

// Has `handler` called on the alternate stack, with every signal blocked; system calls that it
// interrupts go on. In `before`, unless that is null: what was there. Returns: false if the kernel
// refuses.
bool install_handler(int signal, signal_handler handler, struct sigaction* before) noexcept;

}  // namespace weft::base
