// env.cpp: the grammar of the environment variables.
//
// Everything is parsed out of string_views into plain values: no allocation, no locale, no
// exceptions, because this runs when the runtime starts, inside the program's first call of weft,
// wherever that may be.
#include "base/env.hpp"

#include "base/fatal.hpp"

#include <climits>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <utility>

namespace weft::base {

namespace {

using namespace std::chrono_literals;

constexpr std::chrono::nanoseconds period_max = 1h;
constexpr std::size_t shown_max = 64;  // longer values are cut in a warning

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

char to_lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool is_space(char c) noexcept { return c == ' ' || (c >= '\t' && c <= '\r'); }

std::string_view trim(std::string_view s) noexcept {
  while (!s.empty() && is_space(s.front())) s.remove_prefix(1);
  while (!s.empty() && is_space(s.back())) s.remove_suffix(1);
  return s;
}

bool equal_no_case(std::string_view a, std::string_view lower) noexcept {
  if (a.size() != lower.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (to_lower(a[i]) != lower[i]) return false;
  }
  return true;
}

// Removes the decimal number at the start of `s`. Returns: that number; nothing if there is none or
// it is too big.
std::optional<std::uint64_t> take_number(std::string_view& s) noexcept {
  if (s.empty() || !is_digit(s.front())) return std::nullopt;
  std::uint64_t n = 0;
  while (!s.empty() && is_digit(s.front())) {
    const auto digit = static_cast<std::uint64_t>(s.front() - '0');
    if (__builtin_mul_overflow(n, std::uint64_t{10}, &n) || __builtin_add_overflow(n, digit, &n)) {
      return std::nullopt;
    }
    s.remove_prefix(1);
  }
  return n;
}

std::optional<std::uint64_t> whole_number(std::string_view s) noexcept {
  const auto n = take_number(s);
  return s.empty() ? n : std::nullopt;
}

std::optional<std::uint64_t> hex_number(std::string_view s) noexcept {
  if (s.empty() || s.size() > 16) return std::nullopt;
  std::uint64_t n = 0;
  for (const char raw : s) {
    const char c = to_lower(raw);
    if (is_digit(c)) {
      n = n << 4 | static_cast<std::uint64_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      n = n << 4 | static_cast<std::uint64_t>(c - 'a' + 10);
    } else {
      return std::nullopt;
    }
  }
  return n;
}

std::optional<bool> flag(std::string_view s) noexcept {
  if (s == "1") return true;
  if (s == "0") return false;
  return std::nullopt;
}

// A number with its unit, longer than nothing; without a unit, milliseconds.
std::optional<std::chrono::nanoseconds> period(std::string_view s) noexcept {
  const auto n = take_number(s);
  if (!n || *n == 0) return std::nullopt;
  std::uint64_t unit_ns = 0;
  if (s.empty() || equal_no_case(s, "ms")) {
    unit_ns = 1'000'000;
  } else if (equal_no_case(s, "ns")) {
    unit_ns = 1;
  } else if (equal_no_case(s, "us")) {
    unit_ns = 1'000;
  } else if (equal_no_case(s, "s")) {
    unit_ns = 1'000'000'000;
  } else {
    return std::nullopt;
  }
  std::uint64_t total = 0;
  if (__builtin_mul_overflow(*n, unit_ns, &total)) return std::nullopt;
  if (total > static_cast<std::uint64_t>(period_max.count())) return std::nullopt;
  return std::chrono::nanoseconds{static_cast<std::int64_t>(total)};
}

// A byte count with an optional k, m or g. A number that overflows counts as one that is too big.
std::optional<std::uint64_t> bytes(std::string_view s) noexcept {
  const std::string_view all = s;
  auto n = take_number(s);
  if (!n) {
    // The digits overflowed: still a number, so the caller's upper bound applies to it.
    s = all;
    while (!s.empty() && is_digit(s.front())) s.remove_prefix(1);
    if (s.size() == all.size()) return std::nullopt;
    n = std::numeric_limits<std::uint64_t>::max();
  }
  unsigned shift = 0;
  if (equal_no_case(s, "k")) {
    shift = 10;
  } else if (equal_no_case(s, "m")) {
    shift = 20;
  } else if (equal_no_case(s, "g")) {
    shift = 30;
  } else if (!s.empty()) {
    return std::nullopt;
  }
  if (*n > std::numeric_limits<std::uint64_t>::max() >> shift) {
    return std::numeric_limits<std::uint64_t>::max();
  }
  return *n << shift;
}

// Signals that a program may lend us for preemption. The others cannot be caught, belong to the C
// library (32 and 33), or mean a fault or a dump that the runtime reports itself.
bool usable_signal(std::uint64_t n) noexcept {
  if (n < 1 || n > 64 || n == 32 || n == 33) return false;
  switch (static_cast<int>(n)) {
    case SIGKILL:
    case SIGSTOP:
    case SIGSEGV:
    case SIGBUS:
    case SIGILL:
    case SIGFPE:
    case SIGTRAP:
    case SIGABRT:
    case SIGQUIT:
      return false;
    default:
      return true;
  }
}

// Adds a value from the user in quotes, cut to a reasonable length on one line.
void quote(text& message, std::string_view value) noexcept {
  message << "\"";
  const std::string_view shown = value.substr(0, shown_max);
  for (const char& c : shown) {
    const auto code = static_cast<unsigned char>(c);
    message << (code < 0x20 || code == 0x7f ? std::string_view{"?"} : std::string_view{&c, 1});
  }
  message << (shown.size() < value.size() ? "...\"" : "\"");
}

class parser {
 public:
  explicit parser(warn_sink sink) noexcept : sink_(sink) {}

