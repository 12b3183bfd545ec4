// weft/group.hpp: goroutines that belong together. A part of weft/sync.hpp.
//
//   weft::group g(ctx);  g.set_limit(8);     // go waits while 8 run, try_go returns false
//   for (job& j : jobs) g.go([&] { work(j, g.ctx()); });
//   g.wait();                                // for all of them; throws the first exception
//
// The first exception cancels g.ctx(), and that is all: a goroutine that does not look at it runs
// on, and go still starts others. wait() cancels it, too, so a group is used once. Without wait()
// the destructor cancels, waits and drops the exception. A goroutine of the group may call go; one
// that does so at the limit waits for the others.
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

// Goroutines that belong together: the first exception of any cancels the context of all, and
// wait() throws it. The destructor cancels, waits and drops the exception, so none outlives it.
class WEFT_API group {
 public:
  group() : group(context::background()) {}
  explicit group(context parent);
  group(const group&) = delete;
  group& operator=(const group&) = delete;
  ~group();

  static constexpr std::size_t no_limit = SIZE_MAX;
  // From now on at most n goroutines run at once: go waits, try_go refuses. With 0 none can be
  // started, and go waits for ever.
  // Throws: std::logic_error while goroutines run.
  void set_limit(std::size_t n);

  // Starts f. Blocks: the goroutine, while the limit is reached. Throws: as weft::go.
  template <class F>
  void go(F&& f) {
    static_assert(std::is_invocable_v<std::decay_t<F>&>,
                  "the function given to group::go takes no arguments");
    enter();
    start(std::forward<F>(f));
  }
  // Returns: false if the limit is reached.
  template <class F>
  [[nodiscard]] bool try_go(F&& f) {
    static_assert(std::is_invocable_v<std::decay_t<F>&>,
                  "the function given to group::try_go takes no arguments");
    if (!try_enter()) return false;
    start(std::forward<F>(f));
    return true;
  }

  // Cancelled at the first exception, or when wait returns.
  context ctx() const { return ctx_; }

  // Waits for all, then throws the first exception there was. Blocks: the goroutine.
  void wait();

 private:
  // Counts a goroutine in, and out again when it ends, however it does.
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
        f.reset();  // both are gone before the group is told, also if moving copies
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
  chan<std::monostate> places_ = nullptr;  // one value for each that runs; nil: no limit
  detail::wait_group_core<detail::seam> running_;
  std::atomic<std::size_t> count_{0};  // relaxed: for set_limit's complaint
  std::atomic<bool> failed_{false};    // whoever sets it writes thrown_
  std::exception_ptr thrown_;          // ordered by running_
};

}  // namespace weft
