// weft/select.hpp: waiting for one of several channels.
//
//     select(recv(requests, [&](std::optional<request> r) { ... }),   // nullopt: closed
//            send(replies, reply, [&] { ... }),
//            after(100ms, [&] { ... }),
//            otherwise([&] { ... }));                                  // Go's default
//
// Returns the index of the case taken. Among ready cases the choice is uniformly random. Handlers
// run in the caller, after the select is over. A handler may be left out. The handler of recv may
// take no argument. A receiver or channel c in place of a case means recv(c). A select without
// cases blocks for ever.
#pragma once

#include <weft/chan.hpp>
#include <weft/detail/config.hpp>
#include <weft/detail/select_core.hpp>
#include <weft/go.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace weft {

namespace detail {

struct no_handler {
  void operator()() const noexcept {}
};

template <class T, class F>
class [[nodiscard("a case does nothing until a select has it")]] receive_case {
  static_assert(std::is_invocable_v<F&, std::optional<T>> || std::is_invocable_v<F&>,
                "the handler of recv takes a std::optional<T>, or nothing");

 public:
  receive_case(const chan_handle<T>& c, F handler) : handler_(std::move(handler)) {
    untyped_.channel = c.core();
  }
  receive_case(receive_case&& other) noexcept(std::is_nothrow_move_constructible_v<F>)
      : handler_(std::move(other.handler_)) {
    untyped_.channel = other.untyped_.channel;
  }

  chan_core* channel() const noexcept { return untyped_.channel; }

  select_case* prepare(std::span<select_case* const>) {
    untyped_.element = in_.element();
    untyped_.what = select_case::kind::receive;
    return &untyped_;
  }
  void claim() noexcept {}
  void put_aside() noexcept {}
  void finish() {
    if constexpr (std::is_invocable_v<F&, std::optional<T>>) {
      std::optional<T> value = untyped_.outcome == chan_outcome::done
                                   ? in_.take(untyped_.channel, to_optional<T>)
                                   : std::optional<T>();
      std::invoke(handler_, std::move(value));
    } else {
      if (untyped_.outcome == chan_outcome::done) in_.drop();
      std::invoke(handler_);
    }
  }

 private:
  select_case untyped_;
  incoming<T> in_;
  F handler_;
};

// What moving() returns.
template <class T>
struct moved_reference {
  T* at;
};

// Where a send gets its value from. A const value is copied. A value that is not const is moved
// from, and only if the case is taken.

// A variable of the caller.
template <class U>
struct lent_value {
  using type = U;
  U* at;
  U* get() noexcept { return at; }
};
// An object that may be gone at the end of the expression that makes the case.
template <class U>
struct passing_value : lent_value<U> {};
// A value that the case owns, because it had to be made from something else.
template <class U>
struct own_value {
  using type = U;
  std::remove_const_t<U> it;
  U* get() noexcept { return std::addressof(it); }
};

template <class U, class T>
concept sendable_as =
    std::is_same_v<std::remove_cvref_t<U>, T> ||
    std::is_same_v<std::remove_cvref_t<U>, moved_reference<T>> || std::is_convertible_v<U, T>;

template <class T, class U>
auto value_to_send(U&& x) {
  if constexpr (std::is_same_v<std::remove_cvref_t<U>, moved_reference<T>>) {
    return lent_value<T>{x.at};
  } else if constexpr (!std::is_same_v<std::remove_cvref_t<U>, T>) {
    // A selector may send the value several times, so it is copied if that is possible.
    using kept = std::conditional_t<std::is_copy_constructible_v<T>, const T, T>;
    return own_value<kept>{static_cast<T>(std::forward<U>(x))};
  } else if constexpr (std::is_lvalue_reference_v<U>) {
    static_assert(std::is_copy_constructible_v<T>,
                  "an lvalue is copied, and this one cannot be: std::move what is to be moved");
    return lent_value<const T>{std::addressof(x)};
  } else {
    return passing_value<U>{{std::addressof(x)}};
  }
}

template <class T, class Source, class F>
class [[nodiscard("a case does nothing until a select has it")]] send_case {
  static_assert(std::is_invocable_v<F&>, "the handler of a send takes nothing");
  using U = typename Source::type;

 public:
  send_case(const chan_handle<T>& c, Source source, F handler)
      : source_(std::move(source)), handler_(std::move(handler)) {
    untyped_.channel = c.core();
  }
  send_case(send_case&& other) noexcept(std::is_nothrow_move_constructible_v<F> &&
                                        std::is_nothrow_move_constructible_v<Source>)
      : source_(std::move(other.source_)), handler_(std::move(other.handler_)) {
    untyped_.channel = other.untyped_.channel;
  }

  chan_core* channel() const noexcept { return untyped_.channel; }

