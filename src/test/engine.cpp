// engine.cpp: how a run goes from one goroutine to the next. The essay is in engine.hpp.
#include "test/engine.hpp"
#include "base/check.hpp"
#include "base/clock.hpp"
#include "base/fatal.hpp"
#include "base/sanitizer.hpp"
#include "sched/extra.hpp"
#include "sched/scheduler.hpp"
#include "sched/start.hpp"
#include "sched/switch.hpp"
#include "test/expectations.hpp"

#include <weft/detail/future_state.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <cxxabi.h>
#include <mutex>
#include <stdexcept>
#include <tuple>
#include <typeinfo>
#include <unistd.h>

namespace weft::test {
namespace {

constexpr std::int64_t first_instant_ns = 946'684'800'000'000'000;  // 2000-01-01
constexpr int fruitless_yields_max = 100;                           // then time goes on, if it can
// Each use leaves a few frames in TSan's picture of the stack, which has room for 65,536.
[[maybe_unused]] constexpr int fiber_uses_max = 1'000;

// Kinds of links in a chain.
constexpr std::uint64_t a_point = 0x21, a_start = 0x22, a_park = 0x23, a_wake_up = 0x24,
                        a_yield = 0x25, a_rest = 0x26, a_value = 0x27;

thread_local engine* the_engine = nullptr;
std::atomic<int> engines{0};  // that run; guards detail::simulating

using sched::goroutine;

// Goroutines that were stopped in the middle. What they hold is not ours to destroy, but stays
// reachable, so that it does not count as leaked.
struct graveyard {
  std::mutex mutex;
  std::vector<std::unique_ptr<strand>> strands;
  std::vector<sched::timer*> timers;
};
graveyard& the_graveyard() {
  static graveyard& g = *new graveyard;
  return g;
}

// A leaked descriptor takes the lowest free number, so that one grows.
int lowest_free_descriptor() {
  const int fd = ::dup(STDERR_FILENO);
  if (fd >= 0) ::close(fd);
  return fd;
}

// Other threads open and close some, so the number is looked at again; and it may have been theirs
// that made the first one large.
bool descriptor_is_left(int lowest_before) {
  for (long pause_ns = 200'000; pause_ns < 50'000'000; pause_ns *= 2) {
    if (lowest_free_descriptor() <= lowest_before) return false;
    const timespec pause{0, pause_ns};
    ::nanosleep(&pause, nullptr);
  }
  return true;
}

bool comes_before(std::uint32_t index, const strand* s) { return index < s->index; }

}  // namespace

engine* engine::current() noexcept { return the_engine; }

engine::engine(const engine_options& o) : options_(o) {}

engine::~engine() {
  for (stack::extent* e : free_stacks_) stack::central().put(&e, 1);
  for (const auto& [fiber, uses] : free_fibers_) base::sanitizer::destroy_fiber(fiber);
  timers_.clear();
}

// ---- Runs ----

outcome engine::run(const std::function<void()>& f, chooser& c, trace t) {
  if (sched::this_simulation() != nullptr) {
    throw std::logic_error("weft::test: a bubble or exploration inside of another");
  }
  sched::ensure_started();
  reset();
  chooser_ = &c;
  tracing_ = t == trace::yes;
  eh_ = reinterpret_cast<sched::exception_globals*>(abi::__cxa_get_globals());
#if WEFT_TSAN
  host_.fiber = base::sanitizer::current_fiber();
#endif
  const std::unique_ptr<expectations> watch = options_.intercept ? watch_expectations() : nullptr;
  watch_ = watch.get();
  const int descriptor = options_.descriptors ? lowest_free_descriptor() : -1;

  the_engine = this;
  sched::current_simulation = this;
  if (engines.fetch_add(1, std::memory_order_relaxed) == 0) {
    weft::detail::simulating.store(true, std::memory_order_relaxed);
  }

  main_ = new_strand();
  main_->invoke = [](void* storage) { (**static_cast<const std::function<void()>**>(storage))(); };
  *reinterpret_cast<const std::function<void()>**>(main_->storage) = &f;
  admit(*main_);
  if (strand* const first = decide()) go_to(first);

  check_expectations();
  if (fault_ == fault::none && timers_.earliest_hint() != base::never) {
    fail(fault::left_behind, "a timer is left behind");
  }
  if (fault_ == fault::none && options_.descriptors && descriptor_is_left(descriptor)) {
    fail(fault::left_behind, "a file descriptor is left behind");
  }

  // Others may simulate on other threads; that this one no longer does is what counts.
  if (engines.fetch_sub(1, std::memory_order_relaxed) == 1) {
    weft::detail::simulating.store(false, std::memory_order_relaxed);
  }
  sched::current_simulation = nullptr;
  the_engine = nullptr;
  watch_ = nullptr;

  outcome o;
  o.what = fault_;
  o.message = std::move(message_);
  o.thrown = std::exchange(thrown_, nullptr);
  o.schedule = std::move(recorded_);
  o.steps = steps_;
  if (tracing_) o.table = table();
  bury(fault_ != fault::none);
  return o;
}

void engine::reset() {
  alive_.clear();
  current_ = last_ = main_ = dead_ = rester_ = nullptr;
  occupied_ = 0;
  now_ns_ = first_instant_ns;
  steps_ = 0;
  fruitless_yields_ = timeouts_ = whims_ = 0;
  version_ = 0;
  buffered_ = 0;
  rest_hash_ = 0;
  locations_.clear();
  released_.clear();
  labels_.clear();
  labels_numbered_ = 0;
  vars_.clear();
  recorded_.clear();
  fault_ = fault::none;
  message_.clear();
  thrown_ = nullptr;
  events_.clear();
}

// Takes the run's goroutines apart. Those of a run that failed have stopped in the middle.
void engine::bury(bool abandoned) {
  dead_ = nullptr;
  graveyard& yard = the_graveyard();
  const std::lock_guard hold(yard.mutex);
  // Before the stacks on which some of them lie are used again.
  while (sched::timer* const t = timers_.drop_first()) yard.timers.push_back(t);
  for (auto& s : strands_) {
#if WEFT_TSAN
    if (s->fiber != nullptr) base::sanitizer::destroy_fiber(std::exchange(s->fiber, nullptr));
#endif
    const bool stopped = s->stands != standing::done;
    WEFT_CHECK(abandoned || !stopped);
    if (stopped && s->begun && base::sanitizer::active) {
      // What it holds would count as leaked if its stack were used for something else.
      yard.strands.push_back(std::move(s));
      continue;
    }
    if (s->stack != nullptr) {
      if (s->stack->size_class == stack::default_class) {
        base::sanitizer::unpoison(s->stack->low, s->stack->bytes());
        free_stacks_.push_back(s->stack);
      } else {
        stack::central().put(&s->stack, 1);
      }
    }
  }
  for (auto& s : strands_) {
    if (s == nullptr) continue;
    (s->stands == standing::done ? spare_ : yard.strands).push_back(std::move(s));
  }
  strands_.clear();
}

strand* engine::new_strand() {
  std::unique_ptr<strand> s;
  if (spare_.empty()) {
    s = std::make_unique<strand>();
  } else {
    s = std::move(spare_.back());
    spare_.pop_back();
    std::destroy_at(s.get());
    std::construct_at(s.get());
  }
  s->how = sched::mode::simulated;
  s->index = static_cast<std::uint32_t>(strands_.size());
  s->id = s->index + 1;
  s->chain = mix(2, s->index);
  s->flush_chain = mix(3, s->index);
  strands_.push_back(std::move(s));
  return strands_.back().get();
}

// From now on it takes part.
void engine::admit(strand& s) {
  s.clock.set(s.index, 1);
  s.stands = standing::ready;
  s.ready_since_ns = now_ns_;
  s.moved_at = steps_;
  s.set_status(sched::state::runnable);
  // In the order of their indices, which is not that of their starts: timers prepare theirs.
  alive_.insert(std::upper_bound(alive_.begin(), alive_.end(), s.index, comes_before), &s);
}

// Nothing of it is left to happen.
void engine::retire(strand& s) { alive_.erase(std::find(alive_.begin(), alive_.end(), &s)); }

std::size_t engine::goroutines() const noexcept {
  return static_cast<std::size_t>(std::count_if(
      alive_.begin(), alive_.end(), [](const strand* s) { return s->stands != standing::done; }));
}

void engine::fail(fault what, std::string message) {
  if (fault_ == fault::none) {
    fault_ = what;
    message_ = std::move(message);
    if (tracing_ && current_ != nullptr) note("FAILS");
  }
  if (current_ == nullptr) return;
  current_ = nullptr;
  leave_for(&host_, true, &discard_);
}

// ---- Starting and ending ----

goroutine* engine::take_record() {
  point();
  return new_strand();
}

void engine::start(goroutine* g) noexcept {
  strand& s = static_cast<strand&>(*g);
  if (clock_runs_) {  // a timer starts it: nobody who runs is its parent
    s.chain = mix(s.chain, rest_hash_);
    admit(s);
    if (tracing_) note_for(s, "its time has come", {});
    return;
  }
  strand& me = *current_;
  drain(me);  // a store is never seen later than something that comes after it and orders
  link_rest(me, a_start);
  s.chain = mix(s.chain, me.chain);
  s.created_by = me.id;
  s.clock = me.clock;
  me.clock.tick(me.index);
  admit(s);
  if (tracing_) note("go " + name_of(s));
}

void engine::drop(goroutine* g) noexcept {
  strand& s = static_cast<strand&>(*g);
  if (s.stack != nullptr) stack::central().put(&s.stack, 1);
  s.stack = nullptr;
  s.stands = standing::done;
}

void engine::thread(const char* title, const std::function<void()>& f) {
  strand& s = *new_strand();
  s.title = title;
  s.invoke = [](void* storage) { (**static_cast<const std::function<void()>**>(storage))(); };
  *reinterpret_cast<const std::function<void()>**>(s.storage) = &f;
  s.clock = current_->clock;
  current_->clock.tick(current_->index);
  admit(s);
  s.in_prologue = true;
  go_to(&s);
}

void engine::begin(void*) {
  engine& e = *the_engine;
  strand* const s = e.current_;
  e.arrive(nullptr);
  std::exception_ptr thrown;
  weft::detail::call_capturing(
      [](void* argument) {
        auto* const self = static_cast<strand*>(argument);
        self->invoke(self->storage);
      },
      s, thrown);
  if (thrown != nullptr) e.fail_by(thrown);
  e.finish_strand();
}

void engine::exited() { finish_strand(); }

void engine::fail_by(const std::exception_ptr& thrown) {
  thrown_ = thrown;
  std::string message = name_of(*current_) + " threw ";
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& e) {
    int status = 0;
    char* const type = abi::__cxa_demangle(typeid(e).name(), nullptr, nullptr, &status);
    message += std::string(type != nullptr ? type : typeid(e).name()) + ": " + e.what();
    std::free(type);
  } catch (...) {
    message += "something that is no std::exception";
  }
  fail(fault::exception, std::move(message));
}

