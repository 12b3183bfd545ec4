// procs.cpp: how many processors and goroutines there are.
#include <weft/go.hpp>

#include "sched/enter.hpp"
#include "sched/resize.hpp"
#include "sched/scheduler.hpp"
#include "sched/simulation.hpp"
#include "sched/start.hpp"

#include <atomic>
#include <stdexcept>
#include <string>

namespace weft {

using sched::machine;
using sched::the_scheduler;

int max_procs() {
  if (const sched::simulation* const s = sched::this_simulation()) return s->procs();
  sched::ensure_started();
  return static_cast<int>(the_scheduler.procs.load(std::memory_order_relaxed));
}

int max_procs(int n) {
  if (n < 1) throw std::invalid_argument("weft::max_procs: " + std::to_string(n) + " is below 1");
  if (const sched::simulation* const s = sched::this_simulation()) return s->procs();
  sched::ensure_started();
  const std::uint32_t before = sched::resize_by_hand(static_cast<std::uint32_t>(n));
  // If the caller's own processor was retired, the caller goes on only when it has another one.
  if (machine* const m = sched::this_machine()) sched::leave(sched::enter(m));
  return static_cast<int>(before);
}

std::size_t num_goroutine() {
  if (const sched::simulation* const s = sched::this_simulation()) return s->goroutines();
  std::uint64_t ended = 0;
  std::uint64_t started = 0;
  const std::uint32_t procs = the_scheduler.procs_made.load(std::memory_order_acquire);  // [P1]
  // Ends are read first: a goroutine that starts and ends meanwhile must not make this negative.
  for (std::uint32_t i = 0; i < procs; ++i) {
    ended += the_scheduler.processors[i]
                 .load(std::memory_order_relaxed)
                 ->ended.load(std::memory_order_relaxed);
  }
  for (std::uint32_t i = 0; i < procs; ++i) {
    started += the_scheduler.processors[i]
                   .load(std::memory_order_relaxed)
                   ->started.load(std::memory_order_relaxed);
  }
  started += the_scheduler.outside_started.load(std::memory_order_relaxed);
  return started > ended ? static_cast<std::size_t>(started - ended) : 0;
}

}  // namespace weft
