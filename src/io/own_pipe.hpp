// own_pipe.hpp: a pipe through which splice moves data between descriptors inside the kernel.
#pragma once

#include <cerrno>
#include <cstddef>
#include <fcntl.h>
#include <span>
#include <unistd.h>
#include <utility>

namespace weft::io {

// Both ends are non-blocking.
class own_pipe {
 public:
  // Makes a pipe with room for that many bytes if the system allows it; 0: the usual size. Large
  // pipes are limited: a user may have 64 MiB of pipes in all, and beyond that each pipe has two
  // pages.
  explicit own_pipe(std::size_t room = 0) noexcept {
    if (::pipe2(ends_, O_CLOEXEC | O_NONBLOCK) != 0 || room == 0) return;
    (void)::fcntl(ends_[1], F_SETPIPE_SZ, static_cast<int>(room));
  }
  own_pipe(const own_pipe&) = delete;
  own_pipe& operator=(const own_pipe&) = delete;
  ~own_pipe() { close(); }
  void close() noexcept {
    if (ends_[0] < 0) return;
    ::close(std::exchange(ends_[0], -1));
    ::close(std::exchange(ends_[1], -1));
  }
  // If not, errno says why.
  bool is_there() const noexcept { return ends_[0] >= 0; }
  int reader() const noexcept { return ends_[0]; }
  int writer() const noexcept { return ends_[1]; }

  // Takes that much of what is in it out again. Returns: an errno, or 0. Not inlined: see
  // io::last_errno().
  [[gnu::noinline]] int take_back(std::span<std::byte> into) const noexcept {
    while (!into.empty()) {
      const ssize_t n = ::read(reader(), into.data(), into.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return n < 0 ? errno : EIO;
      into = into.subspan(static_cast<std::size_t>(n));
    }
    return 0;
  }

 private:
  int ends_[2] = {-1, -1};
};

}  // namespace weft::io
