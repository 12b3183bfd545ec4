// look_up.hpp: looks a host name up as the system does, without holding up a processor.
//
// Two forms, chosen by CMake: look_up_cares.cpp asks through the poller; look_up_getaddrinfo.cpp,
// for machines without c-ares, lets a thread wait in the C library.
#pragma once

#include <weft/net.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace weft::net {

// Error codes of the category "weft.resolve".
enum class resolve_errc {
  host_not_found = 1,  // there is no such name
  no_address,          // there is, but without an address of the kind that was asked for
  try_again,           // the server failed; later it may not
  no_answer,           // no server answered in time; equal to std::errc::timed_out
  failed,              // permanently: a server refused, or its answer is invalid
};
const std::error_category& resolve_category() noexcept;
inline std::error_code make_error_code(resolve_errc e) noexcept {
  return {static_cast<int>(e), resolve_category()};
}

enum class ip_family : std::uint8_t { any, v4, v6 };

class look_up {
 public:
  virtual ~look_up() = default;
  // May be called once. Returns: at least one address, without a port; those to try first are in
  // front. Parks.
  virtual expected<std::vector<address>> run() = 0;
  // Makes run() return soon, if it can, because its result is no longer wanted. Any thread may call
  // this at any time.
  virtual void abandon() noexcept = 0;
};

// Requires: the host is in lower case and has the form of a name.
expected<std::unique_ptr<look_up>> make_look_up(std::string host, ip_family family);

// Whether the name means this machine; no server is asked for such names (RFC 6761).
bool is_localhost(std::string_view host) noexcept;
// This machine, IPv4 first.
std::vector<address> loopback(ip_family family);

// For both forms of look-up. The first turns an error of the C library into ours. The second adds
// an address that was found, unless it is there already or neither IPv4 nor IPv6. An IPv4 address
// in IPv6 form (a hosts file may have those) is added as IPv4.
int native_of(ip_family family) noexcept;
void add_found(std::vector<address>& found, const void* sockaddr, std::size_t size);

// resolve() for one family.
expected<std::vector<address>> resolve_family(std::string_view host, ip_family family,
                                              const context& ctx);

// For tests: sets the servers of later look-ups, "127.0.0.1:5353,..."; empty: the system's servers.
// Returns: false if this form of look-up does not support that.
bool use_name_servers(std::string servers);

}  // namespace weft::net

template <>
struct std::is_error_code_enum<weft::net::resolve_errc> : std::true_type {};