  select_case* prepare(std::span<select_case* const> before) {
    untyped_.what = select_case::kind::send;
    if (untyped_.channel == nullptr) return &untyped_;
    // If an earlier case moves from this object, too, that case has the value already.
    U* const value = source_.get();
    const select_case* same = nullptr;
    for (const select_case* const c : before) {
      if (moves && c->source == value && c->type == &chan_element<T>::shape) same = c;
    }
    if constexpr (std::is_const_v<U>) {
      const T* const found = same != nullptr ? holder_of(*same)->value() : value;
      out_.emplace(*found);
    } else {
      if (same != nullptr) return share(*same);
      out_.emplace(std::move(*value));
      untyped_.source = moves ? value : nullptr;
      untyped_.type = &chan_element<T>::shape;
    }
    untyped_.holder = &*out_;
    untyped_.element = out_->element();
    return &untyped_;
  }
  // This case was taken. Called before any case puts its value aside.
  void claim() noexcept {
    if (untyped_.outcome == chan_outcome::done) holder_of(untyped_)->sent();
  }
  // Another case was taken: moves the value back to where it came from.
  void put_aside() {
    if (out_ && !out_->was_sent()) {
      if constexpr (!std::is_const_v<U>) out_->return_to(*source_.get());
    }
    out_.reset();
  }
  void finish() {
    if (untyped_.outcome == chan_outcome::closed) {
      put_aside();
      throw_closed_send();
    }
    out_.reset();
    std::invoke(handler_);
  }

 private:
  static constexpr bool moves = !chan_element<T>::is_inline;

  select_case* share(const select_case& with) noexcept {
    untyped_.holder = with.holder;
    untyped_.element = holder_of(with)->element();
    return &untyped_;
  }
  static outgoing<T>* holder_of(const select_case& c) noexcept {
    return static_cast<outgoing<T>*>(c.holder);
  }

  select_case untyped_;
  Source source_;
  std::optional<outgoing<T>> out_;
  F handler_;
};

template <class C>
inline constexpr bool may_dangle = false;
template <class T, class U, class F>
inline constexpr bool may_dangle<send_case<T, passing_value<U>, F>> = true;

template <class F>
struct [[nodiscard("a case does nothing until a select has it")]] after_case {
  std::int64_t delay_ns;
  F handler;
};
template <class F>
struct [[nodiscard("a case does nothing until a select has it")]] otherwise_case {
  F handler;
};

template <class C>
inline constexpr bool is_after = false;
template <class F>
inline constexpr bool is_after<after_case<F>> = true;
template <class C>
inline constexpr bool is_otherwise = false;
template <class F>
inline constexpr bool is_otherwise<otherwise_case<F>> = true;

[[noreturn]] WEFT_API void throw_two_otherwise();

}  // namespace detail

// A case that receives. A case does not keep its channel alive: a handle must exist until the
// select is over. (A selector keeps the channels of its cases alive.)
template <class T, class F = detail::no_handler>
auto recv(const chan<T>& c, F handler = {}) {
  return detail::receive_case<T, F>(c, std::move(handler));
}
// A case that receives from a receiver.
template <class T, class F = detail::no_handler>
auto recv(const receiver<T>& c, F handler = {}) {
  return detail::receive_case<T, F>(c, std::move(handler));
}

// A case that sends x, which must live until the select is over. An lvalue is copied; an rvalue is
// moved from, and only if the case is taken. If x is not a T, a T is made from x at once, and the
// case owns that T.
template <class T, class U, class F = detail::no_handler>
  requires detail::sendable_as<U, T>
auto send(const chan<T>& c, U&& x, F handler = {}) {
  auto source = detail::value_to_send<T>(std::forward<U>(x));
  return detail::send_case<T, decltype(source), F>(c, std::move(source), std::move(handler));
}
// A case that sends x to a sender.
template <class T, class U, class F = detail::no_handler>
  requires detail::sendable_as<U, T>
auto send(const sender<T>& c, U&& x, F handler = {}) {
  auto source = detail::value_to_send<T>(std::forward<U>(x));
  return detail::send_case<T, decltype(source), F>(c, std::move(source), std::move(handler));
}

// Marks a variable from which send moves if its case is taken: send(c, weft::moving(x)). Unlike
// std::move(x), it never stands for a temporary, so a selector can accept it.
template <class T>
  requires(!std::is_const_v<T>)
[[nodiscard]] detail::moved_reference<T> moving(T& x) noexcept {
  return {std::addressof(x)};
}

// A case that is taken if no other case could be taken for the duration `d`.
template <class Rep, class Period, class F>
auto after(std::chrono::duration<Rep, Period> d, F handler) {
  return detail::after_case<F>{detail::to_ns(d), std::move(handler)};
}

