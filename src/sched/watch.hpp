// watch.hpp: what the monitor sees of each processor, and what it does about it.
//
// A look costs a few loads for each processor. A processor on which picks move is well; one on
// which they do not is stuck with one goroutine, which computes, blocks, or runs in and out of the
// runtime. If no other goroutine needs a processor, that is fine too, and if another processor is
// free that one comes for what waits here; if it has not after 1 ms, or if none is free:
//
//   after 20 us   in an announced call that is usually short         take the processor
//   after 100 us  its thread's CPU clock stands still and the kernel says that it sleeps: take it.
//                 The clock alone would also catch threads that wait for a core. Calls that block
//                 come in bursts: within a millisecond of the last one the kernel's word is enough,
//                 and if none has blocked for 0.1 s the next look comes after a millisecond only.
//   after 0.3 ms  it has used less than half of that and goes to sleep again and again: take it
//   after 1 ms    a timer or an event has woken somebody: borrow the processor, of whoever has
//                 computed longest. From one that has been paused before, at once
//   half a slice  arm its thread's CPU timer for the rest (preempt.cpp)
//   a slice       ask it to yield when it next enters the runtime
//   later         take the processor, if its thread has had a core for two slices since
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
    bool lent = false;          // one was lent
    bool moved = false;         // some processor has picked since the last look
    bool rescued = false;       // a processor did not get its thread in time
    bool all_stuck = false;     // every processor is held, and none has
    std::int64_t since_ns = 0;  // all of them at least since then
    std::int64_t look_again_ns = base::never;
  };
  outcome look(std::int64_t now_ns) noexcept;

 private:
  struct sight {
    machine* who = nullptr;
    std::uint64_t picks = 0;
    std::int64_t since_ns = 0;
    bool is_hog = false;              // known to compute: has been paused before
    std::uint32_t calls = 0;          // machine::calls when it was last seen to change,
    std::int64_t calls_since_ns = 0;  // and when that was
    std::int64_t cpu_ns = -1;         // the same for its CPU clock
    std::int64_t cpu_since_ns = 0;
    std::int64_t first_cpu_ns = -1;  // the first look at it, and when that was
    std::int64_t first_cpu_since_ns = 0;
    std::int64_t sleeps = -1;   // how often it had gone to sleep, if it was looked at for that
    std::int64_t probe_ns = 0;  // no look at the CPU clock before
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
  std::int64_t last_ask_ns_ = 0;    // when the kernel was last asked about one that had just picked
  processor* longest_ = nullptr;    // in this look: may lend, and has computed longest
  sight sights_[processors_max];
};

}  // namespace weft::sched
