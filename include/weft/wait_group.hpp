// weft/wait_group.hpp: waiting until a number of goroutines have ended. A part of weft/sync.hpp.
#pragma once

#include <weft/detail/config.hpp>
#include <weft/detail/context_wait.hpp>
#include <weft/detail/task.hpp>
#include <weft/detail/wait_group_core.hpp>
#include <weft/detail/wait_limit.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>

namespace weft {

class context;

namespace detail {
[[noreturn]] WEFT_API void throw_negative_wait_group();
}

// Waits for a number of goroutines, like Go's sync.WaitGroup. Once a wait() has returned without an
// error, and no other goroutine or thread is still in wait(), the wait_group may be destroyed or
// used again.
class wait_group {
 public:
  wait_group() = default;
  wait_group(const wait_group&) = delete;
  wait_group& operator=(const wait_group&) = delete;

  // Adds n, which may be negative, to the counter. When the counter reaches 0, every goroutine that
  // waits goes on. Throws: std::logic_error if the counter would become negative; the counter is
  // unchanged then.
  void add(int n) {
    detail::observe(n < 0 ? detail::touch::release : detail::touch::arrive, this, "add");
    if (n >= 0) {
      core_.add(static_cast<std::uint32_t>(n));
    } else if (!core_.sub(0u - static_cast<std::uint32_t>(n))) {
      detail::throw_negative_wait_group();
    }
  }

  // Subtracts 1 from the counter. Throws: as add(-1).
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
  // Returns: the context's error if the context ended before the counter was 0, or had ended before
  // the call, even with the counter at 0.
  [[nodiscard]] std::error_code wait(const context& c) {
    detail::observe(detail::touch::arrive, this, "wait with context");
    return detail::wait_with(c, [this](detail::wait_limit limit) {
      return detail::acquired(core_.wait_until(detail::wait_reason::wait_group, limit), this);
    });
  }

  // Starts a goroutine that calls f. The goroutine counts until it ends, by returning or by exit().
  // Throws: as weft::go; the counter is unchanged then.
  template <class F>
  [[gnu::always_inline]] void go(F&& f) {
    static_assert(std::is_invocable_v<std::decay_t<F>>,
                  "the function given to wait_group::go takes no arguments");
    add(1);
    try {
      detail::start(detail::start_as::child, counted<std::decay_t<F>>{std::forward<F>(f), this});
    } catch (...) {
      done();
      throw;
    }
  }

 private:
  template <class F>
  struct counted {
    std::optional<F> f;
    wait_group* group;

    void operator()() {
      struct finisher {
        wait_group* group;
        ~finisher() {
          detail::observe(detail::touch::release, group, "done");
          group->core_.sub(1);
        }
      };
      // An exception that leaves `call` ends the process before any destructor runs. So it does not
      // let a waiting goroutine go on.
      const finisher last{group};
      F call(std::move(*f));
      f.reset();  // the move may have been a copy; both are destroyed before the group is told
      std::invoke(std::move(call));
    }
  };

  detail::wait_group_core<detail::seam> core_;
};

}  // namespace weft
