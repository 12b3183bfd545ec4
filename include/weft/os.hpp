// weft/os.hpp: files, pipes and signals. A slow disk never stalls a processor, and neither does a
// pipe that nobody writes to.
//
// Nothing here throws on an I/O error: results are expected<T> or an error code. A `file` is
// move-only and its destructor closes; goroutines share one by reference. Any number of them may
// use one at the same time: what reads or writes at the file's position is serialised, a whole
// write is never torn by another; pread and pwrite run beside each other. One that was moved from,
// or made by default, is closed.
//
// What weft/net.hpp says of time-outs and of SIGPIPE holds here, too; but a write of a file to
// descriptor 1 or 2 that nobody reads ends the process, as a filter's should.
#pragma once

#include <weft/chan.hpp>
#include <weft/context.hpp>
#include <weft/detail/config.hpp>
#include <weft/net.hpp>
#include <weft/time.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

namespace weft::os {

class file_core;
struct file_core_deleter {
  WEFT_API void operator()(file_core* c) const noexcept;
};

enum class seek_from : std::uint8_t { begin, current, end };

class file {
 public:
  file() noexcept = default;

  // Takes the ownership of a descriptor, also on failure. Its mode is left as it is, because other
  // processes may share it: calls on a terminal or pipe that blocks wait for the poller first. (A
  // terminal that has been stopped keeps a writer in the kernel all the same, beyond the reach of
  // deadlines and close().)
  //
  // The standard streams are had by it: adopt(STDIN_FILENO) closes descriptor 0 in the end,
  // adopt(::dup(STDIN_FILENO)) only its copy. They may be anything: one that is a regular file or
  // /dev/null has no deadlines.
  [[nodiscard]] WEFT_API static expected<file> adopt(int fd);

  // Reads at the file's position, which moves on. From a disk: all that is asked for, unless the
  // file ends first; from a pipe or terminal: what there is, and waits if there is nothing.
  // Returns: 0 at the end. (An empty span reads 0 and means nothing.)
  [[nodiscard]] WEFT_API expected<std::size_t> read(std::span<std::byte> into);
  // Writes all of it. Returns: its size, or an error: then a part may have been written. (How much,
  // the position tells, but not of a pipe or terminal.)
  [[nodiscard]] WEFT_API expected<std::size_t> write(std::span<const std::byte> from);
  // The same at any place; the file's position stays.
  [[nodiscard]] WEFT_API expected<std::size_t> pread(std::span<std::byte> into,
                                                     std::uint64_t offset);
  [[nodiscard]] WEFT_API expected<std::size_t> pwrite(std::span<const std::byte> from,
                                                      std::uint64_t offset);

  // Reads into a std::string or chars, and writes text; of a literal or a char array, what is
  // before a NUL.
  [[nodiscard]] expected<std::size_t> read(io::text_room into) { return read(into.bytes()); }
  [[nodiscard]] expected<std::size_t> write(io::text from) { return write(from.bytes()); }
  [[nodiscard]] expected<std::size_t> pread(io::text_room into, std::uint64_t offset) {
    return pread(into.bytes(), offset);
  }
  [[nodiscard]] expected<std::size_t> pwrite(io::text from, std::uint64_t offset) {
    return pwrite(from.bytes(), offset);
  }

  // Return when the disk has it.
  [[nodiscard]] WEFT_API std::error_code fsync();
  [[nodiscard]] WEFT_API std::error_code fdatasync();

  [[nodiscard]] WEFT_API expected<std::uint64_t> size() const;
  [[nodiscard]] WEFT_API std::error_code truncate(std::uint64_t size);
  // Returns: the new position.
  [[nodiscard]] WEFT_API expected<std::uint64_t> seek(std::int64_t offset,
                                                      seek_from whence = seek_from::begin);

  // From then on, calls that would wait return errc::timed_out, also those that wait already. {}:
  // for ever. Returns: std::errc::operation_not_supported for a file that is never waited for (on a
  // disk, or /dev/null).
  [[nodiscard]] WEFT_API std::error_code set_deadline(clock::time_point when);
  [[nodiscard]] WEFT_API std::error_code set_read_deadline(clock::time_point when);
  [[nodiscard]] WEFT_API std::error_code set_write_deadline(clock::time_point when);
  // The same, so long from now.
  template <class Rep, class Period>
  [[nodiscard]] std::error_code set_deadline(std::chrono::duration<Rep, Period> d) {
    return set_deadline(io::from_now(d));
  }
  template <class Rep, class Period>
  [[nodiscard]] std::error_code set_read_deadline(std::chrono::duration<Rep, Period> d) {
    return set_read_deadline(io::from_now(d));
  }
  template <class Rep, class Period>
  [[nodiscard]] std::error_code set_write_deadline(std::chrono::duration<Rep, Period> d) {
    return set_write_deadline(io::from_now(d));
  }