  void max_procs(std::string_view value) noexcept {
    const auto n = whole_number(value);
    if (n && *n >= 1 && *n <= INT_MAX) {
      result_.max_procs = static_cast<int>(*n);
    } else {
      bad("WEFT_MAXPROCS", value, "is not a positive number; using the number of CPUs");
    }
  }

  void stack(std::string_view value) noexcept {
    const auto n = bytes(value);
    if (!n || *n == 0) {
      bad("WEFT_STACK", value, "is not a size such as 65536, 64k or 1m; using the default");
    } else if (*n < stack_bytes_min) {
      result_.stack_bytes = stack_bytes_min;
      bad("WEFT_STACK", value, "is too small; using 16k");
    } else if (*n > stack_bytes_max) {
      result_.stack_bytes = stack_bytes_max;
      bad("WEFT_STACK", value, "is too large; using 1g");
    } else {
      result_.stack_bytes = static_cast<std::size_t>(*n);
    }
  }

  void debug(std::string_view list) noexcept {
    while (!list.empty()) {
      const std::size_t comma = list.find(',');
      const std::string_view item = trim(list.substr(0, comma));
      list = comma == std::string_view::npos ? std::string_view{} : list.substr(comma + 1);
      if (!item.empty()) debug_item(item);  // an extra comma is not worth a warning
    }
  }

  const settings& result() const noexcept { return result_; }

 private:
  // Later items win over earlier ones. A key alone means key=1.
  void debug_item(std::string_view item) noexcept {
    const std::size_t equals = item.find('=');
    const std::string_view key = trim(item.substr(0, equals));
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view{"1"} : trim(item.substr(equals + 1));

    if (key == "guard") {
      guard(item, value);
    } else if (key == "schedtrace" || key == "scheddetail") {
      if (!std::exchange(told_of_idle_key_, true)) {
        bad("WEFT_DEBUG", item, "is ignored: schedtrace and scheddetail do nothing yet");
      }
    } else if (key == "asyncpreemptoff") {
      set_flag(item, value, result_.async_preempt_off);
    } else if (key == "preemptsignal") {
      const auto n = whole_number(value);
      if (n && usable_signal(*n)) {
        result_.preempt_signal = static_cast<int>(*n);
      } else {
        bad("WEFT_DEBUG", item, "is not a signal that can serve; item ignored");
      }
    } else if (key == "slice") {
      set_period(item, value, result_.slice);
    } else if (key == "stall") {
      set_period(item, value, result_.stall);
    } else if (key == "iouring") {
      set_flag(item, value, result_.io_uring);
    } else if (key == "seed") {
      const bool hex = value.size() > 2 && value[0] == '0' && to_lower(value[1]) == 'x';
      const auto n = hex ? hex_number(value.substr(2)) : whole_number(value);
      if (n) {
        result_.seed = n;
      } else {
        bad("WEFT_DEBUG", item, "is not a number of 64 bits; item ignored");
      }
    } else {
      bad("WEFT_DEBUG", item, "is not a known key; item ignored");
    }
  }

  void guard(std::string_view item, std::string_view value) noexcept {
    if (value == "madvise") {
      result_.guard = guard_setting::madvise;
    } else if (value == "mprotect") {
      result_.guard = guard_setting::mprotect;
    } else if (value == "none") {
      result_.guard = guard_setting::none;
    } else {
      bad("WEFT_DEBUG", item, "is not madvise, mprotect or none; item ignored");
    }
  }

  void set_flag(std::string_view item, std::string_view value, bool& target) noexcept {
    if (const auto on = flag(value)) {
      target = *on;
    } else {
      bad("WEFT_DEBUG", item, "is not 0 or 1; item ignored");
    }
  }

  void set_period(std::string_view item, std::string_view value,
                  std::chrono::nanoseconds& target) noexcept {
    if (const auto p = period(value)) {
      target = *p;
    } else {
      bad("WEFT_DEBUG", item, "is not a duration such as 500us or 10ms, up to 1h; item ignored");
    }
  }

  void bad(std::string_view variable, std::string_view value, std::string_view verdict) noexcept {
    text message;
    message << variable << ": ";
    quote(message, value);
    message << " " << verdict;
    sink_.line(sink_.context, message.view());
  }

  warn_sink sink_;
  settings result_;
  bool told_of_idle_key_ = false;  // of schedtrace or scheddetail
};

std::string_view variable(const char* name) noexcept {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view{value};
}

constinit settings loaded;  // immutable after load_env()
constinit bool is_loaded = false;

}  // namespace

settings parse(std::string_view max_procs, std::string_view stack, std::string_view debug,
               warn_sink sink) noexcept {
  parser p{sink};
  if (const auto value = trim(max_procs); !value.empty()) p.max_procs(value);
  if (const auto value = trim(stack); !value.empty()) p.stack(value);
  p.debug(debug);
  return p.result();
}

void load_env() noexcept {
  if (is_loaded) return;
  is_loaded = true;
  const warn_sink to_stderr{
      [](void*, std::string_view message) noexcept { warn(message); },
      nullptr,
  };
  loaded =
      parse(variable("WEFT_MAXPROCS"), variable("WEFT_STACK"), variable("WEFT_DEBUG"), to_stderr);
}

const settings& env() noexcept { return loaded; }

}  // namespace weft::base
