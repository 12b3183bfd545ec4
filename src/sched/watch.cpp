#include "sched/watch.hpp"

#include "base/clock.hpp"
#include "base/env.hpp"
#include "base/kernel.hpp"
#include "sched/all_timers.hpp"
#include "sched/counters.hpp"
#include "sched/idle_list.hpp"
#include "sched/ownership.hpp"
#include "sched/preempt.hpp"
#include "sched/report.hpp"
#include "sched/scheduler.hpp"
#include "sched/starter.hpp"
#include "sched/wake.hpp"
#include "sched/work.hpp"

#include <algorithm>
#include <utility>

namespace weft::sched {
namespace {

scheduler& sched = the_scheduler;

constexpr std::int64_t call_ns = 20'000;
constexpr std::int64_t still_ns = 100'000;
constexpr std::int64_t still_burst_ns = 20'000;
constexpr std::int64_t still_calm_ns = 1'000'000;
constexpr std::int64_t burst_ns = 1'000'000;
constexpr std::int64_t block_season_ns = 100'000'000;
constexpr std::int64_t ask_gap_ns = 4'000'000;
constexpr std::int64_t probe_gap_max_ns = 2'000'000;
constexpr std::int64_t probe_gap_hog_ns = 2'000'000;
constexpr std::int64_t unknown_still_ns = 2'000'000;  // without the kernel's word
constexpr std::int64_t lend_ns = 1'000'000;
constexpr std::int64_t soon_ns = 100'000;
constexpr std::int64_t overdue_ns = 1'000'000;
constexpr std::int64_t rescue_ns = 2'000'000;
constexpr std::int64_t unlooked_ns = 1'000'000;
constexpr std::int64_t unrobbed_ns = 1'000'000;
constexpr std::int64_t poll_window_ns = 300'000;
constexpr std::int64_t poll_share = 2;
constexpr std::int64_t poll_sleeps = 2;
constexpr int computes = -2;  // in the place of a system call
constexpr std::int64_t starved_slices = 3;
constexpr std::int64_t timer_late_ns = 2'000'000;  // on average: half a tick, of 250 a second
constexpr std::int64_t two_ticks_ns = 10'000'000;  // of a kernel with 250 a second

// Whether some machine takes care of work that waits: one is idle, or searches.
bool somebody_is_free() noexcept { return is_any_idle() || sched.idle.searching_hint() != 0; }

}  // namespace

void watch::again_at(std::int64_t when_ns) noexcept {
  out_.look_again_ns = std::min(out_.look_again_ns, when_ns);
}

// Whether calls have blocked of late.
bool watch::is_season(std::int64_t now) const noexcept {
  return now - last_block_ns_ < block_season_ns;
}

// The thread computes: look ever more rarely.
void watch::delay_probe(sight& s, std::int64_t now) noexcept {
  const std::int64_t least = is_season(now) ? still_ns : still_calm_ns;
  // A thread that has gone to sleep is looked at again soon.
  s.probe_gap_ns = s.sleeps >= 0 ? 2 * still_ns
                   : s.is_hog    ? probe_gap_hog_ns
                                 : std::clamp(s.probe_gap_ns * 2, least, probe_gap_max_ns);
  s.probe_ns = now + s.probe_gap_ns;
}

// Whether the thread sleeps for short times in a loop, so that its CPU clock moves, but hardly. A
// thread that waits for a core does not sleep. A thread that polls may be seen awake at each look,
// because the monitor and the kernel's timers keep the same time. So what counts is how often it
// has gone to sleep.
bool watch::polls_with_sleeps(sight& s, std::int64_t cpu_ns, std::int64_t now) noexcept {
  if (s.first_cpu_ns < 0) {
    s.first_cpu_ns = cpu_ns;
    s.first_cpu_since_ns = now;
    return false;
  }
  const std::int64_t wall = now - s.first_cpu_since_ns;
  if (wall < poll_window_ns || (cpu_ns - s.first_cpu_ns) * poll_share > wall) return false;
  const std::int64_t before =
      std::exchange(s.sleeps, base::sleeps_of(s.who->thread_id.load(std::memory_order_relaxed)));
  return before >= 0 && s.sleeps - before >= poll_sleeps;
}

bool watch::seems_blocked(sight& s, std::int64_t now) noexcept {
  const bool burst = now - last_block_ns_ < burst_ns;
  const std::int64_t still = burst ? still_burst_ns : still_ns;
  if (now - s.since_ns < still) {
    // A goroutine that was picked just now need not be looked at out of turn, for most processors
    // pick again soon. The exceptions: calls have blocked of late, or the thread sleeps. To ask the
    // kernel takes longer than the rest of the look, so it is asked rarely.
    bool is_suspect = now != s.since_ns || is_season(now);
    if (!is_suspect && now - last_ask_ns_ >= ask_gap_ns) {
      last_ask_ns_ = now;
      is_suspect = base::activity_of(s.who->thread_id.load(std::memory_order_relaxed)) ==
                   base::thread_activity::sleeps;
    }
    if (is_suspect) again_at(s.since_ns + still);
    return false;
  }
  if (now < s.probe_ns) {
    again_at(s.probe_ns);
    return false;
  }
  const pid_t thread = s.who->thread_id.load(std::memory_order_relaxed);
  if (!burst) {
    const std::int64_t cpu = base::cpu_time_ns(thread);
    if (cpu != s.cpu_ns) {
      if (polls_with_sleeps(s, cpu, now)) return true;
      delay_probe(s, now);
      s.cpu_ns = cpu;
      s.cpu_since_ns = now;
      again_at(s.probe_ns);
      return false;
    }
    if (now - s.cpu_since_ns < still_ns) {
      again_at(s.cpu_since_ns + still_ns);
      return false;
    }
  }
  switch (base::activity_of(thread)) {
    case base::thread_activity::sleeps:
      return true;
    case base::thread_activity::unknown:
      if (s.cpu_ns != -1 && now - s.cpu_since_ns >= unknown_still_ns) return true;
      break;
    case base::thread_activity::runs:
      break;
  }
  delay_probe(s, now);
  again_at(s.probe_ns);
  return false;
}

// Arms the CPU timer so that it goes off at the end of the slice, and the handler then acts on it.
void watch::arm(processor& p, sight& s, std::int64_t now) noexcept {
  machine* const m = s.who;
  m->armed_picks.store(s.picks, std::memory_order_relaxed);
  m->armed_p.store(&p, std::memory_order_relaxed);
  if (m->armed_since_ns.load(std::memory_order_relaxed) == s.since_ns) return;
  m->armed_since_ns.store(s.since_ns, std::memory_order_relaxed);
  if (!m->has_long_slice.load(std::memory_order_relaxed)) {
    // From now on the thread has one of the kernel's usual, long slices: an urgent thread gets the
    // core at once.
    m->has_long_slice.store(true, std::memory_order_relaxed);
    base::ask_for_slice(m->thread_id.load(std::memory_order_relaxed), 0);
  }
  m->armed_cpu_ns = base::cpu_time_ns(m->thread_id.load(std::memory_order_relaxed));
  const std::int64_t slice = sched.slice_ns.load(std::memory_order_relaxed);
  arm_cpu_timer(
      m, std::max(slice - (now - s.since_ns) - std::min(timer_late_ns, slice / 5), slice / 10));
  the_counters.preempt_armed.add();
}

// Takes the processor from the goroutine that was looked at, not from one that has run since.
bool watch::take(processor& p, const sight& s, retake_cause why) noexcept {
  const seen_turn seen{.holder = s.who, .picks = s.picks};
  return retake(p, why, &seen);
}

void watch::end_slice(processor& p, sight& s, std::int64_t now) noexcept {
  const std::int64_t slice = sched.slice_ns.load(std::memory_order_relaxed);
  const std::int64_t stuck = now - s.since_ns;
  if (stuck < slice / 2) {
    again_at(s.since_ns + slice / 2);
    return;
  }
  arm(p, s, now);
  if (stuck < slice) {
    again_at(s.since_ns + slice);
    return;
  }
  if (s.who->seat.ask_to_yield()) the_counters.yield_asked.add();
  if (can_pause()) {
    const std::int64_t long_enough = std::max(2 * slice, two_ticks_ns);
    if (stuck < long_enough) {
      again_at(s.since_ns + long_enough);
      return;
    }
    // The kernel checks the thread's timer at each of its ticks. The timer has not gone off because
    // the thread has had no core. Then, for a while, another thread in its place would not help.
    const std::int64_t used = base::cpu_time_ns(s.who->thread_id.load(std::memory_order_relaxed));
    if (stuck < starved_slices * long_enough && used - s.who->armed_cpu_ns < long_enough) return;
  }
  // If no thread could go on with the processor, leave it: the handler may pass it to a paused
  // goroutine, which has a thread.
  if (can_pause() && !has_thread_hint()) return;
  if (take(p, s, retake_cause::hog)) out_.acted = true;
}

void watch::report(sight& s, std::int64_t now) noexcept {
  const std::int64_t limit = base::env().stall.count();
  if (s.is_reported) return;
  if (now - s.since_ns < limit) {
    again_at(s.since_ns + limit);
    return;
  }
  s.is_reported = true;
  s.who->stalled_ns.store(now - s.since_ns, std::memory_order_relaxed);
  const pid_t thread = s.who->thread_id.load(std::memory_order_relaxed);
  const bool sleeps = base::activity_of(thread) == base::thread_activity::sleeps;
  if (sleeps || !can_pause()) {
    // Only a claimer may look at what runs there.
    const int call = sleeps ? base::system_call_of(thread) : computes;
    if (!s.who->seat.claim(claim_turns)) return;
    if (s.who->g != nullptr) report_blocked_stall(s.who, s.who->g, call);
    s.who->seat.release();
  } else {
    s.who->wants_report.store(true, std::memory_order_relaxed);
    arm_cpu_timer(s.who, 1);
  }
}

void watch::look_at(processor& p, sight& s, std::int64_t now) noexcept {
  machine* const m = p.holder.load(std::memory_order_acquire);  // [OW1]
  // relaxed: all of them are hints; retake() makes sure.
  if (m == nullptr || m->is_asleep.load(std::memory_order_relaxed)) {
    s.who = nullptr;
    out_.all_stuck = false;
    return;
  }
  const std::uint64_t picks = p.picks.load(std::memory_order_relaxed);
  if (s.who != m || s.picks != picks) {
    s = {};
    s.who = m;
    s.picks = picks;
    s.since_ns = now;
    s.calls = m->calls.load(std::memory_order_relaxed);
    s.calls_since_ns = now;
    s.is_hog = m->hog_picks.load(std::memory_order_relaxed) == picks;
    if (m->is_returned.load(std::memory_order_relaxed)) {
      s.since_ns = m->runs_since_ns;  // the goroutine has computed all the time
      s.is_hog = true;
    } else {
      out_.moved = true;
      if (!s.is_hog) out_.all_stuck = false;
      // Turns have become longer than when the processor decided when to look next.
      if (p.look_gap.load(std::memory_order_relaxed) > 1 &&
          now - p.clock_ns.load(std::memory_order_relaxed) > unlooked_ns && others_want(p) &&
          m->seat.ask_to_yield()) {
        the_counters.yield_asked.add();
      }
    }
  }
  out_.since_ns = std::max(out_.since_ns, s.since_ns);
  if (base::env().stall.count() != 0) report(s, now);
  const std::uint32_t calls = m->calls.load(std::memory_order_relaxed);
  if (calls != s.calls) {
    s.calls = calls;
    s.calls_since_ns = now;
  }
  // A machine that is free comes for what waits here, or is sent (idle_watch.hpp). If work has
  // waited here for long all the same, that machine finds no way to take it.
  if (somebody_is_free() && (!has_work(p) || now - s.since_ns < unrobbed_ns)) return;
  const bool inside = m->seat.inside_hint();
  const bool wanted = others_want(p);
  if (!inside && (wanted || work_waits_hint())) {
    if (calls % 2 == 1) {
      if (now - s.calls_since_ns < call_ns) {
        again_at(s.calls_since_ns + call_ns);
      } else if (take(p, s, retake_cause::call)) {
        out_.acted = true;
        return;
      }
    } else if (seems_blocked(s, now)) {
      last_block_ns_ = now;
      if (take(p, s, retake_cause::blocked)) {
        out_.acted = true;
        return;
      }
    }
  }
  if (!inside && (longest_ == nullptr || s.since_ns < sights_[longest_->index].since_ns)) {
    longest_ = &p;
  }
  if (wanted) end_slice(p, s, now);
}

// Lends a processor if a timer is due, or the world has woken a goroutine, and no processor is free
// for it.
void watch::lend(std::int64_t now) noexcept {
  const std::int64_t timer = earliest_timer_hint();
  if (timer <= now && sched.idle_count.load(std::memory_order_relaxed) != 0) {
    wake_somebody();  // a goroutine that now computes set the timer; sleepers do not know of it
    return;
  }
  if (!is_urgent_hint(now) || somebody_is_free()) return;
  if (longest_ == nullptr) return again_at(now + soon_ns);
  if (!out_.all_stuck && now - timer < overdue_ns) {  // some processor is about to look
    again_at(now + overdue_ns);
    return;
  }
  sight& s = sights_[longest_->index];
  // If the goroutine there was itself woken by a timer or the world, it has a turn like others
  // (order.hpp, G2).
  const bool is_worlds = !longest_->is_others_time.load(std::memory_order_relaxed);
  const std::int64_t enough = is_worlds ? sched.slice_ns.load(std::memory_order_relaxed) : lend_ns;
  if (now - s.since_ns < enough && !s.is_hog) {
    again_at(s.since_ns + enough);
    return;
  }
  // Each loan begins the watch of the lender anew. Frequent loans would hide that the thread has
  // gone to sleep, so ask now.
  const pid_t thread = s.who->thread_id.load(std::memory_order_relaxed);
  if (base::activity_of(thread) == base::thread_activity::sleeps) {
    last_block_ns_ = now;
    out_.acted = take(*longest_, s, retake_cause::blocked);
    if (!out_.acted) again_at(now + soon_ns);
    return;
  }
  if (!has_spare_hint()) return again_at(now + lend_ns);
  s.who->runs_since_ns = s.since_ns;
  if (!take(*longest_, s, retake_cause::loan)) return again_at(now + soon_ns);
  out_.lent = true;
  // The lender computes on, and is paused at the end of its slice.
  arm(*longest_, s, now);
}

// For when a new thread does not come. Perhaps a paused goroutine holds what the starter waits for.
void watch::rescue(std::int64_t now) noexcept {
  const std::int64_t since = sched.starting_since_ns.load(std::memory_order_relaxed);
  if (since == base::never) return;
  if (now - since < rescue_ns) return again_at(since + rescue_ns);
  // All processors that wait now, but not those that come meanwhile.
  for (std::uint32_t n = processors_max; n != 0; --n) {
    sched.lock.lock();
    const bool any = !sched.starting.empty();
    machine* const woken = ownership::rescue_starting_locked();
    sched.lock.unlock();
    if (woken != nullptr) woken->sleep.wake();
    if (!any) break;
  }
  look_for_others();
  out_.acted = out_.rescued = true;
}

watch::outcome watch::look(std::int64_t now_ns) noexcept {
  the_counters.monitor_rounds.add();
  out_ = {};
  out_.all_stuck = true;
  longest_ = nullptr;
  rescue(now_ns);
  const std::uint32_t made = sched.procs_made.load(std::memory_order_acquire);  // [P1]
  const std::uint32_t procs = std::min(made, sched.procs.load(std::memory_order_relaxed));
  for (std::uint32_t i = 0; i < procs; ++i) {
    look_at(*sched.processors[i].load(std::memory_order_relaxed), sights_[i], now_ns);
  }
  if (!out_.acted) lend(now_ns);
  return out_;
}

}  // namespace weft::sched
