// url.hpp: the parts of an http URL that a client needs.
#pragma once

#include <weft/context.hpp>

#include <string>
#include <string_view>

namespace weft::http {

struct url {
  std::string address;  // "example.org:80", "[::1]:8080": to dial
  std::string host;     // as it is sent: without the port if that is 80
  std::string target;   // "/path?query"

  // Errors: std::errc::protocol_not_supported for another scheme, invalid_argument.
  static expected<url> parse(std::string_view text);
};

}  // namespace weft::http
