// weft/condition_variable.hpp: waiting until another one has changed something. A part of
// weft/sync.hpp.
#pragma once

#include <weft/detail/condition_core.hpp>
#include <weft/detail/config.hpp>
#include <weft/detail/context_wait.hpp>
#include <weft/detail/nanoseconds.hpp>
#include <weft/detail/patience.hpp>
#include <weft/mutex.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <type_traits>

namespace weft {

class context;

// std::condition_variable for weft::mutex. Those who wait are notified in the order in which they
// came, each by one notify_one; nobody goes on without having been notified or its time being over.
// May be destroyed once everyone who waits has been notified.
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

  // Requires: `lock` holds its mutex; so it does afterwards. Blocks: the goroutine.
  void wait(std::unique_lock<mutex>& lock) { (void)wait_within(lock, detail::no_deadline); }
  template <class Predicate>
    requires std::is_invocable_v<Predicate&>
  void wait(std::unique_lock<mutex>& lock, Predicate holds) {
    while (!holds()) wait(lock);
  }
  // Returns: the context's error if that ended first.
  [[nodiscard]] std::error_code wait(const context& c, std::unique_lock<mutex>& lock) {
    return detail::wait_with(
        c, [this, &lock](detail::patience limit) { return wait_within(lock, limit); });
  }
  // Returns: what the predicate says in the end.
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
  // Returns: what the predicate says in the end.
  template <class Rep, class Period, class Predicate>
  [[nodiscard]] bool wait_for(std::unique_lock<mutex>& lock, std::chrono::duration<Rep, Period> d,
                              Predicate holds) {
    const std::int64_t deadline = detail::deadline_after(detail::to_ns(d));
    while (!holds()) {
      if (!wait_within(lock, deadline)) return holds();
    }
    return true;
  }

  // If the clock is set back meanwhile, this returns no_timeout without having been notified:
  // waiting on could miss a notification.
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

  bool wait_within(std::unique_lock<mutex>& lock, detail::patience limit) {
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
