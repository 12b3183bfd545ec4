// engine.cpp: one run, from its beginning to the clean-up. The essay is in engine.hpp. The other
// parts of the engine are strand.cpp (goroutines), step.cpp (their steps), memory.cpp and
// listing.cpp.
#include "test/engine.hpp"
#include "base/check.hpp"
#include "base/clock.hpp"
#include "base/sanitizer.hpp"
#include "sched/scheduler.hpp"
#include "sched/start.hpp"
#include "test/expectations.hpp"

#include <algorithm>
#include <ctime>
#include <cxxabi.h>
#include <iterator>
#include <mutex>
#include <stdexcept>
#include <unistd.h>

namespace weft::test {
namespace {

constexpr std::int64_t first_instant_ns = 946'684'800'000'000'000;  // 2000-01-01

thread_local engine* the_engine = nullptr;

// Goroutines that were stopped in the middle. What they hold cannot be destroyed. It stays
// reachable from here, so that leak checkers do not report it.
struct graveyard {
  std::mutex mutex;
  std::vector<std::unique_ptr<strand>> strands;
  std::vector<sched::timer*> timers;
};
graveyard& the_graveyard() {
  static graveyard& g = *new graveyard;
  return g;
}

// Returns: the lowest free descriptor. A leaked descriptor makes this number grow.
int lowest_free_descriptor() {
  const int fd = ::dup(STDERR_FILENO);
  if (fd >= 0) ::close(fd);
  return fd;
}

// Whether the run has left a descriptor open. Other threads open descriptors, too, so a number that
// is too large is checked again for 50 ms. If they close some, a leak may go unnoticed.
bool descriptor_is_left(int lowest_before) {
  for (long pause_ns = 200'000; pause_ns < 50'000'000; pause_ns *= 2) {
    if (lowest_free_descriptor() <= lowest_before) return false;
    const timespec pause{0, pause_ns};
    ::nanosleep(&pause, nullptr);
  }
  return true;
}

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
    throw std::logic_error("weft::test: a bubble or exploration inside another");
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
  weft::detail::simulations.fetch_add(1, std::memory_order_relaxed);

  main_ = new_strand();
  main_->invoke = [](void* storage) { (**static_cast<const std::function<void()>**>(storage))(); };
  *reinterpret_cast<const std::function<void()>**>(main_->storage) = &f;
  admit(*main_);
  if (strand* const first = decide()) go_to(first);

  check_expectations();
  if (fault_ == fault::none && timers_.earliest_hint() != base::never) {
    const std::int64_t due_ms = (timers_.earliest_hint() - now_ns_) / 1'000'000;
    fail(fault::left_behind,
         "a timer is left behind, of a timer, ticker, after_func or context that was neither "
         "stopped nor cancelled; due in " +
             std::to_string(due_ms) + " ms");
  }
  if (fault_ == fault::none && options_.descriptors && descriptor_is_left(descriptor)) {
    fail(fault::left_behind, "a file descriptor is left behind");
  }

  // Other threads may still simulate; this one no longer does.
  weft::detail::simulations.fetch_sub(1, std::memory_order_relaxed);
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

void engine::remember(const void* what, std::function<void()> undo) {
  references_.push_back({what, std::move(undo)});
}

void engine::forget(const void* what) noexcept {
  const auto last = std::find_if(references_.rbegin(), references_.rend(),
                                 [&](const reference& r) { return r.to == what; });
  if (last != references_.rend()) references_.erase(std::next(last).base());
}

// Disposes of the goroutines of the run. A failed run has stopped some of them in the middle.
void engine::bury(bool abandoned) {
  dead_ = nullptr;
  for (const reference& r : std::exchange(references_, {})) {
    if (abandoned) r.undo();
  }
  graveyard& yard = the_graveyard();
  const std::lock_guard hold(yard.mutex);
  // The timers go first, because the stacks on which some of them lie are about to be used again.
  while (sched::timer* const t = timers_.drop_first()) yard.timers.push_back(t);
  for (auto& s : strands_) {
#if WEFT_TSAN
    if (s->fiber != nullptr) base::sanitizer::destroy_fiber(std::exchange(s->fiber, nullptr));
#endif
    const bool stopped = s->stands != standing::done;
    WEFT_CHECK(abandoned || !stopped);
    if (stopped && s->begun && base::sanitizer::is_watched()) {
      // If its stack were used again, what the goroutine holds would count as leaked.
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

// Makes the goroutine take part in the run.
void engine::admit(strand& s) {
  s.clock.set(s.index, 1);
  s.stands = standing::ready;
  s.ready_since_ns = now_ns_;
  s.moved_at = steps_;
  s.set_status(sched::state::runnable);
  // alive_ is sorted by index. That need not be the order of the starts: other steps may come
  // between the making of a goroutine and its start.
  alive_.insert(std::upper_bound(alive_.begin(), alive_.end(), s.index, strand::comes_before), &s);
}

// Takes the goroutine out of the run. Requires: it has ended, and its buffer is empty.
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
  switch_to(&host_, true, &discard_);
}

}  // namespace weft::test
