// weft/context.hpp: cancellation, deadlines and values that travel down a tree of calls.
//
// A context is a cheap handle. Cancelling a context cancels every context below it in its tree.
// When cancel() returns, each of them has its err and cause set, its stop token stopped and its
// done() closed, and the goroutines that waited with it have been woken. err() becomes visible at
// the instant at which done() closes; stop tokens are stopped just before. Stop callbacks and
// functions of after_func run after all that, so they may cancel again. The first call of cancel()
// runs the stop callbacks. The first cause wins.
//
// A context with a deadline does not wait for its time when the program can no longer see its end:
// when no handle is left on the context, on its done() or on a context derived from it. Then the
// context is destroyed at once, and its timer with it. Functions of after_func keep the context
// until its end, and so does a stop token that was taken from it.
//
// Calls that wait for goroutines or for time can be given a context (a select: recv(ctx.done())).
// So can dial, resolve and the calls of weft/http.hpp. Reads, writes, accepts and copies of
// connections and files have deadlines and close() instead. To end one of them with a context,
// where `c` is a shared_ptr:
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

// Why an operation of weft ended early. These codes equal the following conditions of std::errc, in
// the same order: operation_canceled, timed_out, bad_file_descriptor, timed_out.
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

// A key of values in contexts. Two keys differ even if their names are equal.
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
  // Returns: the core. The caller takes over the reference.
  context_core* detach() noexcept { return std::exchange(core_, nullptr); }

 private:
  context_core* core_ = nullptr;  // null: the background
};

// Returns: the channel that is closed when the context ends; null if the context never ends.
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

// A node in a tree of contexts. A context is a cheap handle; a copy is another handle on the same
// context.
class WEFT_API context {
 public:
  // Returns: the root of all trees. It is never cancelled and has neither deadline nor values.
  static context background() { return context(detail::context_ref()); }

  // Returns: a channel that is closed when the context ends; the nil channel for the background.
  receiver<std::monostate> done() const;
  // Returns: no error while the context lives; then errc::canceled or errc::deadline_exceeded.
  [[nodiscard]] std::error_code err() const noexcept;
  // Returns: null while the context lives; then the cause that was given to cancel, or without one
  // err() as a std::system_error.
  std::exception_ptr cause() const;
  std::optional<clock::time_point> deadline() const noexcept;
  // Returns: a token that is stopped when the context ends.
  std::stop_token stop_token() const;
  // Returns: the value in this context or the nearest one above that has the key, or null.
  template <class T>
  const T* value(const context_key<T>& key) const noexcept {
    return static_cast<const T*>(detail::find_value(ref_, &key));
  }

  // A context that was moved from is the background.
  context(const context&) = default;
  context(context&& other) noexcept
      : ref_(std::move(other.ref_)), done_(std::exchange(other.done_, nullptr)) {}
  context& operator=(context other) noexcept {
    std::swap(ref_, other.ref_);
    std::swap(done_, other.done_);
    return *this;
  }
  ~context() = default;

  // Used by the functions below.
  explicit context(detail::context_ref ref) noexcept
      : ref_(std::move(ref)),
        done_(ref_.get() != nullptr ? detail::find_done(ref_.get()) : nullptr) {}
  const detail::context_ref& ref() const noexcept { return ref_; }
  // Returns: the channel of done(); null if done() is nil.
  const detail::chan_core* done_core() const noexcept { return done_; }

 private:
  detail::context_ref ref_;
  const detail::chan_core* done_;  // belongs to ref_
};

// Cancels one context and every context below it. A copy cancels the same context. Dropping it
// cancels nothing. Only the first call counts.
class cancel_function {
 public:
  explicit cancel_function(detail::context_ref ref) noexcept : ref_(std::move(ref)) {}
  void operator()() const { detail::cancel_context(ref_, errc::canceled, nullptr); }
  // A `cause` that stands for success counts as no cause.
  void operator()(std::error_code cause) const {
    (*this)(cause ? std::make_exception_ptr(std::system_error(cause)) : std::exception_ptr());
  }
  void operator()(std::exception_ptr cause) const {
    detail::cancel_context(ref_, errc::canceled, std::move(cause));
  }

 private:
  detail::context_ref ref_;
};

// A new context and the function that cancels it: auto [ctx, cancel] = with_cancel(parent);
struct [[nodiscard]] cancellable {
  context ctx;
  cancel_function cancel;
};

