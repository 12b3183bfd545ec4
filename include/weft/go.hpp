// weft/go.hpp: starts goroutines, runs a program in them, and lets a goroutine act on itself.
//
// Everything here may be called from goroutines and from plain threads, before, during and after
// run: the runtime starts by itself at the first use.
//
// Between two calls into weft a goroutine stays on its thread, so errno, thread_local and a held
// std::mutex are safe there. Across a call that may wait (yield, sleep, get, wait) they are not:
// the goroutine may go on on another thread, where a std::mutex must not be unlocked.
//
// A goroutine may block its thread in any call, or compute for as long as it likes: the other
// goroutines go on (see `blocking` below, and docs/decisions/006).
//
// A goroutine has 256 KiB of stack by default, of which only the touched part costs memory.
// WEFT_STACK=1m changes the default, go_options::stack_size the stack of one goroutine. The
// goroutine of run's main has 8 MiB. A guard below each stack makes an overflow end the process
// with a report. A frame of more than a page may jump over the guard, unless the code is compiled
// with -fstack-clash-protection; weft's CMake package and weft.pc add that option for their users.
#pragma once

#include <weft/detail/config.hpp>
#include <weft/detail/future_state.hpp>
#include <weft/detail/nanoseconds.hpp>
#include <weft/detail/task.hpp>
#include <weft/go_options.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <system_error>
#include <type_traits>
#include <utility>

