// weft/single_flight.hpp: many goroutines want the same result, and one of them computes it. A part
// of weft/sync.hpp.
//
// A call that is under way is a flight. Those who want its result are its passengers.
//
//   run(key, f)       the first passenger calls f; the others wait
//   run(ctx, key, f)  f has a goroutine of its own, because the first passenger may give up as well
//                     as any other; all wait, and the last one to give up abandons the flight
//
//     weft::single_flight<std::string, page> flights;
//     const auto got = flights.run(ctx, url, [url](const weft::context& wanted) {
//       return load(wanted, url);  // called once for all who ask for this url meanwhile
//     });
//     if (!got) return std::unexpected(got.error());  // ctx has ended; else got->first is the page
//
// Invariants:
//   I1  A flight in the table has at least one passenger, and has not landed.
//   I2  A flight that has left the table gets no more passengers.
#pragma once

#include <weft/context.hpp>
#include <weft/detail/config.hpp>
#include <weft/detail/context_wait.hpp>
#include <weft/detail/future_state.hpp>
#include <weft/detail/one_shot.hpp>
#include <weft/go.hpp>

#include <cstddef>
#include <exception>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>

namespace weft {

// run(key, f) calls f, unless a call for the same key is under way. In that case run() waits for
// that call, and returns or throws what the call does. Nothing is kept: the next run calls its
// function again. For errors as values use single_flight<K, expected<V>>. Requires: copying,
// comparing and destroying a K does not call into weft; comparing two K throws nothing.
template <class K, class V>
class single_flight {
  static_assert(std::is_object_v<V>, "the V of single_flight<K, V> is not void and no reference");

 public:
  single_flight() = default;
  single_flight(const single_flight&) = delete;
  single_flight& operator=(const single_flight&) = delete;

  // f runs in this call, so it may refer to what its caller owns. Returns: the value, and whether
  // other goroutines got it, too. Throws: what the call of f throws; std::future_error
  // (broken_promise) if that call ended its goroutine by exit(); what copying a K or a V throws;
  // std::bad_alloc. Blocks: the goroutine.
  template <class F>
  std::pair<V, bool> run(const K& key, F&& f) {
    static_assert(std::is_invocable_v<F&>,
                  "f of run(key, f) takes nothing; run(ctx, key, f) gives it a context");
    if constexpr (std::is_invocable_v<F&>) require_result<std::invoke_result_t<F&>>();
    detail::observe(detail::touch::arrive, this);
    const auto [joined, is_first] = table_->board(key);
    if (is_first) {
      fly(*table_, key, joined, f);
    } else {
      joined->landed.wait(detail::wait_reason::future);
    }
    return result_of(*joined, is_first);
  }

  // Like run(key, f), until the context ends. f is moved or copied into a goroutine of its own, so
  // a caller that gives up takes the result from no other. f may outlive this call, its caller and
  // the single_flight, so it has to own what it uses. f may take a context, which has the values of
  // the first caller's. That context ends when the last caller that waited has given up. The
  // next run then calls its function, even if f goes on. What f throws
  // after that is dropped. Returns: the context's error if the context ended first. Throws: what f
  // throws before, as run(key, f); also std::system_error if no goroutine can be made.
  template <class F>
  [[nodiscard]] expected<std::pair<V, bool>> run(const context& ctx, const K& key, F&& f) {
    using function = std::decay_t<F>;
    static_assert(std::is_invocable_v<function&, const context&> || std::is_invocable_v<function&>,
                  "f of run(ctx, key, f) takes nothing or a const context&");
    if constexpr (std::is_invocable_v<function&, const context&>) {
      require_result<std::invoke_result_t<function&, const context&>>();
    } else if constexpr (std::is_invocable_v<function&>) {
      require_result<std::invoke_result_t<function&>>();
    }
    if (const std::error_code ended = ctx.err()) return std::unexpected(ended);
    detail::observe(detail::touch::arrive, this);
    const auto [joined, is_first] = table_->board(key);
    if (is_first) start(ctx, key, joined, std::forward<F>(f));
    const std::error_code ended = detail::wait_with(ctx, [&](detail::wait_limit limit) {
      return joined->landed.wait_until(detail::wait_reason::future, limit);
    });
    if (ended) {
      // There is no context if start() has failed.
      if (table_->leave(key, joined) && joined->wanted) joined->wanted->cancel();
      return std::unexpected(ended);
    }
    return result_of(*joined, is_first);
  }

