// descriptor.hpp: a file descriptor that the poller watches, with the locks of its users.
//
// Each side (in, out) has a lock that serialises the calls which use it, a deadline, and at most
// one goroutine that waits for the poller. Calls try first and wait only if the kernel says EAGAIN.
// The descriptor must be non-blocking.
//
// close() sets a mark, wakes the waiting goroutines and takes the locks of both sides, so that no
// call is in progress any more. Only then it closes the kernel's descriptor, because from then on
// another file may get that number.
//
// C1  From then on another descriptor may get the poller's record, too. So a caller that uses the
//     record holds one of the locks and has seen, under that lock, that is_closing() is false.
//
// Memory order:
//   [IO1] close's release -> is_closing's acquire: what the closer did before.
#pragma once

#include "base/clock.hpp"
#include "sched/poller.hpp"

#include <weft/detail/descriptor.hpp>
#include <weft/sync.hpp>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <span>
#include <string>
#include <sys/types.h>
#include <system_error>
#include <utility>

namespace weft::io {

// Returns: errno of the thread on which the caller runs now. Not inlined: the compiler assumes that
// errno's address never changes, and would keep it across a wait after which the caller runs on
// another thread. For the same reason callers do not use errno itself.
[[gnu::noinline]] int last_errno() noexcept;
inline std::error_code last_error() noexcept { return {last_errno(), std::generic_category()}; }
inline std::unexpected<std::error_code> closed_error() noexcept {
  return std::unexpected(std::error_code(errc::closed));
}

// Whether a read that got less than it asked for has emptied the kernel's buffer. Then the next
// read need not try before the poller reports new data.
enum class short_reads : std::uint8_t { mean_nothing, mean_empty };

class alignas(64) descriptor {
 public:
  // Takes ownership of `fd`, also on failure.
  static expected<descriptor_ptr> adopt(int fd, short_reads s = {});
  // Lets close() remove this file, too: the path of a Unix socket.
  void remove_on_close(std::string path) noexcept { path_ = std::move(path); }
  ~descriptor();  // closes
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;

  int fd() const noexcept { return fd_; }

  // Repeats `call` under that side's lock until it fails with neither EAGAIN nor EINTR. `call`
  // returns -1 and sets errno on failure. It may make several system calls; when it is repeated it
  // continues where it stopped. Parks. Returns: what `call` returned, or errc::closed,
  // errc::timed_out.
  template <class F>
  expected<ssize_t> when_readable(F&& call) {
    const std::lock_guard one(in_lock_);
    is_empty_ = false;  // `call` may leave a part of the data to receive()
    return repeat(sched::poll_side::in, call);
  }
  template <class F>
  expected<ssize_t> when_writable(F&& call) {
    const std::lock_guard one(out_lock_);
    return repeat(sched::poll_side::out, call);
  }
  // As when_writable(), but waits for no longer than `limit`. Returns: also EAGAIN's error.
  template <class F>
  expected<ssize_t> when_writable_within(std::chrono::nanoseconds limit, F&& call) {
    const std::lock_guard one(out_lock_);
    const auto until = (clock::now() + limit).time_since_epoch();
    return repeat(sched::poll_side::out, call, until.count());
  }
  // Calls `call` once; for system calls that cannot wait and use neither side. Returns:
  // errc::closed, or the error of `call`.
  template <class F>
  std::error_code control(F&& call) {
    const std::lock_guard one(control_lock_);
    if (is_closing()) return errc::closed;
    return call() == -1 ? last_error() : std::error_code();
  }

  // For streams: read() returns when it has some data, write() when it has written all.
  expected<std::size_t> read(std::span<std::byte> into);
  expected<std::size_t> write(std::span<const std::byte> from);

  // Like when_readable, for a call that reads at most `most` bytes. If it read fewer, and
  // short_reads says that this means an empty buffer, the next receive() waits without trying
  // first.
  template <class F>
  expected<ssize_t> receive(std::size_t most, F&& call) {
    const std::lock_guard one(in_lock_);
    if (is_empty_) {
      if (is_closing()) return closed_error();  // C1
      // repeat() reports a deadline that has passed; data may have come meanwhile.
      if (const std::error_code e = wait(sched::poll_side::in)) return std::unexpected(e);
      is_empty_ = false;
    }
    expected<ssize_t> n = repeat(sched::poll_side::in, call);
    is_empty_ = n.has_value() && *n > 0 && static_cast<std::size_t>(*n) < most && may_be_empty();
    return n;
  }

  // Waits until that side may be ready. Requires: the descriptor is open (C1), and no other
  // goroutine waits on that side. Parks.
  std::error_code wait(sched::poll_side side, std::int64_t until_ns = base::never) {
    const sched::poll_result result = sched::the_poller.wait(*pollable_, side, until_ns);
    return result == sched::poll_result::ready ? std::error_code() : error_of(result);
  }

  // Waits for that time even if the side is ready, but not beyond close() or the side's deadline.
  // Other users of that side wait meanwhile. Parks.
  std::error_code pause(sched::poll_side side, std::chrono::nanoseconds time);

  void set_deadline(sched::poll_side side, clock::time_point when);
  std::error_code close();
  // [IO1]
  bool is_closing() const noexcept { return is_closing_.load(std::memory_order_acquire); }

 private:
  descriptor(int fd, sched::pollable* p, short_reads s) noexcept;
  static std::error_code error_of(sched::poll_result result);

  template <class F>
  expected<ssize_t> repeat(sched::poll_side side, F&& call, std::int64_t until_ns = base::never) {
    for (;;) {
      if (const std::error_code e = may_use(side)) return std::unexpected(e);
      const ssize_t n = call();
      if (n != -1) return n;
      const int error = last_errno();
      if (error == EINTR) continue;
      if (error != EAGAIN) {
        return std::unexpected(std::error_code(error, std::generic_category()));
      }
      if (const std::error_code e = wait(side, until_ns)) {
        if (until_ns == base::never || e != errc::timed_out) return std::unexpected(e);
        // The limit has come, or the deadline has passed; or close() came in between.
        const std::error_code why = may_use(side);
        return std::unexpected(why ? why : std::error_code(EAGAIN, std::generic_category()));
      }
    }
  }
  // Returns: errc::closed or errc::timed_out if that side cannot be used.
  std::error_code may_use(sched::poll_side side) const noexcept {
    if (is_closing()) return errc::closed;
    return sched::poller::is_late(*pollable_, side) ? std::error_code(errc::timed_out)
                                                    : std::error_code();
  }
  // After a hang-up of the peer or urgent data, no further event may announce that data is left.
  bool may_be_empty() const noexcept {
    return short_reads_ == short_reads::mean_empty && !pollable_->has_hung_up();
  }

  // Members that every call uses come first.
  const int fd_;
  const short_reads short_reads_;
  std::atomic<bool> is_closing_{false};
  bool is_empty_ = false;  // guarded by in_lock_: nothing to read unless the poller says so
  sched::pollable* const pollable_;
  mutex in_lock_;
  mutex out_lock_;
  mutex control_lock_;
  std::string path_;
};

}  // namespace weft::io
