#include "sched/idle_watch.hpp"

#include "base/clock.hpp"
#include "base/fatal.hpp"
#include "sched/counters.hpp"
#include "sched/scheduler.hpp"
#include "sched/starter.hpp"
#include "sched/wake.hpp"
#include "sched/work.hpp"

#include <algorithm>
#include <mutex>

namespace weft::sched {
namespace {

constexpr std::int64_t wake_ns = 1'000'000;
constexpr std::uint32_t wakes_max = 4;

bool is_any_free(std::int64_t now_ns) noexcept {
  const std::lock_guard hold(the_scheduler.lock);
  if (the_scheduler.idle.searching_hint() != 0) return false;  // the searcher is about to look
  const bool has_spare = has_spare_locked();
  for (const processor* p = the_scheduler.idle_processors.front(); p != nullptr;
       p = idle_processor_list::after(p)) {
    if (p->holder.load(std::memory_order_relaxed) == nullptr && !has_spare) continue;
    if (p->idle == processor::idleness::listening) return true;
    if (p->idle == processor::idleness::dozing && now_ns < p->dozes_until_ns) return true;
  }
  return false;
}

// Whether the processor's machine is about to look at its queues, if the kernel lets it: the
// machine is inside the runtime, or was woken with the processor and has not taken it yet.
bool is_about_to_look(const processor& p) noexcept {
  const machine* const m = p.holder.load(std::memory_order_acquire);  // [OW1]
  if (m != nullptr) {
    return !m->is_asleep.load(std::memory_order_relaxed) && m->seat.inside_hint();
  }
  const std::lock_guard hold(the_scheduler.lock);
  return p.idle == processor::idleness::busy;
}

}  // namespace

processor* idle_watch::oldest_processor() const noexcept {
  if (oldest_ < &processors_[0]) return nullptr;
  return the_scheduler.processors[oldest_ - &processors_[0]].load(std::memory_order_relaxed);
}

void idle_watch::tell() const noexcept {
#ifdef WEFT_ASSERTIONS
  base::text what;
  what << "a goroutine waits beside an idle processor, and machines woken to look left it there: ";
  if (const processor* const p = oldest_processor()) {
    const machine* const m = p->holder.load(std::memory_order_relaxed);
    what << "on processor " << p->index
         << (m == nullptr                                     ? ", which has no holder"
             : m->is_asleep.load(std::memory_order_relaxed)   ? ", whose machine sleeps"
             : m->is_returned.load(std::memory_order_relaxed) ? ", which was lent"
                                                              : ", whose machine runs");
  } else {
    what << "in global queue " << static_cast<int>(oldest_ - &queues_[0]);
  }
  base::fatal(what.view());
#endif
}

void idle_watch::note(place& at, bool waits, std::uint64_t mark, std::int64_t now_ns) noexcept {
  if (!waits) {
    at.since_ns = base::never;
    return;
  }
  if (at.since_ns == base::never || at.mark != mark) {
    at = {.mark = mark, .since_ns = now_ns};
  }
  if (at.since_ns < oldest_ns_) {
    oldest_ns_ = at.since_ns;
    oldest_ = &at;
  }
}

std::int64_t idle_watch::look(std::int64_t now_ns) noexcept {
  const auto forget = [this] {
    for (place& at : queues_) at.since_ns = base::never;
    const std::uint32_t made = the_scheduler.procs_made.load(std::memory_order_acquire);  // [P1]
    for (std::uint32_t i = 0; i < made; ++i) processors_[i].since_ns = base::never;
    return base::never;
  };
  if (!is_any_free(now_ns)) return forget();
  oldest_ns_ = base::never;
  const global_queue& global = the_scheduler.global;
  for (const auto which :
       {global_queue::from::woken, global_queue::from::shared, global_queue::from::overflow}) {
    note(queues_[static_cast<std::size_t>(which)], global.size_hint(which) != 0,
         global.taken_hint(which), now_ns);
  }
  const std::uint32_t made = the_scheduler.procs_made.load(std::memory_order_acquire);  // [P1]
  for (std::uint32_t i = 0; i < made; ++i) {
    const processor& p = *the_scheduler.processors[i].load(std::memory_order_relaxed);
    // A processor gets on by picks, and by what thieves take.
    const std::uint64_t mark = p.picks.load(std::memory_order_relaxed) + p.woken.look_hint().front +
                               p.ready.look_hint().front + p.fresh.look_hint().front;
    note(processors_[i], has_work(p) && !is_about_to_look(p), mark, now_ns);
  }
  if (oldest_ns_ == base::never) return base::never;
  if (now_ns - oldest_ns_ < wake_ns) return oldest_ns_ + wake_ns;
  if (oldest_->wakes++ == wakes_max) {
    the_counters.idle_overlooked.add();
    tell();
  }
  wake_somebody(oldest_processor(), now_ns - oldest_ns_);
  return now_ns + wake_ns;
}

}  // namespace weft::sched
