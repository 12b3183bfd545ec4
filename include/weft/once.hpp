// weft/once.hpp: running a function once, whichever goroutine calls first. A part of weft/sync.hpp.
#pragma once

#include <weft/detail/config.hpp>
#include <weft/detail/context_wait.hpp>
#include <weft/detail/once_core.hpp>
#include <weft/detail/wait_limit.hpp>

#include <functional>
#include <system_error>
#include <type_traits>
#include <utility>

namespace weft {

class context;

// Like std::once_flag, for call_once. A call whose function ends by an exception or by
// this_goroutine::exit() does not count: the next call in line runs its function.
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
  bool call_within(detail::wait_limit limit, F&& f, A&&... args) {
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

// Like std::call_once. Throws: what f throws. Blocks: the goroutine, while another one runs the
// function of its call.
template <class F, class... A>
void call_once(once_flag& flag, F&& f, A&&... args) {
  flag.call_within(detail::no_deadline, std::forward<F>(f), std::forward<A>(args)...);
}
// Like call_once(flag, f), but gives up if the context has ended before the call (even if the flag
// is done already), or ends while another goroutine runs the function of its call. Returns: the
// context's error if the call gave up.
template <class F, class... A>
[[nodiscard]] std::error_code call_once(const context& c, once_flag& flag, F&& f, A&&... args) {
  return detail::wait_with(c, [&](detail::wait_limit limit) {
    return flag.call_within(limit, std::forward<F>(f), std::forward<A>(args)...);
  });
}

}  // namespace weft
