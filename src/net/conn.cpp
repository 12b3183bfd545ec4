// conn.cpp: connections.
//
// A write of several pieces goes out with sendmsg, as many at a time as the kernel takes.
//
// copy() reads into a buffer first. If a read fills the buffer, there is much to move. Then the
// rest goes through a pipe, by splice, and stays in the kernel, until the source has nothing more
// for now. So a pipe is held only while data moves; a copy that waits holds neither descriptors nor
// memory, and short messages cost no more than a read and a write. If the target takes nothing for
// a while, the data in the pipe is taken out again and waits in a buffer, and the pipe is closed.
// If no pipe can be made (no descriptors are left), a larger buffer takes its place. A splice
// cannot suppress SIGPIPE as the other calls can; see io/sigpipe.hpp.
#include "io/descriptor.hpp"
#include "io/own_pipe.hpp"
#include "io/refused.hpp"
#include "io/transfer.hpp"
#include "net/addresses.hpp"
#include "net/socket_access.hpp"
#include "net/socket_options.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdint>
#include <fcntl.h>
#include <memory>
#include <new>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

namespace weft::net {
namespace {

constexpr std::size_t pieces_max = 64;  // of one system call; the kernel takes 1,024
constexpr std::size_t little_bytes = std::size_t{16} << 10;  // more at a time is worth a pipe
constexpr std::size_t much_bytes = std::size_t{64} << 10;    // at a time, without a pipe

std::error_code set_option(io::descriptor* d, int level, int name, int value) {
  if (d == nullptr) return errc::closed;
  return d->control([&] { return ::setsockopt(d->fd(), level, name, &value, sizeof value); });
}

std::error_code shut(io::descriptor* d, int how) {
  if (d == nullptr) return errc::closed;
  return d->control([&] { return ::shutdown(d->fd(), how); });
}

// Puts the pieces that are left into `to`, the first one without its first `skip` bytes. Returns:
// how many pieces it has put there.
std::size_t gather(std::span<const std::span<const std::byte>>& pieces, std::size_t skip,
                   iovec (&to)[pieces_max]) {
  std::size_t n = 0;
  for (const std::span<const std::byte> piece : pieces) {
    if (n == pieces_max) break;
    if (piece.size() == skip) {
      skip = 0;
      continue;
    }
    to[n].iov_base = const_cast<std::byte*>(piece.data() + skip);
    to[n++].iov_len = piece.size() - skip;
    skip = 0;
  }
  return n;
}

// Removes whole pieces that have been written. `skip` becomes the number of bytes that have been
// written of the first piece that is left.
void advance(std::span<const std::span<const std::byte>>& pieces, std::size_t& skip,
             std::size_t written) {
  skip += written;
  while (!pieces.empty() && skip >= pieces.front().size()) {
    skip -= pieces.front().size();
    pieces = pieces.subspan(1);
  }
}

// Receives into a new buffer. If nothing came, `buffer` is null afterwards. Not inlined: errno
// belongs to the thread, and after a wait the goroutine may be on another thread.
[[gnu::noinline]] ssize_t fill(int fd, std::unique_ptr<std::byte[]>& buffer, std::size_t room) {
  buffer = std::make_unique_for_overwrite<std::byte[]>(room);
  const ssize_t n = io::receive(fd, buffer.get(), room, 0);
  if (n <= 0) {
    const int error = errno;
    buffer.reset();
    errno = error;
  }
  return n;
}

// Why moving through a pipe came to its end.
enum class until : std::uint8_t {
  empty,    // the source has nothing for now, or nothing that a splice can take
  stalled,  // the target took nothing for a while; the pipe is closed
  refused,  // the kernel does not move data between these two
  error,    // anything else
};

constexpr std::size_t splice_bytes = std::size_t{1} << 20;  // at a time, and room of the pipe
constexpr unsigned splice_flags = SPLICE_F_MOVE | SPLICE_F_NONBLOCK;

// Moves what the socket has into the pipe. The pipe is empty, so EAGAIN is about the socket. A
// splice does not pass urgent data: there it fails with EAGAIN, or returns 0 once the stream has
// ended, although more data follows. So the caller has to read to find out. Not inlined: see
// fill().
[[gnu::noinline]] ssize_t splice_some(int fd, const io::own_pipe& pipe, until& why) noexcept {
  const ssize_t n = ::splice(fd, nullptr, pipe.writer(), nullptr, splice_bytes, splice_flags);
  if (n > 0) return n;
  if (n == 0 || errno == EAGAIN) {
    why = until::empty;
  } else if (io::is_refused(errno)) {
    why = until::refused;
  } else {
    return -1;
  }
  return 0;
}

// How long the target may take nothing before the copy counts as stalled.
constexpr std::chrono::milliseconds stall_at_first{100};

// Takes the data in the pipe out again, closes the pipe and writes the data to the target. Parks.
std::error_code write_rest(conn& to, io::own_pipe& pipe, std::span<std::byte> buffer) {
  if (const int error = pipe.take_back(buffer)) return {error, std::generic_category()};
  pipe.close();
  const auto written = to.write(buffer);
  return written ? std::error_code() : written.error();
}

// How much all stalled copies together may keep in buffers: as much as the kernel lets a user have
// in large pipes. Stalled copies beyond that keep their pipes, which are small then.
class kept_bytes {
 public:
  explicit kept_bytes(std::size_t n) noexcept
      : n_(n), is_granted_(all.fetch_add(n, std::memory_order_relaxed) + n <= all_max) {}
  kept_bytes(const kept_bytes&) = delete;
  kept_bytes& operator=(const kept_bytes&) = delete;
  ~kept_bytes() { all.fetch_sub(n_, std::memory_order_relaxed); }
  explicit operator bool() const noexcept { return is_granted_; }

