#include "base/fatal.hpp"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <poll.h>
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

namespace {

// Returns: how many bytes the character at the beginning of `s` has, or 0 if that character must
// not be shown.
std::size_t printable_size(std::string_view s) noexcept {
  const auto byte = [s](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const std::size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || s.size() < size) return 0;
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  if (first == 0xc2 && byte(1) < 0xa0) return 0;  // controls, too
  if ((first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90)) return 0;  // too long
  if ((first == 0xed && byte(1) > 0x9f) || (first == 0xf4 && byte(1) > 0x8f)) return 0;  // none
  return size;
}

}  // namespace

text& text::printable(std::string_view s) noexcept {
  while (!s.empty()) {
    const std::size_t size = printable_size(s);
    if (size != 0) {
      *this << s.substr(0, size);
    } else if (s[0] == '\n') {
      *this << "\\n";
    } else if (s[0] == '\t') {
      *this << "\\t";
    } else {
      constexpr std::string_view digits = "0123456789abcdef";
      const auto byte = static_cast<unsigned char>(s[0]);
      *this << "\\x" << digits.substr(byte / 16, 1) << digits.substr(byte % 16, 1);
    }
    s.remove_prefix(size != 0 ? size : 1);
  }
  return *this;
}

void write_stderr(std::string_view s) noexcept {
  while (!s.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, s.data(), s.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // nobody reads stderr
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

void warn_or_drop(std::string_view message) noexcept {
  const int saved = errno;
  pollfd now{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&now, 1, 0) > 0) warn(message);
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
  // If the hook fails, its thread comes back here: then the hook does not run again.
  if (const fatal_hook describe = hook.exchange(nullptr, std::memory_order_acquire))
    describe();  // [FH1]
  exit_process();
}

void set_fatal_hook(fatal_hook h) noexcept { hook.store(h, std::memory_order_release); }  // [FH1]

}  // namespace weft::base
