// socket_options.hpp: the options of every TCP connection, dialled or accepted.
#pragma once

#include <chrono>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace weft::net {

inline constexpr std::chrono::seconds keep_alive_idle{15};
inline constexpr std::chrono::seconds keep_alive_interval{15};
inline constexpr int keep_alive_count = 9;

// No delay, and keep-alive: a vanished peer is noticed after two and a half minutes. Errors are
// ignored, because the connection works without these options.
inline void set_tcp_defaults(int fd) noexcept {
  const auto set = [fd](int level, int name, int value) {
    (void)::setsockopt(fd, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, static_cast<int>(keep_alive_idle.count()));
  set(IPPROTO_TCP, TCP_KEEPINTVL, static_cast<int>(keep_alive_interval.count()));
  set(IPPROTO_TCP, TCP_KEEPCNT, keep_alive_count);
}

}  // namespace weft::net
