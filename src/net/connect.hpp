// connect.hpp: one attempt to connect to one address.
#pragma once

#include "io/descriptor.hpp"

#include <weft/net.hpp>

namespace weft::net {

// A stream socket connected to `to`, with the defaults of TCP. Returns: ctx.err() if that ended
// before. Parks.
expected<io::descriptor_ptr> connect(const address& to, const context& ctx);

// Whether a TCP socket is connected to nobody but itself.
bool is_self_connected(int fd) noexcept;

}  // namespace weft::net
