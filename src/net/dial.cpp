// dial.cpp: from "host:port" to a connection.
//
// A host may have many addresses, some of which may not answer. They are tried as RFC 8305 (happy
// eyeballs) and Go have it:
//   - The addresses of the first one's family are one list, the rest the other. Each list is tried
//     in its order, one after another.
//   - The other list begins 300 ms later, or as soon as the first has failed: a broken IPv6 costs
//     a moment, not a time-out.
//   - The first connection wins. The other attempt is cancelled, and its connection is closed if it
//     succeeded all the same.
//   - With a deadline, each address gets a share of the time that is left, so that the first one
//     does not use it up; but at least 2 s, because less is too short for a bad line.
//   - If all fail, the error is that of the first address, which was the preferred one.
//
// When the context ends, look-up and attempts end; then the error is ctx.err().
//
// Errors: an address_errc for an unknown network or text that is no address; no_address of
// "weft.resolve" if the host has no address for "tcp4" or "tcp6"; the errors of resolve() and of
// the kernel's connect().
#include "net/dial.hpp"

#include "net/connect.hpp"
#include "net/host_port.hpp"
#include "net/look_up.hpp"
#include "net/socket_access.hpp"

#include <weft/go.hpp>
#include <weft/net.hpp>
#include <weft/select.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

namespace weft::net {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds fallback_delay = 300ms;
constexpr std::chrono::nanoseconds share_min = 2s;

// Requires: some addresses.
expected<conn> dial_serial(std::span<const address> addresses, const context& ctx) {
  std::error_code first_error;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    if (const std::error_code ended = ctx.err()) return std::unexpected(ended);
    const bool is_last = i + 1 == addresses.size();
    const auto deadline = ctx.deadline();
    std::optional<cancellable> share;
    if (deadline && !is_last) {
      share = with_timeout(ctx, share_of(*deadline - clock::now(), addresses.size() - i));
    }
    auto d = connect(addresses[i], share ? share->ctx : ctx);
    if (share) share->cancel();  // and forget its timer
    if (d) return socket_access::make_conn(std::move(*d));
    if (const std::error_code ended = ctx.err()) return std::unexpected(ended);
    // Of the share, not of the context.
    const bool share_is_over = d.error() == make_error_code(errc::deadline_exceeded);
    if (!first_error) first_error = share_is_over ? errc::timed_out : d.error();
  }
  return std::unexpected(first_error);
}

// One of the two lists of addresses, and the result of its attempts.
enum class racer : std::uint8_t { primary, fallback };
struct arrival {
  racer who;
  expected<conn> result;
};

class race {
 public:
  race(std::vector<address> primaries, std::vector<address> fallbacks, const context& ctx)
      : primaries_(std::move(primaries)), fallbacks_(std::move(fallbacks)), ctx_(ctx) {}

  expected<conn> run() {
    start(racer::primary, std::move(primaries_));
    timer head_start(fallback_delay);
    std::error_code primary_error;
    std::size_t running = 1;
    for (bool has_begun = false;;) {
      std::optional<arrival> first;
      const std::size_t taken =
          select(recv(arrivals_, [&](std::optional<arrival> a) { first = std::move(a); }),
                 recv(head_start.c()));
      if (taken == 0) {
        --running;
        if (first->result) {
          head_start.stop();
          return std::move(first->result);
        }
        if (first->who == racer::primary) primary_error = first->result.error();
        if (has_begun && running == 0) {
          const std::error_code ended = ctx_.err();
          return std::unexpected(ended ? ended : primary_error);
        }
      }
      if (!has_begun) {
        has_begun = true;
        head_start.stop();
        ++running;
        start(racer::fallback, std::move(fallbacks_));
      }
    }
  }

  ~race() { both_.cancel(); }

 private:
  void start(racer who, std::vector<address> addresses) {
    try {
      go({.name = "dial"},
         [who, addresses = std::move(addresses), ctx = both_.ctx, arrivals = arrivals_] {
           arrivals.send({who, dial_serial(addresses, ctx)});
         });
    } catch (const std::system_error& e) {  // no goroutine to be had
      arrivals_.send({who, std::unexpected(e.code())});
    }
  }

  std::vector<address> primaries_;
  std::vector<address> fallbacks_;
  const context& ctx_;
  cancellable both_ = with_cancel(ctx_);
  // Room for both results, so that the losing attempt does not wait. The channel closes its
  // connection.
  chan<arrival> arrivals_{2};
};

expected<ip_family> family_of(std::string_view network) {
  if (network == "tcp") return ip_family::any;
  if (network == "tcp4") return ip_family::v4;
  if (network == "tcp6") return ip_family::v6;
  return std::unexpected(make_error_code(address_errc::unknown_network));
}

expected<conn> dial_unix(std::string_view path, const context& ctx) {
  const auto to = address::from_path(path);
  if (!to) return std::unexpected(to.error());
  if (path.empty()) return std::unexpected(std::make_error_code(std::errc::invalid_argument));
  auto d = connect(*to, ctx);
  if (!d) return std::unexpected(d.error());
  return socket_access::make_conn(std::move(*d));
}

}  // namespace

std::chrono::nanoseconds share_of(std::chrono::nanoseconds left, std::size_t addresses) {
  const auto fair = left / static_cast<std::int64_t>(addresses);
  return fair >= share_min ? fair : std::min(left, share_min);
}

expected<conn> dial_addresses(std::span<const address> addresses, const context& ctx) {
  if (addresses.empty()) {
    return std::unexpected(std::make_error_code(std::errc::invalid_argument));
  }
  const bool first_is_v4 = addresses.front().is_v4();
  std::vector<address> primaries;
  std::vector<address> fallbacks;
  for (const address& a : addresses) {
    (a.is_v4() == first_is_v4 ? primaries : fallbacks).push_back(a);
  }
  if (fallbacks.empty()) return dial_serial(primaries, ctx);
  return race(std::move(primaries), std::move(fallbacks), ctx).run();
}

expected<conn> dial(const context& ctx, std::string_view network, std::string_view address) {
  if (network == "unix") return dial_unix(address, ctx);
  const auto family = family_of(network);
  if (!family) return std::unexpected(family.error());
  const auto parts = split_host_port(address);
  if (!parts) return std::unexpected(parts.error());
  const auto port = parse_port(network, parts->port);
  if (!port) return std::unexpected(port.error());
  auto all = parts->host.empty() ? loopback(*family) : resolve_family(parts->host, *family, ctx);
  if (!all) return std::unexpected(all.error());
  for (net::address& a : *all) a = a.with_port(*port);
  return dial_addresses(*all, ctx);
}

}  // namespace weft::net
