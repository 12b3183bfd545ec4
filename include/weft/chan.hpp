// weft/chan.hpp: typed channels between goroutines, and between goroutines and plain threads.
//
// A chan<T> is a handle; a copy is another handle on the same channel. A channel lives as long as
// it has a handle. Dropping the last handle destroys the values inside, but does not count as
// close(). Every member may be called from any number of goroutines and threads at once.
//
// Values are received in the order in which they were sent, and waiting goroutines are served in
// the order in which they came. If T's move throws, the exception leaves the call that moved the
// value, and the value stays with its sender or in the channel.
#pragma once

#include <weft/detail/chan_core.hpp>
#include <weft/detail/config.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <expected>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <type_traits>
#include <utility>

namespace weft {

// What try_send and try_recv report.
enum class chan_status { ok, full, empty, closed };

// Thrown by a send on a closed channel, and by close() of a closed channel.
class WEFT_API closed_channel : public std::logic_error {
 public:
  explicit closed_channel(const char* what);
};
// Thrown by close() of the nil channel.
class WEFT_API nil_channel : public std::logic_error {
 public:
  explicit nil_channel(const char* what);
};

class context;
// A T, or the error that took its place: `return std::unexpected(ctx.err());`.
template <class T>
using expected = std::expected<T, std::error_code>;

template <class T>
class chan;
template <class T>
class sender;
template <class T>
class receiver;

namespace detail {

[[noreturn]] WEFT_API void throw_closed_send();
[[noreturn]] WEFT_API void throw_closed_twice();
[[noreturn]] WEFT_API void throw_nil_close();
[[noreturn]] WEFT_API void wait_for_ever(wait_reason reason);

// A counted reference to a channel; null is the nil channel.
class chan_ref {
 public:
  chan_ref() noexcept = default;
  explicit chan_ref(chan_core* owned) noexcept : core_(owned) {}
  chan_ref(const chan_ref& other) noexcept : core_(other.core_) {
    if (core_ != nullptr) core_->retain();
  }
  chan_ref(chan_ref&& other) noexcept : core_(std::exchange(other.core_, nullptr)) {}
  chan_ref& operator=(chan_ref other) noexcept {
    std::swap(core_, other.core_);
    return *this;
  }
  ~chan_ref() {
    if (core_ != nullptr) core_->release();
  }
  chan_core* get() const noexcept { return core_; }
  bool operator==(const chan_ref&) const = default;

 private:
  chan_core* core_ = nullptr;
};

// A T on its way into a channel, in the form of an element. Owns the value until it is sent.
template <class T>
class outgoing {
  using element_type = chan_element<T>;

 public:
  template <class U>
  explicit outgoing(U&& value) {
    if constexpr (element_type::is_inline) {
      ::new (static_cast<void*>(element_)) T(std::forward<U>(value));
    } else {
      element_type::put_box(element_, new typename element_type::box(std::forward<U>(value)));
    }
  }
  outgoing(const outgoing&) = delete;
  outgoing& operator=(const outgoing&) = delete;
  ~outgoing() {
    if constexpr (!element_type::is_inline) element_type::destroy(element_);
  }

  void* element() noexcept { return element_; }
  chan_outcome send_to(chan_core* c) {
    if constexpr (sizeof element_ == chan_word) {
      std::uint64_t word = 0;
      std::memcpy(&word, element_, sizeof word);
      return c->send_word(word);
    } else {
      return c->send(element_);
    }
  }
  chan_outcome send_until(chan_core* c, const chan_core* done) {
    if constexpr (sizeof element_ == chan_word) {
      std::uint64_t word = 0;
      std::memcpy(&word, element_, sizeof word);
      return c->send_word_until(word, done);
    } else {
      return done->cannot_end() ? chan_outcome::would_wait : c->send_until(element_, done);
    }
  }
  void sent() noexcept {
    if constexpr (!element_type::is_inline) element_type::put_box(element_, nullptr);
  }
  bool was_sent() const noexcept {
    if constexpr (element_type::is_inline) {
      return false;
    } else {
      return element_type::box_in(element_) == nullptr;
    }
  }
  // Requires: T travels in a box, and the value has not been sent.
  const T* value() const noexcept { return std::addressof(element_type::box_in(element_)->value); }
  // Moves a value that was not sent back into the object it came from. If T's move constructor
  // cannot throw, or T has no move assignment, that object is destroyed and constructed anew;
  // otherwise it is assigned to. If the constructor throws after all, no valid object is left, and
  // the process ends. An inline value was copied, so it needs no way back.
  void return_to(T& value) {
    // A base class must stay the part of a larger object that it is.
    constexpr bool may_be_base = std::has_virtual_destructor_v<T> && !std::is_final_v<T>;
    if constexpr (element_type::is_inline) {
      return;
    } else if constexpr ((std::is_nothrow_move_constructible_v<T> && !may_be_base) ||
                         !std::is_move_assignable_v<T>) {
      [&]() noexcept {
        std::destroy_at(std::addressof(value));
        std::construct_at(std::addressof(value), std::move(element_type::box_in(element_)->value));
      }();
    } else {
      value = std::move(element_type::box_in(element_)->value);
    }
  }

