// stream.hpp: what a connection reads from and writes to: a socket or, in tests, memory.
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

  // Like net::conn::read: returns some bytes; 0 at the end of the stream. Parks.
  virtual expected<std::size_t> read(std::span<char> into) = 0;
  // Waits until the peer has closed its side or the connection is lost. Bytes that came before can
  // still be read. Requires: no other goroutine reads. Parks. Returns: errc::timed_out at the read
  // deadline.
  virtual std::error_code wait_for_end() = 0;
  // Writes all pieces, with one system call if they fit. Parks.
  virtual std::error_code write(std::span<const std::string_view> pieces) = 0;
  // Sends `count` bytes of a file from its position on, or fewer if the file ends. Parks. Returns:
  // how many.
  virtual expected<std::uint64_t> send_file(os::file& from, std::uint64_t count) = 0;
  virtual void set_read_deadline(clock::time_point when) = 0;
  virtual void set_write_deadline(clock::time_point when) = 0;
  // Ends the stream for the peer, which may still send.
  virtual void close_write() = 0;
  // When the stream is closed later, the peer gets an error and not the end of the stream.
  virtual void break_off() = 0;
};

}  // namespace weft::http
