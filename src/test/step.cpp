// step.cpp: chooses the next step, and defines how goroutines wait and when time passes.
#include "base/check.hpp"
#include "base/clock.hpp"
#include "test/engine.hpp"
#include "test/expectations.hpp"

#include <algorithm>
#include <stdexcept>

namespace weft::test {
namespace {

constexpr int fruitless_yields_max = 100;  // after so many time passes, if it can

using sched::goroutine;

}  // namespace

// ---- Points ----

// The running goroutine announces its next operation and lets others go first; or it waits, and
// lets others go on.
void engine::point(std::uint32_t pending) {
  strand& me = *current_;
  me.pending = pending;
  strand* const next = std::exchange(me.in_prologue, false) ? main_ : decide();
  if (next != &me) go_to(next);
}

bool engine::enabled(const strand& s) const {
  switch (s.stands) {
    case standing::ready:
      return s.has_processor || options_.procs == 0 || occupied_ < options_.procs;
    case standing::yielding:
      return steps_ > s.yielded_at + 1 && (options_.procs == 0 || occupied_ < options_.procs) &&
             !owes_a_turn(s);
    case standing::spinning:
      return s.released || changed(s);
    case standing::joining:
      return alive_.size() == 1;
    case standing::parked:
    case standing::asleep:
    case standing::resting:
    case standing::done:
      return false;
  }
  return false;
}

// Whether another goroutine could have made a step ever since `yielder` yielded the time before
// last.
bool engine::owes_a_turn(const strand& yielder) const {
  return std::any_of(alive_.begin(), alive_.end(), [&](const strand* s) {
    return s->stands == standing::ready && s->moved_at < yielder.yielded_before && enabled(*s);
  });
}

void engine::collect() {
  offer_.actors.clear();
  offer_.current_may = last_ != nullptr && last_->stands == standing::ready && enabled(*last_);
  if (last_ != nullptr) offer_.current = {actor::kind::goroutine, last_->index};
  // First the goroutine that made the last step, unless it waits or yields; then the others, in
  // turn.
  auto next = alive_.begin();
  if (last_ != nullptr) {
    next = std::upper_bound(next, alive_.end(), last_->index, strand::comes_before);
    if (offer_.current_may) offer_.actors.push_back(offer_.current);
  }
  std::int64_t ready_since = base::never;
  bool anybody_waits = false;
  for (std::size_t left = alive_.size(); left > 0; --left) {
    if (next == alive_.end()) next = alive_.begin();
    const strand& s = **next++;
    if (s.stands == standing::ready) ready_since = std::min(ready_since, s.ready_since_ns);
    anybody_waits |= s.stands == standing::asleep || s.stands == standing::spinning;
    if ((&s == last_ && offer_.current_may) || !enabled(s)) continue;
    offer_.actors.push_back({actor::kind::goroutine, s.index});
  }
  if (buffered_ != 0) collect_buffers();
  const bool somebody = !offer_.actors.empty();
  if (anybody_waits) collect_timeouts();
  if (!somebody) {
    collect_last_resort();
  } else if (ready_since != base::never && main_->stands != standing::done &&
             (timers_.earliest_hint() <= now_ns_ ||  // due, even if others have something to do
              timers_.earliest_hint() - options_.late_ns <= ready_since)) {
    offer_.actors.push_back({actor::kind::clock, 0});
  }
}

void engine::collect_timeouts() {
  for (const strand* const s : alive_) {
    const bool waits =
        s->stands == standing::asleep || (s->stands == standing::spinning && !enabled(*s));
    if (!waits) continue;
    const bool timed = s->stands == standing::asleep && s->timed;
    if (timed ? timeouts_ < options_.timeouts : whims_ < options_.whims) {
      offer_.actors.push_back({actor::kind::timeout, s->index});
    }
  }
}

// No goroutine can go on by itself. First, loops that count their turns go on; else the goroutine
// in test::wait does; else time passes; else waits time out.
void engine::collect_last_resort() {
  const strand* best = nullptr;
  for (const strand* const s : alive_) {
    if (s->stands == standing::yielding && fruitless_yields_ < fruitless_yields_max) {
      offer_.actors.push_back({actor::kind::goroutine, s->index});
    }
    if (s->stands == standing::spinning && s->fruitless < options_.fruitless_spins &&
        (best == nullptr || s->fruitless < best->fruitless)) {
      best = s;
    }
  }
  if (best != nullptr) offer_.actors.push_back({actor::kind::goroutine, best->index});
  if (!offer_.actors.empty() && offer_.actors.back().what == actor::kind::goroutine) return;
  if (rester_ != nullptr) {
    offer_.actors.push_back({actor::kind::goroutine, rester_->index});
    return;
  }
  // The tick of a ticker that no goroutine waits for lets no goroutine go on.
  if (timers_.earliest_hint() != base::never && main_->stands != standing::done &&
      timers_.could_wake()) {
    offer_.actors.push_back({actor::kind::clock, 0});
    return;
  }
  for (const strand* const s : alive_) {
    const actor timeout{actor::kind::timeout, s->index};
    if (s->stands == standing::asleep && s->timed &&
        std::find(offer_.actors.begin(), offer_.actors.end(), timeout) == offer_.actors.end()) {
      offer_.actors.push_back(timeout);
    }
    // Only this loop is left, and no timer is pending: the loop is endless.
    if (s->stands == standing::yielding) {
      offer_.actors.push_back({actor::kind::goroutine, s->index});
    }
  }
}

// Makes the steps of buffers, timeouts and the clock until it is a goroutine's turn. Returns: that
// goroutine; null if the run is over.
strand* engine::decide() {
  for (;;) {
    if (fault_ != fault::none || (watch_ != nullptr && check_expectations())) return nullptr;
    if (++steps_ > options_.steps) {
      fail_later(fault::no_end,
                 "no end after " + std::to_string(options_.steps) + " steps:" + roll_call());
      return nullptr;
    }
    collect();
    if (offer_.actors.empty()) {
      if (!alive_.empty()) stuck();
      return nullptr;
    }
    const std::size_t i = chooser_->pick(offer_, steps_, *this);
    if (i == chooser::diverged) {
      fail_later(fault::diverged, "the program behaves differently when it is run again");
      return nullptr;
    }
    const actor a = offer_.actors[i];
    recorded_.add(a);
    if (a.what == actor::kind::clock) {
      advance_clock();
      continue;
    }
    strand& s = *strands_[a.index];
    if (a.what == actor::kind::buffer) {
      flush_oldest(s);
      continue;
    }
    if (a.what == actor::kind::timeout) {
      stir(s);
      continue;
    }
    return admit_step(s);
  }
}

// `s` makes the next step.
strand* engine::admit_step(strand& s) {
  if (s.stands == standing::yielding) {
    const bool alone = steps_ <= s.yielded_at + 1;
    fruitless_yields_ = alone ? fruitless_yields_ + 1 : 0;
    s.stands = standing::ready;
    s.ready_since_ns = now_ns_;
  } else if (s.stands == standing::spinning) {
    if (!enabled(s)) ++s.fruitless;
  } else if (s.stands == standing::resting || s.stands == standing::joining) {
    s.stands = standing::ready;
    s.ready_since_ns = now_ns_;
  }
  if (options_.procs != 0 && !s.has_processor) {
    s.has_processor = true;
    ++occupied_;
  }
  s.moved_at = steps_;
  last_ = &s;
  return &s;
}

void engine::release_processor(strand& s) noexcept {
  if (!s.has_processor) return;
  s.has_processor = false;
  --occupied_;
}

void engine::advance_clock() {
  const std::int64_t earliest = timers_.earliest_hint();
  WEFT_CHECK(earliest != base::never);
  now_ns_ = std::max(now_ns_, earliest);
  fruitless_yields_ = 0;
  rest_hash_ = mix(rest_hash_, a_wake_up);
  clock_runs_ = true;
  timers_.run(now_ns_);
  clock_runs_ = false;
}

// A timeout, or a return without a reason.
void engine::stir(strand& s) {
  s.chain = mix(s.chain, a_wake_up);
  if (s.stands == standing::asleep && s.timed) {
    ++timeouts_;
    s.timed_out = true;
    s.stands = standing::ready;
    if (tracing_) note_for(s, "timeout", {});
    return;
  }
  ++whims_;
  if (s.stands == standing::asleep) {
    s.stands = standing::ready;
  } else {
    s.released = true;
  }
  if (tracing_) note_for(s, "goes on for no reason", {});
}

void engine::fail_later(fault what, std::string message) {
  if (fault_ != fault::none) return;
  fault_ = what;
  message_ = std::move(message);
}

void engine::stuck() {
  bool spins = false;
  for (const strand* const s : alive_) spins = spins || s->stands == standing::spinning;
  const std::string who = roll_call();
  if (main_->stands == standing::done) {
    fail_later(fault::left_behind, "the test has ended, but goroutines are left behind:" + who);
  } else if (spins) {
    fail_later(fault::deadlock, "livelock:" + who);
  } else if (main_->stands == standing::joining) {
    fail_later(fault::deadlock, "deadlock:" + who);
  } else {
    fail_later(fault::deadlock, "deadlock: all goroutines are asleep:" + who);
  }
}

bool engine::check_expectations() {
  if (watch_ == nullptr || fault_ != fault::none) return false;
  std::string message;
  if (!watch_->failed(message)) return false;
  if (tracing_ && current_ != nullptr) note("an expectation has failed");
  fail_later(fault::expectation, std::move(message));
  return true;
}

// ---- Waiting ----

void engine::prepare_park(weft::detail::wait_reason reason) noexcept {
  point();
  prepare_park_inside(reason);
}

void engine::prepare_park_inside(weft::detail::wait_reason reason) noexcept {
  strand& me = *current_;
  me.reason.store(reason, std::memory_order_relaxed);
  me.set_status(sched::state::waiting);
  me.token = false;
}

void engine::cancel_park() noexcept { current_->set_status(sched::state::running); }

void engine::park() noexcept {
  strand& me = *current_;
  link_rest(me, a_park);
  if (!me.token) {
    if (tracing_)
      note("waits: " + std::string(to_string(me.reason.load(std::memory_order_relaxed))));
    me.stands = standing::parked;
    release_processor(me);
    point();
  }
  me.token = false;
  me.set_status(sched::state::running);
}

void engine::ready(goroutine* g) noexcept {
  strand& s = static_cast<strand&>(*g);
  WEFT_CHECK(s.get_status() == sched::state::waiting);
  s.set_status(sched::state::runnable);
  s.token = true;
  s.chain = mix(mix(s.chain, a_wake_up), rest_hash_);
  // A goroutine that the clock wakes is not ordered after the one that happens to run.
  strand* const by = clock_runs_ ? nullptr : current_;
  if (by != nullptr) {
    drain(*by);
    s.clock.join(by->clock);
    by->clock.tick(by->index);
  }
  if (s.stands == standing::parked) {
    s.stands = standing::ready;
    s.ready_since_ns = now_ns_;
    s.moved_at = steps_;
  }
  if (tracing_) {
    if (by == nullptr) {
      note_for(s, "its time has come", {});
    } else if (by != &s) {
      note("wakes " + name_of(s));
    }
  }
}

void engine::yield() noexcept {
  strand& me = *current_;
  link_rest(me, a_yield);
  if (tracing_) note("yields");
  me.stands = standing::yielding;
  me.yielded_before = std::exchange(me.yielded_at, steps_);
  release_processor(me);
  point();
}

void engine::rest() {
  if (rester_ != nullptr) {
    throw std::logic_error("weft::test::wait: another goroutine is in it already");
  }
  strand& me = *current_;
  drain(me);
  if (tracing_) note("waits for the others to rest");
  rester_ = &me;
  me.stands = standing::resting;
  release_processor(me);
  point();
  rester_ = nullptr;
  link_rest(me, a_rest);
  see_everything(me);
  if (tracing_) note("all others rest");
}

void engine::join() {
  strand& me = *current_;
  drain(me);
  me.stands = standing::joining;
  release_processor(me);
  point();
  see_everything(me);
}

// What the others have done happened before what `s` does next.
void engine::see_everything(strand& s) {
  for (const auto& other : strands_) {
    if (other.get() == &s) continue;
    s.chain = mix(mix(s.chain, other->chain), other->flush_chain);
    s.clock.join(other->clock);
  }
}

void engine::observe(weft::detail::touch how, const void* object, const char* what) noexcept {
  using weft::detail::touch;
  if (current_ == nullptr) return;  // the host, between runs
  strand& me = *current_;
  if (how != touch::acquire) {
    point();
    if (tracing_) {
      if (what == nullptr) what = "use";
      note(object != nullptr ? what + (" " + object_label(object)) : what);
    }
    link_rest(me, a_point);
  }
  if (object == nullptr) return;
  if (how == touch::acquire) {
    const std::uint32_t found = released_.find(object);
    if (found != nowhere) me.clock.join(released_[found].clock);
  } else if (how == touch::release) {
    drain(me);
    released_.find_or_add(object).clock.join(me.clock);
    me.clock.tick(me.index);
  }
}

std::uint32_t engine::choose(std::uint32_t n) noexcept {
  const std::uint32_t v = draw(n);
  if (current_ != nullptr) current_->chain = mix(mix(current_->chain, a_value), v);
  return v;
}

// A choice that is visible only by its effects.
std::uint32_t engine::draw(std::uint32_t n) {
  if (n <= 1) return 0;
  const std::uint32_t v = chooser_->value(n);
  recorded_.values.push_back(v);
  return v;
}

// An operation that the engine knows nothing about comes before or after every other such.
void engine::link_rest(strand& s, std::uint64_t what) {
  s.chain = mix(mix(s.chain, what), rest_hash_);
  rest_hash_ = s.chain;
}

std::uint64_t engine::state_key() const {
  std::uint64_t key =
      mix(static_cast<std::uint64_t>(timeouts_), static_cast<std::uint64_t>(whims_));
  key = mix(key, rest_hash_);
  for (const auto& s : strands_) key = mix(mix(key, s->chain), s->flush_chain);
  return key;
}

}  // namespace weft::test
