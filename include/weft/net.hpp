// weft/net.hpp: sockets. Calls that look as if they blocked the thread park the goroutine (a plain
// thread sleeps) and never hold up a processor.
//
// No call here throws on an I/O error: results are expected<T> or an error code. Handles are
// move-only and their destructor closes them; goroutines share a handle by reference. Any number of
// goroutines may use one handle at the same time: reads are serialised, and so are writes, so a
// write is never mixed with another. A handle that was moved from, or default-constructed, is
// closed.
//
// Two codes say "too late": deadlines give errc::timed_out, contexts give errc::deadline_exceeded.
// Compare with std::errc::timed_out, which equals both of them and also the code of the kernel.
//
// A write to a peer that is gone is an error (std::errc::broken_pipe) and no signal: the first
// socket or file gives SIGPIPE a handler that does nothing, unless the program has decided
// otherwise. As a consequence, a printf to a pipe that nobody reads fails, too, instead of ending
// the process.
//
// In a bubble or an exploration of weft/test.hpp a call that would have to wait for the kernel
// returns std::errc::operation_not_supported.
#pragma once

#include <weft/context.hpp>
#include <weft/detail/config.hpp>
#include <weft/detail/descriptor.hpp>
#include <weft/time.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace weft::net {

// What is wrong with the text of a network or an address. All these codes equal
// std::errc::invalid_argument, too.
enum class address_errc { unknown_network = 1, missing_port, bad_port, malformed };

WEFT_API const std::error_category& address_category() noexcept;
inline std::error_code make_error_code(address_errc e) noexcept {
  return {static_cast<int>(e), address_category()};
}

// Returns: a line about an error of dial or listen, with the address, which a code cannot carry.
// describe("dial", "tcp", "a.example:80", e) is "dial tcp a.example:80: Connection refused".
WEFT_API std::string describe(std::string_view what, std::string_view network,
                              std::string_view address, const std::error_code& why);

}  // namespace weft::net

template <>
struct std::is_error_code_enum<weft::net::address_errc> : std::true_type {};

namespace weft::net {

// The address of a socket: an IP address with a port, or a path (or, with a leading '@', a name in
// the abstract namespace) of a Unix socket. Empty for a Unix socket without a name.
class address {
 public:
  address() noexcept = default;

  // Reads "192.0.2.1:80", "[2001:db8::1%eth0]:80", or an address without a port. Looks no names up.
  [[nodiscard]] WEFT_API static expected<address> parse(std::string_view text);
  // Makes the address of a Unix socket. Returns: an error if the path is too long.
  [[nodiscard]] WEFT_API static expected<address> from_path(std::string_view path);

  // Returns: text that parse() can read: "192.0.2.1:80", "[2001:db8::1]:80", "/run/server.sock",
  // "@name".
  WEFT_API std::string to_string() const;
  // Returns: the address without the port.
  WEFT_API std::string host() const;
  WEFT_API std::uint16_t port() const noexcept;  // 0 for a Unix socket
  WEFT_API address with_port(std::uint16_t port) const noexcept;

  WEFT_API bool is_v4() const noexcept;
  WEFT_API bool is_v6() const noexcept;
  WEFT_API bool is_unix() const noexcept;

  WEFT_API bool operator==(const address& other) const noexcept;

  // For system calls: the sockaddr. from_native takes any family that fits.
  const void* data() const noexcept { return bytes_; }
  std::size_t size() const noexcept { return size_; }
  WEFT_API static address from_native(const void* sockaddr, std::size_t size) noexcept;

 private:
  static constexpr std::size_t bytes_max = 110;  // sockaddr_un
  alignas(8) std::byte bytes_[bytes_max] = {};
  std::uint16_t size_ = 0;
};

// What all handles of sockets have in common.
class socket {
 public:
  // Closes the handle and wakes every goroutine that waits in a call on it; those calls return
  // errc::closed. Returns: errc::closed if the handle was closed already.
  WEFT_API std::error_code close();
  WEFT_API bool is_open() const noexcept;
  // Returns: the kernel's descriptor, or -1. The handle keeps the ownership; the descriptor must
  // stay non-blocking.
  WEFT_API int native_handle() const noexcept;

