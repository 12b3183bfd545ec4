// weft/semaphore.hpp: permits that are acquired and released. A part of weft/sync.hpp.
#pragma once

#include <weft/detail/config.hpp>
#include <weft/detail/context_wait.hpp>
#include <weft/detail/nanoseconds.hpp>
#include <weft/detail/semaphore_core.hpp>
#include <weft/detail/wait_limit.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <system_error>

namespace weft {

class context;

// Like std::counting_semaphore. The goroutine that has waited longest gets the next permit; no
// other overtakes it. May be destroyed once the last acquire has returned, even if a release has
// not returned yet.
template <std::ptrdiff_t LeastMaxValue = detail::semaphore_core::most>
class counting_semaphore {
  static_assert(0 <= LeastMaxValue && LeastMaxValue <= detail::semaphore_core::most,
                "weft::counting_semaphore counts up to PTRDIFF_MAX / 4");

 public:
  static constexpr std::ptrdiff_t max() noexcept { return LeastMaxValue; }

  constexpr explicit counting_semaphore(std::ptrdiff_t desired) noexcept : core_(desired) {}
  counting_semaphore(const counting_semaphore&) = delete;
  counting_semaphore& operator=(const counting_semaphore&) = delete;

  // Gives `n` permits back. Requires: n >= 0, and never more than max() permits in all.
  void release(std::ptrdiff_t n = 1) noexcept {
    detail::observe(detail::touch::release, this, "release");
    core_.release(n);
  }

  // Waits for a permit and takes it. Blocks: the goroutine.
  void acquire() {
    detail::observe(detail::touch::arrive, this, "acquire");
    core_.acquire();
    detail::observe(detail::touch::acquire, this);
  }
  // Returns: the context's error, without a permit, if the context ended first.
  [[nodiscard]] std::error_code acquire(const context& c) {
    detail::observe(detail::touch::arrive, this, "acquire");
    return detail::wait_with(c, [this](detail::wait_limit limit) {
      return detail::acquired(core_.acquire_until(limit), this);
    });
  }
  [[nodiscard]] bool try_acquire() noexcept {
    detail::observe(detail::touch::arrive, this, "try_acquire");
    return detail::acquired(core_.try_acquire(), this);
  }
  // Waits for at most `d`. Returns: false if the time was over first. Blocks: the goroutine.
  template <class Rep, class Period>
  [[nodiscard]] bool try_acquire_for(std::chrono::duration<Rep, Period> d) {
    detail::observe(detail::touch::arrive, this, "try_acquire_for");
    return detail::acquired(core_.acquire_until(detail::deadline_after(detail::to_ns(d))), this);
  }
  template <class Clock, class Duration>
  [[nodiscard]] bool try_acquire_until(std::chrono::time_point<Clock, Duration> when) {
    detail::observe(detail::touch::arrive, this, "try_acquire_until");
    const bool yes = detail::wait_on_clock(
        when, [this](std::int64_t deadline) { return core_.acquire_until(deadline); });
    return detail::acquired(yes, this);
  }

 private:
  detail::guarded<detail::semaphore_core> core_;
};

// Like std::binary_semaphore.
using binary_semaphore = counting_semaphore<1>;

}  // namespace weft
