// select.cpp: waiting for one of several channels.
//
// A select first looks at all channels without their locks. If some seem to be ready, it chooses
// one of them and locks only that one. If the chosen one is not ready any more, or none seems
// ready, it locks all channels, in the order of their addresses. So it sees all of them at one
// instant: either a case is ready and taken, or the select enters all queues before another thread
// can use a channel. It releases the locks before its goroutine has been switched away from its
// machine; `busy` in arch/context.hpp makes that safe.
//
// While a select holds all its locks no thread can claim it. So when it finds another select
// waiting, it needs to claim only the other one: two selects never wait for each other's decision.
//
// A thread that claims a select's wait_set has taken one of the set's waiters out of the queue of a
// channel. The select takes its other waiters out of their queues when it runs again. In between,
// other threads may take such a waiter out of its queue, fail to claim the set, and pass it over.
#include <weft/detail/select_core.hpp>

#include "chan/locked.hpp"
#include "sched/choice.hpp"
#include "sched/fast_park.hpp"
#include "sched/inside.hpp"

#include <algorithm>
#include <utility>

namespace weft::detail {
namespace {

using sched::machine;

[[gnu::always_inline]] inline bool seems_ready(const select_case& c) noexcept {
  if (c.channel == nullptr) return false;
  return c.what == select_case::kind::send ? c.channel->could_send() : c.channel->could_receive();
}

std::uint32_t choose(machine* m, std::uint32_t n) noexcept {
  return m != nullptr ? sched::choose(*m->p, sched::choice::ready_case, n) : choose_inside(n);
}

// Chooses among the cases that seem to be ready, each with the same chance. Returns: an index, or
// `none`.
[[gnu::always_inline]] inline std::size_t choose_ready(
    machine* m, std::span<select_case* const> cases) noexcept {
  std::size_t chosen = chan_select::none;
  std::uint32_t ready = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (!seems_ready(*cases[i])) continue;
    ++ready;
    if (ready == 1 || choose(m, ready) == 0) chosen = i;
  }
  return chosen;
}

void ready_from(machine* m, chan_waiter* served) noexcept {
  if (served == nullptr) return;
  m != nullptr ? sched::ready_on(m, served->who) : ready_inside(served->who);
}

bool give_up(void* set) { return static_cast<wait_set*>(set)->claim(wait_set::timeout); }

// Returns: how many cases have a channel. A channel counts as often as it has cases.
std::size_t count_channels(std::span<select_case* const> cases) noexcept {
  return static_cast<std::size_t>(std::count_if(
      cases.begin(), cases.end(), [](const select_case* c) { return c->channel != nullptr; }));
}

// While a select holds locks it cannot wait for a machine that has a bias (sched/bias.hpp), so its
// channels must have none. Outside the runtime.
[[gnu::always_inline]] inline void forgo_biases(std::span<select_case* const> cases) {
  for (const select_case* const c : cases) {
    if (c->channel != nullptr && !c->channel->has_forgone_bias()) [[unlikely]]
      c->channel->forgo_bias();
  }
}

// Does nothing on a machine, because a simulation never runs on one.
[[gnu::always_inline]] inline void observe_all(const machine* m, touch how,
                                               std::span<select_case* const> cases) noexcept {
  if (m != nullptr) [[likely]]
    return;
  for (const select_case* const c : cases) {
    if (c->channel != nullptr) {
      observe(how, c->channel, c->what == select_case::kind::send ? "select send" : "select recv");
    }
  }
}

}  // namespace

// Requires: inside the runtime, with the lock of the channel.
bool chan_select::perform_locked(select_case& c, chan_waiter*& served) noexcept {
  c.outcome = c.channel->perform_locked(side_of(c), c.element, served);
  return c.outcome != chan_outcome::would_wait;
}

// Takes a case that seems to be ready, with the lock of its channel only. Inside the runtime.
// Returns: `none` if no case seemed ready, or the chosen one was ready no longer.
[[gnu::always_inline]] inline std::size_t chan_select::take_ready(
    machine* m, std::span<select_case* const> cases) noexcept {
  const std::size_t chosen = choose_ready(m, cases);
  if (chosen == none) return none;
  select_case& c = *cases[chosen];
  chan_waiter* served = nullptr;
  c.channel->lock();
  const bool taken = perform_locked(c, served);
  c.channel->unlock();
  ready_from(m, served);
  return taken ? chosen : none;
}

// Locks every channel once. Returns: how many different channels there are.
std::size_t chan_select::lock_all(std::span<select_case* const> cases,
                                  chan_core** channels) noexcept {
  std::size_t n = 0;
  for (const select_case* const c : cases) {
    if (c->channel != nullptr) channels[n++] = c->channel;
  }
  if (n == 2) {
    if (channels[0] > channels[1]) std::swap(channels[0], channels[1]);
    if (channels[0] == channels[1]) n = 1;
  } else if (n > 2) {
    std::sort(channels, channels + n);
    n = static_cast<std::size_t>(std::unique(channels, channels + n) - channels);
  }
  for (std::size_t i = 0; i < n; ++i) channels[i]->lock();
  return n;
}

void chan_select::unlock_all(chan_core* const* channels, std::size_t n) noexcept {
  for (std::size_t i = 0; i < n; ++i) channels[i]->unlock();
}

