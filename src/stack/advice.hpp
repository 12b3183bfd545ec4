// advice.hpp: one madvise for many ranges.
//
// Guards are installed, and idle pages given back, by the hundred. A system call for each range
// would cost more than the work itself. process_madvise(2) takes a list of ranges; since Linux 6.13
// it does so for every advice to the calling process. On older kernels the ranges are advised one
// by one.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>

namespace weft::stack {

// The system calls, each with -1 and errno for an error. Tests replace them to imitate older
// kernels.
struct advice_calls {
  long (*process_madvise)(int pidfd, const iovec* ranges, std::size_t n, int value) noexcept;
  int (*madvise)(void* address, std::size_t bytes, int value) noexcept;
  int (*open_self)() noexcept;  // a pidfd of this process
};
extern const advice_calls kernel_advice_calls;

class advice {
 public:
  constexpr advice(int value, const advice_calls& calls) noexcept : value_(value), calls_(&calls) {}
  advice(const advice&) = delete;
  advice& operator=(const advice&) = delete;

  // Applies the advice to `n` ranges, in their order. May change `ranges`.
  // Returns: how many ranges, from the first on, are done; if fewer than n, `error` says why.
  std::size_t apply(iovec* ranges, std::size_t n, int& error) noexcept;

 private:
  // How the list is handed over, best first. An advice moves down when the kernel refuses, never
  // up.
  enum class route : int {
    self,        // PIDFD_SELF
    pidfd,       // a pidfd of ourselves, opened for this call, so that none is kept
    one_by_one,  // plain madvise
  };

  long apply_list(iovec* ranges, std::size_t n, route by) noexcept;
  std::size_t apply_one_by_one(iovec* ranges, std::size_t n, int& error) noexcept;

  const int value_;
  const advice_calls* const calls_;
  // relaxed: any value is right, a stale one costs a refused system call.
  std::atomic<route> route_{route::self};
};

// The kernel's numbers: the C library's headers may be older than the first.
inline constexpr int advice_guard_install = 102;  // MADV_GUARD_INSTALL, Linux 6.13
inline constexpr int advice_dont_need = 4;        // MADV_DONTNEED

}  // namespace weft::stack
