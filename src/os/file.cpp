// file.cpp: opening files, and the handle's shell around file_core.hpp.
//
// The kind of a descriptor decides how it is used: see file_core.hpp. A file that is opened here is
// not shared, so it is made non-blocking if the poller can watch it. An adopted file keeps its
// mode.
#include <weft/os.hpp>

#include "io/sigpipe.hpp"
#include "os/file_core.hpp"
#include "os/ring.hpp"
#include "sched/call.hpp"

#include <cerrno>
#include <fcntl.h>
#include <string>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

namespace weft::os {
namespace {

using sched::poll_side;

enum class origin : std::uint8_t { ours, adopted };

// Whether the poller can watch this descriptor.
bool can_poll(int fd, mode_t mode) noexcept {
  if (S_ISREG(mode) || S_ISDIR(mode) || S_ISBLK(mode)) return false;
  if (S_ISFIFO(mode) || S_ISSOCK(mode)) return true;
  // Devices, and descriptors without a type: only the kernel knows.
  const int scratch = ::epoll_create1(EPOLL_CLOEXEC);
  if (scratch < 0) return false;
  epoll_event event{};
  event.events = EPOLLIN;
  const bool can = ::epoll_ctl(scratch, EPOLL_CTL_ADD, fd, &event) == 0;
  ::close(scratch);
  return can;
}

// Takes ownership of the descriptor, also on failure.
expected<file> make(int fd, origin from) {
  io::ignore_sigpipe();
  struct stat about{};
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fstat(fd, &about) != 0) {
    const std::error_code e = io::last_error();
    ::close(fd);
    return std::unexpected(e);
  }
  if (!can_poll(fd, about.st_mode)) {
    const bool is_disk = S_ISREG(about.st_mode) || S_ISBLK(about.st_mode);
    return file_access::make(new file_core(
        fd, is_disk ? file_core::kind::disk : file_core::kind::device,
        {.is_direct = (flags & O_DIRECT) != 0, .is_synchronous = (flags & O_DSYNC) != 0}));
  }
  const bool blocks = (flags & O_NONBLOCK) == 0;
  if (blocks && from == origin::ours) ::fcntl(fd, F_SETFL, flags | O_NONBLOCK);
  const auto kind =
      blocks && from == origin::adopted ? file_core::kind::blocking : file_core::kind::polled;
  // A pipe of packets (O_DIRECT) returns one packet at a time.
  const bool is_stream = S_ISFIFO(about.st_mode) && (flags & O_DIRECT) == 0;
  expected<io::descriptor_ptr> d = io::descriptor::adopt(
      fd, is_stream ? io::short_reads::mean_empty : io::short_reads::mean_nothing);
  if (!d) return std::unexpected(d.error());
  return file_access::make(new file_core(std::move(*d), kind));
}

// Calls `call`, which must not wait for long, if the file is open. Returns: its result.
template <class F>
expected<std::uint64_t> ask(file_core* c, F&& call) {
  if (c == nullptr) return io::closed_error();
  std::int64_t result = -1;
  std::error_code error;
  const auto announced = [&] {
    const sched::short_call a;
    do {
      result = call(c->fd());
    } while (result < 0 && errno == EINTR);
    if (result < 0) error = io::last_error();
    return 0;
  };
  if (io::descriptor* const d = c->polled()) {
    if (const std::error_code e = d->control(announced)) return std::unexpected(e);
  } else {
    const file_core::call in_flight(*c);
    if (!in_flight) return io::closed_error();
    announced();
  }
  if (error) return std::unexpected(error);
  return static_cast<std::uint64_t>(result);
}

std::error_code set_deadlines(file_core* c, std::initializer_list<poll_side> sides,
                              clock::time_point when) {
  if (c == nullptr || !c->is_open()) return errc::closed;
  if (c->polled() == nullptr) return std::make_error_code(std::errc::operation_not_supported);
  for (const poll_side s : sides) c->polled()->set_deadline(s, when);
  return {};
}

}  // namespace

