// weft/sync.hpp: synchronisation between goroutines, and between goroutines and plain threads.
//
// Three classes have files of their own (detail/group.hpp and so on) and belong to the contract as
// much as those below:
//
//   group                goroutines that belong together, with a context and the first exception
//   pool<T>              pool<T>(make): get() returns one that was put(), or a new one
//   single_flight<K, V>  run(key, f): calls for the same key at the same time share one call of f
//
//   weft::group g(ctx);  g.set_limit(8);     // go waits while 8 run, try_go returns false
//   for (job& j : jobs) g.go([&] { work(j, g.ctx()); });
//   g.wait();                                // for all of them; throws the first exception
//
// The first exception cancels g.ctx(), and that is all: who does not look at it runs on, and go
// still starts others. wait() cancels it, too, so a group is used once. Without wait() the
// destructor cancels, waits and drops the exception. A goroutine of the group may call go; one that
// does so at the limit waits for the others.
#pragma once

#include <weft/detail/barrier_core.hpp>
#include <weft/detail/condition_core.hpp>
#include <weft/detail/config.hpp>
#include <weft/detail/group.hpp>  // IWYU pragma: export
#include <weft/detail/mutex_core.hpp>
#include <weft/detail/once_core.hpp>
#include <weft/detail/pool.hpp>  // IWYU pragma: export
#include <weft/detail/semaphore_core.hpp>
#include <weft/detail/shared_mutex_core.hpp>
#include <weft/detail/single_flight.hpp>  // IWYU pragma: export
#include <weft/detail/wait_group_core.hpp>
#include <weft/go.hpp>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>

namespace weft {

namespace detail {
[[noreturn]] WEFT_API void throw_negative_wait_group();
[[noreturn]] WEFT_API void die_of_latch() noexcept;

// The end of an operation that may have failed. Returns: `yes`.
inline bool acquired(bool yes, const void* object) noexcept {
  if (yes) observe(touch::acquire, object);
  return yes;
}
}  // namespace detail

// A lock for goroutines and threads: std::timed_mutex's interface, Go's sync.Mutex underneath. It
// has no owner: anyone may unlock it. Whoever comes by may get it before those who wait, but nobody
// waits for much longer than a millisecond behind others who come by. May be destroyed by whoever
// unlocked it last. Not recursive.
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

  // Returns: the context's error, without the lock, if that ended first.
  [[nodiscard]] std::error_code lock(const context& c) {
    detail::observe(detail::touch::arrive, this, "lock");
    return detail::wait_with(c, [this](detail::patience limit) {
      return detail::acquired(core_.lock_until(limit), this);
    });
  }

  [[nodiscard]] bool try_lock() noexcept {
    detail::observe(detail::touch::arrive, this, "try_lock");
    return detail::acquired(core_.try_lock(), this);
  }

  // Returns: false if the time was over first. Blocks: the goroutine.
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

  // Unlocking what is not locked ends the process.
  void unlock() noexcept {
    detail::observe(detail::touch::release, this, "unlock");
    core_.unlock();
  }

 private:
  friend class condition_variable;

  detail::guarded<detail::mutex_core> core_;
};

// std::shared_timed_mutex's interface. A writer that waits holds back new readers, and a writer
// that unlocks lets in all readers that wait, so neither can starve the other. Readers on several
// processors do not slow each other down. Like mutex it has no owner, is not recursive (not for
// readers either: a writer may come in between), and may be destroyed by whoever unlocked it last.
class shared_mutex {
 public:
  constexpr shared_mutex() noexcept = default;
  shared_mutex(const shared_mutex&) = delete;
  shared_mutex& operator=(const shared_mutex&) = delete;

