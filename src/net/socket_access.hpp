// socket_access.hpp: makes handles from descriptors and finds the descriptor of a handle. The
// public header gives its friendship to this one struct, so that files which make handles (dial,
// listener, packet_conn) need not be named there.
#pragma once

#include "io/descriptor.hpp"

#include <weft/net.hpp>

#include <string>
#include <utility>

namespace weft::net {

struct socket_access {
  static conn make_conn(io::descriptor_ptr d) noexcept { return conn(std::move(d)); }
  // path: of a Unix socket's file that goes with the handle; empty if there is none.
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