void file_core_deleter::operator()(file_core* c) const noexcept { c->drop(); }

expected<file> open(std::string_view path, int flags, unsigned mode) {
  if (path.find('\0') != path.npos) {
    return std::unexpected(std::make_error_code(std::errc::invalid_argument));
  }
  const std::string name(path);
  int fd = -1;
  int error = 0;
  do {
    const sched::short_call announced;  // opening a FIFO may take for ever
    fd = ::open(name.c_str(), flags | O_CLOEXEC, mode);
    error = errno;
  } while (fd < 0 && error == EINTR);
  if (fd < 0) return std::unexpected(std::error_code(error, std::generic_category()));
  return make(fd, origin::ours);
}

expected<std::pair<file, file>> pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return std::unexpected(io::last_error());
  expected<file> reader = make(ends[0], origin::ours);
  expected<file> writer = make(ends[1], origin::ours);
  if (!reader) return std::unexpected(reader.error());
  if (!writer) return std::unexpected(writer.error());
  return std::pair(std::move(*reader), std::move(*writer));
}

expected<file> file::adopt(int fd) {
  if (fd < 0) return std::unexpected(std::make_error_code(std::errc::bad_file_descriptor));
  return make(fd, origin::adopted);
}

std::string_view file_backend() { return has_ring() ? "io_uring" : "blocking calls"; }

expected<std::size_t> file::read(std::span<std::byte> into) {
  return core_ != nullptr ? core_->read(into) : io::closed_error();
}

expected<std::size_t> file::write(std::span<const std::byte> from) {
  return core_ != nullptr ? core_->write(from) : io::closed_error();
}

expected<std::size_t> file::pread(std::span<std::byte> into, std::uint64_t offset) {
  return core_ != nullptr ? core_->pread(into, offset) : io::closed_error();
}

expected<std::size_t> file::pwrite(std::span<const std::byte> from, std::uint64_t offset) {
  return core_ != nullptr ? core_->pwrite(from, offset) : io::closed_error();
}

std::error_code file::fsync() {
  return core_ != nullptr ? core_->sync(file_core::syncs::everything) : errc::closed;
}

std::error_code file::fdatasync() {
  return core_ != nullptr ? core_->sync(file_core::syncs::data) : errc::closed;
}

expected<std::uint64_t> file::size() const {
  struct stat about{};
  const auto done = ask(core_.get(), [&](int fd) { return ::fstat(fd, &about); });
  if (!done) return std::unexpected(done.error());
  return static_cast<std::uint64_t>(about.st_size);
}

std::error_code file::truncate(std::uint64_t size) {
  if (size > INT64_MAX) return std::make_error_code(std::errc::file_too_large);
  const auto done =
      ask(core_.get(), [&](int fd) { return ::ftruncate(fd, static_cast<std::int64_t>(size)); });
  return done ? std::error_code() : done.error();
}

expected<std::uint64_t> file::seek(std::int64_t offset, seek_from whence) {
  if (core_ == nullptr) return io::closed_error();
  const int from = whence == seek_from::begin     ? SEEK_SET
                   : whence == seek_from::current ? SEEK_CUR
                                                  : SEEK_END;
  const std::lock_guard one(core_->read_lock());
  return ask(core_.get(), [&](int fd) { return ::lseek(fd, offset, from); });
}

std::error_code file::set_deadline(clock::time_point when) {
  return set_deadlines(core_.get(), {poll_side::in, poll_side::out}, when);
}

std::error_code file::set_read_deadline(clock::time_point when) {
  return set_deadlines(core_.get(), {poll_side::in}, when);
}

std::error_code file::set_write_deadline(clock::time_point when) {
  return set_deadlines(core_.get(), {poll_side::out}, when);
}

std::error_code file::close() { return core_ != nullptr ? core_->close() : errc::closed; }

bool file::is_open() const noexcept { return core_ != nullptr && core_->is_open(); }

int file::native_handle() const noexcept { return is_open() ? core_->fd() : -1; }

}  // namespace weft::os
