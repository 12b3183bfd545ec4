// resolve.cpp: turns the names of hosts into addresses. A literal address is parsed at once. Any
// other name is looked up. Callers that ask for one name at the same time share one look-up, which
// is a call of a single_flight.
//
// A look-up runs in a goroutine of its own, so it does not depend on any caller. When the context
// of a caller ends, that caller gives up, and the others still get the answer. When the last caller
// gives up, the look-up is abandoned.
//
// Answers are not kept. The name server keeps them, because it knows for how long they are true.
#include "base/error_category.hpp"
#include "net/host_port.hpp"
#include "net/look_up.hpp"

#include <weft/context.hpp>
#include <weft/net.hpp>
#include <weft/single_flight.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include <sys/socket.h>

namespace weft::net {
namespace {

using addresses = std::vector<address>;
using question = std::pair<std::string, ip_family>;

using look_ups = single_flight<question, expected<addresses>>;

// Never destroyed: goroutines run until the process is gone.
look_ups& all_look_ups() {
  static look_ups& all = *new look_ups;
  return all;
}

expected<addresses> ask(const question& q, const context& wanted) {
  auto made = make_look_up(q.first, q.second);
  if (!made) return std::unexpected(made.error());
  const std::shared_ptr<look_up> what = std::move(*made);
  const auto keep_on = after_func(wanted, [what] { what->abandon(); });
  expected<addresses> found = what->run();
  keep_on();
  return found;
}

// A name that can be asked for: labels of 1 to 63 bytes, perhaps with a dot at the end. The rest
// would be nonsense in a query, or in a file of names.
bool is_name(std::string_view host) {
  constexpr std::size_t name_max = 253;
  constexpr std::size_t label_max = 63;
  if (host.ends_with('.')) host.remove_suffix(1);
  if (host.empty() || host.size() > name_max) return false;
  std::size_t label = 0;
  for (const char c : host) {
    if (c == '.') {
      if (label == 0) return false;
      label = 0;
      continue;
    }
    const bool is_visible = static_cast<unsigned char>(c) > ' ' && c != '\x7f';
    constexpr std::string_view others_meaning = "[]:/%@,";
    if (!is_visible || others_meaning.find(c) != others_meaning.npos || ++label > label_max) {
      return false;
    }
  }
  return label != 0;
}

bool fits(const address& a, ip_family family) {
  return family == ip_family::any || (family == ip_family::v4 ? a.is_v4() : a.is_v6());
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

constexpr base::error_row error_rows[] = {
    {resolve_errc::host_not_found, "no such host"},
    {resolve_errc::no_address, "the host has no address of this kind"},
    {resolve_errc::try_again, "the name server failed; try again",
     std::errc::resource_unavailable_try_again},
    {resolve_errc::no_answer, "no name server answered", std::errc::timed_out},
    {resolve_errc::failed, "the host's name cannot be resolved"},
};

}  // namespace

const std::error_category& resolve_category() noexcept {
  static const base::error_category the_category("weft.resolve", error_rows);
  return the_category;
}

bool is_localhost(std::string_view host) noexcept {
  if (host.ends_with('.')) host.remove_suffix(1);
  return host == "localhost" || host.ends_with(".localhost");
}

std::vector<address> loopback(ip_family family) {
  std::vector<address> result;
  if (family != ip_family::v6) result.push_back(*address::parse("127.0.0.1"));
  if (family != ip_family::v4) result.push_back(*address::parse("::1"));
  return result;
}

int native_of(ip_family family) noexcept {
  switch (family) {
    case ip_family::v4:
      return AF_INET;
    case ip_family::v6:
      return AF_INET6;
    case ip_family::any:
      break;
  }
  return AF_UNSPEC;
}

void add_found(std::vector<address>& found, const void* sockaddr, std::size_t size) {
  address a = address::from_native(sockaddr, size);
  if (a.is_v4()) a = address::parse(a.host()).value_or(a);
  if ((a.is_v4() || a.is_v6()) && std::ranges::find(found, a) == found.end()) found.push_back(a);
}

expected<std::vector<address>> resolve_family(std::string_view host, ip_family family,
                                              const context& ctx) {
  if (const std::error_code ended = ctx.err()) return std::unexpected(ended);
  if (host.empty()) return std::unexpected(std::make_error_code(std::errc::invalid_argument));
  if (const auto literal = parse_ip(host)) {
    if (!fits(*literal, family)) return std::unexpected(make_error_code(resolve_errc::no_address));
    return addresses{*literal};
  } else if (literal.error() != std::errc::invalid_argument) {
    return std::unexpected(literal.error());  // an interface that does not exist
  }
  if (!is_name(host)) return std::unexpected(make_error_code(resolve_errc::host_not_found));

  const question q(lower(host), family);
  try {
    auto found = all_look_ups().run(ctx, q, [q](const context& wanted) { return ask(q, wanted); });
    if (!found) return std::unexpected(found.error());
    return std::move(found->first);
  } catch (const std::system_error& e) {
    return std::unexpected(e.code());  // there is no goroutine to be had
  }
}

expected<std::vector<address>> resolve(const context& ctx, std::string_view host) {
  return resolve_family(host, ip_family::any, ctx);
}

}  // namespace weft::net
