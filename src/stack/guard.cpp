#include "stack/guard.hpp"

#include "base/check.hpp"
#include "base/fatal.hpp"
#include "base/sanitizer.hpp"
#include "base/valgrind.hpp"
#include "stack/reserve.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

namespace weft::stack {

namespace {

constexpr std::size_t usual_map_limit = 65530;
constexpr std::size_t maps_per_guard = 2;  // the guard, and the other half of what it split

std::size_t read_map_limit() noexcept {
  const int fd = ::open("/proc/sys/vm/max_map_count", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return usual_map_limit;
  char digits[24];
  const ssize_t size = ::read(fd, digits, sizeof digits);
  ::close(fd);
  std::size_t limit = 0;
  for (ssize_t i = 0; i < size && digits[i] >= '0' && digits[i] <= '9'; ++i) {
    limit = limit * 10 + static_cast<std::size_t>(digits[i] - '0');
  }
  return limit != 0 ? limit : usual_map_limit;
}

// Returns: whether the page faults. Lets the kernel read the page, as a set of signals to block. If
// the kernel can read it, the page is zero and so the set is empty: the call has no effect either
// way. This test is needed because an emulator or a sandbox may accept an advice that it does not
// know.
bool is_unreadable(const std::byte* page) noexcept {
  constexpr std::size_t kernel_sigset_bytes = 8;
  return ::syscall(SYS_rt_sigprocmask, SIG_BLOCK, page, nullptr, kernel_sigset_bytes) != 0 &&
         errno == EFAULT;
}

}  // namespace

guard_kind guards::kind() noexcept {
  if (decided_) return kind_;
  decided_ = true;
  base::guard_setting wanted = wanted_;
  if (wanted == base::guard_setting::automatic) wanted = base::env().guard;
  switch (wanted) {
    case base::guard_setting::automatic:
      // Leak checkers and valgrind crash on guard regions that they do not know.
      kind_ = base::sanitizer::is_watched() || base::valgrind::is_here() ? guard_kind::mprotect
                                                                         : guard_kind::madvise;
      break;
    case base::guard_setting::madvise:
      kind_ = guard_kind::madvise;
      break;
    case base::guard_setting::mprotect:
      kind_ = guard_kind::mprotect;
      break;
    case base::guard_setting::none:
      kind_ = guard_kind::none;
      break;
  }
  return kind_;
}

void guards::install(extent* first, std::size_t n) noexcept {
  WEFT_CHECK(n <= guard_batch_max);
  std::size_t done = 0;
  if (kind() == guard_kind::madvise) done = install_by_madvise(first, n);
  for (; done < n; ++done) {
    extent& e = first[done];
    if (kind_ != guard_kind::none && install_by_mprotect(e)) {
      mark(e, guard_kind::mprotect);
    } else {
      mark(e, guard_kind::none);
    }
  }
}

// Returns: how many stacks have their guard now; the rest need another kind of guard.
std::size_t guards::install_by_madvise(extent* first, std::size_t n) noexcept {
  const std::size_t page = page_bytes();
  for (std::size_t i = 0; i < n; ++i) ranges_[i] = {first[i].low - page, page};
  int error = 0;
  std::size_t done = install_.apply(ranges_, n, error);
  if (done > 0 && !proved_) {
    proved_ = is_unreadable(first[0].low - page);
    if (!proved_) done = 0;
  }
  // A shortage of memory may pass. But a kernel that does not know the advice never will.
  if (!proved_ || error == EINVAL || error == ENOSYS) {
    kind_ = guard_kind::mprotect;
    const bool asked_for = wanted_ == base::guard_setting::madvise ||
                           base::env().guard == base::guard_setting::madvise;
    if (asked_for && done == 0) {
      base::warn("this kernel has no guard=madvise; stacks are guarded by mprotect");
    }
  }
  for (std::size_t i = 0; i < done; ++i) mark(first[i], guard_kind::madvise);
  return done;
}

bool guards::install_by_mprotect(extent& e) noexcept {
  const std::size_t page = page_bytes();
  const std::size_t used = count(guard_kind::mprotect) * maps_per_guard;
  if (used + maps_per_guard <= map_budget() && ::mprotect(e.low - page, page, PROT_NONE) == 0) {
    return true;
  }
  if (!warned_) {
    warned_ = true;
    base::warn(
        "vm.max_map_count is nearly used up; further stacks have no guard page, and their overflow "
        "goes unnoticed");
  }
  return false;
}

// So many mappings are left to the rest of the program: its threads, files and large allocations.
std::size_t guards::map_budget() noexcept {
  if (map_limit_ == 0) map_limit_ = read_map_limit();
  const std::size_t rest = std::clamp<std::size_t>(map_limit_ / 8, 1024, 65536);
  return map_limit_ > 2 * rest ? map_limit_ - rest : map_limit_ / 2;
}

void guards::mark(extent& e, guard_kind k) noexcept {
  e.guard.store(k, std::memory_order_relaxed);  // published with the stack itself
  ++counts_[static_cast<std::size_t>(k)];
}

void guards::forget(const extent& e) noexcept {
  // relaxed: the stack came back to the pool through its lock.
  std::size_t& n = counts_[static_cast<std::size_t>(e.guard.load(std::memory_order_relaxed))];
  WEFT_CHECK(n > 0);
  --n;
}

}  // namespace weft::stack
