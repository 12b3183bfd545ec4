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
// cases blocks for ever. In a class that has a member called send or recv, write weft::send and
// weft::recv: the member hides the function.
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

// What a select takes if none of its channels is ready.
class select_fallback {
 public:
  // Throws: std::logic_error if there is an otherwise already.
  void add_otherwise(std::size_t at) {
    if (otherwise_at_ != chan_select::none) throw_two_otherwise();
    otherwise_at_ = at;
  }
  // The shortest delay counts.
  void add_after(std::size_t at, std::int64_t delay_ns) noexcept {
    if (after_at_ != chan_select::none && delay_ns >= delay_ns_) return;
    after_at_ = at;
    delay_ns_ = delay_ns;
  }

  // Takes a case. `places` has the index of each channel case among all cases. `scratch` is as
  // chan_select wants it. Returns: the index among all cases.
  std::size_t take(std::span<select_case* const> cases, const std::size_t* places,
                   chan_core** scratch) const {
    if (otherwise_at_ != chan_select::none) {
      const std::size_t taken = chan_select::look(cases, scratch);
      return taken == chan_select::none ? otherwise_at_ : places[taken];
    }
    const std::int64_t deadline =
        after_at_ != chan_select::none ? deadline_after(delay_ns_) : chan_select::no_deadline;
    const std::size_t taken = chan_select::wait(cases, scratch, deadline);
    return taken == chan_select::none ? after_at_ : places[taken];
  }

 private:
  std::size_t otherwise_at_ = chan_select::none;
  std::size_t after_at_ = chan_select::none;
  std::int64_t delay_ns_ = 0;
};

// One run of a select over typed cases: prepares them, takes one, moves the values of the others
// back. If preparing a case throws, the values of the cases before it are moved back.
template <class... Cases>
class typed_select {
 public:
  explicit typed_select(std::tuple<Cases...>& cases) noexcept : cases_(cases) {}
  typed_select(const typed_select&) = delete;
  typed_select& operator=(const typed_select&) = delete;
  ~typed_select() {
    if (!is_over_) (void)put_aside_all_but(chan_select::none);
  }

  // Returns: the index of the case taken.
  std::size_t run() {
    // No members: the compiler would have to keep them in memory.
    select_case* untyped[room] = {};
    std::size_t places[room] = {};  // the index of each channel case among all cases
    std::size_t count = 0;          // of channel cases
    select_fallback fallback;
    for_each([&]<class C>(C& c, std::size_t at) {
      if constexpr (is_otherwise<C>) {
        fallback.add_otherwise(at);
      } else if constexpr (is_after<C>) {
        fallback.add_after(at, c.delay_ns);
      } else {
        places[count] = at;
        untyped[count] = c.prepare({untyped, count});
        ++count;
      }
    });
    chan_core* scratch[room];
    const std::size_t taken = fallback.take({untyped, count}, places, scratch);
    is_over_ = true;
    for_each([taken]<class C>(C& c, std::size_t at) {
      if constexpr (is_on_channel<C>) {
        if (at == taken) c.claim();
      }
    });
    const std::exception_ptr thrown = put_aside_all_but(taken);
    for_each([taken](auto& c, std::size_t at) {
      if (at == taken) finish(c);
    });
    if (thrown != nullptr) std::rethrow_exception(thrown);
    return taken;
  }

 private:
  static constexpr std::size_t room = sizeof...(Cases) > 0 ? sizeof...(Cases) : 1;
  template <class C>
  static constexpr bool is_on_channel = !is_otherwise<C> && !is_after<C>;

  // Calls f(case, index) for each case.
  template <class F>
  void for_each(F f) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (f(std::get<I>(cases_), I), ...);
    }(std::index_sequence_for<Cases...>{});
  }
  // If moving one value back throws, the other values are moved back nevertheless, and the case
  // that was taken is finished. Returns: the first exception, or null.
  std::exception_ptr put_aside_all_but(std::size_t taken) noexcept {
    std::exception_ptr thrown;
    for_each([&thrown, taken]<class C>(C& c, std::size_t at) {
      if constexpr (is_on_channel<C>) {
        if (at != taken) keep_first(thrown, [&c] { c.put_aside(); });
      }
    });
    return thrown;
  }
  template <class C>
  static void finish(C& c) {
    if constexpr (is_on_channel<C>) {
      c.finish();
    } else {
      std::invoke(c.handler);
    }
  }

  std::tuple<Cases...>& cases_;
  bool is_over_ = false;
};

}  // namespace detail

// Waits until a case is ready, and takes it. Returns: its index. Throws: closed_channel if the case
// is a send on a closed channel, std::logic_error if there are two otherwise, and what the handler
// throws. Blocks: the goroutine.
template <class... Cases>
std::size_t select(Cases&&... cases) {
  auto all = std::make_tuple(detail::as_case(std::forward<Cases>(cases))...);
  return detail::typed_select(all).run();
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
    if constexpr (detail::is_otherwise<type> || detail::is_after<type>) {
      detail::select_fallback fallback = fallback_;
      if constexpr (detail::is_otherwise<type>) {
        fallback.add_otherwise(index);
      } else {
        fallback.add_after(index, owned.delay_ns);
      }
      cases_.push_back(std::make_unique<handled<type>>(std::move(owned)));
      fallback_ = fallback;  // not earlier: the lines above may throw
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
    const std::size_t taken = fallback_.take(untyped_, places_.data(), scratch_.data());
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
  detail::select_fallback fallback_;
  std::vector<detail::select_case*> untyped_;
  std::vector<std::size_t> places_;
  std::vector<detail::chan_core*> scratch_;
};

}  // namespace weft
