// weft/net.hpp: sockets. Calls that look as if they blocked the thread park the goroutine (or let a
// plain thread sleep) and never hold up a processor.
//
// Nothing here throws on an I/O error: results are expected<T> or an error code. Handles are
// move-only and their destructor closes; goroutines share one by reference. Any number of them may
// use one at the same time: reads are serialised, and so are writes; a whole write is never torn by
// another. A handle that was moved from, or made by default, is closed.
//
// Two codes say "too late": deadlines give errc::timed_out, contexts errc::deadline_exceeded.
// Compare with std::errc::timed_out, which equals both, and the kernel's.
//
// A write to a peer that is gone is an error (std::errc::broken_pipe) and no signal: the first
// socket or file gives SIGPIPE a handler that does nothing, unless the program has decided
// otherwise. So a printf to a pipe that nobody reads fails, too, and does not end the process.
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

// What is wrong with the text of a network or an address. All of them are
// std::errc::invalid_argument, too.
enum class address_errc { unknown_network = 1, missing_port, bad_port, malformed };

WEFT_API const std::error_category& address_category() noexcept;
inline std::error_code make_error_code(address_errc e) noexcept {
  return {static_cast<int>(e), address_category()};
}

// A line about an error of dial or listen, with the address that a code cannot carry:
// describe("dial", "tcp", "a.example:80", e) is "dial tcp a.example:80: Connection refused".
WEFT_API std::string describe(std::string_view what, std::string_view network,
                              std::string_view address, const std::error_code& why);

}  // namespace weft::net

template <>
struct std::is_error_code_enum<weft::net::address_errc> : std::true_type {};

namespace weft::net {

// Where a socket is: an IP address with a port, or a path (or, with a leading '@', a name in the
// abstract namespace) of a Unix socket. Empty for a Unix socket without a name.
class address {
 public:
  address() noexcept = default;

  // From "192.0.2.1:80", "[2001:db8::1%eth0]:80", or without a port. Looks nothing up.
  [[nodiscard]] WEFT_API static expected<address> parse(std::string_view text);
  // A Unix socket. Returns: an error if the path is too long.
  [[nodiscard]] WEFT_API static expected<address> from_path(std::string_view path);

  // "192.0.2.1:80", "[2001:db8::1]:80", "/run/server.sock", "@name". What parse() reads.
  WEFT_API std::string to_string() const;
  // Without the port.
  WEFT_API std::string host() const;
  WEFT_API std::uint16_t port() const noexcept;  // 0 for a Unix socket
  WEFT_API address with_port(std::uint16_t port) const noexcept;

  WEFT_API bool is_v4() const noexcept;
  WEFT_API bool is_v6() const noexcept;
  WEFT_API bool is_unix() const noexcept;

  WEFT_API bool operator==(const address& other) const noexcept;

  // For system calls: the sockaddr. Any family that fits may be put in.
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
  // Wakes every goroutine that waits in a call on this handle, which returns errc::closed.
  // Returns: errc::closed if it was closed already.
  WEFT_API std::error_code close();
  WEFT_API bool is_open() const noexcept;
  // The kernel's descriptor, or -1. It stays the handle's, and non-blocking.
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

// What is read and written: a connection, or a socket for single messages.
class two_way_socket : public socket {
 public:
  // From then on, calls that would wait return errc::timed_out, also those that wait already. {}:
  // for ever.
  WEFT_API void set_deadline(clock::time_point when);
  WEFT_API void set_read_deadline(clock::time_point when);
  WEFT_API void set_write_deadline(clock::time_point when);
  // The same, so long from now.
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

  // Reads what there is, at most `into.size()`, and waits if there is nothing. Returns: 0 at the
  // end of the stream. (An empty span reads 0 and means nothing.)
  [[nodiscard]] WEFT_API expected<std::size_t> read(std::span<std::byte> into);
  // Writes all of it. Returns: its size, or an error: then a part may have been written, and nobody
  // knows how much.
  [[nodiscard]] WEFT_API expected<std::size_t> write(std::span<const std::byte> from);
  // The same for several pieces, with one system call for as many as fit.
  [[nodiscard]] WEFT_API expected<std::size_t> write(
      std::span<const std::span<const std::byte>> pieces);

  // Reads into a std::string or chars, and writes text; of a literal or a char array, what is
  // before a NUL.
  [[nodiscard]] expected<std::size_t> read(io::text_room into) { return read(into.bytes()); }
  [[nodiscard]] expected<std::size_t> write(io::text from) { return write(from.bytes()); }

