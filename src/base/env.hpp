// env.hpp: what the user sets from outside, by environment variables.
//
//   WEFT_MAXPROCS  how many processors; a positive number
//   WEFT_STACK     default reserve of a goroutine's stack: bytes, or a number with k, m or g
//   WEFT_DEBUG     comma-separated key=value, see `settings`; schedtrace and scheddetail are known
//                  keys, but do nothing yet
//
// A program must not fail because of a typing error in its environment. A value that makes no sense
// is reported in one line on stderr, and the default is used.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace weft::base {

// How the page below a stack is made to fault.
enum class guard_setting : std::uint8_t {
  automatic,  // the cheapest way this kernel and this build support
  madvise,    // MADV_GUARD_INSTALL, which costs no mapping
  mprotect,   // PROT_NONE pages, two mappings each
  none,       // no guards
};

struct settings {
  int max_procs = 0;            // 0: not set; then as many as this process may use CPUs
  std::size_t stack_bytes = 0;  // 0: not set; else between stack_bytes_min and stack_bytes_max

  guard_setting guard = guard_setting::automatic;  // guard=madvise|mprotect|none
  bool async_preempt_off = false;                  // asyncpreemptoff=1
  int preempt_signal = 0;                          // preemptsignal=23; 0: the runtime chooses
  std::chrono::nanoseconds slice{std::chrono::milliseconds{10}};  // slice=10ms
  std::chrono::nanoseconds stall{0};                              // stall=50ms; 0: no reports
  bool io_uring = true;                                           // iouring=0
  std::optional<std::uint64_t> seed;  // seed=42, also 0x2a; not set: a random one

  bool operator==(const settings&) const = default;
};

inline constexpr std::size_t stack_bytes_min = std::size_t{16} << 10;
inline constexpr std::size_t stack_bytes_max = std::size_t{1} << 30;

// Receives the complaints about values that make no sense: one call per bad item, with one line
// without its line end. All items that do nothing yet cause one call.
struct warn_sink {
  void (*line)(void* context, std::string_view message) noexcept;
  void* context;
};

// Returns: the settings these three values ask for. An empty value is a variable that is not set.
settings parse(std::string_view max_procs, std::string_view stack, std::string_view debug,
               warn_sink sink) noexcept;

// Reads the environment; warnings go to stderr. The first call counts, later ones do nothing.
// Requires: no other thread calls load_env() or env() at the same time.
void load_env() noexcept;

// Returns: what load_env() read; the defaults before that.
const settings& env() noexcept;

}  // namespace weft::base
