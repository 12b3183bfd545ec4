// host_port.cpp: the text forms of internet addresses, taken apart and put together.
//
// Names of services come from the system's database (/etc/services). Containers often have none, so
// a table here has the best known services.
#include "net/host_port.hpp"

#include "sched/call.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstring>

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

namespace weft::net {
namespace {

std::unexpected<std::error_code> invalid() {
  return std::unexpected(std::make_error_code(std::errc::invalid_argument));
}

std::unexpected<std::error_code> error(address_errc e) {
  return std::unexpected(make_error_code(e));
}

bool is_number(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](unsigned char c) { return c >= '0' && c <= '9'; });
}

// A zone is an interface's name or its number, whether there is an interface of that number or not.
expected<std::uint32_t> parse_zone(std::string_view text) {
  if (is_number(text)) {
    std::uint32_t index = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
    if (error != std::errc() || index == 0) return invalid();
    return index;
  }
  char name[IF_NAMESIZE] = {};
  if (text.empty() || text.size() >= sizeof name || text.find('\0') != text.npos) return invalid();
  std::memcpy(name, text.data(), text.size());
  const unsigned index = ::if_nametoindex(name);
  if (index == 0) return std::unexpected(std::make_error_code(std::errc::no_such_device));
  return index;
}

struct service {
  std::string_view name;
  std::uint16_t port;
};
constexpr service well_known[] = {
    {"domain", 53}, {"ftp", 21},    {"http", 80},        {"https", 443},
    {"imap", 143},  {"imaps", 993}, {"pop3", 110},       {"pop3s", 995},
    {"smtp", 25},   {"ssh", 22},    {"submission", 587}, {"telnet", 23},
};

// Returns: the port of a service, by the system's database.
expected<std::uint16_t> find_service(const char* protocol, const char* name) {
  std::array<char, 1024> buffer;  // an entry of the database: a name, its aliases
  servent entry{};
  servent* found = nullptr;
  // It reads a file, which is usually in memory.
  const sched::short_call announced;
  if (::getservbyname_r(name, protocol, &entry, buffer.data(), buffer.size(), &found) != 0 ||
      found == nullptr) {
    return invalid();
  }
  return ntohs(static_cast<std::uint16_t>(found->s_port));
}

}  // namespace

expected<host_port> split_host_port(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == text.npos || text.ends_with(']')) return error(address_errc::missing_port);
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  if (host.starts_with('[')) {
    if (!host.ends_with(']')) return error(address_errc::malformed);  // "[::1]x:80"
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != host.npos) {
    return error(address_errc::malformed);  // "::1:80": too many colons
  }
  if (host.find_first_of("[]") != host.npos || port.find_first_of("[]") != port.npos) {
    return error(address_errc::malformed);
  }
  return host_port{host, port};
}

std::string join_host_port(std::string_view host, std::uint16_t port) {
  std::string text;
  if (host.find(':') != host.npos) {
    text.append("[").append(host).append("]");
  } else {
    text = host;
  }
  return text.append(":").append(std::to_string(port));
}

expected<address> parse_ip(std::string_view text) {
  char literal[INET6_ADDRSTRLEN] = {};
  const std::size_t percent = text.find('%');
  const std::string_view ip = text.substr(0, percent);
  if (ip.empty() || ip.size() >= sizeof literal || ip.find('\0') != ip.npos) return invalid();
  std::memcpy(literal, ip.data(), ip.size());

  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  if (::inet_pton(AF_INET, literal, &v4.sin_addr) == 1) {
    if (percent != text.npos) return invalid();
    return address::from_native(&v4, sizeof v4);
  }
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  if (::inet_pton(AF_INET6, literal, &v6.sin6_addr) != 1) return invalid();
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    if (percent != text.npos) return invalid();
    std::memcpy(&v4.sin_addr, v6.sin6_addr.s6_addr + 12, sizeof v4.sin_addr);
    return address::from_native(&v4, sizeof v4);
  }
  if (percent != text.npos) {
    const expected<std::uint32_t> zone = parse_zone(text.substr(percent + 1));
    if (!zone) return std::unexpected(zone.error());
    v6.sin6_scope_id = *zone;
  }
  return address::from_native(&v6, sizeof v6);
}

expected<std::uint16_t> parse_port_number(std::string_view text) {
  if (text.empty()) return std::uint16_t{0};
  std::uint16_t port = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (failed != std::errc() || end != text.data() + text.size())
    return error(address_errc::bad_port);
  return port;
}

expected<std::uint16_t> parse_port(std::string_view network, std::string_view text) {
  if (text.empty() || is_number(text)) return parse_port_number(text);
  constexpr std::size_t name_max = 64;
  if (text.size() > name_max || text.find('\0') != text.npos) return error(address_errc::bad_port);
  const std::string name(text);
  const char* const protocol = network.starts_with("udp") ? "udp" : "tcp";
  if (const expected<std::uint16_t> port = find_service(protocol, name.c_str())) return port;
  const service* const known = std::ranges::find(well_known, text, &service::name);
  if (known == std::end(well_known)) return error(address_errc::bad_port);
  return known->port;
}

}  // namespace weft::net
