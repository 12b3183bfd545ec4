// stats.cpp: the counters of weft/debug.hpp, as the scheduler has them.
#include <weft/debug.hpp>

#include "sched/counters.hpp"
#include "sched/inside.hpp"
#include "sched/scheduler.hpp"

#include <weft/go.hpp>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace weft::debug {

std::uint64_t scheduler_stats::operator[](std::string_view name) const {
  const auto found = std::ranges::find(all_, name, &stat::name);
  if (found == all_.end()) {
    std::string what = "weft::debug::stats: there is no counter called ";
    what.append(name);
    throw std::out_of_range(what);
  }
  return found->value;
}

scheduler_stats stats() {
  sched::scheduler& s = sched::the_scheduler;
  const sched::counters& c = sched::the_counters;
  std::uint64_t machines = 0;
  std::uint64_t spare = 0;
  {
    const sched::locked_inside hold(s.lock);
    machines = s.machines;
    spare = s.spare.size();
  }
  std::vector<stat> all{
      {"goroutines", num_goroutine()},
      {"processors", static_cast<std::uint64_t>(max_procs())},
      {"processors.idle", s.idle_count.load(std::memory_order_relaxed)},
      {"machines", machines},
      {"machines.spare", spare},
      {"machines.paused", s.paused_count.load(std::memory_order_relaxed)},
      {"handoff.blocking", c.handoff_blocking.get()},
      {"handoff.bound", c.handoff_bound.get()},
      {"handoff.granted", c.handoff_granted.get()},
      {"detach.call", c.detach_call.get()},
      {"detach.blocked", c.detach_blocked.get()},
      {"detach.hog", c.detach_hog.get()},
      {"detach.resize", c.detach_resize.get()},
      {"detach.failed", c.detach_failed.get()},
      {"loan.made", c.loan_made.get()},
      {"loan.repeated", c.loan_repeated.get()},
      {"loan.returned", c.loan_returned.get()},
      {"preempt.armed", c.preempt_armed.get()},
      {"preempt.stale", c.preempt_stale.get()},
      {"preempt.deferred", c.preempt_deferred.get()},
      {"preempt.refused", c.preempt_refused.get()},
      {"yield.asked", c.yield_asked.get()},
      {"yield.done", c.yield_done.get()},
      {"pause.hog", c.pause_hog.get()},
      {"pause.unattached", c.pause_unattached.get()},
      {"resume", c.resume.get()},
      {"return.loan", c.return_loan.get()},
      {"return.same", c.return_same.get()},
      {"return.other", c.return_other.get()},
      {"return.queued", c.return_queued.get()},
      {"idle.overlooked", c.idle_overlooked.get()},
      {"monitor.rounds", c.monitor_rounds.get()},
      {"stall.reports", c.stall_reports.get()},
  };
  return scheduler_stats(std::move(all));
}

}  // namespace weft::debug
