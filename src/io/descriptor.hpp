// descriptor.hpp: a file descriptor of the kernel's that the poller watches, and who may use it.
//
// Each side (in, out) has a lock that serialises the calls which use it, a deadline, and at most
// one goroutine that waits for the poller. Calls try first and wait only if the kernel says EAGAIN.
// The descriptor must be non-blocking.
//
// close() marks it, wakes who waits, takes both sides' locks (so nobody is in a call any more) and
// only then closes the kernel's descriptor, whose number may be somebody else's from then on.
//
// C1  The poller's record is somebody else's from then on, too: whoever uses it holds one of the
//     locks and has seen, holding it, that is_closing() is false.
//
// Memory order:
//   [IO1] close's release -> is_closing's acquire: what the closer did before.
#pragma once

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

// errno, of the thread that the caller is on now. The compiler takes its address to be the same for
// ever, and would keep it over a wait, in a loop: so not inlined, and errno is not named there.
[[gnu::noinline]] int last_errno() noexcept;
inline std::error_code last_error() noexcept { return {last_errno(), std::generic_category()}; }
inline std::unexpected<std::error_code> closed_error() noexcept {
  return std::unexpected(std::error_code(errc::closed));
}

// Whether a read that got less than it asked for has emptied the kernel's buffer, so that there is
// no need to try before the poller says so.
enum class short_reads : std::uint8_t { mean_nothing, mean_empty };

class alignas(64) descriptor {
 public:
  // Takes the ownership of `fd`, also on failure.
  static expected<descriptor_ptr> adopt(int fd, short_reads s = {});
  // close() removes this file, too: that of a Unix socket.
  void remove_on_close(std::string path) noexcept { path_ = std::move(path); }
  ~descriptor();  // closes
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;

  int fd() const noexcept { return fd_; }

  // Calls `call`, which returns -1 and sets errno, holding that side's lock, until it says neither
  // EAGAIN nor EINTR. It may consist of several of the kernel's, and goes on where it was. Parks.
  // Returns: what it returned, or errc::closed, errc::timed_out.
  template <class F>
  expected<ssize_t> when_readable(F&& call) {
    const std::lock_guard one(in_lock_);
    is_empty_ = false;  // it may take a part and leave the rest to receive()
    return repeat(sched::poll_side::in, call);
  }
  template <class F>
  expected<ssize_t> when_writable(F&& call) {
    const std::lock_guard one(out_lock_);
    return repeat(sched::poll_side::out, call);
  }
  // The same for one that cannot wait and uses neither side. Returns: errc::closed, or its error.
  template <class F>
  std::error_code control(F&& call) {
    const std::lock_guard one(control_lock_);
    if (is_closing()) return errc::closed;
    return call() == -1 ? last_error() : std::error_code();
  }

  // Reads and writes of streams: some of it; all of it.
  expected<std::size_t> read(std::span<std::byte> into);
  expected<std::size_t> write(std::span<const std::byte> from);

  // The same as when_readable for a call that takes a part of what it is asked for, `most`: one
  // that took less has emptied the kernel's buffer, if that means so, and is not tried again in
  // vain.
  template <class F>
  expected<ssize_t> receive(std::size_t most, F&& call) {
    const std::lock_guard one(in_lock_);
    if (is_empty_) {
      if (is_closing()) return closed_error();  // C1
      // Late ones are told apart below; an event may have come meanwhile.
      if (const std::error_code e = wait(sched::poll_side::in)) return std::unexpected(e);
      is_empty_ = false;
    }
    expected<ssize_t> n = repeat(sched::poll_side::in, call);
    is_empty_ = n.has_value() && *n > 0 && static_cast<std::size_t>(*n) < most && may_be_empty();
    return n;
  }

  // Waits until that side may be ready. Requires: it is open (C1), and nobody else waits there.
  // Parks.
  std::error_code wait(sched::poll_side side) {
    const sched::poll_result result = sched::the_poller.wait(*pollable_, side);
    return result == sched::poll_result::ready ? std::error_code() : error_of(result);
  }

  // Waits for so long, ready or not, unless it is closed or its deadline comes. Whoever else wants
  // to use that side waits, too. Parks.
  std::error_code pause(sched::poll_side side, std::chrono::nanoseconds time);

  void set_deadline(sched::poll_side side, clock::time_point when);
  std::error_code close();
  // [IO1]
  bool is_closing() const noexcept { return is_closing_.load(std::memory_order_acquire); }

 private:
  descriptor(int fd, sched::pollable* p, short_reads s) noexcept;
  static std::error_code error_of(sched::poll_result result);

  template <class F>
  expected<ssize_t> repeat(sched::poll_side side, F&& call) {
    for (;;) {
      if (const std::error_code e = may_use(side)) return std::unexpected(e);
      const ssize_t n = call();
      if (n != -1) return n;
      const int error = last_errno();
      if (error == EINTR) continue;
      if (error != EAGAIN) {
        return std::unexpected(std::error_code(error, std::generic_category()));
      }
      if (const std::error_code e = wait(side)) return std::unexpected(e);
    }
  }
  // Whether it is closed, or its deadline has passed.
  std::error_code may_use(sched::poll_side side) const noexcept {
    if (is_closing()) return errc::closed;
    return sched::poller::is_late(*pollable_, side) ? std::error_code(errc::timed_out)
                                                    : std::error_code();
  }
  // Once the peer has hung up, or sent urgent data, there may be no event any more that says so.
  bool may_be_empty() const noexcept {
    return short_reads_ == short_reads::mean_empty && !pollable_->has_hung_up();
  }

  // What every call touches comes first.
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