// Makes a context below `parent` that can be cancelled.
inline cancellable with_cancel(const context& parent) {
  detail::context_ref ref = detail::make_cancellable(parent.ref());
  return {context(ref), cancel_function(ref)};
}
// Makes a context below `parent` that ends at `when`, or at its parent's deadline if that is
// earlier.
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
// Makes a context below `parent` that ends after `d`, or at its parent's deadline if that is
// earlier.
template <class Rep, class Period>
cancellable with_timeout(const context& parent, std::chrono::duration<Rep, Period> d) {
  detail::context_ref ref =
      detail::make_with_deadline(parent.ref(), detail::deadline_after(detail::to_ns(d)));
  return {context(ref), cancel_function(ref)};
}
// Makes a context below `parent` that has `value` for `key`.
template <class T, class U>
[[nodiscard]] context with_value(const context& parent, const context_key<T>& key, U&& value) {
  return context(detail::make_with_value(parent.ref(), &key,
                                         std::make_shared<const T>(std::forward<U>(value))));
}
// Makes a context that has the values of `parent` but neither its deadline nor its cancellation.
[[nodiscard]] inline context without_cancel(const context& parent) {
  return context(detail::make_without_cancel(parent.ref()));
}
// Makes a context below `parent` that also ends when the token is stopped.
[[nodiscard]] inline context with_stop(const context& parent, std::stop_token token) {
  return context(detail::make_with_stop(parent.ref(), std::move(token)));
}

// Calls f in a goroutine of its own when the context has ended. Returns: an undo function, which
// returns true if it prevented the call. As in Go, it waits for nothing: after false f may be
// running, or may not even have begun. So f must own what it uses, or use only what lives longer.
// (For local variables use a goroutine of a `group` that receives from done(): the destructor of
// the group waits for it.) What the undo function returns may be ignored, as in Go. Dropping the
// undo function prevents nothing; f lives as long as the undo function.
template <class F>
[[nodiscard("keep it to be able to undo, or cast it to void")]] auto after_func(const context& c,
                                                                                F&& f) {
  return [watch = detail::watch_context(
              c.ref(), std::make_unique<detail::timer_function_of<std::decay_t<F>>>(
                           std::forward<F>(f)))] { return detail::unwatch_context(watch.get()); };
}

template <class R>
std::error_code future<R>::wait(const context& c) const {
  require_state();
  return detail::wait_with(c,
                           [this](detail::wait_limit limit) { return state_->wait_until(limit); });
}

namespace this_goroutine {

// Returns: the context's error if the context ended first.
template <class Rep, class Period>
[[nodiscard]] std::error_code sleep_for(const context& c, std::chrono::duration<Rep, Period> d) {
  if (c.err()) return c.err();
  const receiver<std::monostate> done = c.done();
  const std::size_t taken = select(recv(done), weft::after(d, detail::no_handler{}));
  return taken == 0 ? c.err() : std::error_code();
}

}  // namespace this_goroutine

// Usually the operation is done in the end. These calls then cost little more than calls without a
// context; they are inlined for that.
template <class T>
template <class U>
[[gnu::always_inline]] inline std::error_code detail::chan_handle<T>::do_send(const context& c,
                                                                              U&& value) const {
  if constexpr (chan_element<T>::is_inline) {
    if (chan_core* const to = ref_.get()) {
      const chan_core* const done = c.done_core();
      outgoing<T> out(std::forward<U>(value));  // a copy: it is trivially copyable
      const chan_outcome outcome = done == nullptr ? out.send_to(to) : out.send_until(to, done);
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
      const chan_outcome outcome =
          done == nullptr ? in.receive_from(from) : in.receive_until(from, done);
      if (outcome == chan_outcome::done) return in.take(from, to_expected<T>);
    }
  }
  return do_recv_slow(c);
}

// The slow halves find out what the matter was. If it was nothing (or T travels in a box), they
// wait until the operation is done or the context ends.
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
  outgoing<T> out(std::forward<U>(value));
  chan_outcome outcome = chan_outcome::would_wait;
  if (done == nullptr) {
    outcome = out.send_to(to);
  } else {
    outcome = to->send_until(out.element(), done);
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
  incoming<T> in;
  chan_outcome outcome = chan_outcome::would_wait;
  if (done == nullptr) {
    outcome = in.receive_from(from);
  } else {
    outcome = from->receive_until(in.element(), done);
  }
  if (outcome == chan_outcome::done) {
    return in.take(from, to_expected<T>);
  }
  return std::unexpected(outcome == chan_outcome::closed ? make_error_code(errc::closed) : c.err());
}

}  // namespace weft
