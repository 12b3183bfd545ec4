// socket_stream.hpp: a stream that is a socket.
#pragma once

#include "http/stream.hpp"
#include "net/socket_access.hpp"

#include <weft/net.hpp>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <poll.h>
#include <span>
#include <utility>

namespace weft::http {

class socket_stream final : public stream {
 public:
  explicit socket_stream(net::conn c) noexcept : conn_(std::move(c)) {}

  expected<std::size_t> read(std::span<char> into) override {
    return conn_.read(std::as_writable_bytes(into));
  }
  std::error_code wait_for_end() override {
    io::descriptor& d = *net::socket_access::of(conn_);
    const auto n = d.when_readable([&d] { return try_end(d.fd()); });
    return n ? std::error_code() : n.error();
  }
  std::error_code write(std::span<const std::string_view> pieces) override {
    constexpr std::size_t at_once = 4;
    while (!pieces.empty()) {
      std::array<std::span<const std::byte>, at_once> bytes;
      std::size_t n = 0;
      while (n < at_once && !pieces.empty()) {
        bytes[n] = std::as_bytes(std::span(pieces.front()));
        pieces = pieces.subspan(1);
        if (!bytes[n].empty()) ++n;
      }
      if (n == 0) continue;
      const auto written =
          n == 1 ? conn_.write(bytes[0])
                 : conn_.write(std::span<const std::span<const std::byte>>(bytes.data(), n));
      if (!written) return written.error();
    }
    return {};
  }
  expected<std::uint64_t> send_file(os::file& from, std::uint64_t count) override {
    return os::copy(conn_, from, count);
  }
  void set_read_deadline(clock::time_point when) override { conn_.set_read_deadline(when); }
  void set_write_deadline(clock::time_point when) override { conn_.set_write_deadline(when); }
  void close_write() override { (void)conn_.close_write(); }
  void break_off() override { (void)conn_.set_linger(std::chrono::seconds(0)); }

  net::conn& socket() noexcept { return conn_; }

 private:
  // Not inlined: errno is the thread's, which may be another one after a wait.
  [[gnu::noinline]] static ssize_t try_end(int fd) noexcept {
    pollfd p{fd, POLLRDHUP, 0};
    if (::poll(&p, 1, 0) > 0) return 0;
    errno = EAGAIN;
    return -1;
  }

  net::conn conn_;
};

}  // namespace weft::http
