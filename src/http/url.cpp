// url.cpp: takes an http URL apart.
//
// Nothing that could end a line or a word of the request gets through: blanks, control characters
// and bytes that are not ASCII have to be percent-encoded by whoever made the URL. Credentials are
// refused and not sent.
#include "http/url.hpp"

#include "http/text.hpp"

#include <algorithm>

namespace weft::http {
namespace {

constexpr std::string_view scheme_end = "://";

std::unexpected<std::error_code> error(std::errc e) {
  return std::unexpected(std::make_error_code(e));
}

bool is_plain(char c) noexcept { return c > 0x20 && c < 0x7f; }

bool is_host_character(char c) noexcept {
  return is_plain(c) && std::string_view("\"<>\\^`{|}[]@/?#:").find(c) == std::string_view::npos;
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

  const std::string_view authority = text.substr(0, text.find_first_of("/?"));
  const std::string_view rest = text.substr(authority.size());
  std::string_view host = authority;
  std::string_view port;
  const bool is_v6 = authority.starts_with('[');
  const std::size_t colon = authority.find(':', is_v6 ? authority.find(']') : 0);
  if (is_v6 && authority.find(']') == authority.npos) return error(std::errc::invalid_argument);
  if (colon != authority.npos) {
    host = authority.substr(0, colon);
    port = authority.substr(colon + 1);
  }
  const std::string_view name = is_v6 ? host.substr(1, host.size() - 2) : host;
  if (name.empty() || (is_v6 && !host.ends_with(']')) ||
      !std::all_of(name.begin(), name.end(),
                   [is_v6](char c) { return is_host_character(c) || (is_v6 && c == ':'); })) {
    return error(std::errc::invalid_argument);
  }
  std::uint64_t number = 80;
  if (!port.empty()) {
    const auto parsed = parse_number(port);
    if (!parsed || *parsed == 0 || *parsed > 65535) return error(std::errc::invalid_argument);
    number = *parsed;
  }

  url result;
  result.address.append(host).append(":");
  append_number(result.address, number);
  result.host = number == 80 ? std::string(host) : result.address;
  result.target = rest.starts_with('/') ? std::string(rest) : "/" + std::string(rest);
  return result;
}

}  // namespace weft::http
