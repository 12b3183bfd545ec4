// weft/context.hpp: cancellation, deadlines and values that travel down a tree of calls.
//
// A context is a cheap handle. Its tree is cancelled from any node downwards: when cancel() returns
// every context below has its err and cause set, its stop token stopped, its done() closed and
// the goroutines that waited with it woken. err() is there from the instant at which done() closes;
// stop tokens are stopped just before. Stop callbacks and functions come after all that, so these
// may cancel again; the first call of cancel() runs the callbacks. The first cause wins.
//
// A context with a deadline for which no handle is left, neither on it nor on its done() or on what
// was derived from it, goes at once, and its timer with it: the program could not see its end.
// Functions of after_func keep it until then; so does a stop token that was taken from it.
//
// What waits for goroutines or for time can be given a context (select: recv(ctx.done())), and so
// can dial, resolve and the calls of weft/http.hpp. Reads, writes, accept and copies of connections
// and files have deadlines instead, and close(). To end them with a context, of a shared_ptr c:
//
//   auto undo = after_func(ctx, [c] { c->set_deadline(clock::now()); });  // or c->close()
#pragma once

#include <weft/chan.hpp>
#include <weft/detail/config.hpp>
#include <weft/detail/context_wait.hpp>
#include <weft/select.hpp>
#include <weft/time.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>

namespace weft {

// Why an operation of weft ended early. Equal to std::errc's operation_canceled, timed_out,
// bad_file_descriptor and timed_out.
enum class errc { canceled = 1, deadline_exceeded, closed, timed_out };

WEFT_API const std::error_category& error_category() noexcept;
inline std::error_code make_error_code(errc e) noexcept {
  return {static_cast<int>(e), error_category()};
}

}  // namespace weft

template <>
struct std::is_error_code_enum<weft::errc> : std::true_type {};

namespace weft {

class context;

// The name of a value in a context. Two keys are different whatever they are called.
template <class T>
class context_key {
 public:
  explicit context_key(std::string_view name) : name_(name) {}
  context_key(const context_key&) = delete;
  context_key& operator=(const context_key&) = delete;
  std::string_view name() const noexcept { return name_; }

 private:
  std::string name_;
};

namespace detail {

class context_core;

class WEFT_API context_ref {
 public:
  context_ref() noexcept = default;
  explicit context_ref(context_core* owned) noexcept : core_(owned) {}
  context_ref(const context_ref& other) noexcept;
  context_ref(context_ref&& other) noexcept : core_(std::exchange(other.core_, nullptr)) {}
  context_ref& operator=(context_ref other) noexcept {
    std::swap(core_, other.core_);
    return *this;
  }
  ~context_ref();
  context_core* get() const noexcept { return core_; }
  // Returns: the core, with the reference to it.
  context_core* detach() noexcept { return std::exchange(core_, nullptr); }

 private:
  context_core* core_ = nullptr;  // null: the background
};

// Returns: the channel that is closed when the context ends; null: it never ends.
WEFT_API const chan_core* find_done(context_core* c) noexcept;
WEFT_API context_ref make_cancellable(const context_ref& parent);
WEFT_API context_ref make_with_deadline(const context_ref& parent, std::int64_t deadline_ns);
WEFT_API context_ref make_with_value(const context_ref& parent, const void* key,
                                     std::shared_ptr<const void> value);
WEFT_API context_ref make_without_cancel(const context_ref& parent);
WEFT_API context_ref make_with_stop(const context_ref& parent, std::stop_token token);
WEFT_API void cancel_context(const context_ref& c, errc why, std::exception_ptr cause);
WEFT_API const void* find_value(const context_ref& c, const void* key) noexcept;
WEFT_API std::shared_ptr<void> watch_context(const context_ref& c,
                                             std::unique_ptr<timer_function> f);
WEFT_API bool unwatch_context(void* watch);

}  // namespace detail

// A cheap handle; a copy is another handle on the same context.
class WEFT_API context {
 public:
  // Never cancelled, no deadline, no values.
  static context background() { return context(detail::context_ref()); }

  // Closed when the context ends. The background's is nil.
  receiver<std::monostate> done() const;
  // Returns: empty while live, then errc::canceled or errc::deadline_exceeded.
  [[nodiscard]] std::error_code err() const noexcept;
  // Returns: null while live; then what was given to cancel, else err() as a std::system_error.
  std::exception_ptr cause() const;
  std::optional<clock::time_point> deadline() const noexcept;
  // A token that is stopped when the context ends.
  std::stop_token stop_token() const;
  // Returns: the value of the nearest context that has the key, or null.
  template <class T>
  const T* value(const context_key<T>& key) const noexcept {
    return static_cast<const T*>(detail::find_value(ref_, &key));
  }

