// listener.cpp: listening sockets.
//
// The options of TCP connections are set on the listening socket. The kernel copies them to
// accepted connections, which saves five system calls for each.
//
// If the process has no descriptors left, accept4 fails and the connection stays in the queue. Then
// accept() waits until there are descriptors again, first for 5 ms, then longer, up to a second.
// From outside such a server looks dead. So a line on stderr tells why, at most once a minute for
// all listeners of the process. accept() skips connections that were reset while they waited, and
// other errors that concern a single connection.
#include "base/fatal.hpp"
#include "io/descriptor.hpp"
#include "net/addresses.hpp"
#include "net/bind.hpp"
#include "net/socket_access.hpp"
#include "net/socket_options.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace weft::net {
namespace {

using sched::poll_side;

constexpr std::chrono::milliseconds shortage_pause_min{5};
constexpr std::chrono::milliseconds shortage_pause_max{1000};
constexpr std::chrono::minutes shortage_told_every{1};

bool is_shortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM ||
         error == ENOSPC;  // of the poller's watches
}

void tell_shortage(const std::string& where, const std::error_code& why) {
  static std::atomic<std::int64_t> told_until_ns{0};  // relaxed: guards nothing else
  const clock::duration now = clock::now().time_since_epoch();
  std::int64_t until = told_until_ns.load(std::memory_order_relaxed);
  const std::int64_t next = (now + shortage_told_every).count();
  if (now.count() < until ||
      !told_until_ns.compare_exchange_strong(until, next, std::memory_order_relaxed)) {
    return;
  }
  base::text line;
  line << "accept on " << where << ": " << why.message() << "; new connections have to wait";
  base::warn_or_drop(line.view());
}

// Whether the error concerns the next connection and not the listener (accept(2)).
bool concerns_one(int error) {
  switch (error) {
    case ECONNABORTED:
    case EPROTO:
    case ENETDOWN:
    case ENOPROTOOPT:
    case EHOSTDOWN:
    case ENONET:
    case EHOSTUNREACH:
    case ENETUNREACH:
      return true;
    default:
      return false;
  }
}

}  // namespace

expected<conn> listener::accept() {
  io::descriptor* const d = descriptor_.get();
  if (d == nullptr) return io::closed_error();
  const auto short_reads = is_tcp_ ? io::short_reads::mean_empty : io::short_reads::mean_nothing;
  for (auto pause = shortage_pause_min;; pause = std::min(pause * 2, shortage_pause_max)) {
    const auto fd = d->when_readable([&]() -> ssize_t {
      for (;;) {
        const int accepted = ::accept4(d->fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (accepted != -1 || !concerns_one(io::last_errno())) return accepted;
      }
    });
    std::error_code why;
    if (fd) {
      auto made = io::descriptor::adopt(static_cast<int>(*fd), short_reads);
      if (made) return socket_access::make_conn(std::move(*made));
      why = made.error();
    } else {
      why = fd.error();
    }
    if (why.category() != std::generic_category() || !is_shortage(why.value())) {
      return std::unexpected(why);
    }
    tell_shortage(local_address().to_string(), why);
    // A deadline or close() also ends this wait.
    if (const std::error_code e = d->pause(poll_side::in, pause)) return std::unexpected(e);
  }
}

address listener::local_address() const { return net::local_address(descriptor_.get()); }

void listener::set_deadline(clock::time_point when) {
  if (descriptor_ != nullptr) descriptor_->set_deadline(poll_side::in, when);
}

expected<listener> listen(std::string_view network, std::string_view address) {
  const auto bound = bind_socket(network, address, socket_kind::stream);
  if (!bound) return std::unexpected(bound.error());
  if (bound->is_ip) set_tcp_defaults(bound->fd);
  // The kernel limits this to net.core.somaxconn.
  if (::listen(bound->fd, 65535) != 0) {
    const std::error_code e = io::last_error();
    ::close(bound->fd);
    return abandon(*bound, e);
  }
  auto d = io::descriptor::adopt(bound->fd);
  if (!d) return abandon(*bound, d.error());
  return socket_access::make_listener(std::move(*d), bound->path, bound->is_ip);
}

}  // namespace weft::net
