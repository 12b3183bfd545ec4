#include "base/futex.hpp"

#include "base/fatal.hpp"

#include <cerrno>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace weft::base {
namespace {

// syscall() reports through errno, which belongs to the goroutine that happens to run here.
class errno_keeper {
 public:
  errno_keeper() = default;
  errno_keeper(const errno_keeper&) = delete;
  errno_keeper& operator=(const errno_keeper&) = delete;
  ~errno_keeper() { errno = saved_; }

 private:
  int saved_ = errno;
};

// Without it a thread can neither sleep nor wake another one. Returns: `result`.
long check(long result) noexcept {
  if (result < 0 && (errno == ENOSYS || errno == EPERM)) [[unlikely]] {
    fatal("the kernel refuses futex: a sandbox must allow it");
  }
  return result;
}

}  // namespace

void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected) noexcept {
  const errno_keeper keep;
  check(::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0));
}

woken futex_wait_until(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                       std::int64_t deadline_ns) noexcept {
  const errno_keeper keep;
  if (deadline_ns < 0) deadline_ns = 0;
  timespec deadline;
  deadline.tv_sec = static_cast<time_t>(deadline_ns / 1'000'000'000);
  deadline.tv_nsec = static_cast<long>(deadline_ns % 1'000'000'000);
  const long r = check(::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, expected, &deadline,
                                 nullptr, FUTEX_BITSET_MATCH_ANY));
  return r != 0 && errno == ETIMEDOUT ? woken::by_timeout : woken::by_wake;
}

void futex_wake(const std::atomic<std::uint32_t>& word, int count) noexcept {
  const errno_keeper keep;
  check(::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0));
}

void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

void yield_thread() noexcept {
  const errno_keeper keep;
  ::syscall(SYS_sched_yield);
}

}  // namespace weft::base
