// addresses.hpp: the addresses of the two ends of a socket. Empty if the socket is closed or has
// none.
#pragma once

#include <weft/net.hpp>

namespace weft::net {

address local_address(io::descriptor* d);
address remote_address(io::descriptor* d);

}  // namespace weft::net