  socket(const socket&) = delete;
  socket& operator=(const socket&) = delete;

 protected:
  friend struct socket_access;
  socket() noexcept = default;
  explicit socket(io::descriptor_ptr d) noexcept : descriptor_(std::move(d)) {}
  socket(socket&& other) noexcept = default;
  socket& operator=(socket&& other) noexcept = default;
  ~socket() = default;

  io::descriptor_ptr descriptor_;

 private:
  friend struct socket_access;
};

// A socket that is read and written: a connection, or a socket for single messages.
class two_way_socket : public socket {
 public:
  // From that time on, calls that would wait return errc::timed_out, and so do calls that wait
  // already. The time point {} means no deadline.
  WEFT_API void set_deadline(clock::time_point when);
  WEFT_API void set_read_deadline(clock::time_point when);
  WEFT_API void set_write_deadline(clock::time_point when);
  // The same, with a duration from now.
  template <class Rep, class Period>
  void set_deadline(std::chrono::duration<Rep, Period> d) {
    set_deadline(io::from_now(d));
  }
  template <class Rep, class Period>
  void set_read_deadline(std::chrono::duration<Rep, Period> d) {
    set_read_deadline(io::from_now(d));
  }
  template <class Rep, class Period>
  void set_write_deadline(std::chrono::duration<Rep, Period> d) {
    set_write_deadline(io::from_now(d));
  }

 protected:
  two_way_socket() noexcept = default;
  using socket::socket;
};

// A connection: TCP or Unix stream.
class conn : public two_way_socket {
 public:
  conn() noexcept = default;

  // Reads what is there, at most `into.size()` bytes, and waits if there is nothing. Returns: the
  // number of bytes; 0 at the end of the stream. (Reading into an empty span also returns 0, which
  // then means nothing.)
  [[nodiscard]] WEFT_API expected<std::size_t> read(std::span<std::byte> into);
  // Writes all of `from`. Returns: its size, or an error. After an error an unknown part may have
  // been written.
  [[nodiscard]] WEFT_API expected<std::size_t> write(std::span<const std::byte> from);
  // Writes several pieces, with one system call for as many as fit.
  [[nodiscard]] WEFT_API expected<std::size_t> write(
      std::span<const std::span<const std::byte>> pieces);

  // Reads into chars or into the size() bytes of a std::string, which is not resized; and writes
  // text. Of a literal or a char array only the part before the first NUL is written.
  [[nodiscard]] expected<std::size_t> read(io::text_room into) { return read(into.bytes()); }
  [[nodiscard]] expected<std::size_t> write(io::text from) { return write(from.bytes()); }

  // From now on reads return the end of the stream.
  [[nodiscard]] WEFT_API std::error_code close_read();
  // Lets the peer read the end of the stream. What the peer sends can still be read.
  [[nodiscard]] WEFT_API std::error_code close_write();

  WEFT_API address local_address() const;
  WEFT_API address remote_address() const;
  // The former names, for programs that were written with them.
  [[deprecated("local_address()")]] address local() const { return local_address(); }
  [[deprecated("remote_address()")]] address remote() const { return remote_address(); }

  // The defaults for TCP are: no delay; keep-alive after 15 s, then every 15 s, 9 times.
  [[nodiscard]] WEFT_API std::error_code set_no_delay(bool on);
  // `idle` is the time until the first keep-alive; 0 switches keep-alive off.
  [[nodiscard]] WEFT_API std::error_code set_keep_alive(std::chrono::seconds idle);
  // Decides what close() does with data that has not been sent. Negative (the default): the kernel
  // sends the data in the background. 0: the data is dropped and the connection reset. Positive:
  // close() waits for at most so long, and blocks its thread meanwhile.
  [[nodiscard]] WEFT_API std::error_code set_linger(std::chrono::seconds time);

 private:
  friend class listener;
  friend struct socket_access;
  using two_way_socket::two_way_socket;
};

// A socket that accepts connections. close() also removes the file of a Unix socket.
class listener : public socket {
 public:
  listener() noexcept = default;

