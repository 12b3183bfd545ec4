// sleep.hpp: how a machine sleeps; with its processor, when there is no work (sleep_idle).
//
// A processor without work passes through these stages:
//
//   searching   its machine looks for work, for 5 to 40 us (search.cpp)
//   dozing      the machine sleeps for 50 us, doubling to 2 ms; nobody wakes it for ordinary work,
//               and then it searches once more. This is what limits the rate of wake-ups: a
//               producer that makes work every few nanoseconds would otherwise pay for a system
//               call each time.
//   listening   nothing waited anywhere at the end of the doze: it sleeps until it is woken. The
//               producer's side is work_made() (wake.hpp); idle_state.hpp has the protocol, [W1].
//
// While something waits that nobody found worth stealing the processor keeps dozing instead of
// listening, so that it looks again within 2 ms. No work is lost: what waits is seen by a search in
// progress, by a doze that ends, or by the producer, who sees that somebody listens.
//
// The machine sleeps together with its processor, so that it goes on where it was, on a warm core.
// The processor may be taken from it while it sleeps, by a goroutine that comes back from a
// blocking call; then the machine becomes a spare one (spare.hpp).
//
// I1  A machine that sleeps in sleep_idle is woken (its parker given a token) only by whoever took
//     its processor out of the idle list on its behalf; so on a timeout it looks under the lock
//     whether it is still listed, and if not, a token is coming and it waits for that.
#pragma once

#include "sched/machine.hpp"

#include <atomic>
#include <cstdint>

namespace weft::sched {

// While it lives, the machine runs nothing and looks before it does: nobody need wait for it, and
// whoever ends the process sees it asleep.
class asleep {
 public:
  explicit asleep(machine* m) noexcept : m_(m) {
    m_->is_asleep.store(true, std::memory_order_release);
  }
  asleep(const asleep&) = delete;
  asleep& operator=(const asleep&) = delete;
  ~asleep() { m_->is_asleep.store(false, std::memory_order_release); }

 private:
  machine* const m_;
};

// Sleeps until a token comes.
void sleep(machine* m) noexcept;
// Until the deadline at the latest. Returns: whether it has got a token.
bool sleep_until(machine* m, std::int64_t deadline_ns) noexcept;
// Until somebody grants a processor (ownership.hpp). lie_down() is called if it has to sleep.
void sleep_for_grant(machine* m, void (*lie_down)()) noexcept;
// A machine that has just given its processor away waits awake for a moment, if that has paid of
// late. Returns: whether it has got a token.
bool spin_for_token(machine* m) noexcept;

// Sleeps, with its processor in the idle list, until there may be work. The processor may be
// another one when it returns. Returns: false if the thread should end; it has no processor then.
bool sleep_idle(machine* m) noexcept;

}  // namespace weft::sched
