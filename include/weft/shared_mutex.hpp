// weft/shared_mutex.hpp: a lock that readers share. A part of weft/sync.hpp.
#pragma once

#include <weft/detail/config.hpp>
#include <weft/detail/context_wait.hpp>
#include <weft/detail/nanoseconds.hpp>
#include <weft/detail/shared_mutex_core.hpp>
#include <weft/detail/wait_limit.hpp>

#include <chrono>
#include <cstdint>
#include <system_error>

namespace weft {

class context;

// A lock with std::shared_timed_mutex's interface. A writer that waits holds back new readers, and
// a writer that unlocks lets in all readers that wait, so neither can starve the other. Readers on
// several processors do not slow each other down. Like mutex, it has no owner, and the goroutine
// that unlocked it last may destroy it. It is not recursive, not even for readers, because a writer
// may come between two locks of a reader.
class shared_mutex {
 public:
  constexpr shared_mutex() noexcept = default;
  shared_mutex(const shared_mutex&) = delete;
  shared_mutex& operator=(const shared_mutex&) = delete;

  // Blocks: the goroutine.
  void lock() { (void)lock_within(detail::no_deadline); }
  // Returns: the context's error, without the lock, if the context ended first.
  [[nodiscard]] std::error_code lock(const context& c) {
    return detail::wait_with(c, [this](detail::wait_limit limit) { return lock_within(limit); });
  }
  [[nodiscard]] bool try_lock() noexcept {
    detail::observe(detail::touch::arrive, this, "try_lock");
    return written(core_.try_lock());
  }
  // Returns: false if the time was over first. Blocks: the goroutine.
  template <class Rep, class Period>
  [[nodiscard]] bool try_lock_for(std::chrono::duration<Rep, Period> d) {
    return lock_within(detail::deadline_after(detail::to_ns(d)));
  }
  template <class Clock, class Duration>
  [[nodiscard]] bool try_lock_until(std::chrono::time_point<Clock, Duration> when) {
    return detail::wait_on_clock(when,
                                 [this](std::int64_t deadline) { return lock_within(deadline); });
  }
  // Unlocking a shared_mutex that is not locked ends the process.
  void unlock() noexcept {
    detail::observe(detail::touch::release, this, "unlock");
    core_.unlock();
  }

  // Blocks: the goroutine.
  void lock_shared() { (void)lock_shared_within(detail::no_deadline); }
  // Returns: the context's error, without the lock, if the context ended first.
  [[nodiscard]] std::error_code lock_shared(const context& c) {
    return detail::wait_with(
        c, [this](detail::wait_limit limit) { return lock_shared_within(limit); });
  }
  [[nodiscard]] bool try_lock_shared() noexcept {
    detail::observe(detail::touch::arrive, this, "try_lock_shared");
    return detail::acquired(core_.try_lock_shared(), this);
  }
  // Returns: false if the time was over first. Blocks: the goroutine.
  template <class Rep, class Period>
  [[nodiscard]] bool try_lock_shared_for(std::chrono::duration<Rep, Period> d) {
    return lock_shared_within(detail::deadline_after(detail::to_ns(d)));
  }
  template <class Clock, class Duration>
  [[nodiscard]] bool try_lock_shared_until(std::chrono::time_point<Clock, Duration> when) {
    return detail::wait_on_clock(
        when, [this](std::int64_t deadline) { return lock_shared_within(deadline); });
  }
  void unlock_shared() noexcept {
    detail::observe(detail::touch::release, readers(), "unlock_shared");
    core_.unlock_shared();
  }

 private:
  // What readers release, only writers acquire. So a test sees readers as unordered among
  // themselves.
  const void* readers() const noexcept { return reinterpret_cast<const char*>(this) + 1; }
  bool written(bool yes) noexcept {
    return detail::acquired(detail::acquired(yes, this), readers());
  }
  bool lock_within(detail::wait_limit limit) {
    detail::observe(detail::touch::arrive, this, "lock");
    return written(core_.lock_until(limit));
  }
  bool lock_shared_within(detail::wait_limit limit) {
    detail::observe(detail::touch::arrive, this, "lock_shared");
    return detail::acquired(core_.lock_shared_until(limit), this);
  }

  detail::guarded<detail::shared_mutex_core> core_;
};

}  // namespace weft