// A case that is taken if no other is ready. A select has at most one of them, at any position.
template <class F = detail::no_handler>
auto otherwise(F handler = {}) {
  return detail::otherwise_case<F>{std::move(handler)};
}

namespace detail {

template <class T>
auto as_case(const chan<T>& c) {
  return recv(c);
}
template <class T>
auto as_case(const receiver<T>& c) {
  return recv(c);
}
template <class C>
  requires(is_after<C> || is_otherwise<C> || requires(C& c) { c.claim(); })
C as_case(C&& c) {
  return std::move(c);
}

// A case of a selector, of whatever kind.
class any_case {
 public:
  virtual ~any_case() = default;
  virtual select_case* prepare(std::span<select_case* const>) { return nullptr; }
  virtual void claim() noexcept {}
  virtual void put_aside() {}
  virtual void finish() = 0;
};

// Calls f. Keeps the exception that f throws, unless there is one already.
template <class F>
void keep_first(std::exception_ptr& thrown, F&& f) noexcept {
  try {
    f();
  } catch (...) {
    if (thrown == nullptr) thrown = std::current_exception();
  }
}

// Runs a select over typed cases: prepares them, takes one, moves the values of the others back.
template <class Tuple, std::size_t... I>
std::size_t select_among(Tuple& cases, std::index_sequence<I...>) {
  constexpr std::size_t n = sizeof...(I);
  constexpr std::size_t nobody = n;
  select_case* untyped[n > 0 ? n : 1] = {};
  std::size_t place[n > 0 ? n : 1] = {};  // the index of each channel case among all cases
  std::size_t count = 0;
  std::size_t default_at = nobody;
  std::size_t timeout_at = nobody;
  std::int64_t delay_ns = 0;

  [[maybe_unused]] const auto prepare =
      [&]<std::size_t at>(std::integral_constant<std::size_t, at>) {
        auto& c = std::get<at>(cases);
        using type = std::remove_cvref_t<decltype(c)>;
        if constexpr (is_otherwise<type>) {
          if (default_at != nobody) throw_two_otherwise();
          default_at = at;
        } else if constexpr (is_after<type>) {
          if (timeout_at == nobody || c.delay_ns < delay_ns) {
            timeout_at = at;
            delay_ns = c.delay_ns;
          }
        } else {
          place[count] = at;
          untyped[count] = c.prepare({untyped, count});
          ++count;
        }
      };
  // If moving one value back throws, the other values are moved back nevertheless, and the case
  // that was taken is finished.
  std::exception_ptr thrown;
  [[maybe_unused]] const auto put_aside =
      [&]<std::size_t at>(std::integral_constant<std::size_t, at>, std::size_t except) noexcept {
        auto& c = std::get<at>(cases);
        using type = std::remove_cvref_t<decltype(c)>;
        if constexpr (!is_otherwise<type> && !is_after<type>) {
          if (at != except) keep_first(thrown, [&c] { c.put_aside(); });
        }
      };
  // If preparing a case throws, the values of the cases before it are moved back.
  struct returner {
    decltype(put_aside)& aside;
    bool armed = true;
    ~returner() {
      if (armed) (aside(std::integral_constant<std::size_t, I>{}, nobody), ...);
    }
  } back{put_aside};

  (prepare(std::integral_constant<std::size_t, I>{}), ...);

  chan_core* scratch[n > 0 ? n : 1];
  const std::span<select_case* const> span(untyped, count);
  std::size_t taken = 0;
  if (default_at != nobody) {
    taken = chan_select::look(span, scratch);
    taken = taken == chan_select::none ? default_at : place[taken];
  } else {
    const std::int64_t deadline =
        timeout_at != nobody ? deadline_after(delay_ns) : chan_select::no_deadline;
    taken = chan_select::wait(span, scratch, deadline);
    taken = taken == chan_select::none ? timeout_at : place[taken];
  }
  back.armed = false;
  [[maybe_unused]] const auto claim = [&]<std::size_t at>(std::integral_constant<std::size_t, at>) {
    auto& c = std::get<at>(cases);
    using type = std::remove_cvref_t<decltype(c)>;
    if constexpr (!is_otherwise<type> && !is_after<type>) {
      if (at == taken) c.claim();
    }
  };
  (claim(std::integral_constant<std::size_t, I>{}), ...);
  (put_aside(std::integral_constant<std::size_t, I>{}, taken), ...);

  [[maybe_unused]] const auto finish =
      [&]<std::size_t at>(std::integral_constant<std::size_t, at>) {
        if (at != taken) return;
        auto& c = std::get<at>(cases);
        using type = std::remove_cvref_t<decltype(c)>;
        if constexpr (is_otherwise<type> || is_after<type>) {
          std::invoke(c.handler);
        } else {
          c.finish();
        }
      };
  (finish(std::integral_constant<std::size_t, I>{}), ...);
  if (thrown != nullptr) std::rethrow_exception(thrown);
  return taken;
}

}  // namespace detail