namespace weft {

class context;

namespace detail {

WEFT_API void run_main(void (*call)(void*), void* argument);
WEFT_API void sleep_until_ns(std::int64_t deadline_ns);
WEFT_API std::uint64_t new_local_key() noexcept;
WEFT_API void* find_local(std::uint64_t key);
WEFT_API void add_local(std::uint64_t key, void* value, void (*destroy)(void*));

}  // namespace detail

// Runs `main` as goroutine 1 (a second run at the same time gets another number). Returns: main's
// int when main returns; 0 if main returns void or ends by this_goroutine::exit. The other
// goroutines keep running until the process exits, which stops them before static objects are
// destroyed. Goroutines that destructors and exit handlers start run on the exiting thread, while
// that thread waits in weft. If the exiting thread waits for something that only stopped goroutines
// could do, weft gives up the wait: the process goes on to its end, with a line on stderr. An
// exception that leaves main leaves run.
// Throws: std::logic_error in a goroutine; std::system_error if the runtime cannot start.
// Blocks: the calling thread.
template <class F>
int run(F&& main) {
  using result = std::invoke_result_t<F>;
  static_assert(std::is_void_v<result> || std::is_convertible_v<result, int>,
                "main returns int or nothing");
  struct call {
    std::remove_reference_t<F>* main;
    int status = 0;
  };
  call c{std::addressof(main)};
  detail::run_main(
      [](void* argument) {
        auto* const self = static_cast<call*>(argument);
        if constexpr (std::is_void_v<result>) {
          std::invoke(std::forward<F>(*self->main));
        } else {
          self->status = static_cast<int>(std::invoke(std::forward<F>(*self->main)));
        }
      },
      &c);
  return c.status;
}

// Starts a goroutine that calls f(args...); arguments are decay-copied as std::thread does. An
// exception that leaves f ends the process, with a report and status 2; async delivers the
// exception instead. Throws: std::system_error if no goroutine can be made.
template <class F, class... Args>
  requires(!std::is_same_v<std::remove_cvref_t<F>, go_options>)
[[gnu::always_inline]] inline void go(F&& f, Args&&... args) {
  static_assert(std::is_invocable_v<std::decay_t<F>, std::decay_t<Args>...>,
                "the arguments of go do not fit its function");
  detail::start(detail::start_as::child, std::forward<F>(f), std::forward<Args>(args)...);
}

// Like go(f, args...), with a name, which reports show, and a stack size:
// go({.name = "accept", .stack_size = 1 << 20}, f).
template <class F, class... Args>
[[gnu::always_inline]] inline void go(go_options options, F&& f, Args&&... args) {
  static_assert(std::is_invocable_v<std::decay_t<F>, std::decay_t<Args>...>,
                "the arguments of go do not fit its function");
  detail::start(options, std::forward<F>(f), std::forward<Args>(args)...);
}

// The result that a goroutine started with async will deliver. A future has std::future's
// interface, but its destructor does not wait.
template <class R>
class [[nodiscard]] future {
 public:
  future() noexcept = default;
  future(future&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  future& operator=(future&& other) noexcept {
    future(std::move(other)).swap(*this);
    return *this;
  }
  ~future() {
    if (state_ != nullptr) state_->abandon();
  }

  // Waits, then returns the result or throws the exception. The future is not valid afterwards.
  // Throws: std::future_error (no_state, or broken_promise if the goroutine ended by exit()).
  R get() {
    require_state();
    state_->wait();
    // The goroutine has let go of the state: that is what made the state ready.
    const std::unique_ptr<detail::future_state<R>> owned(std::exchange(state_, nullptr));
    return owned->take();
  }

  bool valid() const noexcept { return state_ != nullptr; }

  void wait() const {
    require_state();
    state_->wait();
  }
  // Returns: the context's error if the context ended first.
  [[nodiscard]] std::error_code wait(const context& c) const;  // weft/context.hpp
  template <class Rep, class Period>
  std::future_status wait_for(std::chrono::duration<Rep, Period> d) const {
    require_state();
    return status(state_->wait_until(detail::deadline_after(detail::to_ns(d))));
  }
  template <class Clock, class Duration>
  std::future_status wait_until(std::chrono::time_point<Clock, Duration> when) const {
    require_state();
    return status(detail::wait_on_clock(
        when, [this](std::int64_t deadline) { return state_->wait_until(deadline); }));
  }

  void swap(future& other) noexcept { std::swap(state_, other.state_); }

  // Used by async.
  explicit future(detail::future_state<R>* state) noexcept : state_(state) {}

 private:
  void require_state() const {
    if (state_ == nullptr) detail::throw_future_error(std::future_errc::no_state);
  }
  static std::future_status status(bool done) noexcept {
    return done ? std::future_status::ready : std::future_status::timeout;
  }

  detail::future_state<R>* state_ = nullptr;
};

// Starts a goroutine that calls f(args...). Returns: a future of its result. If the future is
// dropped, so is the result or the exception. Throws: as go.
template <class F, class... Args>
  requires std::is_invocable_v<std::decay_t<F>, std::decay_t<Args>...>
[[gnu::always_inline]] inline auto async(F&& f, Args&&... args)
    -> future<std::invoke_result_t<std::decay_t<F>, std::decay_t<Args>...>> {
  using result = std::invoke_result_t<std::decay_t<F>, std::decay_t<Args>...>;
  using state = detail::async_state<result, detail::task<std::decay_t<F>, std::decay_t<Args>...>>;
  auto owned = std::make_unique<state>(std::forward<F>(f), std::forward<Args>(args)...);
  detail::start(detail::start_as::child, &state::run, owned.get());
  return future<result>(owned.release());
}

// Calls f, which is known to block, or to take long without computing. The processor goes on with
// other goroutines at once, and f has its thread to itself until it returns. Without this call the
// runtime notices blocking code only after 0.1 to 2 ms. On a plain thread, blocking(f) only calls
// f.
template <class F>
decltype(auto) blocking(F&& f) {
  const detail::blocking_call call;
  return std::invoke(std::forward<F>(f));
}

// Returns: the number of processors, which is how many goroutines can run at the same time.
WEFT_API int max_procs();
// Sets the number of processors for good. Values above 1024 count as 1024. Returns: the old value.
// Throws: std::invalid_argument if n < 1.
WEFT_API int max_procs(int n);

// Returns: how many goroutines have been started and have not ended, run's main among them.
WEFT_API std::size_t num_goroutine();

namespace this_goroutine {

// Returns: the number of the calling goroutine; 0 on a plain thread.
WEFT_API std::uint64_t id();

// Lets other goroutines run first.
WEFT_API void yield();

// Waits for `d`, never less. Blocks: the goroutine.
template <class Rep, class Period>
void sleep_for(std::chrono::duration<Rep, Period> d) {
  if (d > d.zero()) detail::sleep_until_ns(detail::deadline_after(detail::to_ns(d)));
}
// Waits until `when`, never less. Blocks: the goroutine.
template <class Clock, class Duration>
void sleep_until(std::chrono::time_point<Clock, Duration> when) {
  if (detail::ns_until(when) <= 0) return;
  detail::wait_on_clock(when, [](std::int64_t deadline) {
    detail::sleep_until_ns(deadline);
    return false;
  });
}

// Ends the calling goroutine: unwinds its stack as pthread_exit does (a catch (...) must rethrow).
// Throws: std::logic_error on a plain thread.
[[noreturn]] WEFT_API void exit();

// Binds the calling goroutine to its OS thread, which then runs no other goroutine until
// unlock_thread has been called equally often. If a goroutine ends while it is bound, its thread
// ends too.
WEFT_API void lock_thread();
WEFT_API void unlock_thread();

}  // namespace this_goroutine

// A variable that has a separate value in each goroutine and each plain thread: local<int>
// depth{0}; *depth. The initial value is copied at the first use in a goroutine or thread. A value
// is destroyed when its goroutine or thread ends.
template <class T>
class local {
 public:
  local()
    requires std::is_default_constructible_v<T>
      : initial_() {}
  explicit(false) local(T initial)
    requires std::is_copy_constructible_v<T>
      : initial_(std::move(initial)) {}
  local(const local&) = delete;
  local& operator=(const local&) = delete;

  T& operator*() const { return get(); }
  T* operator->() const { return std::addressof(get()); }

 private:
  T& get() const {
    if (void* const value = detail::find_local(key_)) return *static_cast<T*>(value);
    auto owned = make();
    detail::add_local(key_, owned.get(), [](void* value) { delete static_cast<T*>(value); });
    return *owned.release();
  }

  std::unique_ptr<T> make() const {
    if constexpr (std::is_copy_constructible_v<T>) {
      return std::make_unique<T>(initial_);
    } else {
      return std::make_unique<T>();  // only the default constructor can have been used
    }
  }

  const T initial_;
  const std::uint64_t key_ = detail::new_local_key();
};

}  // namespace weft