  // Blocks: the goroutine.
  void lock() { (void)lock_within(detail::no_deadline); }
  // Returns: the context's error, without the lock, if that ended first.
  [[nodiscard]] std::error_code lock(const context& c) {
    return detail::wait_with(c, [this](detail::patience limit) { return lock_within(limit); });
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
  // Unlocking what is not locked ends the process.
  void unlock() noexcept {
    detail::observe(detail::touch::release, this, "unlock");
    core_.unlock();
  }

  // Blocks: the goroutine.
  void lock_shared() { (void)lock_shared_within(detail::no_deadline); }
  // Returns: the context's error, without the lock, if that ended first.
  [[nodiscard]] std::error_code lock_shared(const context& c) {
    return detail::wait_with(c,
                             [this](detail::patience limit) { return lock_shared_within(limit); });
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
  // What readers release only writers acquire: to a test readers do not order each other.
  const void* readers() const noexcept { return reinterpret_cast<const char*>(this) + 1; }
  bool written(bool yes) noexcept {
    return detail::acquired(detail::acquired(yes, this), readers());
  }
  bool lock_within(detail::patience limit) {
    detail::observe(detail::touch::arrive, this, "lock");
    return written(core_.lock_until(limit));
  }
  bool lock_shared_within(detail::patience limit) {
    detail::observe(detail::touch::arrive, this, "lock_shared");
    return detail::acquired(core_.lock_shared_until(limit), this);
  }

  detail::guarded<detail::shared_mutex_core> core_;
};

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

// std::latch. May be destroyed as soon as wait has returned. To count below 0 ends the process.
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
  // Returns: the context's error if that ended first.
  [[nodiscard]] std::error_code wait(const context& c) const {
    detail::observe(detail::touch::arrive, this, "wait");
    return detail::wait_with(c, [this](detail::patience limit) {
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

namespace detail {
struct no_completion {
  void operator()() const noexcept {}
};
}  // namespace detail

// std::barrier. The completion function is called by whoever arrives last, before anybody goes on;
// it may wait, as any code in a goroutine may. May be destroyed as soon as the last wait has
// returned.
template <class CompletionFunction = detail::no_completion>
class barrier {
  static_assert(std::is_nothrow_invocable_v<CompletionFunction&>,
                "the completion function of a barrier takes no arguments and is noexcept");

 public:
  class arrival_token {
   public:
    arrival_token(arrival_token&&) noexcept = default;
    arrival_token& operator=(arrival_token&&) noexcept = default;

   private:
    friend class barrier;
    explicit arrival_token(std::uint32_t phase) noexcept : phase_(phase) {}
    std::uint32_t phase_;
  };

  static constexpr std::ptrdiff_t max() noexcept { return detail::barrier_core::most; }

  // Requires: 0 <= expected <= max().
  constexpr explicit barrier(std::ptrdiff_t expected,
                             CompletionFunction complete = CompletionFunction())
      : core_(expected), complete_(std::move(complete)) {}
  barrier(const barrier&) = delete;
  barrier& operator=(const barrier&) = delete;

  // Requires: n > 0; more arrivals than the phase expects end the process.
  [[nodiscard]] arrival_token arrive(std::ptrdiff_t n = 1) {
    detail::observe(detail::touch::release, this, "arrive");
    const auto [phase, last] = core_.arrive(n);
    if (last) complete();
    return arrival_token(phase);
  }
  // Blocks: the goroutine, until the phase of the token is over.
  void wait(arrival_token&& arrived) const {
    detail::observe(detail::touch::arrive, this, "wait");
    core_.wait(arrived.phase_);
    detail::observe(detail::touch::acquire, this);
  }
  // Returns: the context's error if that ended first: it has arrived all the same.
  [[nodiscard]] std::error_code wait(const context& c, arrival_token&& arrived) const {
    detail::observe(detail::touch::arrive, this, "wait");
    return detail::wait_with(c, [this, &arrived](detail::patience limit) {
      return detail::acquired(core_.wait(arrived.phase_, limit), this);
    });
  }
  void arrive_and_wait() { wait(arrive()); }
  [[nodiscard]] std::error_code arrive_and_wait(const context& c) { return wait(c, arrive()); }
  // Arrives, and is not expected in the phases to come.
  void arrive_and_drop() {
    detail::observe(detail::touch::release, this, "arrive_and_drop");
    core_.drop();
    if (core_.arrive(1).last) complete();
  }

 private:
  void complete() noexcept {
    detail::observe(detail::touch::acquire, this);
    complete_();
    detail::observe(detail::touch::release, this, "complete");
    core_.finish();
  }

  mutable detail::guarded<detail::barrier_core> core_;
  [[no_unique_address]] CompletionFunction complete_;
};

// std::once_flag and std::call_once. A call that ends with an exception does not count: the next
// one in line runs.
class once_flag {
 public:
  constexpr once_flag() noexcept = default;
  once_flag(const once_flag&) = delete;
  once_flag& operator=(const once_flag&) = delete;

 private:
  template <class F, class... A>
  friend void call_once(once_flag& flag, F&& f, A&&... args);
  template <class F, class... A>
  friend std::error_code call_once(const context& c, once_flag& flag, F&& f, A&&... args);

  // Returns: false if the limit came first.
  template <class F, class... A>
  bool call_within(detail::patience limit, F&& f, A&&... args) {
    static_assert(std::is_invocable_v<F, A...>,
                  "the function given to call_once does not fit its arguments");
    using turn = detail::once_core::turn;
    detail::observe(detail::touch::arrive, this, "call_once");
    const turn t = core_.is_done() ? turn::done : core_.begin(limit);
    if (t == turn::gave_up) return false;
    detail::observe(detail::touch::acquire, this);
    if (t == turn::done) return true;
    struct finisher {
      once_flag* flag;
      bool returned = false;
      ~finisher() {
        detail::observe(detail::touch::release, flag);
        returned ? flag->core_.finish() : flag->core_.fail();
      }
    } last{this};
    std::invoke(std::forward<F>(f), std::forward<A>(args)...);
    last.returned = true;
    return true;
  }

  detail::once_core core_;
};

// Blocks: the goroutine, while another one runs the function.
template <class F, class... A>
void call_once(once_flag& flag, F&& f, A&&... args) {
  flag.call_within(detail::no_deadline, std::forward<F>(f), std::forward<A>(args)...);
}
// Returns: the context's error if that ended while another one was running the function.
template <class F, class... A>
[[nodiscard]] std::error_code call_once(const context& c, once_flag& flag, F&& f, A&&... args) {
  return detail::wait_with(c, [&](detail::patience limit) {
    return flag.call_within(limit, std::forward<F>(f), std::forward<A>(args)...);
  });
}

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
    detail::observe(n < 0 ? detail::touch::release : detail::touch::arrive, this, "add");
    if (n >= 0) {
      core_.add(static_cast<std::uint32_t>(n));
    } else if (!core_.sub(0u - static_cast<std::uint32_t>(n))) {
      detail::throw_negative_wait_group();
    }
  }

  void done() {
    detail::observe(detail::touch::release, this, "done");
    if (!core_.sub(1)) detail::throw_negative_wait_group();
  }

  // Blocks: the goroutine, until the counter is 0.
  void wait() {
    detail::observe(detail::touch::arrive, this, "wait");
    core_.wait(detail::wait_reason::wait_group);
    detail::observe(detail::touch::acquire, this);
  }
  // Returns: the context's error if that ended first.
  [[nodiscard]] std::error_code wait(const context& c) {
    detail::observe(detail::touch::arrive, this, "wait with context");
    return detail::wait_with(c, [this](detail::patience limit) {
      return detail::acquired(core_.wait_until(detail::wait_reason::wait_group, limit), this);
    });
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
    std::optional<F> f;
    wait_group* group;

    void operator()() {
      struct finisher {
        wait_group* group;
        ~finisher() {
          detail::observe(detail::touch::release, group, "done");
          group->core_.sub(1);
        }
      };
      // An exception ends the process with the stack as it is, before any destructor runs: nobody
      // who waits can go on first.
      const finisher last{group};
      F call(std::move(*f));
      f.reset();  // both are gone before the group is told, also if moving copies
      std::invoke(std::move(call));
    }
  };

  detail::wait_group_core<detail::seam> core_;
};

}  // namespace weft
