#include "sched/idle_list.hpp"

#include "base/check.hpp"
#include "sched/ownership.hpp"
#include "sched/scheduler.hpp"

#include <atomic>

namespace weft::sched {
namespace {

scheduler& sched = the_scheduler;

}  // namespace

void add_idle_locked(processor* p, processor::idleness how) noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  WEFT_ASSERT(p->idle == processor::idleness::busy);  // I1
  p->idle = how;
  sched.idle_processors.push_front(p);
  // relaxed: written under the lock.
  sched.idle_count.store(sched.idle_processors.size(), std::memory_order_relaxed);
  if (how == processor::idleness::listening) sched.idle.start_listening();
  if (how == processor::idleness::numb) sched.numb_count.fetch_add(1, std::memory_order_relaxed);
}

void remove_idle_locked(processor* p) noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  WEFT_ASSERT(p->idle != processor::idleness::busy);  // I1
  if (p->idle == processor::idleness::listening) sched.idle.stop_listening();
  if (p->idle == processor::idleness::numb) {
    sched.numb_count.fetch_sub(1, std::memory_order_relaxed);
  }
  p->idle = processor::idleness::busy;
  sched.idle_processors.remove(p);
  sched.idle_count.store(sched.idle_processors.size(), std::memory_order_relaxed);
}

processor* find_idle_locked(processor::idleness how) noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  processor* polling = nullptr;
  processor* without_thread = nullptr;
  for (processor* p = sched.idle_processors.front(); p != nullptr;
       p = idle_processor_list::after(p)) {
    if (p->idle != how) continue;
    const machine* const holder = p->holder.load(std::memory_order_relaxed);
    if (holder == nullptr && sched.spare.empty()) {
      without_thread = p;
    } else if (holder != nullptr && holder == sched.polling) {
      polling = p;
    } else {
      return p;
    }
  }
  return polling != nullptr ? polling : without_thread;
}

machine* rouse_locked(processor* p) noexcept {
  remove_idle_locked(p);
  return ownership::staff_locked(p);
}

void revive_numb_locked() noexcept {
  WEFT_ASSERT(sched.lock.is_locked());
  for (processor* p = sched.idle_processors.front(); p != nullptr;
       p = idle_processor_list::after(p)) {
    if (p->idle != processor::idleness::numb) continue;
    p->idle = processor::idleness::listening;
    sched.numb_count.fetch_sub(1, std::memory_order_relaxed);
    sched.idle.start_listening();
  }
}

bool is_any_idle() noexcept {
  // relaxed, both: hints, unless the caller holds the lock.
  return sched.idle_count.load(std::memory_order_relaxed) >
         sched.numb_count.load(std::memory_order_relaxed);
}

}  // namespace weft::sched
