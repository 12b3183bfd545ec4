// weft/time.hpp: the runtime's clock, timers and tickers.
//
// No timer fires early. A timer's channel never holds a value from before the last stop or reset:
// if such a value has not been received, stop and reset take it back and return true.
#pragma once

#include <weft/chan.hpp>
#include <weft/detail/config.hpp>
#include <weft/go.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

namespace weft {

// The runtime's clock; it is monotonic. In a bubble or an exploration (weft/test.hpp) it shows
// their virtual time.
struct clock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<clock>;
  static constexpr bool is_steady = true;
  static time_point now() noexcept { return time_point(duration(detail::clock_now_ns())); }
};

namespace detail {

class timer_core;

// A function without arguments, which may be move-only. It is called once, or more often by a timer
// that is reset.
class timer_function {
 public:
  virtual ~timer_function() = default;
  virtual void call() = 0;
  // Asked inside the runtime when the time has come. Returns: false if the function must not be
  // called, because its owner (a context) is being destroyed and is about to stop the timer.
  virtual bool claim() noexcept { return true; }
  // Returns: whether the function may be called while the process exits, even if it was set before
  // the exit began. True only for functions of the library, which use no object that may have been
  // destroyed.
  virtual bool may_outlive_statics() const noexcept { return false; }
  // Asked inside the runtime while the process exits. Returns: whether a goroutine that still runs
  // could learn that the function was called.
  virtual bool is_heard() noexcept { return true; }
};
template <class F>
class timer_function_of final : public timer_function {
 public:
  template <class G>
  explicit timer_function_of(G&& f) : f_(std::forward<G>(f)) {}
  void call() override { std::invoke(f_); }

 private:
  F f_;
};

// A counted reference to a timer.
class WEFT_API timer_ref {
 public:
  // Makes a timer whose channel gets the time, once or every period_ns. Throws: std::bad_alloc;
  // std::system_error if nothing has used weft before, and no thread can be made.
  static timer_ref make(std::int64_t delay_ns, std::int64_t period_ns);
  // Makes a timer that calls f in a goroutine of its own. Throws: as above, and std::system_error
  // if there is no memory for a goroutine.
  static timer_ref make(std::int64_t delay_ns, std::unique_ptr<timer_function> f);

  timer_ref() noexcept = default;
  timer_ref(const timer_ref& other) noexcept;
  timer_ref(timer_ref&& other) noexcept : core_(std::exchange(other.core_, nullptr)) {}
  timer_ref& operator=(timer_ref other) noexcept {
    std::swap(core_, other.core_);
    return *this;
  }
  ~timer_ref();

  explicit operator bool() const noexcept { return core_ != nullptr; }
  chan_ref channel() const noexcept;
  bool stop() const;
  bool reset(std::int64_t delay_ns, std::int64_t period_ns) const;

 private:
  explicit timer_ref(timer_core* owned) noexcept : core_(owned) {}
  timer_core* core_ = nullptr;
};

[[noreturn]] WEFT_API void throw_bad_period();

template <class Rep, class Period>
std::int64_t period_ns(std::chrono::duration<Rep, Period> d) {
  if (d <= d.zero()) throw_bad_period();
  return to_ns(d);
}

}  // namespace detail

// A timer that fires once. A timer is a handle; a copy is another handle on the same timer.
// Dropping a handle stops nothing that the program could notice: a timer ends when the last handle
// on it and on its channel is gone.
//
// The constructors of timer and ticker, after() and after_func() throw std::system_error if they
// are the program's first use of weft and no thread can be made.
class timer {
 public:
  // Makes a timer that delivers the time on c() after `d`.
  template <class Rep, class Period>
  [[nodiscard]] explicit timer(std::chrono::duration<Rep, Period> d)
      : ref_(detail::timer_ref::make(detail::to_ns(d), 0)) {}

  // Returns: the channel of the timer; the nil channel if the timer was made by after_func.
  receiver<clock::time_point> c() const { return receiver<clock::time_point>(ref_.channel()); }

  // Stops the timer. Returns: true if the timer was running, or had fired and its value had not
  // been received. As in Go the result of stop() and reset() may be ignored: either way the timer
  // is stopped or runs anew, and no stale value is left in its channel.
  bool stop() { return ref_.stop(); }
  // Like stop(), and starts the timer anew.
  template <class Rep, class Period>
  bool reset(std::chrono::duration<Rep, Period> d) {
    return ref_.reset(detail::to_ns(d), 0);
  }

  // Used by after_func.
  explicit timer(detail::timer_ref ref) noexcept : ref_(std::move(ref)) {}

 private:
  detail::timer_ref ref_;
};

// Delivers the time every `period`; ticks that are not received in time are dropped. The destructor
// stops the ticker. But a channel that is taken from a temporary, as in ticker(1s).c(), goes on for
// as long as there is a handle on it, like Go's time.Tick.
class ticker {
 public:
  // Throws: std::invalid_argument unless the period is positive.
  template <class Rep, class Period>
  [[nodiscard]] explicit ticker(std::chrono::duration<Rep, Period> period)
      : ref_(detail::timer_ref::make(detail::period_ns(period), detail::period_ns(period))) {}
  ticker(ticker&&) noexcept = default;
  ticker& operator=(ticker&& other) noexcept {
    ticker(std::move(other)).swap(*this);
    return *this;
  }
  ~ticker() {
    if (ref_) ref_.stop();
  }

  receiver<clock::time_point> c() const& { return receiver<clock::time_point>(ref_.channel()); }
  receiver<clock::time_point> c() && {
    const detail::timer_ref given_away = std::move(ref_);
    return receiver<clock::time_point>(given_away.channel());
  }
  void stop() { ref_.stop(); }
  // Starts the ticker anew with this period. Throws: std::invalid_argument unless the period is
  // positive, std::logic_error if the ticker was moved from.
  template <class Rep, class Period>
  void reset(std::chrono::duration<Rep, Period> period) {
    ref_.reset(detail::period_ns(period), detail::period_ns(period));
  }
  void swap(ticker& other) noexcept { std::swap(ref_, other.ref_); }

 private:
  detail::timer_ref ref_;
};

// Returns: a channel that delivers the time after `d`.
template <class Rep, class Period>
[[nodiscard]] receiver<clock::time_point> after(std::chrono::duration<Rep, Period> d) {
  return timer(d).c();
}

// Calls f in a goroutine of its own after `d`, unless the timer is stopped before. Dropping the
// timer does not stop it. If there is no memory for a goroutine at that time, f is called as soon
// as there is.
template <class Rep, class Period, class F>
timer after_func(std::chrono::duration<Rep, Period> d, F&& f) {
  static_assert(std::is_invocable_v<std::decay_t<F>&>, "the function of after_func takes nothing");
  return timer(detail::timer_ref::make(
      detail::to_ns(d),
      std::make_unique<detail::timer_function_of<std::decay_t<F>>>(std::forward<F>(f))));
}

}  // namespace weft
