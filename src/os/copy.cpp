// copy.cpp: between files and connections, inside the kernel where it can.
//
// Between files on disks: copy_file_range. To a connection: sendfile, whenever the socket has room.
// From one: splice into a pipe of our own, when there is something, and on into the file. Neither
// waits for the socket; the disk may have to be waited for in both, so they are announced. What the
// kernel cannot do that way (files that are no files, O_APPEND, some file systems), or does not any
// more, goes through a buffer.
//
// While a file is copied from, its position belongs to the copy. Writes of others may come in
// between the pieces. A copy from disk to disk holds both positions' locks, the one at the lower
// address first: another copy may go the other way, or a file be copied to itself.
#include "io/descriptor.hpp"
#include "io/own_pipe.hpp"
#include "io/refused.hpp"
#include "io/transfer.hpp"
#include "net/socket_access.hpp"
#include "os/file_core.hpp"
#include "sched/call.hpp"

#include <weft/os.hpp>

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <functional>
#include <mutex>
#include <optional>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace weft::os {
namespace {

constexpr std::uint64_t piece_max = std::uint64_t{1} << 20;
constexpr std::size_t buffer_bytes = std::size_t{64} << 10;

// Writes all of it. `left` becomes what was not written of it, as far as that can be told.
std::error_code write_from(io::descriptor& to, std::span<const std::byte> from,
                           std::size_t& /*left*/) {
  const expected<std::size_t> written = to.write(from);
  return written ? std::error_code() : written.error();
}
std::error_code write_from(file& to, std::span<const std::byte> from, std::size_t& left) {
  file_core* const core = file_access::of(to);
  if (core == nullptr) return errc::closed;
  if (core->what() != file_core::kind::disk) {
    const expected<std::size_t> written = core->write(from);
    return written ? std::error_code() : written.error();
  }
  std::size_t done = 0;
  const std::error_code e = core->write_counted(from, done);
  left = from.size() - done;
  return e;
}

// What the target has not taken can be read once more, from a disk.
void put_back(file& from, std::size_t left) {
  const file_core* const core = file_access::of(from);
  if (left == 0 || core == nullptr || core->what() != file_core::kind::disk) return;
  (void)from.seek(-static_cast<std::int64_t>(left), seek_from::current);
}
void put_back(const io::descriptor& /*from*/, std::size_t /*left*/) {}

template <class From, class To>
expected<std::uint64_t> copy_by_buffer(To& to, From& from, std::uint64_t count,
                                       std::uint64_t done) {
  if (done == count) return done;
  std::vector<std::byte> buffer(buffer_bytes);
  while (done < count) {
    const auto most = static_cast<std::size_t>(std::min<std::uint64_t>(count - done, buffer_bytes));
    const expected<std::size_t> n = from.read(std::span(buffer).first(most));
    if (!n) return std::unexpected(n.error());
    if (*n == 0) break;
    std::size_t left = 0;
    if (const std::error_code e = write_from(to, std::span(buffer).first(*n), left)) {
      put_back(from, left);
      return std::unexpected(e);
    }
    done += *n;
  }
  return done;
}

// Moves some of the socket's data into the pipe, which is empty. A splice does not pass urgent
// data: it says EAGAIN there, and 0 once the stream has ended, although more follows; a read passes
// it. Not inlined: see io::last_errno().
[[gnu::noinline]] ssize_t fill(const io::own_pipe& pipe, int socket, std::size_t most) noexcept {
  const ssize_t n =
      ::splice(socket, nullptr, pipe.writer(), nullptr, most, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
  if (n > 0 || (n < 0 && errno != EAGAIN)) return n;
  std::byte some[4096];  // an empty pipe takes that much at once
  const ssize_t m = io::receive(socket, some, std::min(most, sizeof some), 0);
  return m <= 0 ? m : ::write(pipe.writer(), some, static_cast<std::size_t>(m));
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

// Returns: how much of `count` there is to copy. That is all of it, unless the two are one file. A
// copy within one file ends where the file ends now; otherwise it might go on for ever, each piece
// behind the one before. Returns std::errc::invalid_argument if the two ranges overlap. Requires:
// both positions' locks.
expected<std::uint64_t> bound_within_one(const file_core& to, const file_core& from,
                                         std::uint64_t count) {
  struct stat source{};
  struct stat target{};
  if (::fstat(from.fd(), &source) != 0 || ::fstat(to.fd(), &target) != 0) return count;
  if (source.st_dev != target.st_dev || source.st_ino != target.st_ino) return count;
  const bool appends = &to != &from && (::fcntl(to.fd(), F_GETFL) & O_APPEND) != 0;
  const std::int64_t from_at = ::lseek(from.fd(), 0, SEEK_CUR);
  const std::int64_t to_at = appends ? target.st_size : ::lseek(to.fd(), 0, SEEK_CUR);
  const std::int64_t rest = std::max<std::int64_t>(source.st_size - from_at, 0);
  if (!S_ISREG(source.st_mode) || from_at < 0 || to_at < 0) {
    return &to != &from ? expected<std::uint64_t>(count)
                        : std::unexpected(std::make_error_code(std::errc::invalid_argument));
  }
  const auto most = static_cast<std::int64_t>(std::min<std::uint64_t>(count, INT64_MAX));
  const std::int64_t bounded = std::min(rest, most);
  if (to_at - from_at < bounded && from_at - to_at < bounded) {
    return std::unexpected(std::make_error_code(std::errc::invalid_argument));
  }
  return static_cast<std::uint64_t>(bounded);
}

// Copies at the files' positions, inside the kernel. `count` becomes what there is to copy, as far
// as that is known; `done` counts. Returns: nothing if the kernel does not do that for these two:
// the positions stand behind what is done, and the rest takes another way.
std::optional<expected<std::uint64_t>> copy_on_disk(file_core& to, file_core& from,
                                                    std::uint64_t& count, std::uint64_t& done) {
  const file_core::call reads(from);
  const file_core::call writes(to);
  if (!reads || !writes) return io::closed_error();
  mutex* const locks[] = {&from.read_lock(), &to.write_lock()};
  const std::unique_lock first(*std::min(locks[0], locks[1], std::less<>()));
  std::unique_lock second(*std::max(locks[0], locks[1], std::less<>()), std::defer_lock);
  if (locks[0] != locks[1]) second.lock();
  const expected<std::uint64_t> bounded = bound_within_one(to, from, count);
  if (!bounded) return bounded;
  count = *bounded;
  while (done < count) {
    const auto most = static_cast<std::size_t>(std::min(count - done, piece_max));
    const sched::short_call announced;
    const ssize_t n = ::copy_file_range(from.fd(), nullptr, to.fd(), nullptr, most, 0);
    const int error = n < 0 ? io::last_errno() : 0;
    if (error == EINTR) continue;
    // At the end, or one whose size the kernel does not know (in /proc); on two file systems, to
    // append, and so on. Reading and writing know better.
    if (n <= 0 && (done == 0 || io::is_refused(error))) return {};
    if (n < 0) return std::unexpected(std::error_code(error, std::generic_category()));
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
  std::uint64_t done = 0;
  if (source->what() == file_core::kind::disk && target->what() == file_core::kind::disk) {
    if (const auto copied = copy_on_disk(*target, *source, count, done)) return *copied;
  }
  return copy_by_buffer(to, from, count, done);
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
      if (!n && io::is_refused(n.error())) break;
      if (!n) return std::unexpected(n.error());
      if (*n == 0) return done;
      done += static_cast<std::uint64_t>(*n);
    }
  }
  return copy_by_buffer(*socket, from, count, done);
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
    const expected<ssize_t> n =
        socket->when_readable([&] { return fill(pipe, socket->fd(), most); });
    if (!n && io::is_refused(n.error())) return copy_by_buffer(to, *socket, count, done);
    if (!n) return std::unexpected(n.error());
    if (*n == 0) break;
    auto left = static_cast<std::size_t>(*n);
    const int error = drain(pipe, *target, left);
    if (io::is_refused(error)) {
      // What is in the pipe already takes the other way, and so does the rest.
      std::vector<std::byte> held(left);
      if (const int lost = pipe.take_back(held)) {
        return std::unexpected(std::error_code(lost, std::generic_category()));
      }
      if (const auto written = to.write(held); !written) return std::unexpected(written.error());
      return copy_by_buffer(to, *socket, count, done + static_cast<std::uint64_t>(*n));
    }
    if (error == EBADF && !to.is_open()) return io::closed_error();
    if (error != 0) return std::unexpected(std::error_code(error, std::generic_category()));
    done += static_cast<std::uint64_t>(*n);
  }
  return done;
}

}  // namespace weft::os
