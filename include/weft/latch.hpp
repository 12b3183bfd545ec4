// weft/latch.hpp: waiting until something has happened a certain number of times, once. A part of
// weft/sync.hpp.
#pragma once

#include <weft/detail/config.hpp>
#include <weft/detail/context_wait.hpp>
#include <weft/detail/wait_group_core.hpp>
#include <weft/detail/wait_limit.hpp>
#include <weft/detail/wait_queue.hpp>

#include <cstddef>
#include <cstdint>
#include <system_error>

namespace weft {

class context;

namespace detail {
[[noreturn]] WEFT_API void die_of_latch() noexcept;
}

// Like std::latch. May be destroyed as soon as wait has returned. Counting below 0 ends the
// process.
class latch {
 public:
  static constexpr std::ptrdiff_t max() noexcept { return INT32_MAX; }

  // Requires: 0 <= expected <= max().
  explicit latch(std::ptrdiff_t expected) noexcept : core_(static_cast<std::uint32_t>(expected)) {}
  latch(const latch&) = delete;
  latch& operator=(const latch&) = delete;

  void count_down(std::ptrdiff_t n = 1) noexcept {
    detail::observe(detail::touch::release, this, "count_down");
    if (n < 0 || n > max() || !core_.sub(static_cast<std::uint32_t>(n))) detail::die_of_latch();
  }
  [[nodiscard]] bool try_wait() const noexcept {
    detail::observe(detail::touch::arrive, this, "try_wait");
    return detail::acquired(core_.is_zero(), this);
  }
  // Blocks: the goroutine, until the counter is 0.
  void wait() const {
    detail::observe(detail::touch::arrive, this, "wait");
    core_.wait(detail::wait_reason::latch);
    detail::observe(detail::touch::acquire, this);
  }
  // Returns: the context's error if the context ended first.
  [[nodiscard]] std::error_code wait(const context& c) const {
    detail::observe(detail::touch::arrive, this, "wait");
    return detail::wait_with(c, [this](detail::wait_limit limit) {
      return detail::acquired(core_.wait_until(detail::wait_reason::latch, limit), this);
    });
  }
  void arrive_and_wait(std::ptrdiff_t n = 1) {
    count_down(n);
    wait();
  }

 private:
  mutable detail::guarded<detail::wait_group_core<detail::seam>> core_;
};

}  // namespace weft