  // Waits for the next connection. If the process has no descriptors left, accept waits until it
  // has some and reports that on stderr, once a minute at most.
  [[nodiscard]] WEFT_API expected<conn> accept();
  WEFT_API address local_address() const;
  // The former name.
  [[deprecated("local_address()")]] address addr() const { return local_address(); }
  // As those of conn.
  WEFT_API void set_deadline(clock::time_point when);
  template <class Rep, class Period>
  void set_deadline(std::chrono::duration<Rep, Period> d) {
    set_deadline(io::from_now(d));
  }

 private:
  friend struct socket_access;
  using socket::socket;
  bool is_tcp_ = false;
};

// Sends and receives single messages: UDP, or Unix datagrams. close() removes the file of a Unix
// socket.
class packet_conn : public two_way_socket {
 public:
  packet_conn() noexcept = default;

  // Receives one message. Longer messages are truncated silently; pass one spare byte to detect it.
  // Returns: the number of bytes, and the sender.
  [[nodiscard]] WEFT_API expected<std::pair<std::size_t, address>> read_from(
      std::span<std::byte> into);
  // Sends `from` as one message. Returns: its size, or an error.
  [[nodiscard]] WEFT_API expected<std::size_t> write_to(std::span<const std::byte> from,
                                                        const address& to);

  // Text, as for conn.
  [[nodiscard]] expected<std::pair<std::size_t, address>> read_from(io::text_room into) {
    return read_from(into.bytes());
  }
  [[nodiscard]] expected<std::size_t> write_to(io::text from, const address& to) {
    return write_to(from.bytes(), to);
  }

  WEFT_API address local_address() const;
  // The former name.
  [[deprecated("local_address()")]] address addr() const { return local_address(); }

 private:
  friend struct socket_access;
  using two_way_socket::two_way_socket;
};

// Makes a listener. network: "tcp", "tcp4" or "tcp6", with the address "host:port" or ":port" (all
// interfaces; for "tcp", both protocols), where port 0 stands for any free port; or "unix", with a
// path. Returns: an address_errc if there is no such network, or the address does not have that
// form; else the error of the system.
[[nodiscard]] WEFT_API expected<listener> listen(std::string_view network,
                                                 std::string_view address);

// Connects to an address on one of the networks of listen. A host with several addresses is tried
// as RFC 8305 (happy eyeballs) says. The context ends only the attempt to connect. Returns: the
// error of the first address if none can be reached; an address_errc as listen does.
[[nodiscard]] WEFT_API expected<conn> dial(const context& ctx, std::string_view network,
                                           std::string_view address);
[[nodiscard]] inline expected<conn> dial(std::string_view network, std::string_view address) {
  return dial(context::background(), network, address);
}

// Makes a socket for single messages. network: "udp", "udp4", "udp6" or "unixgram" (with an empty
// path: a socket without a name, which can only send).
[[nodiscard]] WEFT_API expected<packet_conn> listen_packet(std::string_view network,
                                                           std::string_view address);

// Looks up the addresses of a host, as the settings of the system say. Their port is 0; the
// addresses to try first come first. Calls that look up the same name at the same time share one
// look-up. Returns: an error of the category "weft.resolve" if there is no such host, or no server
// that knows it.
[[nodiscard]] WEFT_API expected<std::vector<address>> resolve(const context& ctx,
                                                              std::string_view host);
[[nodiscard]] inline expected<std::vector<address>> resolve(std::string_view host) {
  return resolve(context::background(), host);
}

// Copies from one connection to the other until the end of the stream. The data is moved inside the
// kernel, much at a time, as long as the process has descriptors for a pipe. While no data comes,
// the copy holds neither descriptors nor memory; while no data is taken, it holds up to 1 MiB that
// it has read. Returns: the number of bytes, or an error. After an error that number is unknown,
// and data that had been read but not written is lost.
[[nodiscard]] WEFT_API expected<std::uint64_t> copy(conn& to, conn& from);

}  // namespace weft::net