// Requires: inside the runtime, with all locks. Drops them if a case was ready.
std::size_t chan_select::take_ready_locked(machine* m, std::span<select_case* const> cases,
                                           chan_core* const* channels, std::size_t n) noexcept {
  chan_waiter* served = nullptr;
  std::size_t chosen = choose_ready(m, cases);
  // A waiter may belong to a select that has been claimed elsewhere. The failed attempt dropped it,
  // so its channel no longer seems ready on its account, and the loop ends.
  while (chosen != none && !perform_locked(*cases[chosen], served)) chosen = choose_ready(m, cases);
  if (chosen == none) return none;
  unlock_all(channels, n);
  ready_from(m, served);
  return chosen;
}

std::size_t chan_select::look(std::span<select_case* const> cases, chan_core** scratch) {
  forgo_biases(cases);
  sched::inside in;
  observe_all(in.here(), touch::release, cases);
  std::size_t taken = take_ready(in.here(), cases);
  if (taken == none && cases.size() > 1) {
    // The first look saw the channels one after the other; now look at all of them at one instant.
    const std::size_t n = lock_all(cases, scratch);
    taken = take_ready_locked(in.here(), cases, scratch, n);
    if (taken == none) unlock_all(scratch, n);
  }
  in.leave();
  observe_all(in.here(), touch::acquire, cases);
  return taken;
}

std::size_t chan_select::wait(std::span<select_case* const> cases, chan_core** scratch,
                              std::int64_t deadline_ns) {
  forgo_biases(cases);
  sched::inside in;
  observe_all(in.here(), touch::release, cases);
  std::size_t taken = take_ready(in.here(), cases);
  if (taken == none) {
    const std::size_t n = lock_all(cases, scratch);
    taken = take_ready_locked(in.here(), cases, scratch, n);
    if (taken == none) {
      taken = wait_in_queues(in.here(), cases, scratch, n, deadline_ns);
      observe_all(in.here(), touch::acquire, cases);
      return taken;
    }
  }
  in.leave();
  observe_all(in.here(), touch::acquire, cases);
  return taken;
}

// Requires: inside the runtime, with all locks. Afterwards the caller is outside, without locks.
std::size_t chan_select::wait_in_queues(machine* m, std::span<select_case* const> cases,
                                        chan_core* const* channels, std::size_t n,
                                        std::int64_t deadline_ns) {
  wait_set set;
  const bool in_turn = n == cases.size() || n == count_channels(cases);
  if (!in_turn) [[unlikely]]
    shuffle(m, cases);
  const wait_reason reason = cases.empty() ? wait_reason::select_empty : wait_reason::select;
  goroutine* const self =
      m != nullptr ? sched::prepare_park_on(m, reason) : prepare_park_inside(reason);
  const auto enter_queue = [&](std::size_t i) {
    select_case& c = *cases[i];
    if (c.channel == nullptr) return;
    c.waiter.who = self;
    c.waiter.element = c.element;
    c.waiter.set = &set;
    c.waiter.index = static_cast<std::uint32_t>(i);
    c.channel->push_locked(side_of(c), &c.waiter);
  };
  if (in_turn) [[likely]] {
    for (std::size_t i = 0; i < cases.size(); ++i) enter_queue(i);
  } else {
    for (const select_case* const c : cases) enter_queue(c->at);
  }
  unlock_all(channels, n);
  if (m == nullptr) {
    for (select_case* const c : cases) {
      if (c->channel != nullptr) c->channel->note_waiter(side_of(*c), c->waiter);
    }
  }
  if (deadline_ns != no_deadline) {
    park_until(deadline_ns, &give_up, &set);
    sched::inside again;
    m = again.here();
  } else if (m != nullptr) {
    sched::suspend(m, m->g);
    m = sched::this_machine();
  } else {
    park();
  }
  // Here the goroutine is inside the runtime again.
  const std::uint32_t fired = set.fired.load(std::memory_order_acquire);  // [N2]
  const std::size_t taken = fired == wait_set::timeout ? none : fired - 1;
  leave_queues(cases, taken);
  if (m != nullptr) {
    sched::leave(m);
  } else {
    for (const select_case* const c : cases) {
      if (c->channel != nullptr) c->channel->drop_note(c->waiter);
    }
  }
  if (taken != none) {
    select_case& c = *cases[taken];
    c.outcome = c.waiter.done ? chan_outcome::done : chan_outcome::closed;
  }
  return taken;
}

// A goroutine that meets the waiting select on a channel takes the first case of the select there.
// If the select has several cases on one channel, chance decides which one is first.
void chan_select::shuffle(machine* m, std::span<select_case* const> cases) noexcept {
  for (std::uint32_t i = 0; i < cases.size(); ++i) {
    const std::uint32_t other = i == 0 ? 0 : choose(m, i + 1);
    cases[i]->at = cases[other]->at;
    cases[other]->at = i;
  }
}

void chan_select::leave_queues(std::span<select_case* const> cases, std::size_t taken) noexcept {
  for (std::size_t i = 0; i < cases.size(); ++i) {
    select_case& c = *cases[i];
    if (c.channel == nullptr || i == taken) continue;
    c.channel->lock();
    if (c.waiter.queued) c.channel->remove_locked(side_of(c), &c.waiter);
    c.channel->unlock();
  }
}

}  // namespace weft::detail
