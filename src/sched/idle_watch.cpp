#include "sched/idle_watch.hpp"

#include "base/clock.hpp"
#include "base/fatal.hpp"
#include "sched/counters.hpp"

#include <algorithm>
#include <mutex>

namespace weft::sched {
namespace {

constexpr std::int64_t wake_ns = 1'000'000;
constexpr std::int64_t broken_ns = 5'000'000;

bool is_any_free(std::int64_t now_ns) noexcept {
  const std::lock_guard hold(the_scheduler.lock);
  if (the_scheduler.idle.searching_hint() != 0) return false;  // is about to look
  const bool has_spare = has_spare_locked();
  for (const processor* p = the_scheduler.idle_head; p != nullptr; p = p->idle_next) {
    if (p->holder.load(std::memory_order_relaxed) == nullptr && !has_spare) continue;
    if (p->idle == processor::idleness::listening) return true;
    if (p->idle == processor::idleness::dozing && now_ns < p->dozes_until_ns) return true;
  }
  return false;
}

// Who is inside the runtime is about to see to its queues, if the kernel lets it.
bool is_inside(const processor& p) noexcept {
  const machine* const m = p.holder.load(std::memory_order_acquire);
  return m != nullptr && !m->is_asleep.load(std::memory_order_relaxed) && m->chair.inside_hint();
}

}  // namespace

void idle_watch::tell() const noexcept {
#ifdef WEFT_ASSERTIONS
  base::text what;
  what << "a goroutine has waited for 5 ms beside an idle processor: ";
  if (oldest_ >= &processors_[0]) {
    const auto i = static_cast<std::uint32_t>(oldest_ - &processors_[0]);
    const machine* const m = the_scheduler.processors[i].load(std::memory_order_relaxed)->holder;
    what << "on processor " << i
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
    at = {.mark = mark, .since_ns = now_ns, .is_told = false};
  }
  if (at.since_ns < oldest_ns_) {
    oldest_ns_ = at.since_ns;
    oldest_ = &at;
  }
}

std::int64_t idle_watch::look(std::int64_t now_ns) noexcept {
  const auto forget = [this] {
    for (place& at : queues_) at.since_ns = base::never;
    for (place& at : processors_) {
      if (at.since_ns == base::never && at.mark == 0) break;  // never used
      at.since_ns = base::never;
    }
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
    // It goes on by picks, and by what thieves take.
    const std::uint64_t mark = p.picks.load(std::memory_order_relaxed) + p.woken.look_hint().front +
                               p.ready.look_hint().front + p.fresh.look_hint().front;
    note(processors_[i], has_work(p) && !is_inside(p), mark, now_ns);
  }
  if (oldest_ns_ == base::never) return base::never;
  const std::int64_t waited = now_ns - oldest_ns_;
  if (waited < wake_ns) return oldest_ns_ + wake_ns;
  if (waited > broken_ns && !oldest_->is_told) {
    oldest_->is_told = true;
    the_counters.idle_overlooked.add();
    tell();
  }
  wake_somebody();
  return now_ns + wake_ns;
}

}  // namespace weft::sched
