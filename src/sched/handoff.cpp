// handoff.cpp: how a processor is taken from a machine whose goroutine blocks or hogs it.
//
// One rule: a processor never waits. While a goroutine runs user code, its processor can leave it.
// The goroutine stays on its thread and does not notice until it next enters the runtime. These
// take a processor, and when:
//
//   the machine itself   blocking(f); a goroutine bound to its thread has to wait
//   the monitor          a call blocks, a hog could not be paused, something urgent needs it
//   the signal handler   the hog's own thread, after its slice (preempt.cpp)
//   resize               max_procs shrinks
//
// All of them leave the seat's word at `taken`. ownership.hpp decides, under the scheduler's lock,
// where the processor goes next and how the goroutine gets one again.
#include "sched/handoff.hpp"

#include "base/check.hpp"
#include "sched/counters.hpp"
#include "sched/enter.hpp"
#include "sched/ownership.hpp"
#include "sched/preempt.hpp"
#include "sched/scheduler.hpp"
#include "sched/start.hpp"
#include "sched/theft.hpp"

#include <atomic>
#include <mutex>

namespace weft::sched {
namespace {

scheduler& sched = the_scheduler;

// How much CPU time a machine whose processor was taken may use before its own timer goes off.
constexpr std::int64_t grace_cpu_ns = 1'000'000;

counter& counter_of(retake_cause why) noexcept {
  switch (why) {
    case retake_cause::call:
      return the_counters.detach_call;
    case retake_cause::blocked:
      return the_counters.detach_blocked;
    case retake_cause::hog:
      return the_counters.detach_hog;
    case retake_cause::loan:
      return the_counters.loan_made;
    case retake_cause::resize:
      break;
  }
  return the_counters.detach_resize;
}

// Requires: the lock. Returns: the machine to wake, or null.
machine* pass_on_from_locked(machine* m, retake_cause why) noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  // A lender may have computed for a moment only.
  const std::int64_t slice_ns = sched.slice_ns.load(std::memory_order_relaxed);
  m->turn_until_ns = why == retake_cause::hog    ? 0
                     : why == retake_cause::loan ? m->runs_since_ns + slice_ns
                                                 : base::never;
  processor* const p = ownership::lose_locked(m);
  if (why != retake_cause::loan || p->retiring.load(std::memory_order_relaxed)) {
    return ownership::pass_on_locked(p);
  }
  return ownership::lend_locked(m, p);
}

// Claims the owner's seat. A thief's question does not keep the processor from leaving: the thief
// is told that there is nothing for it.
bool claim_from(machine* owner, seat::word_kind otherwise) noexcept {
  if (owner->seat.claim(claim_turns, otherwise)) return true;
  const std::uint32_t question = owner->seat.accept_for_owner();
  if (question == seat::free) return false;
  turn_away(seat::thief_of(question));
  return owner->seat.claim(claim_turns, otherwise);
}

// Whether the machine has its processor back from a loan and has not noticed: the seat's word is
// still `taken`. Requires: the lock.
bool is_returned_locked(const machine* owner, const processor& p) noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  return owner->is_returned.load(std::memory_order_relaxed) && owner->p == &p;
}

}  // namespace

bool retake(processor& p, retake_cause why, const seen_turn* seen) noexcept {
  machine* const owner = p.holder.load(std::memory_order_acquire);  // [OW1]
  if (owner == nullptr || sched.stopping.load(std::memory_order_relaxed)) return false;
  if (seen != nullptr && seen->holder != owner) return false;
  // A hint, until the seat has been claimed or, for a returned processor, the lock is held.
  const auto has_moved = [&] {
    return seen != nullptr && seen->picks != p.picks.load(std::memory_order_relaxed);
  };
  if (has_moved()) return false;
  sched.lock.lock();
  const bool was_returned = is_returned_locked(owner, p);
  if (was_returned) {
    if (has_moved()) {
      sched.lock.unlock();
      return false;
    }
  } else {
    sched.lock.unlock();
    // No thread waits for a seat while it holds the lock. So a claimer may wait for the lock.
    const bool asks = why == retake_cause::hog || why == retake_cause::loan;
    if (!claim_from(owner, asks ? seat::yield_please : seat::free)) {
      the_counters.detach_failed.add();
      return false;
    }
    sched.lock.lock();
    // `stopping` is read under the lock: from then on the exiting machine keeps its processor.
    if (owner->p != &p || has_moved() || sched.stopping.load(std::memory_order_relaxed)) {
      sched.lock.unlock();
      owner->seat.release();
      the_counters.detach_failed.add();
      return false;
    }
  }
  // Here the processor changes hands: it leaves `owner`, for another machine or the idle list.
  machine* const woken = pass_on_from_locked(owner, why);
  if (!was_returned) owner->seat.take();
  const departure left = ownership::after_passing_locked(p, woken);
  sched.lock.unlock();
  if (was_returned && why == retake_cause::loan) {
    the_counters.loan_repeated.add();
  } else {
    counter_of(why).add();
  }
  left.finish();
  if (why != retake_cause::loan) arm_cpu_timer(owner, grace_cpu_ns);
  return true;
}

std::uint32_t settle_here(machine* m, bool* pleaded) noexcept {
  for (;;) {
    const std::uint32_t word = m->seat.settle();
    switch (seat::kind_of(word)) {
      case seat::asked:
        if (m->seat.accept(word)) hand_over(m, seat::thief_of(word));
        break;
      case seat::yield_please:
        if (m->seat.accept(word) && pleaded != nullptr) *pleaded = true;
        break;
      default:
        return word;
    }
  }
}

bool give_up_seat(machine* m, bool* pleaded) noexcept {
  for (;;) {
    const std::uint32_t word = settle_here(m, pleaded);
    if (word == seat::stopped) return false;
    if (word == seat::taken || m->seat.give_up()) return true;
  }
}

}  // namespace weft::sched

namespace weft::detail {

using namespace weft::sched;

void begin_blocking() noexcept {
  machine* m = this_machine();
  // When the process ends, no other goroutine runs, and the processor would not come back.
  if (m == nullptr || sched::the_scheduler.stopping.load(std::memory_order_relaxed)) return;
  m = enter(m);
  if (!give_up_seat(m)) stop_here();
  WEFT_ASSERT(m->g->get_status() == state::running);
  m->g->set_status(state::blocking);
  the_counters.handoff_blocking.add();
  ownership::pass_on_own(m);
  leave(m);
}

void end_blocking() noexcept {
  machine* const m = this_machine();
  if (m != nullptr) leave(enter(m));
}

}  // namespace weft::detail
