// watch.hpp: what the monitor sees of each processor, and what it does about it.
//
// A look costs a few loads for each processor. A processor whose picks move is well. If they do not
// move, it is stuck with one goroutine, which computes, blocks, or runs in and out of the runtime.
// That is fine, too, if no other goroutine needs a processor. If another processor is free, its
// machine comes for what waits here. If it has not come after 1 ms, or no processor is free:
//
//   after 20 us   in an announced call that is usually short: take the processor
//   after 100 us  the thread's CPU clock stands still and the kernel says that the thread sleeps:
//                 take the processor. The clock alone would also catch threads that wait for a
//                 core. Calls that block come in bursts: within a millisecond of the last one the
//                 kernel's word is enough, after 20 us. If none has blocked for 0.1 s, the next
//                 look comes only after a millisecond
//   after 0.3 ms  the thread has computed for less than half of that time, and goes to sleep again
//                 and again: take the processor
//   after 1 ms    a timer or an event has woken a goroutine: borrow the processor whose goroutine
//                 has computed longest. If that goroutine has been paused before, borrow at once
//   half a slice  arm the thread's CPU timer for the rest (preempt.cpp)
//   a slice       ask the goroutine to yield when it next enters the runtime
//   later         take the processor, if the thread has had a core for two slices since, or six
//                 slices have passed
#pragma once

#include "base/clock.hpp"
#include "sched/handoff.hpp"
#include "sched/machine.hpp"
#include "sched/processor.hpp"

#include <cstdint>

namespace weft::sched {

class watch {
 public:
  struct outcome {
    bool acted = false;         // a processor was taken
    bool lent = false;          // a processor was lent
    bool moved = false;         // some processor has picked since the last look
    bool rescued = false;       // a processor did not get its thread in time
    bool all_stuck = false;     // every processor is held, and none has picked since
    std::int64_t since_ns = 0;  // all of them have been stuck at least since then
    std::int64_t look_again_ns = base::never;
  };
  outcome look(std::int64_t now_ns) noexcept;

 private:
  struct sight {
    machine* who = nullptr;
    std::uint64_t picks = 0;
    std::int64_t since_ns = 0;
    bool is_hog = false;              // known to compute: was paused before
    std::uint32_t calls = 0;          // machine::calls when it was last seen to change,
    std::int64_t calls_since_ns = 0;  // and when that was
    std::int64_t cpu_ns = -1;         // the thread's CPU clock when it was last seen to change,
    std::int64_t cpu_since_ns = 0;    // and when that was
    std::int64_t first_cpu_ns = -1;   // the CPU clock at the first look, and when that was
    std::int64_t first_cpu_since_ns = 0;
    std::int64_t sleeps = -1;   // how often the thread had gone to sleep; -1: was not asked
    std::int64_t probe_ns = 0;  // the CPU clock is not looked at before
    std::int64_t probe_gap_ns = 0;
    bool is_reported = false;
  };

  void look_at(processor& p, sight& s, std::int64_t now) noexcept;
  bool is_season(std::int64_t now) const noexcept;
  void delay_probe(sight& s, std::int64_t now) noexcept;
  bool seems_blocked(sight& s, std::int64_t now) noexcept;
  bool polls_with_sleeps(sight& s, std::int64_t cpu_ns, std::int64_t now) noexcept;
  void arm(processor& p, sight& s, std::int64_t now) noexcept;
  bool take(processor& p, const sight& s, retake_cause why) noexcept;
  void end_slice(processor& p, sight& s, std::int64_t now) noexcept;
  void report(sight& s, std::int64_t now) noexcept;
  void rescue(std::int64_t now) noexcept;
  void lend(std::int64_t now) noexcept;
  void again_at(std::int64_t when_ns) noexcept;

  outcome out_;
  std::int64_t last_block_ns_ = 0;  // when a thread was last found blocked
  std::int64_t last_ask_ns_ = 0;    // when the kernel was last asked out of turn (seems_blocked)
  processor* longest_ = nullptr;    // in this look: may be lent, and has computed longest
  sight sights_[processors_max];
};

}  // namespace weft::sched
