#include "sched/spare.hpp"

#include "base/check.hpp"
#include "base/clock.hpp"
#include "sched/keeper.hpp"
#include "sched/monitor_sleep.hpp"
#include "sched/ownership.hpp"
#include "sched/scheduler.hpp"
#include "sched/sleep.hpp"
#include "sched/starter.hpp"
#include "sched/wake.hpp"

#include <atomic>

namespace weft::sched {
namespace {

scheduler& sched = the_scheduler;

// How long a thread without a processor stays, when there are more than a few of them.
constexpr std::int64_t spare_life_ns = 5'000'000'000;
constexpr std::uint32_t spare_kept = 4;

void remove_spare_locked(machine* m) noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  WEFT_ASSERT(m->is_spare && m->p == nullptr);
  m->is_spare = false;
  sched.spare.remove(m);
}

}  // namespace

void add_spare_locked(machine* m) noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  WEFT_ASSERT(!m->is_spare && m->p == nullptr);
  m->is_spare = true;
  sched.spare.push_front(m);
}

machine* take_spare_locked() noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  machine* const m = sched.spare.front();
  if (m != nullptr) remove_spare_locked(m);
  if (sched.spare.size() < spare_reserve) ask_for_thread_locked();
  return m;
}

bool wait_as_spare(machine* m) noexcept {
  for (;;) {
    sched.lock.lock();
    const bool surplus = sched.spare.size() > spare_kept;
    sched.lock.unlock();
    if (spin_for_token(m)) break;  // I1
    if (!surplus) {
      sleep(m);
      break;  // I1
    }
    if (sleep_until(m, base::now_ns() + spare_life_ns)) break;  // I1
    sched.lock.lock();
    if (!m->is_spare) {
      sched.lock.unlock();
      sleep(m);  // I1: the token is on its way
      break;
    }
    if (sched.spare.size() > spare_kept) {
      remove_spare_locked(m);
      sched.lock.unlock();
      return false;
    }
    sched.lock.unlock();
  }
  m->seat.reclaim();
  m->seat.forget_plea();
  note_activity();
  return true;
}

bool sleep_spare(machine* m) noexcept {
  sched.lock.lock();
  WEFT_ASSERT(m->p == nullptr && !m->is_spare);
  const bool searched = end_search(m);
  const bool has = ownership::hold_waiting_locked(m);
  if (!has) add_spare_locked(m);
  sched.lock.unlock();
  if (!has) {
    if (searched) {
      look_for_others();
    } else {
      attend_poller();  // poller.hpp, P1
    }
    return wait_as_spare(m);
  }
  m->seat.reclaim();
  m->seat.forget_plea();
  note_activity();
  return true;
}

}  // namespace weft::sched
