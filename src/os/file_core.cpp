// file_core.cpp: reading and writing without a processor that waits.
//
// A read of a file on a disk is first tried with RWF_NOWAIT, which takes data from the kernel's
// memory and never waits. Nearly all reads end there. They cost as much as a plain pread, and need
// no announcement. Data that is not in memory has to be waited for. A fast disk answers before
// another thread could even be woken. So a few calls at a time wait on their own thread, announced
// as short. With a slow disk more than a few wait; the rest go through the ring (ring.hpp) and
// occupy no thread.
//
// A write goes to the kernel's memory, in an announced call. fsync, and a pwrite with O_SYNC or
// O_DIRECT, always wait for the disk: they go through the ring. docs/decisions/007-files.md has the
// figures.
//
// Requests to the ring always name an offset and never use the file's own position. The kernel does
// not move that position with O_DIRECT, nor if a request is done in part and then fails (the disk
// becomes full). The next write would then overwrite the part that was done.
//
// A descriptor that the poller can watch, but that other processes share, is left in blocking mode:
// O_NONBLOCK belongs to all of them, and if a shell shared its terminal with us, the shell's reads
// would fail. So poll() is asked before each call. Another process may still be faster at reading
// the data. Then the call blocks, and because it is announced its processor is handed off.
#include "os/file_core.hpp"

#include "io/sigpipe.hpp"
#include "io/transfer.hpp"
#include "os/ring.hpp"
#include "sched/call.hpp"
#include "sched/scheduler.hpp"

#include <weft/go.hpp>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

namespace weft::os {
namespace {

// How much fits into a pipe for which poll() reports room.
constexpr std::size_t pipe_room = 4096;

std::unexpected<std::error_code> failure(std::int64_t negative) {
  return std::unexpected(std::error_code(static_cast<int>(-negative), std::generic_category()));
}

// Makes a system call again if a signal has interrupted it. Returns: its result, or a negative
// errno.
template <class F>
std::int64_t insist(F&& call) {
  for (;;) {
    const std::int64_t n = call();
    if (n >= 0) return n;
    const int error = io::last_errno();
    if (error != EINTR) return -error;
  }
}

template <class F>
std::int64_t short_call(F&& call) {
  return insist([&] {
    const sched::short_call announced;
    return call();
  });
}

// When the process ends, a goroutine that parks does not come back.
bool can_use_ring() {
  return sched::this_machine() != nullptr &&
         !sched::the_scheduler.stopping.load(std::memory_order_relaxed) && has_ring();
}

// Whether the ring failed although the system call itself may work: the kernel had no thread for
// the request, or the ring does not wait for a file that was opened with O_NONBLOCK.
bool is_refused(std::int64_t n) { return n == -EAGAIN || n == -ECANCELED; }

// One of the few places for calls that wait for a disk on their own thread.
class place {
 public:
  place() noexcept : is_taken_(count.fetch_add(1, std::memory_order_relaxed) < most) {
    if (!is_taken_) count.fetch_sub(1, std::memory_order_relaxed);
  }
  place(const place&) = delete;
  place& operator=(const place&) = delete;
  ~place() {
    if (is_taken_) count.fetch_sub(1, std::memory_order_relaxed);
  }
  explicit operator bool() const noexcept { return is_taken_; }

 private:
  static constexpr int most = 16;
  static inline constinit std::atomic<int> count{0};  // relaxed: a bound, no order

