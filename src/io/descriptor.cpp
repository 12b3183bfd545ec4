#include "io/descriptor.hpp"

#include "io/sigpipe.hpp"
#include "io/transfer.hpp"
#include "sched/scheduler.hpp"
#include "sched/start.hpp"

#include <algorithm>
#include <new>
#include <unistd.h>

namespace weft::io {
int last_errno() noexcept { return errno; }

void descriptor_deleter::operator()(descriptor* d) const noexcept { delete d; }

descriptor::descriptor(int fd, sched::pollable* p, short_reads s) noexcept
    : fd_(fd), short_reads_(s), pollable_(p) {}

expected<descriptor_ptr> descriptor::adopt(int fd, short_reads s) {
  ignore_sigpipe();
  sched::pollable* const p = sched::the_poller.open(fd);
  if (p == nullptr) {
    const std::error_code e = last_error();
    ::close(fd);
    return std::unexpected(e);
  }
  if (auto* const d = new (std::nothrow) descriptor(fd, p, s)) return descriptor_ptr(d);
  sched::the_poller.begin_close(*p);
  sched::the_poller.end_close(*p);
  ::close(fd);
  return std::unexpected(std::make_error_code(std::errc::not_enough_memory));
}

descriptor::~descriptor() { (void)close(); }

std::error_code descriptor::error_of(sched::poll_result result) {
  switch (result) {
    case sched::poll_result::ready:
      return {};
    case sched::poll_result::timed_out:
      return errc::timed_out;
    case sched::poll_result::closed:
      return errc::closed;
    case sched::poll_result::unsupported:
      break;
  }
  return std::make_error_code(std::errc::operation_not_supported);  // in a simulation
}

std::error_code descriptor::pause(sched::poll_side side, std::chrono::nanoseconds time) {
  const std::lock_guard one(side == sched::poll_side::in ? in_lock_ : out_lock_);
  if (is_closing()) return errc::closed;  // C1
  const auto until = (clock::now() + time).time_since_epoch();
  return error_of(sched::the_poller.pause(*pollable_, side, until.count()));
}

expected<std::size_t> descriptor::read(std::span<std::byte> into) {
  if (into.empty()) return 0;
  const std::size_t most = std::min(into.size(), at_once_max);
  const auto n = receive(most, [&] { return ::read(fd_, into.data(), most); });
  if (!n) return std::unexpected(n.error());
  return static_cast<std::size_t>(*n);
}

expected<std::size_t> descriptor::write(std::span<const std::byte> from) {
  std::size_t done = 0;
  const auto n = when_writable([&]() -> ssize_t {
    while (done < from.size()) {
      const std::size_t most = std::min(from.size() - done, at_once_max);
      const ssize_t written = ::write(fd_, from.data() + done, most);
      if (written == -1) return -1;
      done += static_cast<std::size_t>(written);
    }
    return 0;
  });
  if (!n) return std::unexpected(n.error());
  return done;
}

void descriptor::set_deadline(sched::poll_side side, clock::time_point when) {
  // The clock's first instant means no deadline.
  const std::int64_t ns = when.time_since_epoch().count();
  const std::lock_guard one(control_lock_);
  if (is_closing()) return;  // C1
  sched::the_poller.set_deadline(*pollable_, side, ns);
}

std::error_code descriptor::close() {
  if (is_closing_.exchange(true, std::memory_order_acq_rel)) return errc::closed;  // [IO1]
  // Only one caller gets here. But the child of a fork must not remove its parent's files.
  if (!path_.empty() && !sched::is_forked_child()) ::unlink(path_.c_str());
  sched::the_poller.begin_close(*pollable_);
  // When the process ends, calls in progress never leave, and the kernel closes everything.
  if (sched::the_scheduler.stopping.load(std::memory_order_relaxed)) return {};
  // Calls in progress leave; later calls see that the descriptor is closed.
  const std::lock_guard in(in_lock_);
  const std::lock_guard out(out_lock_);
  const std::lock_guard control(control_lock_);
  sched::the_poller.end_close(*pollable_);
  // The kernel lets go of the descriptor whatever close() says.
  ::close(fd_);
  return {};
}

}  // namespace weft::io
