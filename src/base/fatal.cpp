#include "base/fatal.hpp"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <unistd.h>

namespace weft::base {
namespace {

std::atomic<fatal_hook> hook{nullptr};

// The thread whose report ends the process; 0 while there is none.
std::atomic<pid_t> speaker{0};

}  // namespace

text& text::operator<<(std::string_view s) noexcept {
  const std::size_t room = sizeof buffer_ - 1 - size_;
  const std::size_t n = s.size() < room ? s.size() : room;
  std::memcpy(buffer_ + size_, s.data(), n);
  size_ += n;
  return *this;
}

text& text::operator<<(std::uint64_t n) noexcept {
  char digits[20];
  std::size_t at = sizeof digits;
  do {
    digits[--at] = static_cast<char>('0' + n % 10);
    n /= 10;
  } while (n != 0);
  return *this << std::string_view(digits + at, sizeof digits - at);
}

text& text::operator<<(std::int64_t n) noexcept {
  if (n >= 0) return *this << static_cast<std::uint64_t>(n);
  return *this << "-" << (~static_cast<std::uint64_t>(n) + 1);
}

text& text::hex(std::uint64_t n) noexcept {
  char digits[16];
  std::size_t at = sizeof digits;
  do {
    digits[--at] = "0123456789abcdef"[n % 16];
    n /= 16;
  } while (n != 0);
  return *this << "0x" << std::string_view(digits + at, sizeof digits - at);
}

void write_stderr(std::string_view s) noexcept {
  while (!s.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, s.data(), s.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // there is nobody left to tell
    s.remove_prefix(static_cast<std::size_t>(n));
  }
}

void warn(std::string_view message) noexcept {
  const int saved = errno;
  text line;
  line << "weft: " << message << "\n";
  write_stderr(line.view());
  errno = saved;
}

void begin_last_words() noexcept {
  const pid_t self = ::gettid();
  pid_t nobody = 0;
  // relaxed: the id alone decides; nothing is published through it.
  if (speaker.compare_exchange_strong(nobody, self, std::memory_order_relaxed) || nobody == self) {
    return;
  }
  for (;;) ::pause();
}

bool last_words_begun() noexcept { return speaker.load(std::memory_order_relaxed) != 0; }

void await_last_words() noexcept {
  const pid_t who = speaker.load(std::memory_order_relaxed);
  if (who == 0 || who == ::gettid()) return;
  for (;;) ::pause();
}

void exit_process() noexcept { ::_exit(2); }

void fatal(std::string_view message) noexcept {
  begin_last_words();
  text line;
  line << "weft: fatal: " << message << "\n";
  write_stderr(line.view());
  // A failure inside the hook comes back here on the same thread: then the hook is not run again.
  if (const fatal_hook describe = hook.exchange(nullptr, std::memory_order_acquire)) describe();
  exit_process();
}

void set_fatal_hook(fatal_hook h) noexcept { hook.store(h, std::memory_order_release); }

}  // namespace weft::base
