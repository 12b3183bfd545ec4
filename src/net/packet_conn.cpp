// packet_conn.cpp: sockets for single messages.
#include "io/descriptor.hpp"
#include "net/addresses.hpp"
#include "net/bind.hpp"
#include "net/socket_access.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace weft::net {

using sched::poll_side;

namespace {

constexpr std::chrono::milliseconds full_pause_min{1};
constexpr std::chrono::milliseconds full_pause_max{50};

}  // namespace

expected<std::pair<std::size_t, address>> packet_conn::read_from(std::span<std::byte> into) {
  io::descriptor* const d = descriptor_.get();
  if (d == nullptr) return io::closed_error();
  sockaddr_storage from{};
  socklen_t size = 0;
  const auto n = d->when_readable([&] {
    size = sizeof from;
    return ::recvfrom(d->fd(), into.data(), into.size(), 0, reinterpret_cast<sockaddr*>(&from),
                      &size);
  });
  if (!n) return std::unexpected(n.error());
  return std::pair(static_cast<std::size_t>(*n), address::from_native(&from, size));
}

expected<std::size_t> packet_conn::write_to(std::span<const std::byte> from, const address& to) {
  io::descriptor* const d = descriptor_.get();
  if (d == nullptr) return io::closed_error();
  for (auto pause = full_pause_min;; pause = std::min(pause * 2, full_pause_max)) {
    bool is_full = false;
    const auto n = d->when_writable([&] {
      const ssize_t sent =
          ::sendto(d->fd(), from.data(), from.size(), MSG_NOSIGNAL,
                   static_cast<const sockaddr*>(to.data()), static_cast<socklen_t>(to.size()));
      is_full = sent == -1 && io::last_errno() == EAGAIN && to.is_unix();
      return is_full ? 0 : sent;
    });
    if (!n) return std::unexpected(n.error());
    if (!is_full) return static_cast<std::size_t>(*n);
    // The receiver's queue is full, and no event tells when there is room again.
    if (const std::error_code e = d->pause(poll_side::out, pause)) return std::unexpected(e);
  }
}

address packet_conn::local_address() const { return net::local_address(descriptor_.get()); }

expected<packet_conn> listen_packet(std::string_view network, std::string_view address) {
  const auto bound = bind_socket(network, address, socket_kind::datagram);
  if (!bound) return std::unexpected(bound.error());
  auto d = io::descriptor::adopt(bound->fd);
  if (!d) return abandon(*bound, d.error());
  return socket_access::make_packet_conn(std::move(*d), bound->path);
}

}  // namespace weft::net
