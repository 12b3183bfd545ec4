// weft/barrier.hpp: going on together, phase by phase. A part of weft/sync.hpp.
#pragma once

#include <weft/detail/barrier_core.hpp>
#include <weft/detail/config.hpp>
#include <weft/detail/context_wait.hpp>
#include <weft/detail/patience.hpp>

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

// std::barrier. The completion function is called by whoever arrives last, before anybody goes on;
// it may wait, as any code in a goroutine may. May be destroyed as soon as the last wait has
// returned.
template <class CompletionFunction = detail::no_completion>
class barrier {
  static_assert(std::is_nothrow_invocable_v<CompletionFunction&>,
                "the completion function of a barrier takes no arguments and is noexcept");

 public:
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

  // Requires: n > 0; more arrivals than the phase expects end the process.
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
  // Returns: the context's error if that ended first: it has arrived all the same.
  [[nodiscard]] std::error_code wait(const context& c, arrival_token&& arrived) const {
    detail::observe(detail::touch::arrive, this, "wait");
    return detail::wait_with(c, [this, &arrived](detail::patience limit) {
      return detail::acquired(core_.wait(arrived.phase_, limit), this);
    });
  }
  void arrive_and_wait() { wait(arrive()); }
  [[nodiscard]] std::error_code arrive_and_wait(const context& c) { return wait(c, arrive()); }
  // Arrives, and is not expected in the phases to come.
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
