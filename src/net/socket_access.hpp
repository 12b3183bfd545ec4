// socket_access.hpp: makes handles from descriptors and finds the descriptor of a handle.
// This struct is the only friend in the public header, which therefore need not name the files that
// make handles (dial, listener, packet_conn).
#pragma once

#include "io/descriptor.hpp"

#include <weft/net.hpp>

#include <string>
#include <utility>

namespace weft::net {

struct socket_access {
  static conn make_conn(io::descriptor_ptr d) noexcept { return conn(std::move(d)); }
  // path: the file of a Unix socket, which is removed together with the handle; or empty.
  static listener make_listener(io::descriptor_ptr d, std::string path, bool is_tcp) noexcept {
    d->remove_on_close(std::move(path));
    listener l(std::move(d));
    l.is_tcp_ = is_tcp;
    return l;
  }
  static packet_conn make_packet_conn(io::descriptor_ptr d, std::string path) noexcept {
    d->remove_on_close(std::move(path));
    return packet_conn(std::move(d));
  }
  // Returns: null for a handle that was moved from or made by default.
  static io::descriptor* of(const socket& s) noexcept { return s.descriptor_.get(); }
};

}  // namespace weft::net