  // Wakes every goroutine that waits for a pipe or terminal, which returns errc::closed. A call
  // that a disk works on is completed, and the descriptor closed after it. Returns: errc::closed if
  // it was closed already.
  [[nodiscard]] WEFT_API std::error_code close();
  WEFT_API bool is_open() const noexcept;
  // The kernel's descriptor, or -1. It stays the file's.
  WEFT_API int native_handle() const noexcept;

 private:
  friend struct file_access;
  explicit file(std::unique_ptr<file_core, file_core_deleter> c) noexcept : core_(std::move(c)) {}

  std::unique_ptr<file_core, file_core_deleter> core_;
};

// flags: O_RDONLY and so on of <fcntl.h>; O_CLOEXEC is always added. mode: mode_t.
[[nodiscard]] WEFT_API expected<file> open(std::string_view path, int flags, unsigned mode = 0666);
// The same for a std::filesystem::path.
template <class Path>
  requires requires(const Path& p) {
    { p.native() } -> std::convertible_to<std::string_view>;
  }
[[nodiscard]] expected<file> open(const Path& path, int flags, unsigned mode = 0666) {
  return open(std::string_view(path.native()), flags, mode);
}

// Returns: the end to read from, and the end to write to.
[[nodiscard]] WEFT_API expected<std::pair<file, file>> pipe();

// How files on a disk are read when they are not in memory, and synchronised: "io_uring" or
// "blocking calls". Where io_uring is to be had it is used; WEFT_DEBUG=iouring=0 switches it off.
WEFT_API std::string_view file_backend();

// Copies inside the kernel, from the file's position on, until the file ends or `count` bytes have
// been copied. Returns: how many bytes, or an error: then that is not known, but where the kernel
// can copy, from files on disks, the position stands behind what has been sent.
[[nodiscard]] WEFT_API expected<std::uint64_t> copy(
    net::conn& to, file& from, std::uint64_t count = std::numeric_limits<std::uint64_t>::max());
// Copies from a connection to a file, until the end of the stream. After an error the position of a
// file on a disk stands behind what has been written; what had been read beyond it is lost.
[[nodiscard]] WEFT_API expected<std::uint64_t> copy(
    file& to, net::conn& from, std::uint64_t count = std::numeric_limits<std::uint64_t>::max());
// Copies from file to file, from position to position; where the file system can share the data of
// two files, it does. A file is copied to a later place of its own, by two handles, up to where it
// ended when the copy began. Returns: an error as those of reading and writing: then the positions
// of both stand behind what has been copied, on disks; std::errc::invalid_argument if a file would
// be copied over what is still to be read.
[[nodiscard]] WEFT_API expected<std::uint64_t> copy(
    file& to, file& from, std::uint64_t count = std::numeric_limits<std::uint64_t>::max());

// Each of these signals is sent to the channel, from now on, in addition to what the channel and
// others get already. Nothing waits for the channel: what does not fit is dropped, so give it room
// for one of each kind. The same signal several times in a row may count as one.
//
// No signals: all but those that mean a fault (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS,
// SIGABRT) and the one that the runtime uses. Named, these are delivered as far as others send
// them; a fault stays one. Throws: std::invalid_argument for a nil channel, SIGKILL, SIGSTOP or
// what is no signal; std::system_error if there is no thread to be had for it; std::logic_error in
// a bubble or an exploration (weft/test.hpp), and for a channel that was made in one.
WEFT_API void notify(chan<int> c, std::initializer_list<int> signals);

// The channel gets no more signals when this returns. A signal that nobody wants any more does
// again what it did before; one that arrives meanwhile is either delivered or does that.
WEFT_API void stop(const chan<int>& c);

// The cause of a context that a signal has cancelled; its code is errc::canceled.
class WEFT_API signal_received : public std::system_error {
 public:
  explicit signal_received(int signal);
  int signal() const noexcept { return signal_; }

 private:
  int signal_;
};

// Gives up what notify_context asked for, and cancels its context. A copy does the same.
class stop_function {
 public:
  WEFT_API void operator()() const;

  // For notify_context.
  stop_function(std::uint64_t id, cancel_function c) noexcept : id_(id), cancel_(std::move(c)) {}

 private:
  std::uint64_t id_;
  cancel_function cancel_;
};

// auto [ctx, stop] = notify_context(parent, {SIGINT, SIGTERM});
struct [[nodiscard]] signal_context {
  context ctx;
  stop_function stop;
};

// A context that ends when one of these signals comes. The second one, too, is caught, until stop()
// is called. Throws: as notify.
WEFT_API signal_context notify_context(const context& parent, std::initializer_list<int> signals);

}  // namespace weft::os
