// bind.hpp: makes a socket and binds it to an address.
#pragma once

#include <weft/context.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace weft::net {

enum class socket_kind : std::uint8_t { stream, datagram };

struct bound_socket {
  int fd;
  bool is_ip;
  std::string path;  // the file of a Unix socket, to be removed; or empty
};

// weft/net.hpp describes network and address. The caller owns the descriptor.
expected<bound_socket> bind_socket(std::string_view network, std::string_view address,
                                   socket_kind kind);
// Removes the file of a bound socket that is not used after all. Its descriptor is closed already.
std::unexpected<std::error_code> abandon(const bound_socket& bound, std::error_code why);

}  // namespace weft::net
