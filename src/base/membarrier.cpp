#include "base/membarrier.hpp"

#include "base/fatal.hpp"

#include <cerrno>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace weft::base {

namespace detail {

bool asymmetric = false;

void heavy_barrier_slow() noexcept {
  if (asymmetric) {
    const int saved = errno;
    if (::syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0) {
      // The runtime's locks depend on membarrier: threads that run now have passed no fence.
      fatal(
          "the kernel refuses membarrier, which it allowed when weft started: a sandbox that was "
          "entered since must allow it, or be entered before weft is first used");
    }
    errno = saved;
  } else {
#if !WEFT_TSAN
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  }
}

}  // namespace detail

void prepare_membarrier() noexcept {
  const int saved = errno;
  detail::asymmetric =
      ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 &&
      ::syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
  errno = saved;
}

}  // namespace weft::base
