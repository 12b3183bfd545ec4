// weft/group.hpp: goroutines that belong together. A part of weft/sync.hpp.
//
//   weft::group g(ctx);  g.set_limit(8);     // go waits while 8 run, try_go returns false
//   for (job& j : jobs) g.go([&] { work(j, g.ctx()); });
//   g.wait();                                // for all of them; throws the first exception
//
// The first exception cancels g.ctx() and does nothing else: a goroutine that does not look at the
// context runs on, and go still starts others. wait() cancels the context, too, so a group is used
// only once. Without wait() the destructor cancels, waits and drops the exception. A goroutine of
// the group may call go; at the limit, that call waits until others have ended.
#pragma once

#include <weft/chan.hpp>
#include <weft/context.hpp>
#include <weft/detail/config.hpp>
#include <weft/detail/wait_group_core.hpp>
#include <weft/go.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

namespace weft {

// Goroutines that belong together. The first exception of any of them cancels the context of all,
// and wait() throws it. The destructor cancels, waits and drops the exception, so no goroutine
// outlives the group.
class WEFT_API group {
 public:
  group() : group(context::background()) {}
  explicit group(context parent);
  group(const group&) = delete;
  group& operator=(const group&) = delete;
  ~group();

  static constexpr std::size_t no_limit = SIZE_MAX;
  // From now on at most n goroutines run at once: go waits, try_go refuses. With n = 0 none can be
  // started, and go waits for ever. Throws: std::logic_error while goroutines run.
  void set_limit(std::size_t n);

  // Starts f in a goroutine of the group. Blocks: the goroutine, while the limit is reached.
  // Throws: as weft::go.
  template <class F>
  void go(F&& f) {
    static_assert(std::is_invocable_v<std::decay_t<F>&>,
                  "the function given to group::go takes no arguments");
    enter();
    start(std::forward<F>(f));
  }
  // Like go, but does not wait. Returns: false if the limit is reached.
  template <class F>
  [[nodiscard]] bool try_go(F&& f) {
    static_assert(std::is_invocable_v<std::decay_t<F>&>,
                  "the function given to group::try_go takes no arguments");
    if (!try_enter()) return false;
    start(std::forward<F>(f));
    return true;
  }

  // Returns: the context of the group, which is cancelled at the first exception or when wait
  // returns.
  context ctx() const { return ctx_; }

  // Waits for all goroutines of the group, then throws the first exception, if there was one.
  // Blocks: the goroutine.
  void wait();

 private:
  // enter() and try_enter() count a goroutine; leave() stops counting it, however it ended.
  void enter();
  [[nodiscard]] bool try_enter();
  void leave() noexcept;
  void fail(std::exception_ptr thrown) noexcept;

  template <class F>
  void start(F&& f) {
    struct member {
      std::optional<std::decay_t<F>> f;
      group* of;
      void operator()() {
        struct leaver {
          group* of;
          ~leaver() { of->leave(); }
        };
        const leaver last{of};
        std::exception_ptr thrown;
        std::decay_t<F> call(std::move(*f));
        f.reset();  // both are destroyed before the group is told, also if the move was a copy
        detail::call_capturing(
            [](void* argument) { std::invoke(*static_cast<std::decay_t<F>*>(argument)); }, &call,
            thrown);
        if (thrown != nullptr) of->fail(std::move(thrown));
      }
    };
    try {
      weft::go(member{std::forward<F>(f), this});
    } catch (...) {
      leave();
      throw;
    }
  }

  context ctx_;
  cancel_function cancel_;
  chan<std::monostate> places_ = nullptr;  // one value for each running goroutine; nil: no limit
  detail::wait_group_core<detail::seam> running_;
  std::atomic<std::size_t> count_{0};  // relaxed: only set_limit's check reads it
  std::atomic<bool> failed_{false};    // the goroutine that sets it writes thrown_
  std::exception_ptr thrown_;          // ordered by running_
};

}  // namespace weft