  // One that was moved from is the background.
  context(const context&) = default;
  context(context&& other) noexcept
      : ref_(std::move(other.ref_)), done_(std::exchange(other.done_, nullptr)) {}
  context& operator=(context other) noexcept {
    std::swap(ref_, other.ref_);
    std::swap(done_, other.done_);
    return *this;
  }
  ~context() = default;

  // For the functions below.
  explicit context(detail::context_ref ref) noexcept
      : ref_(std::move(ref)),
        done_(ref_.get() != nullptr ? detail::find_done(ref_.get()) : nullptr) {}
  const detail::context_ref& ref() const noexcept { return ref_; }
  // What done() is a handle on; null if that is nil.
  const detail::chan_core* done_core() const noexcept { return done_; }

 private:
  detail::context_ref ref_;
  const detail::chan_core* done_;  // ref_'s
};

// Ends a context and everything below it. A copy ends the same one; dropping it ends nothing; only
// the first call counts.
class cancel_function {
 public:
  explicit cancel_function(detail::context_ref ref) noexcept : ref_(std::move(ref)) {}
  void operator()() const { detail::cancel_context(ref_, errc::canceled, nullptr); }
  // An error code that says that there was no error is no cause.
  void operator()(std::error_code cause) const {
    (*this)(cause ? std::make_exception_ptr(std::system_error(cause)) : std::exception_ptr());
  }
  void operator()(std::exception_ptr cause) const {
    detail::cancel_context(ref_, errc::canceled, std::move(cause));
  }

