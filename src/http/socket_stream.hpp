// socket_stream.hpp: a stream that is a socket.
#pragma once

#include "http/stream.hpp"

#include <weft/net.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <utility>

namespace weft::http {

class socket_stream final : public stream {
 public:
  explicit socket_stream(net::conn c) noexcept : conn_(std::move(c)) {}

  expected<std::size_t> read(std::span<char> into) override {
    return conn_.read(std::as_writable_bytes(into));
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
  void set_read_deadline(clock::time_point when) override { conn_.set_read_deadline(when); }
  void set_write_deadline(clock::time_point when) override { conn_.set_write_deadline(when); }
  void close_write() override { (void)conn_.close_write(); }
  void break_off() override { (void)conn_.set_linger(std::chrono::seconds(0)); }

  net::conn& socket() noexcept { return conn_; }

 private:
  net::conn conn_;
};

}  // namespace weft::http
