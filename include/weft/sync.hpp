// weft/sync.hpp: synchronisation between goroutines, and between goroutines and plain threads.
#pragma once

#include <weft/detail/config.hpp>
#include <weft/detail/mutex_core.hpp>
#include <weft/detail/wait_group_core.hpp>
#include <weft/go.hpp>

#include <chrono>
#include <cstdint>
#include <utility>

namespace weft {

namespace detail {
[[noreturn]] WEFT_API void throw_negative_wait_group();
}

// A lock for goroutines and threads: std::timed_mutex's interface, Go's sync.Mutex underneath. It
// has no owner: anyone may unlock it. Whoever comes by may get it before those who wait, but nobody
// waits for much longer than a millisecond behind others who come by. May be destroyed by whoever
// unlocked it last. Not recursive.
class mutex {
 public:
  constexpr mutex() noexcept = default;
  mutex(const mutex&) = delete;
  mutex& operator=(const mutex&) = delete;
#ifdef WEFT_ASSERTIONS
  ~mutex() {
    if (core_.is_waited_for()) detail::die_of_destruction("mutex");
  }
#endif

  // Blocks: the goroutine.
  void lock() {
    detail::observe(detail::touch::arrive, this);
    core_.lock();
    detail::observe(detail::touch::acquire, this);
  }

  bool try_lock() noexcept {
    detail::observe(detail::touch::arrive, this);
    return acquired(core_.try_lock());
  }

  // Returns: false if the time was over first. Blocks: the goroutine.
  template <class Rep, class Period>
  bool try_lock_for(std::chrono::duration<Rep, Period> d) {
    detail::observe(detail::touch::arrive, this);
    return acquired(core_.lock_until(detail::deadline_after(detail::to_ns(d))));
  }
  template <class Clock, class Duration>
  bool try_lock_until(std::chrono::time_point<Clock, Duration> when) {
    detail::observe(detail::touch::arrive, this);
    return acquired(detail::wait_on_clock(
        when, [this](std::int64_t deadline) { return core_.lock_until(deadline); }));
  }

  // Unlocking what is not locked ends the process.
  void unlock() noexcept {
    detail::observe(detail::touch::release, this);
    core_.unlock();
  }

 private:
  bool acquired(bool yes) noexcept {
    if (yes) detail::observe(detail::touch::acquire, this);
    return yes;
  }

  detail::mutex_core core_;
};

// Waits for a number of goroutines. Go's sync.WaitGroup. May be destroyed as soon as wait() has
// returned, and used again.
class wait_group {
 public:
  wait_group() = default;
  wait_group(const wait_group&) = delete;
  wait_group& operator=(const wait_group&) = delete;

  // Adds n, which may be negative, to the counter; at 0 everyone who waits goes on.
  // Throws: std::logic_error if the counter would become negative; it is unchanged then.
  void add(int n) {
    detail::observe(n < 0 ? detail::touch::release : detail::touch::arrive, this);
    if (n >= 0) {
      core_.add(static_cast<std::uint32_t>(n));
    } else if (!core_.sub(0u - static_cast<std::uint32_t>(n))) {
      detail::throw_negative_wait_group();
    }
  }

  void done() {
    detail::observe(detail::touch::release, this);
    if (!core_.sub(1)) detail::throw_negative_wait_group();
  }

  // Blocks: the goroutine, until the counter is 0.
  void wait() {
    detail::observe(detail::touch::arrive, this);
    core_.wait(detail::wait_reason::wait_group);
    detail::observe(detail::touch::acquire, this);
  }

  // Starts f in a goroutine that is counted until it ends, by returning or by exit().
  // Throws: as weft::go; the counter is unchanged then.
  template <class F>
  [[gnu::always_inline]] void go(F&& f) {
    static_assert(std::is_invocable_v<std::decay_t<F>>,
                  "the function given to wait_group::go takes no arguments");
    add(1);
    try {
      weft::go(counted<std::decay_t<F>>{std::forward<F>(f), this});
    } catch (...) {
      done();
      throw;
    }
  }

 private:
  template <class F>
  struct counted {
    F f;
    wait_group* group;

    void operator()() {
      struct finisher {
        wait_group* group;
        ~finisher() {
          detail::observe(detail::touch::release, group);
          group->core_.sub(1);
        }
      };
      // An exception ends the process with the stack as it is, before any destructor runs: nobody
      // who waits can go on first.
      const finisher last{group};
      F call(std::move(f));  // destroyed before the group is told
      std::invoke(std::move(call));
    }
  };

  detail::wait_group_core<detail::seam> core_;
};

}  // namespace weft