  // Makes the next run of `key` call its function, even if a call is under way.
  void forget(const K& key) {
    detail::observe(detail::touch::arrive, this);
    const std::lock_guard hold(table_->lock);
    table_->flights.erase(key);
  }

 private:
  struct flight {
    detail::one_shot<detail::seam> landed;
    std::optional<V> value;     // written by the goroutine that calls; others read it after landing
    std::exception_ptr thrown;  // like value
    // The context of f, if f has a goroutine of its own. Written before the first passenger waits.
    std::optional<cancellable> wanted;
    std::size_t passengers = 1;  // guarded by the table's lock
    bool shared = false;         // guarded by the table's lock
  };
  using flight_ptr = std::shared_ptr<flight>;

  // Shared with the goroutines of flights, which may go on when the single_flight is gone.
  struct table {
    // While the lock is held, only K's own functions could call into weft, and they must not. So
    // the goroutine is still on the same thread when it unlocks.
    std::mutex lock;
    std::map<K, flight_ptr> flights;  // guarded by lock

    // Returns: the flight for that key, and whether the caller must see to it that it lands.
    std::pair<flight_ptr, bool> board(const K& key) {
      const std::lock_guard hold(lock);
      flight_ptr& slot = flights[key];
      const bool is_first = slot == nullptr;
      if (is_first) {
        slot = std::make_shared<flight>();
      } else {
        ++slot->passengers;
        slot->shared = true;
      }
      return {slot, is_first};
    }
    // A passenger gives up. Returns: whether it was the last one.
    bool leave(const K& key, const flight_ptr& f) {
      const std::lock_guard hold(lock);
      if (--f->passengers > 0) return false;
      erase_locked(key, f);
      return true;
    }
    void land(const K& key, const flight_ptr& f) {
      {
        const std::lock_guard hold(lock);
        erase_locked(key, f);
      }
      detail::observe(detail::touch::release, f.get());
      f->landed.set();
    }
    void erase_locked(const K& key, const flight_ptr& f) {
      const auto found = flights.find(key);
      if (found != flights.end() && found->second == f) flights.erase(found);
    }
  };

  template <class Result>
  static constexpr void require_result() {
    static_assert(std::is_constructible_v<V, Result>,
                  "f must return something that converts to V; for errors as values use "
                  "single_flight<K, expected<V>>");
  }

  // Calls f and lands.
  template <class F>
  static void fly(table& in, const K& key, const flight_ptr& mine, F& f) {
    struct lander {
      table& in;
      const K& key;
      const flight_ptr& mine;
      ~lander() {  // also if f ends the goroutine
        if (!mine->value && mine->thrown == nullptr) mine->thrown = detail::make_broken_promise();
        in.land(key, mine);
      }
    };
    const lander last{in, key, mine};
    struct call {
      F& f;
      flight& into;
    } c{f, *mine};
    detail::call_capturing(
        [](void* argument) {
          const call& self = *static_cast<call*>(argument);
          self.into.value.emplace(std::invoke(self.f));
        },
        &c, mine->thrown);
  }

  // Calls f in a goroutine of its own.
  template <class F>
  void start(const context& ctx, const K& key, const flight_ptr& mine, F&& f) {
    try {
      mine->wanted.emplace(with_cancel(without_cancel(ctx)));
      go({.name = "single_flight"},
         [in = table_, key, mine, f = std::decay_t<F>(std::forward<F>(f))]() mutable {
           const auto call = [&]() -> decltype(auto) {
             if constexpr (std::is_invocable_v<std::decay_t<F>&, const context&>) {
               return std::invoke(f, std::as_const(mine->wanted->ctx));
             } else {
               return std::invoke(f);
             }
           };
           fly(*in, key, mine, call);
         });
    } catch (...) {
      mine->thrown = std::current_exception();
      table_->land(key, mine);
    }
  }

  std::pair<V, bool> result_of(const flight& f, bool is_first) {
    detail::observe(detail::touch::acquire, &f);
    if (f.thrown != nullptr) std::rethrow_exception(f.thrown);
    bool shared = true;
    if (is_first) {
      const std::lock_guard hold(table_->lock);
      shared = f.shared;
    }
    return {*f.value, shared};
  }

  const std::shared_ptr<table> table_ = std::make_shared<table>();
};

}  // namespace weft
