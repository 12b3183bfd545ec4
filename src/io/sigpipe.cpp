#include "io/sigpipe.hpp"

#include "base/ignore_signal.hpp"

#include <atomic>
#include <csignal>
#include <pthread.h>
#include <unistd.h>

namespace weft::io {

void ignore_sigpipe() noexcept {
  // relaxed: a thread that comes meanwhile also looks. It finds the handler, or installs it again.
  static constinit std::atomic<bool> done{false};
  if (done.load(std::memory_order_relaxed)) return;
  struct sigaction action{};
  if (::sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) {
    action = {};
    action.sa_handler = &base::ignore_signal;
    action.sa_flags = SA_ONSTACK | SA_RESTART;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(SIGPIPE, &action, nullptr);
  }
  done.store(true, std::memory_order_relaxed);
}

void after_broken_pipe(int fd) noexcept {
  if (fd != STDOUT_FILENO && fd != STDERR_FILENO) return;
  struct sigaction action{};
  if (::sigaction(SIGPIPE, nullptr, &action) != 0 || action.sa_handler != &base::ignore_signal) {
    return;
  }
  action = {};
  action.sa_handler = SIG_DFL;
  ::sigaction(SIGPIPE, &action, nullptr);
  sigset_t only;
  ::sigemptyset(&only);
  ::sigaddset(&only, SIGPIPE);
  ::pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  ::raise(SIGPIPE);
}

}  // namespace weft::io