 private:
  alignas(chan_word) std::byte element_[element_type::words * chan_word] = {};
};

// Room for an element that comes out of a channel.
template <class T>
class incoming {
  using element_type = chan_element<T>;

 public:
  void* element() noexcept { return element_; }
  chan_outcome receive_from(chan_core* c) {
    if constexpr (sizeof element_ == chan_word) {
      const chan_word_received r = c->receive_word();
      std::memcpy(element_, &r.word, sizeof r.word);
      return r.outcome;
    } else {
      return c->receive(element_);
    }
  }

  chan_outcome receive_until(chan_core* c, const chan_core* done) {
    if constexpr (sizeof element_ == chan_word) {
      const chan_word_received r = c->receive_word_until(done);
      std::memcpy(element_, &r.word, sizeof r.word);
      return r.outcome;
    } else {
      return done->cannot_end() ? chan_outcome::would_wait : c->receive_until(element_, done);
    }
  }

  // Passes the received value to `use` as an rvalue. Requires: the element was filled. If the move
  // throws, the value goes back into the channel.
  template <class Use>
  decltype(auto) take(chan_core* from, Use&& use) {
    if constexpr (element_type::is_inline) {
      return std::forward<Use>(use)(std::move(*std::launder(reinterpret_cast<T*>(element_))));
    } else {
      // The result is constructed directly in the caller's object, so this move is the last one.
      struct keeper {
        typename element_type::box* box;
        chan_core* from;
        int exceptions = std::uncaught_exceptions();
        ~keeper() {
          if (std::uncaught_exceptions() > exceptions) {
            from->put_back(box);
          } else {
            delete box;
          }
        }
      };
      const keeper k{element_type::box_in(element_), from};
      return std::forward<Use>(use)(std::move(k.box->value));
    }
  }
  // Destroys the received value.
  void drop() {
    if constexpr (!element_type::is_inline) element_type::destroy(element_);
  }

 private:
  alignas(chan_word) std::byte element_[element_type::words * chan_word] = {};
};

template <class T>
std::optional<T> to_optional(T&& value) {
  return std::optional<T>(std::move(value));
}

template <class T>
expected<T> to_expected(T&& value) {
  return expected<T>(std::in_place, std::move(value));
}

// What chan, sender and receiver have in common.
template <class T>
class chan_handle {
 public:
  // Returns: how many values wait, at some instant of the call. For display, not for decisions.
  std::size_t size() const noexcept { return ref_.get() != nullptr ? ref_.get()->size_hint() : 0; }
  // Returns: how many values the channel holds; 0 for the nil channel.
  std::size_t capacity() const noexcept {
    return ref_.get() != nullptr ? ref_.get()->capacity() : 0;
  }
  // Returns: false for the nil channel.
  explicit operator bool() const noexcept { return ref_.get() != nullptr; }

  // Used by select.
  chan_core* core() const noexcept { return ref_.get(); }

 protected:
  chan_handle() noexcept = default;
  explicit chan_handle(chan_ref ref) noexcept : ref_(std::move(ref)) {}

  void do_send(T&& value) const {
    if (ref_.get() == nullptr) wait_for_ever(wait_reason::chan_send_nil);
    outgoing<T> out(std::move(value));
    if (out.send_to(ref_.get()) == chan_outcome::closed) throw_closed_send();
    out.sent();
  }

