// clock.cpp: the time that a goroutine sees, and sleeping: by the machine's clock, or by that of
// the goroutine's simulation.
#include <weft/go.hpp>

#include "base/clock.hpp"
#include "sched/simulation.hpp"

#include <weft/detail/park.hpp>

#include <atomic>

namespace weft::detail {

void sleep_until_ns(std::int64_t deadline_ns) {
  prepare_park(wait_reason::sleep);
  park_until(deadline_ns, nullptr, nullptr);
}

std::int64_t clock_now_ns() noexcept {
  if (time_is_simulated()) return sched::this_simulation()->now_ns();
  return base::now_ns();
}

bool time_is_simulated() noexcept {
  return simulations.load(std::memory_order_relaxed) != 0 && sched::this_simulation() != nullptr;
}

}  // namespace weft::detail
