#include "stack/advice.hpp"

#include "base/valgrind.hpp"

#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace weft::stack {

namespace {

constexpr int pidfd_self = -10000;      // PIDFD_SELF, Linux 6.14; EBADF before that
constexpr std::size_t list_max = 1024;  // IOV_MAX
constexpr int retries_max = 64;

// Being interrupted, or finding the memory briefly busy, is no refusal.
bool is_transient(int error) noexcept { return error == EINTR || error == EAGAIN; }

// valgrind has words to say about calls that it does not know, this one and pidfd_open.
long refuse() noexcept {
  errno = ENOSYS;
  return -1;
}

long process_madvise(int pidfd, const iovec* ranges, std::size_t n, int value) noexcept {
  if (base::valgrind::is_here()) return refuse();
  return ::syscall(SYS_process_madvise, pidfd, ranges, n, value, 0u);
}

int plain_madvise(void* address, std::size_t bytes, int value) noexcept {
  return ::madvise(address, bytes, value);
}

int open_self() noexcept {
  if (base::valgrind::is_here()) return static_cast<int>(refuse());
  return static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0u));
}

}  // namespace

constinit const advice_calls kernel_advice_calls{process_madvise, plain_madvise, open_self};

long advice::apply_list(iovec* ranges, std::size_t n, route by) noexcept {
  if (by == route::self) return calls_->process_madvise(pidfd_self, ranges, n, value_);
  const int fd = calls_->open_self();
  if (fd < 0) return -1;
  const long result = calls_->process_madvise(fd, ranges, n, value_);
  const int saved = errno;
  ::close(fd);
  errno = saved;
  return result;
}

std::size_t advice::apply(iovec* ranges, std::size_t n, int& error) noexcept {
  std::size_t done = 0;
  int retries = 0;
  while (done < n) {
    const route by = route_.load(std::memory_order_relaxed);
    if (by == route::one_by_one || retries > retries_max) {
      return done + apply_one_by_one(ranges + done, n - done, error);
    }
    long result = apply_list(ranges + done, std::min(n - done, list_max), by);
    if (result > 0) {
      // The kernel may stop anywhere, also inside a range.
      for (auto bytes = static_cast<std::size_t>(result); bytes > 0 && done < n;) {
        iovec& range = ranges[done];
        const std::size_t step = std::min(bytes, range.iov_len);
        bytes -= step;
        range.iov_base = static_cast<std::byte*>(range.iov_base) + step;
        range.iov_len -= step;
        if (range.iov_len == 0) ++done;
      }
      retries = 0;
    } else if (result == 0 || is_transient(errno)) {
      ++retries;
      ::sched_yield();
    } else if (errno == ENOMEM) {
      retries = retries_max + 1;  // not a refusal of this way; madvise will tell which range failed
    } else {
      route_.store(by == route::self ? route::pidfd : route::one_by_one, std::memory_order_relaxed);
    }
  }
  return done;
}

std::size_t advice::apply_one_by_one(iovec* ranges, std::size_t n, int& error) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    int retries = 0;
    while (calls_->madvise(ranges[i].iov_base, ranges[i].iov_len, value_) != 0) {
      if (!is_transient(errno) || ++retries > retries_max) {
        error = errno;
        return i;
      }
      ::sched_yield();
    }
  }
  return n;
}

}  // namespace weft::stack
