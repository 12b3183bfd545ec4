// weft/mutex.hpp: a lock for goroutines and threads. A part of weft/sync.hpp.
#pragma once

#include <weft/detail/config.hpp>
#include <weft/detail/context_wait.hpp>
#include <weft/detail/mutex_core.hpp>
#include <weft/detail/nanoseconds.hpp>
#include <weft/detail/wait_limit.hpp>

#include <chrono>
#include <cstdint>
#include <system_error>

namespace weft {

class context;

// A lock for goroutines and threads, with std::timed_mutex's interface and the algorithm of Go's
// sync.Mutex. It has no owner: any goroutine or thread may unlock it. A goroutine that arrives may
// get the lock before those that wait, but no goroutine waits for much longer than a millisecond
// behind newcomers. The goroutine that unlocked it last may destroy it. Not recursive.
class mutex {
 public:
  constexpr mutex() noexcept = default;
  mutex(const mutex&) = delete;
  mutex& operator=(const mutex&) = delete;

  // Blocks: the goroutine.
  void lock() {
    detail::observe(detail::touch::arrive, this, "lock");
    core_.lock();
    detail::observe(detail::touch::acquire, this);
  }

  // Returns: the context's error, without the lock, if the context ended first.
  //
  //     if (const auto ended = m.lock(ctx)) return ended;
  //     const std::unique_lock hold(m, std::adopt_lock);
  [[nodiscard]] std::error_code lock(const context& c) {
    detail::observe(detail::touch::arrive, this, "lock");
    return detail::wait_with(c, [this](detail::wait_limit limit) {
      return detail::acquired(core_.lock_until(limit), this);
    });
  }

  [[nodiscard]] bool try_lock() noexcept {
    detail::observe(detail::touch::arrive, this, "try_lock");
    return detail::acquired(core_.try_lock(), this);
  }

  // Waits for at most `d`. Returns: false if the time was over first. Blocks: the goroutine.
  template <class Rep, class Period>
  [[nodiscard]] bool try_lock_for(std::chrono::duration<Rep, Period> d) {
    detail::observe(detail::touch::arrive, this, "try_lock_for");
    return detail::acquired(core_.lock_until(detail::deadline_after(detail::to_ns(d))), this);
  }
  template <class Clock, class Duration>
  [[nodiscard]] bool try_lock_until(std::chrono::time_point<Clock, Duration> when) {
    detail::observe(detail::touch::arrive, this, "try_lock_until");
    const bool yes = detail::wait_on_clock(
        when, [this](std::int64_t deadline) { return core_.lock_until(deadline); });
    return detail::acquired(yes, this);
  }

  // Unlocking a mutex that is not locked ends the process.
  void unlock() noexcept {
    detail::observe(detail::touch::release, this, "unlock");
    core_.unlock();
  }

 private:
  friend class condition_variable;

  detail::guarded<detail::mutex_core> core_;
};

}  // namespace weft
