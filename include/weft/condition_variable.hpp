// weft/condition_variable.hpp: waiting until another goroutine has changed something. A part of
// weft/sync.hpp.
#pragma once

#include <weft/detail/condition_core.hpp>
#include <weft/detail/config.hpp>
#include <weft/detail/context_wait.hpp>
#include <weft/detail/nanoseconds.hpp>
#include <weft/detail/wait_limit.hpp>
#include <weft/mutex.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <type_traits>

namespace weft {

class context;

// std::condition_variable for weft::mutex. Goroutines are notified in the order in which they came;
// each notify_one notifies one of them. No goroutine goes on without a notification, unless its
// time is over or its context has ended. A condition_variable may be destroyed once every goroutine
// that waits has been notified.
class condition_variable {
 public:
  constexpr condition_variable() noexcept = default;
  condition_variable(const condition_variable&) = delete;
  condition_variable& operator=(const condition_variable&) = delete;

  void notify_one() noexcept {
    detail::observe(detail::touch::release, this, "notify_one");
    core_.notify_one();
  }
  void notify_all() noexcept {
    detail::observe(detail::touch::release, this, "notify_all");
    core_.notify_all();
  }

  // Requires: `lock` holds its mutex. It holds the mutex again when wait returns. Blocks: the
  // goroutine.
  void wait(std::unique_lock<mutex>& lock) { (void)wait_within(lock, detail::no_deadline); }
  template <class Predicate>
    requires std::is_invocable_v<Predicate&>
  void wait(std::unique_lock<mutex>& lock, Predicate holds) {
    while (!holds()) wait(lock);
  }
  // Returns: the context's error if the context ended first.
  [[nodiscard]] std::error_code wait(const context& c, std::unique_lock<mutex>& lock) {
    return detail::wait_with(
        c, [this, &lock](detail::wait_limit limit) { return wait_within(lock, limit); });
  }
  // Returns: what the last call of the predicate returned.
  template <class Predicate>
  [[nodiscard]] bool wait(const context& c, std::unique_lock<mutex>& lock, Predicate holds) {
    while (!holds()) {
      if (wait(c, lock)) return holds();
    }
    return true;
  }

  template <class Rep, class Period>
  std::cv_status wait_for(std::unique_lock<mutex>& lock, std::chrono::duration<Rep, Period> d) {
    return status(wait_within(lock, detail::deadline_after(detail::to_ns(d))));
  }
  // Returns: what the last call of the predicate returned.
  template <class Rep, class Period, class Predicate>
  [[nodiscard]] bool wait_for(std::unique_lock<mutex>& lock, std::chrono::duration<Rep, Period> d,
                              Predicate holds) {
    const std::int64_t deadline = detail::deadline_after(detail::to_ns(d));
    while (!holds()) {
      if (!wait_within(lock, deadline)) return holds();
    }
    return true;
  }

  // If the clock is set back during the wait, this returns no_timeout without a notification,
  // because waiting again could miss a notification.
  template <class Clock, class Duration>
  std::cv_status wait_until(std::unique_lock<mutex>& lock,
                            std::chrono::time_point<Clock, Duration> when) {
    const std::int64_t left = detail::ns_until(when);
    if (wait_within(lock, detail::deadline_after(left))) return std::cv_status::no_timeout;
    const bool over = left <= 0 || detail::time_is_simulated() || detail::ns_until(when) <= 0;
    return status(!over);
  }
  template <class Clock, class Duration, class Predicate>
  [[nodiscard]] bool wait_until(std::unique_lock<mutex>& lock,
                                std::chrono::time_point<Clock, Duration> when, Predicate holds) {
    while (!holds()) {
      if (wait_until(lock, when) == std::cv_status::timeout) return holds();
    }
    return true;
  }

 private:
  static std::cv_status status(bool notified) noexcept {
    return notified ? std::cv_status::no_timeout : std::cv_status::timeout;
  }

  bool wait_within(std::unique_lock<mutex>& lock, detail::wait_limit limit) {
    mutex& m = *lock.mutex();
    detail::observe(detail::touch::arrive, this, "wait");
    detail::observe(detail::touch::release, &m, "unlock");
    const bool notified = core_.wait(m.core_, limit);
    if (notified) detail::observe(detail::touch::acquire, this);
    m.lock();
    return notified;
  }

  detail::guarded<detail::condition_core> core_;
};

}  // namespace weft
