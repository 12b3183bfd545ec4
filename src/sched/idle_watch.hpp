// idle_watch.hpp: no goroutine waits beside an idle processor (order.hpp, G5).
//
// Producers of work and machines that lie down see to that (idle_state.hpp), and thieves fetch what
// a processor does not get to. The monitor does not rely on it. It checks at the places where a
// mistake would show: goroutines in the global queue, and goroutines in the queues of a processor
// that does not get on, or that is idle itself. If one of them has waited for a millisecond while a
// processor is idle and no machine is about to look, the monitor wakes a machine to look.
//
// If goroutines wait at the same place after four such looks, which take at least 5 ms, the promise
// is broken. Then a counter is raised (idle.overlooked), and a checked build ends. Time alone would
// prove nothing: a busy kernel may leave the monitor, or the thread that has just queued a
// goroutine, without a core for as long.
//
// A processor counts as idle if it is in the idle list and only the runtime keeps it there. One
// whose doze is over and whose thread waits for a core does not count, nor one for which the kernel
// refuses a thread.
#pragma once

#include "base/clock.hpp"
#include "sched/processor.hpp"

#include <cstdint>

namespace weft::sched {

class idle_watch {
 public:
  // Returns: when to look again.
  std::int64_t look(std::int64_t now_ns) noexcept;

 private:
  // A place where a goroutine waits. The mark shows whether anything has left the place since.
  struct place {
    std::uint64_t mark = 0;
    std::int64_t since_ns = base::never;
    std::uint32_t wakes = 0;  // how often the monitor has woken a machine since then
  };

  void note(place& at, bool waits, std::uint64_t mark, std::int64_t now_ns) noexcept;
  // Returns: null if the longest wait is in a global queue.
  processor* oldest_processor() const noexcept;
  // Counts the broken promise; ends a checked build.
  void tell() const noexcept;

  std::int64_t oldest_ns_ = base::never;  // when the longest wait that this look found began
  place* oldest_ = nullptr;
  place queues_[3];
  place processors_[processors_max];
};

}  // namespace weft::sched