 private:
  detail::context_ref ref_;
};

// auto [ctx, cancel] = with_cancel(parent);
struct [[nodiscard]] cancellable {
  context ctx;
  cancel_function cancel;
};

inline cancellable with_cancel(const context& parent) {
  detail::context_ref ref = detail::make_cancellable(parent.ref());
  return {context(ref), cancel_function(ref)};
}
// The earlier of its own deadline and its parent's counts.
template <class Clock, class Duration>
cancellable with_deadline(const context& parent, std::chrono::time_point<Clock, Duration> when) {
  std::int64_t deadline_ns = 0;
  if constexpr (std::is_same_v<Clock, clock>) {
    deadline_ns = detail::to_ns(when.time_since_epoch());
  } else {
    deadline_ns = detail::deadline_after(detail::ns_until(when));
  }
  detail::context_ref ref = detail::make_with_deadline(parent.ref(), deadline_ns);
  return {context(ref), cancel_function(ref)};
}
template <class Rep, class Period>
cancellable with_timeout(const context& parent, std::chrono::duration<Rep, Period> d) {
  detail::context_ref ref =
      detail::make_with_deadline(parent.ref(), detail::deadline_after(detail::to_ns(d)));
  return {context(ref), cancel_function(ref)};
}
template <class T, class U>
[[nodiscard]] context with_value(const context& parent, const context_key<T>& key, U&& value) {
  return context(detail::make_with_value(parent.ref(), &key,
                                         std::make_shared<const T>(std::forward<U>(value))));
}
// Keeps the values and drops the rest.
[[nodiscard]] inline context without_cancel(const context& parent) {
  return context(detail::make_without_cancel(parent.ref()));
}
// Ends when the token is stopped, too.
[[nodiscard]] inline context with_stop(const context& parent, std::stop_token token) {
  return context(detail::make_with_stop(parent.ref(), std::move(token)));
}

// Calls f in a goroutine of its own when the context has ended. Returns: a function that returns
// true if it prevented that, and that waits for nothing, as Go's: after false f may be running, or
// not even have begun. So f owns what it uses, or uses what lives longer. (For locals there is a
// goroutine of a `group` that receives from done(): the group's destructor waits for it.) Dropping
// the function prevents nothing; while it is kept, so is f.
template <class F>
[[nodiscard]] auto after_func(const context& c, F&& f) {
  return [watch = detail::watch_context(
              c.ref(), std::make_unique<detail::timer_function_of<std::decay_t<F>>>(
                           std::forward<F>(f)))] { return detail::unwatch_context(watch.get()); };
}

template <class R>
std::error_code future<R>::wait(const context& c) const {
  require_state();
  return detail::wait_with(c, [this](detail::patience limit) { return state_->wait_until(limit); });
}

namespace this_goroutine {

// Returns: the context's error if that ended first.
template <class Rep, class Period>
[[nodiscard]] std::error_code sleep_for(const context& c, std::chrono::duration<Rep, Period> d) {
  if (c.err()) return c.err();
  const receiver<std::monostate> done = c.done();
  const std::size_t taken = select(recv(done), weft::after(d, detail::no_handler{}));
  return taken == 0 ? c.err() : std::error_code();
}

}  // namespace this_goroutine

// Most often there is no wait, or the context never ends: then these cost little more than without
// a context, and are inlined for that.
template <class T>
template <class U>
[[gnu::always_inline]] inline std::error_code detail::chan_handle<T>::do_send(const context& c,
                                                                              U&& value) const {
  if constexpr (chan_element<T>::is_inline) {
    if (chan_core* const to = ref_.get()) {
      const chan_core* const done = c.done_core();
      outgoing<T> out(std::forward<U>(value));  // a copy: it is trivially copyable
      chan_outcome outcome = chan_outcome::would_wait;
      if (done == nullptr) {
        outcome = out.send_to(to);
      } else if (!done->is_closed_now() && to->could_send()) {
        outcome = out.try_send_to(to);
      }
      if (outcome == chan_outcome::done) return {};
    }
  }
  return do_send_slow(c, std::forward<U>(value));
}

template <class T>
[[gnu::always_inline]] inline expected<T> detail::chan_handle<T>::do_recv(const context& c) const {
  if constexpr (chan_element<T>::is_inline) {
    if (chan_core* const from = ref_.get()) {
      const chan_core* const done = c.done_core();
      incoming<T> in;
      chan_outcome outcome = chan_outcome::would_wait;
      if (done == nullptr) {
        outcome = in.receive_from(from);
      } else if (!done->is_closed_now() && from->has_values_hint()) {
        outcome = in.try_receive_from(from);
      }
      if (outcome == chan_outcome::done) return in.take(from, to_expected<T>);
    }
  }
  return do_recv_slow(c);
}

// These try once more, and then let the context end the wait.
template <class T>
template <class U>
[[gnu::noinline]] std::error_code detail::chan_handle<T>::do_send_slow(const context& c,
                                                                       U&& value) const {
  chan_core* const to = ref_.get();
  if (to != nullptr && to->is_closed_now()) throw_closed_send();
  const chan_core* const done = c.done_core();
  if (done != nullptr && done->is_closed_now()) return c.err();
  if (to == nullptr) return wait_for_end(c, wait_reason::chan_send_nil);
  if (done != nullptr) done->require_home();
  const chan_ref kept = ref_;  // a cancel may look at the channel when the value has been received
  outgoing<T> out(std::forward<U>(value));
  chan_outcome outcome = chan_outcome::would_wait;
  if (done == nullptr) {
    outcome = out.send_to(to);
  } else {
    context_interruption interruption(c);
    outcome = to->send_within(out.element(), patience(interruption));
  }
  if (outcome == chan_outcome::done) {
    out.sent();
    return {};
  }
  if constexpr (!std::is_const_v<std::remove_reference_t<U>>) out.return_to(value);
  if (outcome == chan_outcome::closed) throw_closed_send();
  return c.err();
}

template <class T>
[[gnu::noinline]] expected<T> detail::chan_handle<T>::do_recv_slow(const context& c) const {
  chan_core* const from = ref_.get();
  const chan_core* const done = c.done_core();
  if (done != nullptr && done->is_closed_now()) return std::unexpected(c.err());
  if (from == nullptr) return std::unexpected(wait_for_end(c, wait_reason::chan_receive_nil));
  if (done != nullptr) done->require_home();
  const chan_ref kept = ref_;  // as in do_send_slow
  incoming<T> in;
  chan_outcome outcome = chan_outcome::would_wait;
  if (done == nullptr) {
    outcome = in.receive_from(from);
  } else {
    context_interruption interruption(c);
    outcome = from->receive_within(in.element(), patience(interruption));
  }
  if (outcome == chan_outcome::done) {
    return in.take(from, to_expected<T>);
  }
  return std::unexpected(outcome == chan_outcome::closed ? make_error_code(errc::closed) : c.err());
}

}  // namespace weft
