// host_port.hpp: the text forms of internet addresses: "host:port", literals and ports.
//
//   host:port          the host is a name or an IPv4 literal
//   [host]:port        needed for an IPv6 literal, whose colons would be ambiguous
//   [host%zone]:port   the interface of a link-local address, by name or number
//   :port              no host: every interface, or this machine; the caller knows which
//
// Other text is an error: an address_errc, or std::errc::invalid_argument.
#pragma once

#include <weft/net.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace weft::net {

struct host_port {
  std::string_view host;  // without brackets
  std::string_view port;  // may be empty
};

// Splits at the last colon, which must be there.
expected<host_port> split_host_port(std::string_view text);
// The inverse: puts brackets around a host with a colon.
std::string join_host_port(std::string_view host, std::uint16_t port);

// An IPv4 or IPv6 literal, without a port and without brackets. An IPv4 address in IPv6 form
// ("::ffff:192.0.2.1") is the IPv4 address. Returns: no_such_device if the zone is no interface.
expected<address> parse_ip(std::string_view text);

// A decimal number up to 65535. Empty text is 0.
expected<std::uint16_t> parse_port_number(std::string_view text);
// Like the function above, and accepts the name of a service in /etc/services, too. network:
// "tcp4", "udp", ...
expected<std::uint16_t> parse_port(std::string_view network, std::string_view text);

}  // namespace weft::net