  const bool is_taken_;
};

// Whether a call would not block. Returns: 0, or -1 with EAGAIN in errno.
// Not inlined, for errno's sake (io::last_errno).
[[gnu::noinline]] int ask_poll(int fd, short events) noexcept {
  pollfd p{fd, events, 0};
  const int n = ::poll(&p, 1, 0);
  if (n == 0) errno = EAGAIN;
  return n > 0 ? 0 : -1;
}

}  // namespace

// --- the word ------------------------------------------------------------------------------------

bool file_core::begin() noexcept {
  std::uint64_t w = word_.load(std::memory_order_relaxed);  // re-checked by the exchange
  do {
    if ((w & closed) != 0) return false;
  } while (!word_.compare_exchange_weak(w, w + one_call, std::memory_order_acquire,  // [OF1]
                                        std::memory_order_relaxed));
  return true;
}

void file_core::end() noexcept {
  const int fd = fd_;
  const std::uint64_t w = word_.fetch_sub(one_call, std::memory_order_acq_rel) - one_call;  // [OF1]
  if (w == 0 || (w & closed) == 0 || w >= one_call) return;
  // If `dropped` is not set the core may be gone by now. close() is called only once, because the
  // number is free even after EINTR.
  {
    const sched::short_call announced;
    (void)::close(fd);
  }
  if ((w & dropped) != 0) delete this;
}

std::error_code file_core::close() {
  if (descriptor_ != nullptr) return descriptor_->close();
  const std::uint64_t w = word_.fetch_or(closed, std::memory_order_acq_rel);  // [OF1] [OF2]
  if ((w & closed) != 0) return errc::closed;
  if (w >= one_call) return {};  // the last call closes it
  // The kernel frees the descriptor whatever close() returns, EINTR included.
  const sched::short_call announced;
  if (::close(fd_) == 0 || io::last_errno() == EINTR) return {};
  return io::last_error();
}

bool file_core::is_open() const noexcept {
  if (descriptor_ != nullptr) return !descriptor_->is_closing();
  return (word_.load(std::memory_order_acquire) & closed) == 0;  // [OF2]
}

void file_core::drop() noexcept {
  if (descriptor_ != nullptr) {
    delete this;
    return;
  }
  (void)close();
  if (word_.fetch_or(dropped, std::memory_order_acq_rel) < one_call) delete this;  // [OF1]
}

// --- disks and devices ---------------------------------------------------------------------------

std::int64_t file_core::read_now(std::span<std::byte> into, std::int64_t offset) noexcept {
  // Not the C library's preadv2(): it is a cancellation point, which costs two atomic operations.
  constexpr long upper_half = 0;  // of the offset, on machines of 32 bits
  const iovec piece{into.data(), into.size()};
  const std::int64_t n = insist(
      [&] { return ::syscall(SYS_preadv2, fd_, &piece, 1L, offset, upper_half, RWF_NOWAIT); });
  // The file system, the kernel or a sandbox does not support it.
  if (n == -EOPNOTSUPP || n == -ENOSYS || n == -EPERM) {
    tries_now_.store(false, std::memory_order_relaxed);
    return -EAGAIN;
  }
  return n;
}

std::int64_t file_core::read_patiently(std::span<std::byte> into, std::int64_t offset) {
  const auto on_thread = [&] {
    return short_call([&] {
      return offset < 0 ? ::read(fd_, into.data(), into.size())
                        : ::pread(fd_, into.data(), into.size(), offset);
    });
  };
  if (kind_ != kind::disk) return on_thread();
  const place here;
  if (here || !can_use_ring()) return on_thread();
  // read_lock() is held if the read uses the file's own position.
  const std::int64_t at = offset < 0 ? ::lseek(fd_, 0, SEEK_CUR) : offset;
  if (at < 0) return on_thread();
  const std::int64_t n = run_on_ring(
      {.what = operation::read, .fd = fd_, .data = into.data(), .size = into.size(), .offset = at});
  if (is_refused(n)) return on_thread();
  if (offset < 0 && n > 0) (void)::lseek(fd_, at + n, SEEK_SET);
  return n;
}

expected<std::size_t> file_core::read_plain(std::span<std::byte> into, std::int64_t offset) {
  std::size_t done = 0;
  while (done < into.size()) {
    const auto rest = into.subspan(done, std::min(into.size() - done, io::at_once_max));
    const std::int64_t at = offset < 0 ? -1 : offset + static_cast<std::int64_t>(done);
    std::int64_t n = -EAGAIN;
    if (tries_now_.load(std::memory_order_relaxed)) n = read_now(rest, at);
    // Some kernels (5.9, 5.10) return 0 instead of EAGAIN.
    if (n == -EAGAIN || n == 0) n = read_patiently(rest, at);
    if (n == -EINTR) continue;  // of the ring
    if (n < 0 && done == 0) return failure(n);
    if (n <= 0) break;  // what has been read counts; the next call returns the error
    done += static_cast<std::size_t>(n);
    if (kind_ != kind::disk) break;
  }
  return done;
}

std::int64_t file_core::write_patiently(std::span<const std::byte> from, std::int64_t offset) {
  // Writes at the file's own position are made one at a time. With O_APPEND only the kernel knows
  // the offset.
  if (kind_ == kind::disk && (traits_.is_synchronous || traits_.is_direct) && offset >= 0 &&
      can_use_ring()) {
    const std::int64_t n = run_on_ring({.what = operation::write,
                                        .fd = fd_,
                                        .data = const_cast<std::byte*>(from.data()),
                                        .size = from.size(),
                                        .offset = offset});
    if (!is_refused(n)) return n;
  }
  return short_call([&] {
    return offset < 0 ? ::write(fd_, from.data(), from.size())
                      : ::pwrite(fd_, from.data(), from.size(), offset);
  });
}

std::error_code file_core::write_plain(std::span<const std::byte> from, std::int64_t offset,
                                       std::size_t& done) {
  do {
    const auto rest = from.subspan(done, std::min(from.size() - done, io::at_once_max));
    const std::int64_t at = offset < 0 ? -1 : offset + static_cast<std::int64_t>(done);
    const std::int64_t n = write_patiently(rest, at);
    if (n == -EINTR) continue;  // of the ring
    if (n == -EPIPE) io::after_broken_pipe(fd_);
    if (n < 0) return failure(n).error();
    if (n == 0 && !rest.empty()) return std::make_error_code(std::errc::io_error);
    done += static_cast<std::size_t>(n);
  } while (done < from.size());
  return {};
}

std::error_code file_core::sync(syncs what) {
  const bool data_only = what == syncs::data;
  if (descriptor_ != nullptr) {
    return descriptor_->control([&] { return data_only ? ::fdatasync(fd_) : ::fsync(fd_); });
  }
  const call in_flight(*this);
  if (!in_flight) return errc::closed;
  std::int64_t n = -EAGAIN;
  if (kind_ == kind::disk && can_use_ring()) {
    do {
      n = run_on_ring({.what = data_only ? operation::sync_data : operation::sync, .fd = fd_});
    } while (n == -EINTR);
  }
  if (is_refused(n)) {
    do {
      // errno belongs to the thread, and blocking() may return on another thread.
      n = blocking([&]() -> std::int64_t {
        const int result = data_only ? ::fdatasync(fd_) : ::fsync(fd_);
        return result < 0 ? -io::last_errno() : 0;
      });
    } while (n == -EINTR);
  }
  return n < 0 ? failure(n).error() : std::error_code();
}

// --- both kinds ----------------------------------------------------------------------------------

expected<std::size_t> file_core::read(std::span<std::byte> into) {
  if (kind_ == kind::polled) return descriptor_->read(into);
  if (kind_ == kind::blocking) {
    if (into.empty()) return 0;
    const auto n = descriptor_->when_readable([&]() -> ssize_t {
      if (ask_poll(fd_, POLLIN) != 0) return -1;
      const sched::short_call announced;
      return ::read(fd_, into.data(), std::min(into.size(), io::at_once_max));
    });
    if (!n) return std::unexpected(n.error());
    return static_cast<std::size_t>(*n);
  }
  const call in_flight(*this);
  if (!in_flight) return io::closed_error();
  const std::lock_guard one(read_lock());
  return read_plain(into, -1);
}

expected<std::size_t> file_core::write(std::span<const std::byte> from) {
  if (descriptor_ == nullptr) {
    std::size_t done = 0;
    if (const std::error_code e = write_counted(from, done)) return std::unexpected(e);
    return done;
  }
  expected<std::size_t> result = 0;
  if (kind_ == kind::polled) {
    result = descriptor_->write(from);
  } else {
    const std::lock_guard one(second_lock_);
    std::size_t done = 0;
    while (result && done < from.size()) {
      const auto n = descriptor_->when_writable([&]() -> ssize_t {
        if (ask_poll(fd_, POLLOUT) != 0) return -1;
        const sched::short_call announced;
        return ::write(fd_, from.data() + done, std::min(from.size() - done, pipe_room));
      });
      if (n) {
        done += static_cast<std::size_t>(*n);
        result = done;
      } else {
        result = std::unexpected(n.error());
      }
    }
  }
  if (!result && result.error() == std::errc::broken_pipe) io::after_broken_pipe(fd_);
  return result;
}

std::error_code file_core::write_counted(std::span<const std::byte> from, std::size_t& done) {
  done = 0;
  const call in_flight(*this);
  if (!in_flight) return errc::closed;
  const std::lock_guard one(write_lock());
  return write_plain(from, -1, done);
}

std::error_code file_core::offset_error(std::uint64_t offset) const noexcept {
  if (descriptor_ != nullptr) return std::make_error_code(std::errc::invalid_seek);
  if (offset > INT64_MAX) return std::make_error_code(std::errc::invalid_argument);
  return {};
}

expected<std::size_t> file_core::pread(std::span<std::byte> into, std::uint64_t offset) {
  if (const std::error_code e = offset_error(offset)) return std::unexpected(e);
  const call in_flight(*this);
  if (!in_flight) return io::closed_error();
  return read_plain(into, static_cast<std::int64_t>(offset));
}

expected<std::size_t> file_core::pwrite(std::span<const std::byte> from, std::uint64_t offset) {
  if (const std::error_code e = offset_error(offset)) return std::unexpected(e);
  const call in_flight(*this);
  if (!in_flight) return io::closed_error();
  std::size_t done = 0;
  const std::error_code e = write_plain(from, static_cast<std::int64_t>(offset), done);
  if (e) return std::unexpected(e);
  return done;
}

}  // namespace weft::os
