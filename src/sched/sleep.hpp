// sleep.hpp: how a machine sleeps: with its processor if there is no work (sleep_idle), or without.
//
// A processor without work passes through these stages:
//
//   searching   its machine looks for work, for 5 to 40 us (search.cpp)
//   dozing      its machine sleeps for 50 us, doubling to 2 ms, and then searches once more. No
//               thread wakes it for ordinary work. This limits the rate of wake-ups: without it, a
//               producer that makes work every few nanoseconds would pay for a system call each
//               time. The last processor to become idle leaves this stage out.
//   listening   nothing waited anywhere at the end of the doze: its machine sleeps until it is
//               woken. The producer's side is work_made() (wake.hpp); idle_state.hpp has the
//               protocol, [W1].
//
// While work waits that no thief found worth stealing, the processor keeps dozing instead of
// listening, so that its machine looks again within 2 ms. No work is lost: a search in progress
// sees it, or a doze that ends, or the producer sees that a processor listens.
//
// The machine sleeps together with its processor, so that it goes on where it was, on a warm core.
// While it sleeps, a goroutine that comes back from a blocking call may take the processor. Then
// the machine becomes a spare one (spare.hpp).
//
// I1  A machine that sleeps in sleep_idle is woken (its parker gets a token) only by the thread
//     that took its processor out of the idle list on its behalf. So on a timeout the machine
//     looks, under the lock, whether the processor is still listed. If not, a token is coming, and
//     the machine waits for it; or it has become a spare machine meanwhile, and sleeps on.
#pragma once

#include "sched/machine.hpp"

#include <atomic>
#include <cstdint>

namespace weft::sched {

// While an object of this class lives, the machine runs nothing. Before it runs anything again, it
// looks at the state of the runtime. So no thread need wait for the machine, and the thread that
// ends the process sees that it is asleep.
class asleep {
 public:
  explicit asleep(machine* m) noexcept : m_(m) {
    m_->is_asleep.store(true, std::memory_order_release);  // [ST2] [E2]
  }
  asleep(const asleep&) = delete;
  asleep& operator=(const asleep&) = delete;
  ~asleep() { m_->is_asleep.store(false, std::memory_order_release); }  // [ST1] [E1]

 private:
  machine* const m_;
};

// Sleeps until a token comes.
void sleep(machine* m) noexcept;
// Sleeps until a token comes, or until the deadline. Returns: whether it has got a token.
bool sleep_until(machine* m, std::int64_t deadline_ns) noexcept;
// Sleeps until a processor is granted (ownership.hpp). Calls lie_down() if it has to sleep.
void sleep_for_grant(machine* m, void (*lie_down)()) noexcept;
// If the machine has just given its processor away: waits awake for a moment, provided that this
// has paid of late. Returns: whether it has got a token.
bool spin_for_token(machine* m) noexcept;

// Sleeps, with its processor in the idle list, until there may be work. The processor may be
// another one when it returns. Returns: false if the thread should end; it has no processor then.
bool sleep_idle(machine* m) noexcept;

}  // namespace weft::sched
