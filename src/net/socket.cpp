// socket.cpp: the common part of conn, listener and packet_conn.
#include "io/descriptor.hpp"
#include "net/addresses.hpp"

#include <sys/socket.h>

namespace weft::net {

std::error_code socket::close() {
  return descriptor_ != nullptr ? descriptor_->close() : std::error_code(errc::closed);
}

bool socket::is_open() const noexcept {
  return descriptor_ != nullptr && !descriptor_->is_closing();
}

int socket::native_handle() const noexcept { return is_open() ? descriptor_->fd() : -1; }

void two_way_socket::set_deadline(clock::time_point when) {
  set_read_deadline(when);
  set_write_deadline(when);
}

void two_way_socket::set_read_deadline(clock::time_point when) {
  if (descriptor_ != nullptr) descriptor_->set_deadline(sched::poll_side::in, when);
}

void two_way_socket::set_write_deadline(clock::time_point when) {
  if (descriptor_ != nullptr) descriptor_->set_deadline(sched::poll_side::out, when);
}

namespace {

address name_of(io::descriptor* d, int (*ask)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  if (d == nullptr) return {};
  const std::error_code e =
      d->control([&] { return ask(d->fd(), reinterpret_cast<sockaddr*>(&name), &size); });
  return e ? address() : address::from_native(&name, size);
}

}  // namespace

address local_address(io::descriptor* d) { return name_of(d, &::getsockname); }
address remote_address(io::descriptor* d) { return name_of(d, &::getpeername); }

}  // namespace weft::net
