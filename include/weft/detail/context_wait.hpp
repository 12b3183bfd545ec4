// context_wait.hpp: waits that a context may end, for headers that need no more of it.
#pragma once

#include <weft/detail/config.hpp>
#include <weft/detail/interruption.hpp>
#include <weft/detail/park.hpp>
#include <weft/detail/patience.hpp>

#include <cstdint>
#include <system_error>
#include <utility>

namespace weft {
class context;
}

namespace weft::detail {

class chan_core;
class context_core;

// What waits for a context to end.
struct context_watcher {
  enum class kind : std::uint8_t { child, function, interruption };
  explicit context_watcher(kind k) noexcept : what(k) {}

  const kind what;
  bool linked = false;                  // guarded by the lock of the node that is watched
  context_watcher* next = nullptr;      // the same
  context_watcher* previous = nullptr;  // the same
};

// Lets a context end the waits of one blocking call. Requires: the context outlives it.
class WEFT_API context_interruption final : public basic_interruption<seam, context_core>,
                                            public context_watcher {
 public:
  explicit context_interruption(const context& c) noexcept;
  ~context_interruption();

  bool park(void* who, bool (*give_up)(void*), void* argument) noexcept override;

 private:
  context_core* const watched_;  // null: never ends
  bool watching_ = false;
};

// Waits for that, on behalf of a nil channel. Returns: c.err().
WEFT_API std::error_code wait_for_end(const context& c, wait_reason reason);

// Returns: c.err().
WEFT_API std::error_code error_of(const context& c) noexcept;

// Calls wait(patience), which returns false if `c` came first. Returns: the context's error then,
// or if it had ended before.
template <class Wait>
std::error_code wait_with(const context& c, Wait&& wait) {
  if (const std::error_code ended = error_of(c)) return ended;
  context_interruption interruption(c);
  return std::forward<Wait>(wait)(patience(interruption)) ? std::error_code() : error_of(c);
}

}  // namespace weft::detail
