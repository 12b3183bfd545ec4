// weft/os.hpp: files, pipes and signals. Neither a slow disk nor a pipe without a writer ever
// stalls a processor.
//
// No call here throws on an I/O error: results are expected<T> or an error code. A `file` is
// move-only and its destructor closes it; goroutines share a file by reference. Any number of
// goroutines may use one file at the same time. Calls that read or write at the file's position are
// serialised, so a write is never mixed with another; pread and pwrite run concurrently. A file
// that was moved from, or default-constructed, is closed.
//
// What weft/net.hpp says of time-outs and of SIGPIPE holds here, too. There is one exception: if a
// file's descriptor is 1 or 2 and leads to a pipe that nobody reads any more, a write ends the
// process, as users expect of a filter (`filter | head`).
//
// In a bubble or an exploration of weft/test.hpp a call that would have to wait for the kernel
// returns std::errc::operation_not_supported.
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

// The state behind a file. For weft itself.
class file_core;
struct file_core_deleter {
  WEFT_API void operator()(file_core* c) const noexcept;
};

// Where file::seek counts from.
enum class seek_from : std::uint8_t { begin, current, end };

// A file, a pipe or a terminal.
class file {
 public:
  file() noexcept = default;

  // Takes the ownership of a descriptor, also on failure. The mode of the descriptor stays as it
  // is, because other processes may share it: calls on a blocking terminal or pipe therefore wait
  // for the poller first. (A terminal that has been stopped still keeps a writer in the kernel,
  // where neither deadlines nor close() reach it.)
  //
  // Use adopt() for the standard streams: adopt(STDIN_FILENO) eventually closes descriptor 0;
  // adopt(::dup(STDIN_FILENO)) closes only the copy. A standard stream is not always a terminal or
  // a pipe: if it is a regular file or /dev/null, it has no deadlines.
  [[nodiscard]] WEFT_API static expected<file> adopt(int fd);

  // Reads at the file's position, and advances it. From a disk it reads all that is asked for,
  // unless the file ends first. From a pipe or terminal it reads what is there, and waits if there
  // is nothing. Returns: the number of bytes; 0 at the end. (Reading into an empty span also
  // returns 0, which then means nothing.)
  [[nodiscard]] WEFT_API expected<std::size_t> read(std::span<std::byte> into);
  // Writes all of `from`. Returns: its size, or an error. After an error a part may have been
  // written; the position tells how much, except for a pipe or terminal.
  [[nodiscard]] WEFT_API expected<std::size_t> write(std::span<const std::byte> from);
  // pread and pwrite read and write at `offset` and leave the file's position alone.
  [[nodiscard]] WEFT_API expected<std::size_t> pread(std::span<std::byte> into,
                                                     std::uint64_t offset);
  [[nodiscard]] WEFT_API expected<std::size_t> pwrite(std::span<const std::byte> from,
                                                      std::uint64_t offset);

  // Reads into a std::string or chars, and writes text. Of a literal or a char array only the part
  // before the first NUL is written.
  [[nodiscard]] expected<std::size_t> read(io::text_room into) { return read(into.bytes()); }
  [[nodiscard]] expected<std::size_t> write(io::text from) { return write(from.bytes()); }
  [[nodiscard]] expected<std::size_t> pread(io::text_room into, std::uint64_t offset) {
    return pread(into.bytes(), offset);
  }
  [[nodiscard]] expected<std::size_t> pwrite(io::text from, std::uint64_t offset) {
    return pwrite(from.bytes(), offset);
  }

  // fsync and fdatasync return when the data is on the disk.
  [[nodiscard]] WEFT_API std::error_code fsync();
  [[nodiscard]] WEFT_API std::error_code fdatasync();

  [[nodiscard]] WEFT_API expected<std::uint64_t> size() const;
  [[nodiscard]] WEFT_API std::error_code truncate(std::uint64_t size);
  // Returns: the new position.
  [[nodiscard]] WEFT_API expected<std::uint64_t> seek(std::int64_t offset,
                                                      seek_from whence = seek_from::begin);

  // From that time on, calls that would wait return errc::timed_out, and so do calls that wait
  // already. The time point {} means no deadline. Returns: std::errc::operation_not_supported for a
  // file on which calls never wait (on a disk, or /dev/null).
  [[nodiscard]] WEFT_API std::error_code set_deadline(clock::time_point when);
  [[nodiscard]] WEFT_API std::error_code set_read_deadline(clock::time_point when);
  [[nodiscard]] WEFT_API std::error_code set_write_deadline(clock::time_point when);
  // The same, with a duration from now.
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

  // Closes the file. Every goroutine that waits for a pipe or terminal is woken, and its call
  // returns errc::closed. A call on which a disk is working is completed, and the descriptor is
  // closed after it. Returns: errc::closed if the file was closed already.
  [[nodiscard]] WEFT_API std::error_code close();
  WEFT_API bool is_open() const noexcept;
  // Returns: the kernel's descriptor, or -1. The file keeps the ownership.
  WEFT_API int native_handle() const noexcept;