  // The overloads with a context are defined in weft/context.hpp.
  template <class U>
  std::error_code do_send(const context& c, U&& value) const;
  template <class U>
  std::error_code do_send_slow(const context& c, U&& value) const;
  expected<T> do_recv(const context& c) const;
  expected<T> do_recv_slow(const context& c) const;

  // A const T& is copied, a T&& moved.
  template <class U>
  chan_status do_try_send(U&& value) const {
    chan_core* const c = ref_.get();
    if (c == nullptr) return chan_status::full;
    if constexpr (!chan_element<T>::is_inline) {
      // These checks come before anything is copied or moved.
      if (c->is_closed_now()) return chan_status::closed;
      if (!c->could_send()) return chan_status::full;
    }
    outgoing<T> out(std::forward<U>(value));
    const chan_outcome outcome = c->try_send(out.element());
    if (outcome == chan_outcome::done) {
      out.sent();
      return chan_status::ok;
    }
    if constexpr (!std::is_const_v<std::remove_reference_t<U>>) out.return_to(value);
    return outcome == chan_outcome::closed ? chan_status::closed : chan_status::full;
  }

  std::optional<T> do_recv() const {
    chan_core* const c = ref_.get();
    if (c == nullptr) wait_for_ever(wait_reason::chan_receive_nil);
    incoming<T> in;
    if (in.receive_from(c) == chan_outcome::closed) return std::nullopt;
    return in.take(c, to_optional<T>);
  }

  std::expected<T, chan_status> do_try_recv() const {
    chan_core* const c = ref_.get();
    if (c == nullptr) return std::unexpected(chan_status::empty);
    incoming<T> in;
    switch (c->try_receive(in.element())) {
      case chan_outcome::done:
        return in.take(c,
                       [](T&& value) { return std::expected<T, chan_status>(std::move(value)); });
      case chan_outcome::closed:
        return std::unexpected(chan_status::closed);
      case chan_outcome::would_wait:
        break;
    }
    return std::unexpected(chan_status::empty);
  }

  void do_close() const {
    if (ref_.get() == nullptr) throw_nil_close();
    if (!ref_.get()->close()) throw_closed_twice();
  }

  chan_ref ref_;
};

// The iterator of `for (auto v : c)`, which receives until the channel is closed and drained.
template <class T>
class chan_iterator {
 public:
  using value_type = T;
  using difference_type = std::ptrdiff_t;
  using iterator_concept = std::input_iterator_tag;

  explicit chan_iterator(receiver<T> from) : from_(std::move(from)), value_(from_.recv()) {}

  // The caller may move from the result, because each value is seen only once.
  T&& operator*() const noexcept { return std::move(*value_); }
  chan_iterator& operator++() {
    value_.reset();
    ::new (static_cast<void*>(&value_)) std::optional<T>(from_.recv());  // in place
    return *this;
  }
  void operator++(int) { ++*this; }
  bool operator==(std::default_sentinel_t) const noexcept { return !value_.has_value(); }

 private:
  receiver<T> from_;
  mutable std::optional<T> value_;
};

}  // namespace detail

// A typed channel, as the head of this file describes it. Requires: T can be moved. For a pure
// signal use chan<std::monostate>.
template <class T>
class chan : public detail::chan_handle<T> {
  static_assert(std::is_object_v<T> && !std::is_const_v<T>, "a channel carries objects");
  static_assert(std::is_move_constructible_v<T>, "what a channel carries can be moved");

 public:
  // Makes an unbuffered channel: every send waits until a receiver takes the value.
  chan() : chan(std::size_t{0}) {}
  // Makes a channel that holds up to `capacity` values. Throws: std::length_error, std::bad_alloc.
  explicit chan(std::size_t capacity)
      : detail::chan_handle<T>(
            detail::chan_ref(detail::chan_core::make(capacity, detail::chan_element<T>::shape))) {}
  // The nil channel: it blocks for ever, and is never ready in a select.
  template <std::same_as<std::nullptr_t> N>
  explicit(false) chan(N) noexcept {}

  // Delivers `v`, waiting while the channel is full. Throws: closed_channel, also if the channel is
  // closed during the wait. Blocks: the goroutine; for ever on the nil channel.
  void send(T v) const { this->do_send(std::move(v)); }