void engine::finish_strand() {
  strand& s = *current_;
  check_expectations();
  if (s.extra.load(std::memory_order_relaxed) != nullptr) {
    s.last_name = name_of(s);
    sched::destroy_extra(&s);
  }
  if (tracing_ && fault_ == fault::none) note("ends");
  s.stands = standing::done;
  s.pending = nowhere;
  release_processor(s);
  if (s.buffer.empty()) retire(s);
  dead_ = &s;
  strand* const next = s.in_prologue ? main_ : decide();
  current_ = next;
  leave_for(next != nullptr ? static_cast<goroutine*>(next) : &host_, true, &discard_);
  __builtin_unreachable();
}

// ---- Switching ----

void engine::go_to(strand* next) {
  goroutine* const from = current_ != nullptr ? static_cast<goroutine*>(current_) : &host_;
  current_ = next;
  leave_for(next != nullptr ? static_cast<goroutine*>(next) : &host_, false, from);
}

void engine::leave_for(goroutine* to, bool for_good, goroutine* from) {
  strand* const s = to == &host_ ? nullptr : static_cast<strand*>(to);
  const bool fresh = s != nullptr && !s->begun;
  if (fresh) give_stack(*s);
  from->saved_errno = errno;
  from->eh = *eh_;
  from->fp.capture();
#if WEFT_ASAN
  const void* const low = s != nullptr ? static_cast<const void*>(s->stack->low) : host_low_;
  const std::size_t bytes = s != nullptr ? s->stack->bytes() : host_bytes_;
  base::sanitizer::start_switch(for_good ? nullptr : &from->fake_stack, low, bytes);
#else
  (void)for_good;
#endif
#if WEFT_TSAN
  if (fresh) give_fiber(*s);
  base::sanitizer::switch_to_fiber(to->fiber, base::sanitizer::fiber_sync::happens_before);
#endif
  if (fresh) {
    s->begun = true;
    *eh_ = {};
    arch::start_context(&from->context, sched::first_frame(s->stack), &engine::begin, nullptr);
  } else {
    to->fp.install();
    arch::switch_context(&from->context, &to->context);
  }
  arrive(from);
}

