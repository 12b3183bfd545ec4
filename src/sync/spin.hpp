// spin.hpp: waiting for a short critical section to end, without parking, where that can help.
//
// It can if the holder may be running at the same time: there is another processor, and not all
// others are idle. It cannot pay if this processor has something else to do meanwhile. Go's rule.
#pragma once

#include "base/futex.hpp"
#include "sched/inside.hpp"
#include "sched/simulation.hpp"

#include <thread>

namespace weft::detail {

class spinner {
 public:
  // Pauses for a moment. Returns: false if it is time to park.
  bool turn() noexcept {
    if (left_ == 0 || !can_help()) return false;
    --left_;
    for (int i = 0; i < pauses; ++i) base::pause();
    return true;
  }

 private:
  static constexpr int turns = 4;
  static constexpr int pauses = 10;

  static bool can_help() noexcept {
    sched::machine* m = sched::this_machine();
    if (m == nullptr) {
      static const bool parallel = std::thread::hardware_concurrency() > 1;
      return parallel && sched::this_simulation() == nullptr;
    }
    // relaxed: hints.
    const std::uint32_t procs = sched::the_scheduler.procs.load(std::memory_order_relaxed);
    const std::uint32_t idle = sched::the_scheduler.idle_count.load(std::memory_order_relaxed);
    if (idle + 1 >= procs) return false;
    m = sched::enter(m);
    const sched::processor& p = *m->p;
    const bool nothing_else =
        p.next.load(std::memory_order_relaxed) == nullptr && p.ready.empty() && p.fresh.empty();
    sched::leave(m);
    return nothing_else;
  }

  int left_ = turns;
};

}  // namespace weft::detail
