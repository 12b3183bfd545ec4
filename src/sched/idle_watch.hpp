// idle_watch.hpp: nobody waits beside an idle processor (order.hpp, G5).
//
// Those who make work and those who lie down see to that (idle_state.hpp), and thieves come for
// what a processor does not get to. The monitor looks whether it is so, where it would show,
// instead of relying on all of that: at goroutines in the global queue, and at those in the queues
// of a processor that does not move on, or that is idle itself. If one of them has waited for a
// millisecond and a processor is idle and no machine is about to look, one is woken to look. If
// goroutines wait at the same place after four such looks, which takes at least 5 ms, the promise
// is broken: counted (idle.overlooked), and in checked builds the end. Time alone would prove
// nothing: a busy kernel may leave the monitor, or the thread that has just queued a goroutine,
// without a core for as long.
//
// A processor counts as idle if it is in the idle list and nobody but the runtime keeps it there:
// not one whose doze is over and whose thread waits for a core, nor one for which the kernel
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
  // A place where somebody waits, and what tells that it is the same one as before.
  struct place {
    std::uint64_t mark = 0;
    std::int64_t since_ns = base::never;
    std::uint32_t wakes = 0;  // by the monitor, since then
  };

  void note(place& at, bool waits, std::uint64_t mark, std::int64_t now_ns) noexcept;
  // Returns: null if the longest wait is in a global queue.
  processor* oldest_processor() const noexcept;
  // Checked builds: the end.
  void tell() const noexcept;

  std::int64_t oldest_ns_ = base::never;  // in this look: the longest wait began then
  place* oldest_ = nullptr;
  place queues_[3];
  place processors_[processors_max];
};

}  // namespace weft::sched