 private:
  static constexpr std::size_t all_max = std::size_t{64} << 20;
  static inline constinit std::atomic<std::size_t> all{0};  // relaxed: a bound, no order

  const std::size_t n_;
  const bool is_granted_;
};

// Moves all that the source has for now to the target. Parks. Adds the number of bytes to `total`.
expected<until> splice_all(conn& to, io::descriptor& source, io::own_pipe& pipe,
                           std::uint64_t& total) {
  io::descriptor& target = *socket_access::of(to);
  for (;;) {
    until why = until::error;
    const auto got = source.when_readable([&] { return splice_some(source.fd(), pipe, why); });
    if (!got) return std::unexpected(got.error());
    if (*got == 0) return why;
    total += static_cast<std::uint64_t>(*got);  // after an error no caller learns the total
    std::chrono::nanoseconds stall = stall_at_first;
    for (auto left = static_cast<std::size_t>(*got); left != 0;) {
      const auto put = target.when_writable_within(stall, [&] {
        return ::splice(pipe.reader(), nullptr, target.fd(), nullptr, left, splice_flags);
      });
      if (put) {
        left -= static_cast<std::size_t>(*put);
        continue;
      }
      const bool has_stalled = put.error() == std::errc::resource_unavailable_try_again;
      if (!has_stalled && !io::is_refused(put.error())) return std::unexpected(put.error());
      const kept_bytes rest(left);
      std::unique_ptr<std::byte[]> buffer;
      if (rest || !has_stalled) buffer.reset(new (std::nothrow) std::byte[left]);
      if (buffer == nullptr && has_stalled) {  // the data stays in the pipe
        stall *= 2;
        continue;
      }
      if (buffer == nullptr) return std::unexpected(make_error_code(std::errc::not_enough_memory));
      if (const std::error_code e = write_rest(to, pipe, {buffer.get(), left})) {
        return std::unexpected(e);
      }
      return has_stalled ? until::stalled : until::refused;
    }
  }
}

}  // namespace

expected<std::size_t> conn::read(std::span<std::byte> into) {
  if (descriptor_ == nullptr) return io::closed_error();
  if (into.empty()) return 0;
  const int fd = descriptor_->fd();
  const std::size_t most = std::min(into.size(), io::at_once_max);
  const auto n = descriptor_->receive(most, [&] { return io::receive(fd, into.data(), most, 0); });
  if (!n) return std::unexpected(n.error());
  return static_cast<std::size_t>(*n);
}

expected<std::size_t> conn::write(std::span<const std::byte> from) {
  if (descriptor_ == nullptr) return io::closed_error();
  const int fd = descriptor_->fd();
  std::size_t done = 0;
  const auto n = descriptor_->when_writable([&]() -> ssize_t {
    while (done < from.size()) {
      const std::size_t most = std::min(from.size() - done, io::at_once_max);
      const ssize_t sent = io::send(fd, from.data() + done, most, MSG_NOSIGNAL);
      if (sent == -1) return -1;
      done += static_cast<std::size_t>(sent);
    }
    return 0;
  });
  if (!n) return std::unexpected(n.error());
  return done;
}

expected<std::size_t> conn::write(std::span<const std::span<const std::byte>> pieces) {
  if (descriptor_ == nullptr) return io::closed_error();
  const int fd = descriptor_->fd();
  std::size_t skip = 0;
  std::size_t done = 0;
  const auto n = descriptor_->when_writable([&]() -> ssize_t {
    for (advance(pieces, skip, 0); !pieces.empty();) {
      iovec parts[pieces_max];
      msghdr message{};
      message.msg_iov = parts;
      message.msg_iovlen = gather(pieces, skip, parts);
      const ssize_t sent = ::sendmsg(fd, &message, MSG_NOSIGNAL);
      if (sent == -1) return -1;
      done += static_cast<std::size_t>(sent);
      advance(pieces, skip, static_cast<std::size_t>(sent));
    }
    return 0;
  });
  if (!n) return std::unexpected(n.error());
  return done;
}

std::error_code conn::close_read() { return shut(descriptor_.get(), SHUT_RD); }
std::error_code conn::close_write() { return shut(descriptor_.get(), SHUT_WR); }

address conn::local_address() const { return net::local_address(descriptor_.get()); }
address conn::remote_address() const { return net::remote_address(descriptor_.get()); }

std::error_code conn::set_no_delay(bool on) {
  return set_option(descriptor_.get(), IPPROTO_TCP, TCP_NODELAY, on ? 1 : 0);
}

std::error_code conn::set_keep_alive(std::chrono::seconds idle) {
  io::descriptor* const d = descriptor_.get();
  const int seconds = static_cast<int>(std::clamp<std::int64_t>(idle.count(), 0, 32767));
  if (seconds != 0) {
    if (const auto e = set_option(d, IPPROTO_TCP, TCP_KEEPIDLE, seconds)) return e;
    if (const auto e = set_option(d, IPPROTO_TCP, TCP_KEEPINTVL, seconds)) return e;
  }
  return set_option(d, SOL_SOCKET, SO_KEEPALIVE, seconds != 0 ? 1 : 0);
}

std::error_code conn::set_linger(std::chrono::seconds time) {
  io::descriptor* const d = descriptor_.get();
  if (d == nullptr) return errc::closed;
  linger value{};
  value.l_onoff = time.count() < 0 ? 0 : 1;
  value.l_linger = static_cast<int>(std::clamp<std::int64_t>(time.count(), 0, INT_MAX));
  return d->control(
      [&] { return ::setsockopt(d->fd(), SOL_SOCKET, SO_LINGER, &value, sizeof value); });
}

expected<std::uint64_t> copy(conn& to, conn& from) {
  io::descriptor* const source = socket_access::of(from);
  io::descriptor* const target = socket_access::of(to);
  if (source == nullptr || target == nullptr) return io::closed_error();
  std::uint64_t total = 0;
  std::size_t room = little_bytes;
  for (bool may_splice = true;;) {
    {
      std::unique_ptr<std::byte[]> buffer;
      const auto got = source->receive(room, [&] { return fill(source->fd(), buffer, room); });
      if (!got) return std::unexpected(got.error());
      if (*got == 0) return total;
      const auto size = static_cast<std::size_t>(*got);
      const auto written = to.write(std::span(buffer.get(), size));
      if (!written) return std::unexpected(written.error());
      total += size;
      if (size < room) {
        room = little_bytes;
        continue;
      }
    }
    room = much_bytes;
    if (!may_splice) continue;
    io::own_pipe pipe(splice_bytes);
    if (!pipe.is_there()) continue;
    switch (const auto end = splice_all(to, *source, pipe, total); end.value_or(until::error)) {
      case until::empty:
        room = little_bytes;
        break;
      case until::stalled:
        break;
      case until::refused:
        may_splice = false;
        break;
      case until::error:
        return std::unexpected(end.error());
    }
  }
}

}  // namespace weft::net
