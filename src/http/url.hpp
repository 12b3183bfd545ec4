// url.hpp: the parts of an http URL, and of the value of a Host field.
#pragma once

#include <weft/context.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weft::http {

struct url {
  std::string address;  // "example.org:80", "[::1]:8080": to dial
  std::string host;     // as it is sent in the Host field: without the port if that is 80
  std::string target;   // "/path?query"

  // Errors: std::errc::protocol_not_supported for another scheme, invalid_argument.
  static expected<url> parse(std::string_view text);
};

// "example.org:80", "[::1]", without user or password.
struct authority {
  std::string_view host;  // with the brackets; may be empty
  std::optional<std::uint16_t> port;

  // Returns: nothing for text that RFC 3986 does not allow.
  static std::optional<authority> parse(std::string_view text);
};

}  // namespace weft::http
