// weft/barrier.hpp: a meeting point for a fixed number of goroutines, used phase after phase. A
// part of weft/sync.hpp.
#pragma once

#include <weft/detail/barrier_core.hpp>
#include <weft/detail/config.hpp>
#include <weft/detail/context_wait.hpp>
#include <weft/detail/wait_limit.hpp>

#include <cstddef>
#include <cstdint>
#include <system_error>
#include <type_traits>
#include <utility>

namespace weft {

class context;

namespace detail {
struct no_completion {
  void operator()() const noexcept {}
};
}  // namespace detail

// Like std::barrier. The goroutine that arrives last calls the completion function, before any
// goroutine goes on. The completion function may wait, like any other code in a goroutine. A
// barrier may be destroyed as soon as the last wait has returned.
template <class CompletionFunction = detail::no_completion>
class barrier {
  static_assert(std::is_nothrow_invocable_v<CompletionFunction&>,
                "the completion function of a barrier takes no arguments and is noexcept");

 public:
  // Says in which phase an arrival took place. Made by arrive(), used up by wait().
  class arrival_token {
   public:
    arrival_token(arrival_token&&) noexcept = default;
    arrival_token& operator=(arrival_token&&) noexcept = default;

   private:
    friend class barrier;
    explicit arrival_token(std::uint32_t phase) noexcept : phase_(phase) {}
    std::uint32_t phase_;
  };

  static constexpr std::ptrdiff_t max() noexcept { return detail::barrier_core::most; }

  // Requires: 0 <= expected <= max().
  constexpr explicit barrier(std::ptrdiff_t expected,
                             CompletionFunction complete = CompletionFunction())
      : core_(expected), complete_(std::move(complete)) {}
  barrier(const barrier&) = delete;
  barrier& operator=(const barrier&) = delete;

  // Arrives `n` times, without waiting. Requires: n > 0. More arrivals than the phase expects end
  // the process.
  [[nodiscard]] arrival_token arrive(std::ptrdiff_t n = 1) {
    detail::observe(detail::touch::release, this, "arrive");
    const auto [phase, last] = core_.arrive(n);
    if (last) complete();
    return arrival_token(phase);
  }
  // Blocks: the goroutine, until the phase of the token is over.
  void wait(arrival_token&& arrived) const {
    detail::observe(detail::touch::arrive, this, "wait");
    core_.wait(arrived.phase_);
    detail::observe(detail::touch::acquire, this);
  }
  // Like wait(arrived), but gives up when the context ends. Returns: the context's error then. The
  // arrival counts nevertheless.
  [[nodiscard]] std::error_code wait(const context& c, arrival_token&& arrived) const {
    detail::observe(detail::touch::arrive, this, "wait");
    return detail::wait_with(c, [this, &arrived](detail::wait_limit limit) {
      return detail::acquired(core_.wait(arrived.phase_, limit), this);
    });
  }
  // arrive(), then wait().
  void arrive_and_wait() { wait(arrive()); }
  [[nodiscard]] std::error_code arrive_and_wait(const context& c) { return wait(c, arrive()); }
  // Arrives once, and lowers by one the number of arrivals that later phases expect.
  void arrive_and_drop() {
    detail::observe(detail::touch::release, this, "arrive_and_drop");
    core_.drop();
    if (core_.arrive(1).last) complete();
  }

 private:
  void complete() noexcept {
    detail::observe(detail::touch::acquire, this);
    complete_();
    detail::observe(detail::touch::release, this, "complete");
    core_.finish();
  }

  mutable detail::guarded<detail::barrier_core> core_;
  [[no_unique_address]] CompletionFunction complete_;
};

}  // namespace weft
