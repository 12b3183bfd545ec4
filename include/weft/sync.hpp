// weft/sync.hpp: synchronisation between goroutines, and between goroutines and plain threads.
#pragma once

#include <weft/detail/config.hpp>
#include <weft/detail/group.hpp>          // IWYU pragma: export
#include <weft/detail/pool.hpp>           // IWYU pragma: export
#include <weft/detail/single_flight.hpp>  // IWYU pragma: export
#include <weft/detail/wait_group_core.hpp>
#include <weft/go.hpp>

#include <cstdint>
#include <utility>

namespace weft {

namespace detail {
[[noreturn]] WEFT_API void throw_negative_wait_group();
}

// Waits for a number of goroutines. Go's sync.WaitGroup. May be destroyed as soon as wait() has
// returned, and used again.
class wait_group {
 public:
  wait_group() = default;
  wait_group(const wait_group&) = delete;
  wait_group& operator=(const wait_group&) = delete;

  // Adds n, which may be negative, to the counter; at 0 everyone who waits goes on.
  // Throws: std::logic_error if the counter would become negative; it is unchanged then.
  void add(int n) {
    detail::observe(n < 0 ? detail::touch::release : detail::touch::arrive, this, "add");
    if (n >= 0) {
      core_.add(static_cast<std::uint32_t>(n));
    } else if (!core_.sub(0u - static_cast<std::uint32_t>(n))) {
      detail::throw_negative_wait_group();
    }
  }

  void done() {
    detail::observe(detail::touch::release, this, "done");
    if (!core_.sub(1)) detail::throw_negative_wait_group();
  }

  // Blocks: the goroutine, until the counter is 0.
  void wait() {
    detail::observe(detail::touch::arrive, this, "wait");
    core_.wait(detail::wait_reason::wait_group);
    detail::observe(detail::touch::acquire, this);
  }

  // Starts f in a goroutine that is counted until it ends, by returning or by exit().
  // Throws: as weft::go; the counter is unchanged then.
  template <class F>
  [[gnu::always_inline]] void go(F&& f) {
    static_assert(std::is_invocable_v<std::decay_t<F>>,
                  "the function given to wait_group::go takes no arguments");
    add(1);
    try {
      weft::go(counted<std::decay_t<F>>{std::forward<F>(f), this});
    } catch (...) {
      done();
      throw;
    }
  }

 private:
  template <class F>
  struct counted {
    F f;
    wait_group* group;

    void operator()() {
      struct finisher {
        wait_group* group;
        ~finisher() {
          detail::observe(detail::touch::release, group, "done");
          group->core_.sub(1);
        }
      };
      // An exception ends the process with the stack as it is, before any destructor runs: nobody
      // who waits can go on first.
      const finisher last{group};
      F call(std::move(f));  // destroyed before the group is told
      std::invoke(std::move(call));
    }
  };

  detail::wait_group_core<detail::seam> core_;
};

}  // namespace weft
