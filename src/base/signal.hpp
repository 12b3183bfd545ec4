// signal.hpp: what code that catches signals needs: telling a fault from a sent signal, and
// installing a handler that fits into the runtime.
#pragma once

#include <csignal>

namespace weft::base {

// Whether the signal is a fault: the instruction that the thread has just executed caused it.
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

// Installs `handler`, which runs on the alternate stack with every signal blocked. System calls
// that it interrupts are restarted. Stores the previous action in `before` unless that is null.
// Returns: false if the kernel refuses.
bool install_handler(int signal, signal_handler handler, struct sigaction* before) noexcept;

}  // namespace weft::base
