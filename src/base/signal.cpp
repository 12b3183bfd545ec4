#include "base/signal.hpp"

#include "base/sanitizer.hpp"

#include <cstdint>
#include <sys/syscall.h>
#include <unistd.h>

namespace weft::base {
namespace {

// Bypasses ThreadSanitizer, which delays a signal until the thread calls a function that TSan
// knows. A thread that computes or sleeps may never do so.
void install_raw(int signal, signal_handler handler) noexcept {
  struct kernel_action {
    void* handler;
    unsigned long flags;
    void* restorer;
    std::uint64_t mask;
  } action{};
  ::syscall(SYS_rt_sigaction, signal, nullptr, &action, sizeof action.mask);
  action.handler = reinterpret_cast<void*>(handler);
  ::syscall(SYS_rt_sigaction, signal, &action, nullptr, sizeof action.mask);
}

}  // namespace

bool install_handler(int signal, signal_handler handler, struct sigaction* before) noexcept {
  struct sigaction action{};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  ::sigfillset(&action.sa_mask);  // except those by which the C library runs setgid on all threads
  if (::sigaction(signal, &action, before) != 0) return false;
  if (sanitizer::is_thread) install_raw(signal, handler);
  return true;
}

}  // namespace weft::base