// Waits until a case is ready, and takes it. Returns: its index. Throws: closed_channel if the case
// is a send on a closed channel, std::logic_error if there are two otherwise, and what the handler
// throws. Blocks: the goroutine.
template <class... Cases>
std::size_t select(Cases&&... cases) {
  auto all = std::make_tuple(detail::as_case(std::forward<Cases>(cases))...);
  return detail::select_among(all, std::index_sequence_for<Cases...>{});
}

// A select whose cases are known only at run time.
class selector {
 public:
  // Adds a case of any kind that select takes. A variable that is sent must live as long as the
  // selector waits; each wait() copies it, or moves from it: send(c, weft::moving(x)). Returns: the
  // index of the case. Throws: std::logic_error at a second otherwise.
  template <class Case>
  std::size_t add(Case&& c) {
    auto owned = detail::as_case(std::forward<Case>(c));
    using type = decltype(owned);
    const std::size_t index = cases_.size();
    if constexpr (detail::is_otherwise<type>) {
      if (default_at_) detail::throw_two_otherwise();
      cases_.push_back(std::make_unique<handled<type>>(std::move(owned)));
      default_at_ = index;
    } else if constexpr (detail::is_after<type>) {
      const std::int64_t delay_ns = owned.delay_ns;
      cases_.push_back(std::make_unique<handled<type>>(std::move(owned)));
      if (!timeout_at_ || delay_ns < delay_ns_) {
        timeout_at_ = index;
        delay_ns_ = delay_ns;
      }
    } else {
      cases_.push_back(std::make_unique<on_channel<type>>(std::move(owned)));
    }
    return index;
  }
  // Deleted, because the value may be a temporary that is gone before wait().
  template <class Case>
    requires detail::may_dangle<std::remove_cvref_t<Case>>
  std::size_t add(Case&& c) = delete;

  // Like select. May be called again and again.
  std::size_t wait() {
    untyped_.clear();
    places_.clear();
    returner back{this, cases_.size()};
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      if (detail::select_case* const c = cases_[i]->prepare(untyped_)) {
        untyped_.push_back(c);
        places_.push_back(i);
      }
    }
    scratch_.resize(untyped_.size());
    std::size_t taken = 0;
    if (default_at_) {
      taken = detail::chan_select::look(untyped_, scratch_.data());
      taken = taken == detail::chan_select::none ? *default_at_ : places_[taken];
    } else {
      const std::int64_t deadline =
          timeout_at_ ? detail::deadline_after(delay_ns_) : detail::chan_select::no_deadline;
      taken = detail::chan_select::wait(untyped_, scratch_.data(), deadline);
      taken = taken == detail::chan_select::none ? *timeout_at_ : places_[taken];
    }
    cases_[taken]->claim();
    back.except = taken;
    const std::exception_ptr thrown = back.now();
    cases_[taken]->finish();
    if (thrown != nullptr) std::rethrow_exception(thrown);
    return taken;
  }

 private:
  template <class C>
  struct on_channel final : detail::any_case {
    C typed;
    detail::chan_ref keep;
    explicit on_channel(C&& c) : typed(std::move(c)), keep(reference(typed.channel())) {}
    static detail::chan_ref reference(detail::chan_core* core) noexcept {
      if (core != nullptr) core->retain();
      return detail::chan_ref(core);
    }
    detail::select_case* prepare(std::span<detail::select_case* const> before) override {
      return typed.prepare(before);
    }
    void claim() noexcept override { typed.claim(); }
    void put_aside() override { typed.put_aside(); }
    void finish() override { typed.finish(); }
  };
  template <class C>
  struct handled final : detail::any_case {
    C typed;
    explicit handled(C&& c) : typed(std::move(c)) {}
    void finish() override { std::invoke(typed.handler); }
  };
  // Moves back the values of the cases that were not taken, also if preparing a case throws.
  struct returner {
    selector* self;
    std::size_t except;
    bool armed = true;
    // Returns: the first exception that moving a value back threw, or null.
    std::exception_ptr now() noexcept {
      armed = false;
      std::exception_ptr thrown;
      for (std::size_t i = 0; i < self->cases_.size(); ++i) {
        if (i != except) detail::keep_first(thrown, [&] { self->cases_[i]->put_aside(); });
      }
      return thrown;
    }
    ~returner() {
      if (armed) (void)now();
    }
  };

  std::vector<std::unique_ptr<detail::any_case>> cases_;
  std::optional<std::size_t> default_at_;
  std::optional<std::size_t> timeout_at_;
  std::int64_t delay_ns_ = 0;
  std::vector<detail::select_case*> untyped_;
  std::vector<std::size_t> places_;
  std::vector<detail::chan_core*> scratch_;
};

}  // namespace weft
