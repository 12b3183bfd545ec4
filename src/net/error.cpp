// error.cpp: the errors in the text of an address, and the message about them.
#include <weft/net.hpp>

#include "base/error_category.hpp"

namespace weft::net {
namespace {

constexpr base::error_row error_rows[] = {
    {address_errc::unknown_network,
     "no such network; connections have tcp, tcp4, tcp6 and unix, "
     "packets udp, udp4, udp6 and unixgram",
     std::errc::invalid_argument},
    {address_errc::missing_port, "the address has no port; it must be host:port",
     std::errc::invalid_argument},
    {address_errc::bad_port, "the port is neither a number up to 65535 nor the name of a service",
     std::errc::invalid_argument},
    {address_errc::malformed, "the address does not have the form host:port or [host]:port",
     std::errc::invalid_argument},
};

}  // namespace

const std::error_category& address_category() noexcept {
  static const base::error_category the_category("weft.address", error_rows);
  return the_category;
}

std::string describe(std::string_view what, std::string_view network, std::string_view address,
                     const std::error_code& why) {
  std::string line(what);
  line.append(" ").append(network).append(" ").append(address);
  return line.append(": ").append(why.message());
}

}  // namespace weft::net