// First thing on the stack that was switched to.
void engine::arrive(goroutine* who) {
#if WEFT_ASAN
  const void* low = nullptr;
  std::size_t bytes = 0;
  base::sanitizer::finish_switch(who != nullptr ? who->fake_stack : nullptr, &low, &bytes);
  if (!knows_host_) {  // the first switch comes from there
    knows_host_ = true;
    host_low_ = low;
    host_bytes_ = bytes;
  }
#endif
  if (strand* const d = std::exchange(dead_, nullptr)) {
#if WEFT_TSAN
    take_fiber(*d);
#endif
    if (d->stack != nullptr && d->stack->size_class == stack::default_class) {
      base::sanitizer::unpoison(d->stack->low, d->stack->bytes());
      free_stacks_.push_back(std::exchange(d->stack, nullptr));
    }
  }
  if (who == nullptr) return;
  errno = who->saved_errno;
  *eh_ = who->eh;
}

void engine::give_stack(strand& s) {
  if (s.stack != nullptr) return;
  if (!free_stacks_.empty()) {
    s.stack = free_stacks_.back();
    free_stacks_.pop_back();
    return;
  }
  int error = 0;
  if (stack::central().take(0, &s.stack, 1, error) == 0) {
    base::fatal("weft::test: no memory for the stack of a goroutine");
  }
}

