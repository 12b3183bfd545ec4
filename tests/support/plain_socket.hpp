// plain_socket.hpp: a peer that knows nothing of weft: a socket of the kernel's with the calls
// every C program makes, for plain threads. And the bytes that peers send each other.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <weft/net.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace weft::test {

// The bytes of one connection. Byte k follows from the connection's number and k, so that one that
// is lost, doubled, out of its place or another connection's is not the one that is expected.
class stream_of_bytes {
 public:
  explicit stream_of_bytes(std::uint64_t number) : key_(number * 0x9e3779b97f4a7c15u + 1) {}

  // The next bytes, for the sender.
  void fill(char* to, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) to[i] = at(position_ + i);
    position_ += n;
  }
  // Whether these are the next bytes, for the receiver.
  bool matches(const char* from, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      if (from[i] != at(position_ + i)) return false;
    }
    position_ += n;
    return true;
  }
  std::uint64_t position() const { return position_; }

 private:
  char at(std::uint64_t k) const {
    std::uint64_t x = (key_ ^ k) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 29) * 0x94d049bb133111ebu;
    return static_cast<char>(x >> 56);
  }

  std::uint64_t key_;
  std::uint64_t position_ = 0;
};

class plain_socket {
 public:
  enum class mode : std::uint8_t { blocking, non_blocking };

  plain_socket() = default;
  // Connects. `receive_bytes`: of the kernel's buffer; 0: as it is.
  explicit plain_socket(const net::address& to, mode m = mode::blocking, int receive_bytes = 0) {
    const auto* const address = static_cast<const sockaddr*>(to.data());
    fd_ = ::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "socket");
    if (receive_bytes != 0) {
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    }
    // A test that fails says more than a test that hangs.
    const timeval patience{.tv_sec = 60, .tv_usec = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (address->sa_family != AF_UNIX) {
      const int one = 1;
      ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    if (::connect(fd_, address, static_cast<socklen_t>(to.size())) != 0) {
      const int error = errno;
      ::close(fd_);
      throw std::system_error(error, std::generic_category(), "connect");
    }
    flags_ = m == mode::non_blocking ? MSG_NOSIGNAL | MSG_DONTWAIT : MSG_NOSIGNAL;
  }
  plain_socket(plain_socket&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), flags_(other.flags_) {}
  plain_socket& operator=(plain_socket&& other) noexcept {
    close();
    fd_ = std::exchange(other.fd_, -1);
    flags_ = other.flags_;
    return *this;
  }
  ~plain_socket() { close(); }

  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

  // One call. Returns: what it said, -1 with errno.
  ssize_t send(const void* data, std::size_t n, int flags = 0) const {
    return again([&] { return ::send(fd_, data, n, flags_ | flags); });
  }
  ssize_t receive(void* data, std::size_t n) const {
    return again([&] { return ::recv(fd_, data, n, flags_); });
  }

  bool send_all(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t n = send(text.data(), text.size());
      if (n <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }
  // Returns: that many bytes, or fewer at the end of the stream or an error.
  std::string receive_exactly(std::size_t n) const {
    std::string all(n, '\0');
    std::size_t done = 0;
    while (done < n) {
      const ssize_t got = receive(all.data() + done, n - done);
      if (got <= 0) break;
      done += static_cast<std::size_t>(got);
    }
    all.resize(done);
    return all;
  }
  // Returns: everything up to the end of the stream, or an error.
  std::string receive_all() const {
    std::string all;
    char some[16384];
    for (ssize_t n; (n = receive(some, sizeof some)) > 0;) {
      all.append(some, static_cast<std::size_t>(n));
    }
    return all;
  }

  void close_write() const { ::shutdown(fd_, SHUT_WR); }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  // Resets the connection: the peer gets an error, even if data is still under way.
  void reset() {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    if (fd_ >= 0) ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close();
  }

 private:
  template <class F>
  static ssize_t again(F call) {
    for (;;) {
      const ssize_t n = call();
      if (n >= 0 || errno != EINTR) return n;
    }
  }

  int fd_ = -1;
  int flags_ = MSG_NOSIGNAL;
};

// Whether this machine speaks IPv6, if only to itself. The kernel's word, not weft's.
inline bool has_ipv6() {
  const int fd = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  sockaddr_in6 loopback{};
  loopback.sin6_family = AF_INET6;
  loopback.sin6_addr = in6addr_loopback;
  const int bound = ::bind(fd, reinterpret_cast<const sockaddr*>(&loopback), sizeof loopback);
  ::close(fd);
  return bound == 0;
}
inline constexpr const char* no_ipv6 = "this machine has no IPv6: ::1 cannot be bound";

// What a connection says whose peer is gone.
inline bool is_lost(std::error_code e) {
  return e == std::errc::connection_reset || e == std::errc::broken_pipe;
}

}  // namespace weft::test
