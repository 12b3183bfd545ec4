// connect.cpp: one attempt to connect to one address.
//
// The socket does not block: connect() begins, the poller says when the socket can be written to,
// and SO_ERROR tells the result. An event may come too early, so a socket without an error counts
// as connected only when it has a peer.
//
// When the context ends, a function of ours sets a deadline in the past, which ends the wait. That
// function refers to the descriptor. So before the descriptor goes to its user, the function is
// removed, or we wait until it has returned. After that the context has no effect on the
// connection.
//
// Connections to oneself. A client connects to a port of its own machine on which no server
// listens. The kernel may give the client that very port as its own, and then TCP's simultaneous
// open connects the socket to itself. That is useless, and it would keep a server from its port. So
// the attempt is repeated, with another port. If the second attempt ends the same way, the error is
// that no server listens.
//
// If the queue of a Unix socket's listener is full, connect() fails with EAGAIN, and no event tells
// when there is room again. So the attempt is repeated, at growing intervals.
#include "net/connect.hpp"

#include "io/past.hpp"
#include "net/socket_options.hpp"

#include <weft/sync.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include <sys/socket.h>
#include <unistd.h>

namespace weft::net {
namespace {

using namespace std::chrono_literals;

constexpr int self_connections_max = 3;
constexpr std::chrono::nanoseconds busy_pause_min = 1ms;
constexpr std::chrono::nanoseconds busy_pause_max = 50ms;

address end_of(int fd, int (*get)(int, sockaddr*, socklen_t*)) noexcept {
  sockaddr_storage native{};
  socklen_t size = sizeof native;
  if (get(fd, reinterpret_cast<sockaddr*>(&native), &size) != 0) return {};
  return address::from_native(&native, size);
}

bool has_peer(int fd) noexcept {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  // In a sandbox that forbids the question, the error is another one.
  return ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 ||
         io::last_errno() != ENOTCONN;
}

// Waits for a connect that has begun. Parks. Returns: its result.
std::error_code until_connected(io::descriptor& d) {
  for (;;) {
    if (const std::error_code e = d.wait(sched::poll_side::out)) return e;
    int error = 0;
    socklen_t size = sizeof error;
    if (::getsockopt(d.fd(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) return io::last_error();
    switch (error) {
      case 0:
        if (has_peer(d.fd())) return {};
        break;
      case EISCONN:
        return {};
      case EINPROGRESS:
      case EALREADY:
      case EINTR:
        break;
      default:
        return {error, std::generic_category()};
    }
  }
}

// Like the function above, but ends when the context ends.
std::error_code until_connected(io::descriptor& d, const context& ctx) {
  latch let_go(1);
  const auto stop = after_func(ctx, [&d, &let_go] {
    d.set_deadline(sched::poll_side::out, io::past);
    let_go.count_down();
  });
  const std::error_code result = until_connected(d);
  if (stop()) return result;
  let_go.wait();
  return ctx.err();
}

expected<io::descriptor_ptr> connect_once(const address& to, const context& ctx) {
  if (const std::error_code ended = ctx.err()) return std::unexpected(ended);
  const auto* const native = static_cast<const sockaddr*>(to.data());
  const int fd = ::socket(native->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd == -1) return std::unexpected(io::last_error());
  bool is_under_way = false;
  if (::connect(fd, native, static_cast<socklen_t>(to.size())) != 0) {
    // A signal has interrupted the call, but the attempt goes on.
    const int error = io::last_errno();
    is_under_way = error == EINPROGRESS || error == EINTR;
    if (!is_under_way) {
      const std::error_code e = io::last_error();
      ::close(fd);
      return std::unexpected(e);
    }
  }
  // Only now: a socket that is not connected at all is an event, too.
  auto d = io::descriptor::adopt(
      fd, to.is_unix() ? io::short_reads::mean_nothing : io::short_reads::mean_empty);
  if (!d) return std::unexpected(d.error());
  if (is_under_way) {
    if (const std::error_code e = until_connected(**d, ctx)) return std::unexpected(e);
  }
  return d;
}

expected<io::descriptor_ptr> connect_tcp(const address& to, const context& ctx) {
  for (int i = 0; i < self_connections_max; ++i) {
    auto d = connect_once(to, ctx);
    if (!d) {
      // Another socket has taken the port that the kernel chose for this end.
      if (d.error() == std::errc::address_not_available && i + 1 < self_connections_max) continue;
      return d;
    }
    if (is_self_connected((*d)->fd())) {
      // Closed by a reset, so that the port is free for a server at once.
      const linger none{.l_onoff = 1, .l_linger = 0};
      (void)::setsockopt((*d)->fd(), SOL_SOCKET, SO_LINGER, &none, sizeof none);
      continue;
    }
    set_tcp_defaults((*d)->fd());
    return d;
  }
  return std::unexpected(std::make_error_code(std::errc::connection_refused));
}

expected<io::descriptor_ptr> connect_unix(const address& to, const context& ctx) {
  for (std::chrono::nanoseconds pause = busy_pause_min;;
       pause = std::min(2 * pause, busy_pause_max)) {
    auto d = connect_once(to, ctx);
    if (d || d.error() != std::error_code(EAGAIN, std::generic_category())) return d;
    if (const std::error_code ended = this_goroutine::sleep_for(ctx, pause)) {
      return std::unexpected(ended);
    }
  }
}

}  // namespace

bool is_self_connected(int fd) noexcept {
  const address local = end_of(fd, &::getsockname);
  return local.port() != 0 && local == end_of(fd, &::getpeername);
}

expected<io::descriptor_ptr> connect(const address& to, const context& ctx) {
  if (to.is_unix()) return connect_unix(to, ctx);
  if (to.is_v4() || to.is_v6()) return connect_tcp(to, ctx);
  return std::unexpected(std::make_error_code(std::errc::invalid_argument));
}

}  // namespace weft::net
