// connect.hpp: one attempt to connect to one address.
#pragma once

#include "io/descriptor.hpp"

#include <weft/net.hpp>

namespace weft::net {

// Makes a stream socket that is connected to `to`, with weft's TCP options. Returns: ctx.err() if
// the context ended before. Parks.
expected<io::descriptor_ptr> connect(const address& to, const context& ctx);

// Whether a TCP socket is connected to itself.
bool is_self_connected(int fd) noexcept;

}  // namespace weft::net