 private:
  friend struct file_access;
  explicit file(std::unique_ptr<file_core, file_core_deleter> c) noexcept : core_(std::move(c)) {}

  std::unique_ptr<file_core, file_core_deleter> core_;
};

// Opens a file. flags: O_RDONLY and so on of <fcntl.h>; O_CLOEXEC is always added. mode: mode_t.
[[nodiscard]] WEFT_API expected<file> open(std::string_view path, int flags, unsigned mode = 0666);
// Opens a file by its std::filesystem::path.
template <class Path>
  requires requires(const Path& p) {
    { p.native() } -> std::convertible_to<std::string_view>;
  }
[[nodiscard]] expected<file> open(const Path& path, int flags, unsigned mode = 0666) {
  return open(std::string_view(path.native()), flags, mode);
}

// Makes a pipe. Returns: the end to read from, and the end to write to.
[[nodiscard]] WEFT_API expected<std::pair<file, file>> pipe();

// Returns: how weft waits for a disk, to read data that is not in memory or to synchronise a file:
// "io_uring" or "blocking calls". io_uring is used where the kernel offers it;
// WEFT_DEBUG=iouring=0 switches it off.
WEFT_API std::string_view file_backend();

// Copies from the file's position on, until the file ends or `count` bytes have been copied. The
// kernel does it where it can; otherwise the data goes through a buffer. Returns: the number of
// bytes, or an error. After an error the number is unknown. But if the file is on a disk and the
// kernel does the copying, its position stands behind what has been sent.
[[nodiscard]] WEFT_API expected<std::uint64_t> copy(
    net::conn& to, file& from, std::uint64_t count = std::numeric_limits<std::uint64_t>::max());
// Copies from a connection to a file, until the end of the stream. After an error the position of a
// file on a disk stands behind what has been written; what had been read from the connection, but
// not written, is lost.
[[nodiscard]] WEFT_API expected<std::uint64_t> copy(
    file& to, net::conn& from, std::uint64_t count = std::numeric_limits<std::uint64_t>::max());
// Copies from file to file, from position to position. Where the file system can share data between
// two files, it does. With two handles, a part of a file can be copied to another place in the same
// file; the copy then ends where the file ended when the copy began. Returns: an error of reading
// or writing, after which the positions of both files, if they are on disks, stand behind what has
// been copied; std::errc::invalid_argument if the parts to read and to write overlap.
[[nodiscard]] WEFT_API expected<std::uint64_t> copy(
    file& to, file& from, std::uint64_t count = std::numeric_limits<std::uint64_t>::max());

// From now on, sends each of these signals to the channel, in addition to what this channel and
// others get already. Signals do not wait for room in the channel: a signal that does not fit is
// dropped, so make room for one of each kind. The same signal several times in a row may count as
// one.
//
// An empty list means all signals but those that report a fault (SIGSEGV, SIGBUS, SIGFPE, SIGILL,
// SIGTRAP, SIGSYS, SIGABRT) and the one that the runtime uses. A fault signal that is named is
// delivered if another process or thread sends it; a fault of the program itself stays a fault.
// Throws: std::invalid_argument for a nil channel, SIGKILL, SIGSTOP or a number that is no signal;
// std::system_error if the thread for signals cannot be made; std::logic_error in a bubble or an
// exploration (weft/test.hpp), and for a channel that was made in one.
WEFT_API void notify(chan<int> c, std::initializer_list<int> signals);

// When this returns, the channel gets no more signals. A signal that no channel wants any more does
// again what it did before notify. A signal that arrives during the call either is delivered or
// does what it did before.
WEFT_API void stop(const chan<int>& c);

// The cause of a context that a signal has cancelled; its code is errc::canceled.
class WEFT_API signal_received : public std::system_error {
 public:
  explicit signal_received(int signal);
  int signal() const noexcept { return signal_; }

 private:
  int signal_;
};

// Ends the watch that notify_context began, and cancels its context. A copy does the same.
class stop_function {
 public:
  WEFT_API void operator()() const;

  // Used by notify_context.
  stop_function(std::uint64_t id, cancel_function c) noexcept : id_(id), cancel_(std::move(c)) {}

 private:
  std::uint64_t id_;
  cancel_function cancel_;
};

// A context and the function that ends its watch: auto [ctx, stop] = notify_context(parent,
// {SIGINT, SIGTERM});
struct [[nodiscard]] signal_context {
  context ctx;
  stop_function stop;
};

// Makes a context below `parent` that ends when one of these signals comes. Later signals are
// caught, too, until stop() is called. Throws: as notify.
WEFT_API signal_context notify_context(const context& parent, std::initializer_list<int> signals);

}  // namespace weft::os
