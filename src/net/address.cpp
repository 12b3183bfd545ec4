// address.cpp: the addresses of sockets. An address holds the kernel's bytes; as text it has our
// form.
//
// An IPv4 peer of a socket that serves both protocols has an address in IPv6 form
// (::ffff:192.0.2.1). The kernel wants that form back, so the bytes stay as they are. But users
// should not have to know on which kind of socket a peer arrived. So such an address prints as the
// IPv4 address and is equal to it.
//
// Invariant:
//   I1  The bytes are as long as their family demands: an IPv4 or IPv6 address is complete, a Unix
//       address has at least its family.
#include "net/host_port.hpp"

#include <weft/net.hpp>

#include <cstddef>
#include <cstring>
#include <optional>

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

namespace weft::net {
namespace {

constexpr std::size_t path_begin = offsetof(sockaddr_un, sun_path);

sa_family_t family_of(const void* bytes, std::size_t size) noexcept {
  sa_family_t family = AF_UNSPEC;
  if (size >= sizeof family) std::memcpy(&family, bytes, sizeof family);
  return family;
}

template <class Native>
Native copy_of(const void* bytes) noexcept {
  Native native;
  std::memcpy(&native, bytes, sizeof native);
  return native;
}

// Returns: the IPv4 address, also of an address in IPv6 form.
std::optional<in_addr> as_v4(const address& a) noexcept {
  const sa_family_t family = family_of(a.data(), a.size());
  if (family == AF_INET) return copy_of<sockaddr_in>(a.data()).sin_addr;
  if (family != AF_INET6) return std::nullopt;
  const auto v6 = copy_of<sockaddr_in6>(a.data());
  if (!IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) return std::nullopt;
  return copy_of<in_addr>(v6.sin6_addr.s6_addr + 12);
}

// Returns: the path, or a name in the abstract namespace with '@' in place of its leading zero.
std::string path_of(const address& a) {
  const char* const path = static_cast<const char*>(a.data()) + path_begin;
  const std::size_t size = a.size() - path_begin;
  if (size == 0) return {};
  if (path[0] == '\0') return std::string("@").append(path + 1, size - 1);
  return {path, ::strnlen(path, size)};
}

}  // namespace

expected<address> address::parse(std::string_view text) {
  if (text.starts_with('/') || text.starts_with('@')) return from_path(text);
  if (text.starts_with('[') && text.ends_with(']')) {
    return parse_ip(text.substr(1, text.size() - 2));
  }
  // No colon, or several: a literal without a port.
  const std::size_t colon = text.find(':');
  if (!text.starts_with('[') && (colon == text.npos || text.find(':', colon + 1) != text.npos)) {
    return parse_ip(text);
  }
  const expected<host_port> parts = split_host_port(text);
  if (!parts) return std::unexpected(parts.error());
  const expected<std::uint16_t> port = parse_port_number(parts->port);
  if (!port || parts->port.empty()) {
    return std::unexpected(std::make_error_code(std::errc::invalid_argument));
  }
  const expected<address> ip = parse_ip(parts->host);
  if (!ip) return ip;
  return ip->with_port(*port);
}

expected<address> address::from_path(std::string_view path) {
  sockaddr_un native{};
  native.sun_family = AF_UNIX;
  const bool is_abstract = path.starts_with('@');
  // There must be room for the zero that ends a path. A name in the abstract namespace has none.
  if (path.size() + (is_abstract ? 0 : 1) > sizeof native.sun_path) {
    return std::unexpected(std::make_error_code(std::errc::filename_too_long));
  }
  if (!is_abstract && path.find('\0') != path.npos) {
    return std::unexpected(std::make_error_code(std::errc::invalid_argument));
  }
  std::memcpy(native.sun_path, path.data(), path.size());
  if (is_abstract) native.sun_path[0] = '\0';
  const bool has_end = !is_abstract && !path.empty();
  return from_native(&native, path_begin + path.size() + (has_end ? 1 : 0));
}

address address::from_native(const void* sockaddr, std::size_t size) noexcept {
  static_assert(bytes_max == sizeof(sockaddr_un));
  address result;
  if (size < sizeof(sa_family_t) || size > bytes_max) return result;
  const sa_family_t family = family_of(sockaddr, size);
  if (family == AF_UNSPEC || (family == AF_INET && size < sizeof(sockaddr_in)) ||
      (family == AF_INET6 && size < sizeof(sockaddr_in6))) {
    return result;
  }
  std::memcpy(result.bytes_, sockaddr, size);
  result.size_ = static_cast<std::uint16_t>(size);
  return result;
}

std::string address::host() const {
  char text[INET6_ADDRSTRLEN] = {};
  if (const std::optional<in_addr> v4 = as_v4(*this)) {
    return ::inet_ntop(AF_INET, &*v4, text, sizeof text);
  }
  if (is_unix()) return path_of(*this);
  if (!is_v6()) return {};
  const auto v6 = copy_of<sockaddr_in6>(bytes_);
  std::string result = ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
  if (v6.sin6_scope_id != 0) {
    char name[IF_NAMESIZE];
    const bool has_name = ::if_indextoname(v6.sin6_scope_id, name) != nullptr;
    result.append("%").append(has_name ? name : std::to_string(v6.sin6_scope_id));
  }
  return result;
}

std::string address::to_string() const {
  return is_v4() || is_v6() ? join_host_port(host(), port()) : host();
}

std::uint16_t address::port() const noexcept {
  switch (family_of(bytes_, size_)) {
    case AF_INET:
      return ntohs(copy_of<sockaddr_in>(bytes_).sin_port);
    case AF_INET6:
      return ntohs(copy_of<sockaddr_in6>(bytes_).sin6_port);
    default:
      return 0;
  }
}

address address::with_port(std::uint16_t port) const noexcept {
  address result = *this;
  // Both families have the port at the same place, right after the family.
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  if (is_v4() || is_v6()) {
    const in_port_t native = htons(port);
    std::memcpy(result.bytes_ + offsetof(sockaddr_in, sin_port), &native, sizeof native);
  }
  return result;
}

bool address::is_v4() const noexcept { return as_v4(*this).has_value(); }

bool address::is_v6() const noexcept {
  return family_of(bytes_, size_) == AF_INET6 && !as_v4(*this).has_value();
}

bool address::is_unix() const noexcept { return family_of(bytes_, size_) == AF_UNIX; }

bool address::operator==(const address& other) const noexcept {
  const std::optional<in_addr> v4 = as_v4(*this);
  const std::optional<in_addr> other_v4 = as_v4(other);
  if (v4 || other_v4) {
    return v4 && other_v4 && v4->s_addr == other_v4->s_addr && port() == other.port();
  }
  if (is_v6() && other.is_v6()) {
    // The flow label is ignored: it is not part of the destination.
    const auto a = copy_of<sockaddr_in6>(bytes_);
    const auto b = copy_of<sockaddr_in6>(other.bytes_);
    return std::memcmp(&a.sin6_addr, &b.sin6_addr, sizeof a.sin6_addr) == 0 &&
           a.sin6_port == b.sin6_port && a.sin6_scope_id == b.sin6_scope_id;
  }
  if (is_unix() && other.is_unix()) {
    // A path is the same with and without the zero at its end. In names in the abstract namespace
    // each byte counts, and so does the length.
    const bool is_path = size_ > path_begin && bytes_[path_begin] != std::byte{0};
    const bool other_is_path = other.size_ > path_begin && other.bytes_[path_begin] != std::byte{0};
    if (is_path && other_is_path) {
      const auto* const a = reinterpret_cast<const char*>(bytes_) + path_begin;
      const auto* const b = reinterpret_cast<const char*>(other.bytes_) + path_begin;
      const std::string_view path(a, ::strnlen(a, size_ - path_begin));
      return path == std::string_view(b, ::strnlen(b, other.size_ - path_begin));
    }
  }
  return size_ == other.size_ && std::memcmp(bytes_, other.bytes_, size_) == 0;
}

}  // namespace weft::net
