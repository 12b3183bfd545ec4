#include "sched/starter.hpp"

#include "base/check.hpp"
#include "base/clock.hpp"
#include "base/fatal.hpp"
#include "base/futex.hpp"
#include "base/kernel.hpp"
#include "sched/machine_thread.hpp"
#include "sched/monitor_sleep.hpp"
#include "sched/ownership.hpp"
#include "sched/resize.hpp"
#include "sched/spare.hpp"
#include "sched/start.hpp"
#include "sched/wake.hpp"
#include "sched/work.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>

namespace weft::sched {
namespace {

scheduler& sched = the_scheduler;

// How long to wait before the kernel is asked again: doubles each time it refuses a thread.
constexpr std::int64_t refused_min_ns = 1'000'000;
constexpr std::int64_t refused_max_ns = 1'000'000'000;

void tell_of_refusal(int error) noexcept {
  static std::atomic<bool> told{false};
  if (told.exchange(true, std::memory_order_relaxed)) return;
  base::text line;
  line << "cannot start another thread (" << ::strerrordesc_np(error)
       << "); carrying on with those there are";
  base::warn(line.view());
}

// The kernel refused a thread. The processor goes back to its lender, or to a goroutine or a
// machine that has a thread; otherwise it becomes idle and numb (idle_list.hpp).
void make_numb(processor* p) noexcept {
  machine* woken = nullptr;
  sched.lock.lock();
  if (p->retiring.load(std::memory_order_relaxed)) {
    retire_locked(*p);
  } else {
    drain(*p);  // no machine looks into the queues of a processor without a holder
    woken = ownership::go_without_thread_locked(p);
  }
  sched.lock.unlock();
  wake(woken);
  sched.idle.end_search();
  note_activity();        // the monitor will try again
  base::heavy_barrier();  // idle_state.hpp, I2
  if (sched.idle.should_wake() && work_waits_hint()) wake_one(nullptr);
  suspect_deadlock();
}

// Whether a thread is needed for a processor or for the reserve. The reserve does not count while
// it is too early to ask the kernel again.
bool is_thread_wanted(std::int64_t now) noexcept {
  const std::lock_guard hold(sched.lock);
  if (sched.starting.size() > sched.threads_coming) return true;
  return sched.needs_reserve &&
         sched.spare.size() + sched.threads_coming < spare_reserve + sched.starting.size() &&
         now >= sched.refused_until_ns.load(std::memory_order_relaxed);
}

void* starter_main(void*) {
  stay_loaded();
  base::ask_for_slice(0, slice_of_thread_ns, base::slice_for::children_too);
  std::int64_t wait_ns = refused_min_ns;
  for (;;) {
    const std::uint32_t seen = sched.starter_word.load(std::memory_order_acquire);  // [SR1]
    while (is_thread_wanted(base::now_ns())) {
      if (const int error = start_machine()) {
        tell_of_refusal(error);
        sched.refused_until_ns.store(base::now_ns() + wait_ns, std::memory_order_relaxed);
        wait_ns = std::min(2 * wait_ns, refused_max_ns);
        sched.lock.lock();
        processor* const p = take_starting_locked();
        sched.lock.unlock();
        if (p != nullptr) make_numb(p);
      } else {
        sched.refused_until_ns.store(0, std::memory_order_relaxed);
        wait_ns = refused_min_ns;
      }
    }
    const std::int64_t retry_ns = sched.refused_until_ns.load(std::memory_order_relaxed);
    if (retry_ns != 0 && base::now_ns() >= retry_ns) {
      // There are enough threads now. A processor that needs another one asks again.
      sched.refused_until_ns.store(0, std::memory_order_relaxed);
    } else if (retry_ns == 0) {
      base::futex_wait(sched.starter_word, seen);
    } else {
      base::futex_wait_until(sched.starter_word, seen, retry_ns);
    }
  }
}

}  // namespace

int start_starter() noexcept {
  const int error = start_service("weft-starter", &starter_main);
  const std::lock_guard hold(sched.lock);
  sched.has_starter = error == 0;
  return error;
}

void ask_for_thread_locked() noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  sched.starter_word.fetch_add(1, std::memory_order_release);  // [SR1]
  base::futex_wake(sched.starter_word, 1);
}

bool can_ask_for_thread_locked() noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  return sched.has_starter && !is_refused_threads();
}

void add_starting_locked(processor* p) noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  WEFT_ASSERT(p->holder.load(std::memory_order_relaxed) == nullptr);  // ownership.hpp
  WEFT_ASSERT(p->idle == processor::idleness::busy && !p->retired);
  if (sched.starting.empty()) {
    sched.starting_since_ns.store(base::now_ns(), std::memory_order_relaxed);
  }
  sched.starting.push_back(p);  // first come, first served
  ask_for_thread_locked();
  note_activity();  // if the thread does not come, the monitor finds another use (watch::rescue)
}

bool remove_starting_locked(processor* p) noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  if (!sched.starting.contains(p)) return false;
  sched.starting.remove(p);
  if (sched.starting.empty()) {
    sched.starting_since_ns.store(base::never, std::memory_order_relaxed);
  }
  return true;
}

processor* take_starting_locked() noexcept {
  processor* const p = sched.starting.front();
  if (p != nullptr) remove_starting_locked(p);
  return p;
}

bool has_thread_locked() noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  if (!sched.spare.empty()) return true;
  return sched.has_starter && sched.machines < machines_max - spare_reserve &&
         !is_refused_threads();
}

bool has_thread_hint() noexcept {
  const std::lock_guard hold(sched.lock);
  return has_thread_locked();
}

bool has_spare_locked() noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  return !sched.spare.empty() || !is_refused_threads();
}

bool has_spare_hint() noexcept {
  const std::lock_guard hold(sched.lock);
  return has_spare_locked();
}

}  // namespace weft::sched
