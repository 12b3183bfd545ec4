// fatal.hpp: how the process ends when it cannot go on, and how the runtime speaks on stderr.
//
// Everything here may be called from a signal handler, from inside the runtime and with any lock
// held: the functions format into a buffer on the stack and write with write(2).
//
// Memory order:
//   [FH1] set_fatal_hook's release -> fatal's acquire: the state that the hook reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weft::base {

// One piece of text for stderr, built without allocating. What does not fit is cut off.
class text {
 public:
  text& operator<<(std::string_view s) noexcept;
  text& operator<<(std::uint64_t n) noexcept;
  text& operator<<(std::int64_t n) noexcept;
  text& operator<<(int n) noexcept { return *this << static_cast<std::int64_t>(n); }
  text& operator<<(unsigned n) noexcept { return *this << static_cast<std::uint64_t>(n); }
  text& hex(std::uint64_t n) noexcept;  // with 0x
  // Text from the user or a client: control characters and invalid UTF-8 appear as \n, \t or
  // \x1b.
  text& printable(std::string_view s) noexcept;

  std::string_view view() const noexcept { return {buffer_, size_}; }
  const char* c_str() noexcept {
    buffer_[size_] = '\0';
    return buffer_;
  }
  void clear() noexcept { size_ = 0; }

 private:
  char buffer_[1024];
  std::size_t size_ = 0;
};

// Writes all of `s` to stderr.
void write_stderr(std::string_view s) noexcept;

// Writes the line "weft: <message>" to stderr.
void warn(std::string_view message) noexcept;
// Like warn(), but drops the line if stderr cannot take it at once: no goroutine waits for a log
// that is not read.
void warn_or_drop(std::string_view message) noexcept;

// Prints "weft: fatal: <message>", lets the hook describe the goroutines, and exits with status 2.
[[noreturn]] void fatal(std::string_view message) noexcept;

// Ends the process with status 2 at once: no destructors, no atexit handlers. If several threads
// call this at the same time, the first one ends the process and the others wait for that.
[[noreturn]] void exit_process() noexcept;

// What fatal() calls after its message; set once by the scheduler, which knows the goroutines.
using fatal_hook = void (*)() noexcept;
void set_fatal_hook(fatal_hook hook) noexcept;

// Claims the right to print a report that ends the process. Returns for the first caller only (and
// for that same thread again); every other thread sleeps for ever, so that reports do not mix.
void begin_last_words() noexcept;

// Returns: whether some thread has begun its last words. That thread may do what is forbidden
// inside the runtime, because no other thread goes on that would have to wait for it.
bool last_words_begun() noexcept;

// Sleeps for ever if another thread has begun its last words: that thread ends the process.
void await_last_words() noexcept;

}  // namespace weft::base
