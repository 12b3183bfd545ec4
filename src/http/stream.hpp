// stream.hpp: what a connection stands on: a socket, or memory.
#pragma once

#include <weft/context.hpp>
#include <weft/os.hpp>
#include <weft/time.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <system_error>

namespace weft::http {

class stream {
 public:
  stream() = default;
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;
  virtual ~stream() = default;

  // As net::conn's: some bytes; 0 at the end. Parks.
  virtual expected<std::size_t> read(std::span<char> into) = 0;
  // Waits until the peer has closed its side, or the connection is lost; what came before can still
  // be read. Requires: nobody reads. Parks. Returns: errc::timed_out at the read deadline.
  virtual std::error_code wait_for_end() = 0;
  // All pieces, with one system call if they fit. Parks.
  virtual std::error_code write(std::span<const std::string_view> pieces) = 0;
  // Sends so much of a file, from its position on, or less if that ends. Parks. Returns: how much.
  virtual expected<std::uint64_t> send_file(os::file& from, std::uint64_t count) = 0;
  virtual void set_read_deadline(clock::time_point when) = 0;
  virtual void set_write_deadline(clock::time_point when) = 0;
  // The peer reads the end of the stream, and may still send.
  virtual void close_write() = 0;
  // The peer gets an error and not the end of the stream, when the stream is closed.
  virtual void break_off() = 0;
};

}  // namespace weft::http
