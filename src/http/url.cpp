// url.cpp: takes an http URL, and a Host field, apart.
//
// No character that could end a line or a word of the request is accepted: the caller has to
// percent-encode blanks, control characters and bytes that are not ASCII. URLs with credentials are
// refused.
#include "http/url.hpp"

#include "http/text.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <netinet/in.h>

namespace weft::http {
namespace {

constexpr std::string_view scheme_end = "://";

std::unexpected<std::error_code> error(std::errc e) {
  return std::unexpected(std::make_error_code(e));
}

bool is_plain(char c) noexcept { return c > 0x20 && c < 0x7f; }

bool is_letter_or_digit(char c) noexcept {
  return (c >= '0' && c <= '9') || (to_lower(c) >= 'a' && to_lower(c) <= 'z');
}

bool is_hex_digit(char c) noexcept {
  return (c >= '0' && c <= '9') || (to_lower(c) >= 'a' && to_lower(c) <= 'f');
}

// RFC 3986's reg-name: what is neither plain nor harmless is percent-encoded.
bool is_name(std::string_view host) noexcept {
  for (std::size_t i = 0; i < host.size(); ++i) {
    const char c = host[i];
    if (is_letter_or_digit(c) || c == '.' || c == '-') continue;
    if (c == '%') {
      if (host.size() - i < 3 || !is_hex_digit(host[i + 1]) || !is_hex_digit(host[i + 2])) {
        return false;
      }
      i += 2;
    } else if (std::string_view("_~!$&'()*+,;=").find(c) == std::string_view::npos) {
      return false;
    }
  }
  return true;
}

// The text in brackets: an IPv6 address, perhaps with a zone.
bool is_literal(std::string_view text) noexcept {
  const std::size_t percent = text.find('%');
  const std::string_view ip = text.substr(0, percent);
  if (percent != text.npos && (percent + 1 == text.size() || !is_name(text.substr(percent + 1)))) {
    return false;
  }
  char ended[INET6_ADDRSTRLEN] = {};
  if (ip.size() >= sizeof ended) return false;
  ip.copy(ended, ip.size());
  in6_addr parsed;
  return ::inet_pton(AF_INET6, ended, &parsed) == 1;
}

}  // namespace

expected<url> url::parse(std::string_view text) {
  if (!std::all_of(text.begin(), text.end(), is_plain)) return error(std::errc::invalid_argument);
  const std::size_t scheme = text.find(scheme_end);
  if (scheme == text.npos || scheme == 0) return error(std::errc::invalid_argument);
  if (!equal_ignoring_case(text.substr(0, scheme), "http")) {
    return error(std::errc::protocol_not_supported);
  }
  text.remove_prefix(scheme + scheme_end.size());
  text = text.substr(0, text.find('#'));

  const std::string_view where = text.substr(0, text.find_first_of("/?"));
  const std::string_view rest = text.substr(where.size());
  const std::optional<http::authority> parts = http::authority::parse(where);
  if (!parts || parts->host.empty() || parts->port == 0) return error(std::errc::invalid_argument);
  const std::uint16_t number = parts->port.value_or(80);

  url result;
  result.address.append(parts->host).append(":");
  append_number(result.address, number);
  result.host = number == 80 ? std::string(parts->host) : result.address;
  if (!rest.starts_with('/')) result.target = '/';
  result.target.append(rest);
  return result;
}

std::optional<authority> authority::parse(std::string_view text) {
  authority result;
  const bool is_bracketed = text.starts_with('[');
  const std::size_t end = is_bracketed ? text.find(']') : text.find(':');
  if (is_bracketed) {
    if (end == text.npos || !is_literal(text.substr(1, end - 1))) return {};
    result.host = text.substr(0, end + 1);
  } else {
    result.host = text.substr(0, end);
    if (!is_name(result.host)) return {};
  }
  std::string_view port = text.substr(result.host.size());
  if (port.empty()) return result;
  if (port.front() != ':') return {};
  port.remove_prefix(1);
  if (port.empty()) return result;  // "host:" means the default port
  const std::optional<std::uint64_t> number = parse_number(port);
  if (!number || *number > 65535) return {};
  result.port = static_cast<std::uint16_t>(*number);
  return result;
}

}  // namespace weft::http
