// copy.cpp: between files and connections, inside the kernel where it can.
//
// Between files on disks: copy_file_range. To a connection: sendfile, whenever the socket has room.
// From one: splice into a pipe of our own, when there is something, and on into the file. Neither
// waits for the socket; the disk may have to be waited for in both, so they are announced. What the
// kernel cannot do that way (files that are no files, O_APPEND, some file systems) goes through a
// buffer.
//
// While a file is copied from, its position belongs to the copy. Writes of others may come in
// between the pieces.
#include "io/descriptor.hpp"
#include "io/own_pipe.hpp"
#include "io/socket_access.hpp"
#include "os/file_core.hpp"
#include "sched/call.hpp"

#include <weft/os.hpp>

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <mutex>
#include <optional>
#include <sys/sendfile.h>
#include <unistd.h>
#include <vector>

namespace weft::os {
namespace {

constexpr std::uint64_t piece_max = std::uint64_t{1} << 20;
constexpr std::size_t buffer_bytes = std::size_t{64} << 10;

// Whether another way may do.
bool is_refused(const std::error_code& e) noexcept {
  return e == std::errc::invalid_argument || e == std::errc::function_not_supported ||
         e == std::errc::operation_not_supported;
}

template <class From, class To>
expected<std::uint64_t> copy_by_buffer(To& to, From& from, std::uint64_t count,
                                       std::uint64_t done) {
  std::vector<std::byte> buffer(buffer_bytes);
  while (done < count) {
    const auto most = static_cast<std::size_t>(std::min<std::uint64_t>(count - done, buffer_bytes));
    const expected<std::size_t> n = from.read(std::span(buffer).first(most));
    if (!n) return std::unexpected(n.error());
    if (*n == 0) break;
    const expected<std::size_t> written = to.write(std::span(buffer).first(*n));
    if (!written) return std::unexpected(written.error());
    done += *n;
  }
  return done;
}

// Moves what is in the pipe to the file's position. Returns: an errno, or 0. `left` counts down.
int drain(const io::own_pipe& pipe, file_core& to, std::size_t& left) {
  const file_core::call in_flight(to);
  if (!in_flight) return EBADF;
  const std::lock_guard one(to.write_lock());
  while (left != 0) {
    const sched::short_call announced;
    const ssize_t n = ::splice(pipe.reader(), nullptr, to.fd(), nullptr, left, SPLICE_F_MOVE);
    const int error = n < 0 ? io::last_errno() : EIO;
    if (n < 0 && error == EINTR) continue;
    if (n <= 0) return error;
    left -= static_cast<std::size_t>(n);
  }
  return 0;
}

// Copies at the files' positions, inside the kernel. Returns: nothing if the kernel does not do
// that for these two, and the positions are as they were.
std::optional<expected<std::uint64_t>> copy_on_disk(file_core& to, file_core& from,
                                                    std::uint64_t count) {
  const file_core::call reads(from);
  const file_core::call writes(to);
  if (!reads || !writes) return io::closed_error();
  const std::lock_guard reader(from.read_lock());
  const std::lock_guard writer(to.write_lock());
  std::uint64_t done = 0;
  while (done < count) {
    const auto most = static_cast<std::size_t>(std::min(count - done, piece_max));
    const sched::short_call announced;
    const ssize_t n = ::copy_file_range(from.fd(), nullptr, to.fd(), nullptr, most, 0);
    const std::error_code error = n < 0 ? io::last_error() : std::error_code();
    if (error == std::errc::interrupted) continue;
    // At the end, or one whose size the kernel does not know (in /proc); on two file systems, to
    // append, and so on. Reading and writing know better.
    if (n <= 0 && done == 0) return {};
    if (error) return std::unexpected(error);
    if (n == 0) break;
    done += static_cast<std::uint64_t>(n);
  }
  return done;
}

}  // namespace

expected<std::uint64_t> copy(file& to, file& from, std::uint64_t count) {
  file_core* const source = file_access::of(from);
  file_core* const target = file_access::of(to);
  if (source == nullptr || target == nullptr) return io::closed_error();
  if (source->what() == file_core::kind::disk && target->what() == file_core::kind::disk) {
    if (const auto copied = copy_on_disk(*target, *source, count)) return *copied;
  }
  return copy_by_buffer(to, from, count, 0);
}

expected<std::uint64_t> copy(net::conn& to, file& from, std::uint64_t count) {
  io::descriptor* const socket = net::socket_access::of(to);
  file_core* const source = file_access::of(from);
  if (socket == nullptr || source == nullptr) return io::closed_error();
  if (source->what() != file_core::kind::disk) return copy_by_buffer(*socket, from, count, 0);

  std::uint64_t done = 0;
  {
    const file_core::call in_flight(*source);
    if (!in_flight) return io::closed_error();
    const std::lock_guard one(source->read_lock());
    while (done < count) {
      const auto most = static_cast<std::size_t>(std::min(count - done, piece_max));
      const expected<ssize_t> n = socket->when_writable([&] {
        const sched::short_call announced;
        return ::sendfile(socket->fd(), source->fd(), nullptr, most);
      });
      if (!n && done == 0 && is_refused(n.error())) break;
      if (!n) return std::unexpected(n.error());
      if (*n == 0) return done;
      done += static_cast<std::uint64_t>(*n);
    }
  }
  return done == 0 ? copy_by_buffer(*socket, from, count, 0) : done;
}

expected<std::uint64_t> copy(file& to, net::conn& from, std::uint64_t count) {
  io::descriptor* const socket = net::socket_access::of(from);
  file_core* const target = file_access::of(to);
  if (socket == nullptr || target == nullptr || !target->is_open()) return io::closed_error();
  if (target->what() != file_core::kind::disk || (::fcntl(target->fd(), F_GETFL) & O_APPEND) != 0) {
    return copy_by_buffer(to, *socket, count, 0);
  }
  const io::own_pipe pipe(piece_max);
  if (!pipe.is_there()) return copy_by_buffer(to, *socket, count, 0);
  std::uint64_t done = 0;
  while (done < count) {
    const auto most = static_cast<std::size_t>(std::min(count - done, piece_max));
    const expected<ssize_t> n = socket->when_readable([&] {
      return ::splice(socket->fd(), nullptr, pipe.writer(), nullptr, most,
                      SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    });
    if (!n && is_refused(n.error())) return copy_by_buffer(to, *socket, count, done);
    if (!n) return std::unexpected(n.error());
    if (*n == 0) break;
    auto left = static_cast<std::size_t>(*n);
    const int error = drain(pipe, *target, left);
    if (error == EINVAL && left == static_cast<std::size_t>(*n)) {
      // What is in the pipe already takes the other way, and so does the rest.
      std::vector<std::byte> held(left);
      for (std::size_t at = 0; at < held.size();) {
        const ssize_t got = ::read(pipe.reader(), held.data() + at, held.size() - at);
        if (got <= 0) return std::unexpected(io::last_error());
        at += static_cast<std::size_t>(got);
      }
      if (const auto written = to.write(held); !written) return std::unexpected(written.error());
      return copy_by_buffer(to, *socket, count, done + held.size());
    }
    if (error == EBADF && !to.is_open()) return io::closed_error();
    if (error != 0) return std::unexpected(std::error_code(error, std::generic_category()));
    done += static_cast<std::uint64_t>(*n);
  }
  return done;
}

}  // namespace weft::os