  // Like send(v), but gives up when the context ends. Returns: the context's error then; `v` keeps
  // its value.
  [[nodiscard, gnu::always_inline]] std::error_code send(const context& c, const T& v) const
    requires std::is_copy_constructible_v<T>
  {
    return this->do_send(c, v);
  }
  [[nodiscard, gnu::always_inline]] std::error_code send(const context& c, T&& v) const {
    return this->do_send(c, std::move(v));
  }

  // Returns: the next value, or nothing once the channel is closed and drained. Blocks: the
  // goroutine; for ever on the nil channel.
  std::optional<T> recv() const { return this->do_recv(); }
  // Like recv(), but gives up when the context ends. Returns: the context's error then;
  // errc::closed once the channel is closed and drained.
  [[nodiscard, gnu::always_inline]] expected<T> recv(const context& c) const {
    return this->do_recv(c);
  }

  // try_send and try_recv never wait. An lvalue is copied; an rvalue is moved from only if the
  // result is ok. The nil channel counts as full for try_send and as empty for try_recv.
  [[nodiscard]] chan_status try_send(const T& v) const
    requires std::is_copy_constructible_v<T>
  {
    return this->do_try_send(v);
  }
  [[nodiscard]] chan_status try_send(T&& v) const { return this->do_try_send(std::move(v)); }
  [[nodiscard]] std::expected<T, chan_status> try_recv() const { return this->do_try_recv(); }

  // Closes the channel. Waiting receivers get nothing, and waiting senders get closed_channel.
  // Values inside can still be received. Throws: closed_channel if the channel is closed already,
  // nil_channel if it is nil.
  void close() const { this->do_close(); }

  bool operator==(const chan& other) const noexcept { return this->ref_ == other.ref_; }

  auto begin() const { return detail::chan_iterator<T>(receiver<T>(*this)); }
  std::default_sentinel_t end() const noexcept { return {}; }

 private:
  friend class sender<T>;
  friend class receiver<T>;
};

// The sending end of a channel. It has those members of chan that send, and close().
template <class T>
class sender : public detail::chan_handle<T> {
 public:
  explicit(false) sender(const chan<T>& c) noexcept : detail::chan_handle<T>(c.ref_) {}
  template <std::same_as<std::nullptr_t> N>
  explicit(false) sender(N) noexcept {}

  void send(T v) const { this->do_send(std::move(v)); }
  [[nodiscard, gnu::always_inline]] std::error_code send(const context& c, const T& v) const
    requires std::is_copy_constructible_v<T>
  {
    return this->do_send(c, v);
  }
  [[nodiscard, gnu::always_inline]] std::error_code send(const context& c, T&& v) const {
    return this->do_send(c, std::move(v));
  }
  [[nodiscard]] chan_status try_send(const T& v) const
    requires std::is_copy_constructible_v<T>
  {
    return this->do_try_send(v);
  }
  [[nodiscard]] chan_status try_send(T&& v) const { return this->do_try_send(std::move(v)); }
  void close() const { this->do_close(); }

  bool operator==(const sender& other) const noexcept { return this->ref_ == other.ref_; }
};

// The receiving end of a channel. It has those members of chan that receive.
template <class T>
class receiver : public detail::chan_handle<T> {
 public:
  explicit(false) receiver(const chan<T>& c) noexcept : detail::chan_handle<T>(c.ref_) {}
  template <std::same_as<std::nullptr_t> N>
  explicit(false) receiver(N) noexcept {}
  // Used by timers and contexts.
  explicit receiver(detail::chan_ref ref) noexcept : detail::chan_handle<T>(std::move(ref)) {}

  std::optional<T> recv() const { return this->do_recv(); }
  [[nodiscard, gnu::always_inline]] expected<T> recv(const context& c) const {
    return this->do_recv(c);
  }
  [[nodiscard]] std::expected<T, chan_status> try_recv() const { return this->do_try_recv(); }

  bool operator==(const receiver& other) const noexcept { return this->ref_ == other.ref_; }

  auto begin() const { return detail::chan_iterator<T>(*this); }
  std::default_sentinel_t end() const noexcept { return {}; }
};

}  // namespace weft
