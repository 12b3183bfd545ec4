// weft/semaphore.hpp: permits that are taken and given back. A part of weft/sync.hpp.
#pragma once

#include <weft/detail/config.hpp>
#include <weft/detail/context_wait.hpp>
#include <weft/detail/nanoseconds.hpp>
#include <weft/detail/patience.hpp>
#include <weft/detail/semaphore_core.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <system_error>

namespace weft {

class context;

// std::counting_semaphore. Who waits longest gets the next permit; nobody overtakes. May be
// destroyed once its last acquire has returned, whatever the releases are still doing.
template <std::ptrdiff_t LeastMaxValue = detail::semaphore_core::most>
class counting_semaphore {
  static_assert(0 <= LeastMaxValue && LeastMaxValue <= detail::semaphore_core::most,
                "weft::counting_semaphore counts up to PTRDIFF_MAX / 4");

 public:
  static constexpr std::ptrdiff_t max() noexcept { return LeastMaxValue; }

  constexpr explicit counting_semaphore(std::ptrdiff_t desired) noexcept : core_(desired) {}
  counting_semaphore(const counting_semaphore&) = delete;
  counting_semaphore& operator=(const counting_semaphore&) = delete;

  // Requires: n >= 0, and no more than max() in all.
  void release(std::ptrdiff_t n = 1) noexcept {
    detail::observe(detail::touch::release, this, "release");
    core_.release(n);
  }

  // Blocks: the goroutine.
  void acquire() {
    detail::observe(detail::touch::arrive, this, "acquire");
    core_.acquire();
    detail::observe(detail::touch::acquire, this);
  }
  // Returns: the context's error, without a permit, if that ended first.
  [[nodiscard]] std::error_code acquire(const context& c) {
    detail::observe(detail::touch::arrive, this, "acquire");
    return detail::wait_with(c, [this](detail::patience limit) {
      return detail::acquired(core_.acquire_until(limit), this);
    });
  }
  [[nodiscard]] bool try_acquire() noexcept {
    detail::observe(detail::touch::arrive, this, "try_acquire");
    return detail::acquired(core_.try_acquire(), this);
  }
  // Returns: false if the time was over first. Blocks: the goroutine.
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

using binary_semaphore = counting_semaphore<1>;

}  // namespace weft
