#include "net/bind.hpp"

#include "io/descriptor.hpp"
#include "net/host_port.hpp"

#include <weft/net.hpp>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace weft::net {
namespace {

std::unexpected<std::error_code> no_such_network() {
  return std::unexpected(make_error_code(address_errc::unknown_network));
}

// Which protocols a network's name allows.
struct families {
  bool v4, v6;
};

expected<families> families_of(std::string_view network, std::string_view base) {
  if (!network.starts_with(base)) return no_such_network();
  network.remove_prefix(base.size());
  if (network.empty()) return families{true, true};
  if (network == "4") return families{true, false};
  if (network == "6") return families{false, true};
  return no_such_network();
}

address any(int family) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  return family == AF_INET ? address::from_native(&v4, sizeof v4)
                           : address::from_native(&v6, sizeof v6);
}

// Returns: the address to listen on. If a name has several, the first IPv4 address, as most people
// expect of "localhost".
expected<address> choose(const std::string& host, families wanted) {
  const auto all = resolve(host);
  if (!all) return std::unexpected(all.error());
  for (const address& a : *all) {
    if (a.is_v4() && wanted.v4) return a;
  }
  for (const address& a : *all) {
    if (a.is_v6() && wanted.v6) return a;
  }
  return std::unexpected(std::make_error_code(std::errc::address_family_not_supported));
}

expected<int> make_socket(const address& where, socket_kind kind, bool both) {
  const int family = where.is_unix() ? AF_UNIX : where.is_v4() ? AF_INET : AF_INET6;
  const int type = kind == socket_kind::stream ? SOCK_STREAM : SOCK_DGRAM;
  const int fd = ::socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd == -1) return std::unexpected(io::last_error());
  const int one = 1;
  const int v6_only = both ? 0 : 1;
  if (family == AF_INET6) {
    (void)::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof v6_only);
  }
  if (family != AF_UNIX && kind == socket_kind::stream) {
    (void)::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  }
  // A Unix socket without a path is for sending. The kernel gives it a name, so that the receiver
  // can
  // answer.
  const std::size_t size =
      where.is_unix() && where.to_string().empty() ? sizeof(sa_family_t) : where.size();
  if (::bind(fd, static_cast<const sockaddr*>(where.data()), static_cast<socklen_t>(size)) != 0) {
    const std::error_code e = io::last_error();
    ::close(fd);
    return std::unexpected(e);
  }
  return fd;
}

expected<bound_socket> bind_unix(std::string_view path, socket_kind kind) {
  const auto where = address::from_path(path);
  if (!where) return std::unexpected(where.error());
  const auto fd = make_socket(*where, kind, false);
  if (!fd) return std::unexpected(fd.error());
  const bool is_file = !path.empty() && path.front() != '@';
  return bound_socket{*fd, false, is_file ? std::string(path) : std::string()};
}

}  // namespace

std::unexpected<std::error_code> abandon(const bound_socket& bound, std::error_code why) {
  if (!bound.path.empty()) ::unlink(bound.path.c_str());
  return std::unexpected(why);
}

expected<bound_socket> bind_socket(std::string_view network, std::string_view text,
                                   socket_kind kind) {
  if (network == (kind == socket_kind::stream ? "unix" : "unixgram")) return bind_unix(text, kind);
  const auto wanted = families_of(network, kind == socket_kind::stream ? "tcp" : "udp");
  if (!wanted) return std::unexpected(wanted.error());
  const auto parts = split_host_port(text);
  if (!parts) return std::unexpected(parts.error());
  const auto port = parse_port(network, parts->port);
  if (!port) return std::unexpected(port.error());
  const bool everywhere = parts->host.empty();
  address where = any(wanted->v6 ? AF_INET6 : AF_INET);
  if (!everywhere) {
    const auto chosen = choose(std::string(parts->host), *wanted);
    if (!chosen) return std::unexpected(chosen.error());
    where = *chosen;
  }
  const bool both = everywhere && wanted->v4 && wanted->v6;
  auto fd = make_socket(where.with_port(*port), kind, both);
  // A machine without IPv6.
  if (!fd && both && fd.error() == std::errc::address_family_not_supported) {
    fd = make_socket(any(AF_INET).with_port(*port), kind, false);
  }
  if (!fd) return std::unexpected(fd.error());
  return bound_socket{*fd, true, {}};
}

}  // namespace weft::net