#if WEFT_TSAN
// It takes its time to make a fiber, so they are used again.
void engine::give_fiber(strand& s) {
  if (free_fibers_.empty()) {
    s.fiber = base::sanitizer::create_fiber();
    s.fiber_uses = 0;
  } else {
    std::tie(s.fiber, s.fiber_uses) = free_fibers_.back();
    free_fibers_.pop_back();
  }
}

void engine::take_fiber(strand& s) {
  void* const fiber = std::exchange(s.fiber, nullptr);
  if (++s.fiber_uses < fiber_uses_max) {
    free_fibers_.emplace_back(fiber, s.fiber_uses);
  } else {
    base::sanitizer::destroy_fiber(fiber);
  }
}
#endif

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

// Whether somebody could have gone on ever since `yielder` yielded the last time but one.
bool engine::owes_a_turn(const strand& yielder) const {
  return std::any_of(alive_.begin(), alive_.end(), [&](const strand* s) {
    return s->stands == standing::ready && s->moved_at < yielder.yielded_before && enabled(*s);
  });
}

void engine::collect() {
  offer_.actors.clear();
  offer_.current_may = last_ != nullptr && last_->stands == standing::ready && enabled(*last_);
  if (last_ != nullptr) offer_.current = {actor::kind::goroutine, last_->index};
  // First whoever made the last step, unless it waits or yields; then the others, in turn.
  auto next = alive_.begin();
  if (last_ != nullptr) {
    next = std::upper_bound(next, alive_.end(), last_->index, comes_before);
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
  } else if (options_.late_ns > 0 && ready_since != base::never &&
             main_->stands != standing::done &&
             timers_.earliest_hint() - options_.late_ns <= ready_since) {
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

// Nothing moves by itself. Loops that count their turns go on; then who waits for rest has it; then
// time passes; then timeouts come true.
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
  if (timers_.earliest_hint() != base::never && main_->stands != standing::done) {
    offer_.actors.push_back({actor::kind::clock, 0});
    return;
  }
  for (const strand* const s : alive_) {
    const actor timeout{actor::kind::timeout, s->index};
    if (s->stands == standing::asleep && s->timed &&
        std::find(offer_.actors.begin(), offer_.actors.end(), timeout) == offer_.actors.end()) {
      offer_.actors.push_back(timeout);
    }
    // Nothing but this loop is left, and no time to wait for: it is endless.
    if (s->stands == standing::yielding) {
      offer_.actors.push_back({actor::kind::goroutine, s->index});
    }
  }
}

// Runs what is no goroutine until it is one's turn. Returns: null if the run is over.
strand* engine::decide() {
  for (;;) {
    if (fault_ != fault::none || (watch_ != nullptr && check_expectations())) return nullptr;
    if (++steps_ > options_.steps) {
      fail_later(fault::no_end, "no end after " + std::to_string(options_.steps) + " steps");
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
  // Whoever the clock wakes is not ordered after whoever happens to run.
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
  if (rester_ != nullptr) throw std::logic_error("weft::test::wait: another goroutine waits so");
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

// A choice that nobody learns of but through what comes of it.
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