  // Reads return the end of the stream from now on.
  [[nodiscard]] WEFT_API std::error_code close_read();
  // The peer reads the end of the stream; what it sends can still be read.
  [[nodiscard]] WEFT_API std::error_code close_write();

  WEFT_API address local_address() const;
  WEFT_API address remote_address() const;

  // Defaults, for TCP: no delay; keep-alive after 15 s, every 15 s, 9 times.
  [[nodiscard]] WEFT_API std::error_code set_no_delay(bool on);
  // 0: off.
  [[nodiscard]] WEFT_API std::error_code set_keep_alive(std::chrono::seconds idle);
  // What close() does with what has not been sent: negative: the kernel sends it in the background
  // (the default); 0: it is dropped and the connection reset; else close() waits for so long, and
  // its thread with it.
  [[nodiscard]] WEFT_API std::error_code set_linger(std::chrono::seconds time);

 private:
  friend class listener;
  friend struct socket_access;
  using two_way_socket::two_way_socket;
};

// close() removes the file of a Unix socket, too.
class listener : public socket {
 public:
  listener() noexcept = default;

  // Waits for the next connection. If the process has no descriptors left it waits for some, and a
  // line on stderr says so, once a minute at most.
  [[nodiscard]] WEFT_API expected<conn> accept();
  WEFT_API address local_address() const;
  // As conn's.
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

// Sends and receives single messages: UDP, or Unix datagrams. close() removes the file of the
// latter.
class packet_conn : public two_way_socket {
 public:
  packet_conn() noexcept = default;

  // What does not fit is lost, and nobody told: with a byte more room than a message may need, a
  // full buffer tells. Returns: how much, and from whom.
  [[nodiscard]] WEFT_API expected<std::pair<std::size_t, address>> read_from(
      std::span<std::byte> into);
  // All of it or an error.
  [[nodiscard]] WEFT_API expected<std::size_t> write_to(std::span<const std::byte> from,
                                                        const address& to);

  // Text, as conn's.
  [[nodiscard]] expected<std::pair<std::size_t, address>> read_from(io::text_room into) {
    return read_from(into.bytes());
  }
  [[nodiscard]] expected<std::size_t> write_to(io::text from, const address& to) {
    return write_to(from.bytes(), to);
  }

  WEFT_API address local_address() const;

 private:
  friend struct socket_access;
  using two_way_socket::two_way_socket;
};

// network: "tcp", "tcp4", "tcp6" with address "host:port", ":port" (all interfaces; "tcp": both
// protocols) or port 0 (any free one); "unix" with a path. Returns: an address_errc if there is no
// such network, or the address has not that form; else the system's error.
[[nodiscard]] WEFT_API expected<listener> listen(std::string_view network,
                                                 std::string_view address);

// The same networks. A host with several addresses is tried as RFC 8305 (happy eyeballs) says. The
// context ends only the attempt. Returns: the first address's error if none can be reached; an
// address_errc as listen does.
[[nodiscard]] WEFT_API expected<conn> dial(const context& ctx, std::string_view network,
                                           std::string_view address);
[[nodiscard]] inline expected<conn> dial(std::string_view network, std::string_view address) {
  return dial(context::background(), network, address);
}

// network: "udp", "udp4", "udp6", "unixgram" (an empty path: one without a name, for sending).
[[nodiscard]] WEFT_API expected<packet_conn> listen_packet(std::string_view network,
                                                           std::string_view address);

// Looks the addresses of a host up, as the system's settings say; their port is 0, and those to try
// first are in front. Those who look the same name up at the same time share one look-up. Returns:
// an error of the category "weft.resolve" if there is no such host, or nobody who knows.
[[nodiscard]] WEFT_API expected<std::vector<address>> resolve(const context& ctx,
                                                              std::string_view host);
[[nodiscard]] inline expected<std::vector<address>> resolve(std::string_view host) {
  return resolve(context::background(), host);
}

// Copies from one connection to the other until the end of the stream; much at a time inside the
// kernel, as long as the process has descriptors for a pipe. While nothing comes it holds neither
// descriptors nor memory; while nothing is taken, up to 1 MiB that it has read. Returns: how many
// bytes, or an error: then it is not known how many, and what had been read but not written is
// lost.
[[nodiscard]] WEFT_API expected<std::uint64_t> copy(conn& to, conn& from);

}  // namespace weft::net
