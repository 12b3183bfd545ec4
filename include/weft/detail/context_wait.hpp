// context_wait.hpp: waits that a context may end, for headers that need nothing else of a context.
#pragma once

#include <weft/detail/config.hpp>
#include <weft/detail/context_watcher.hpp>
#include <weft/detail/interruption.hpp>
#include <weft/detail/park.hpp>
#include <weft/detail/wait_limit.hpp>

#include <cstdint>
#include <system_error>
#include <utility>

namespace weft {
class context;
}

namespace weft::detail {

class context_core;

// Lets a context end the waits of one blocking call. Requires: the context outlives this object.
class WEFT_API context_interruption final : public basic_interruption<seam, context_core>,
                                            public context_watcher {
 public:
  explicit context_interruption(const context& c) noexcept;
  ~context_interruption();

  bool park(void* who, bool (*give_up)(void*), void* argument) noexcept override;

 private:
  context_core* const watched_;  // null: the context never ends
  bool watching_ = false;
};

// What a send or receive with a context does if the channel is nil: waits until `c` ends. Returns:
// c.err().
WEFT_API std::error_code wait_for_end(const context& c, wait_reason reason);

// Returns: c.err().
WEFT_API std::error_code error_of(const context& c) noexcept;

// Calls wait(limit), which returns false if `c` ended first. Returns: the context's error if it
// ended first, or had ended before the call.
template <class Wait>
std::error_code wait_with(const context& c, Wait&& wait) {
  if (const std::error_code ended = error_of(c)) return ended;
  context_interruption interruption(c);
  return std::forward<Wait>(wait)(wait_limit(interruption)) ? std::error_code() : error_of(c);
}

}  // namespace weft::detail
