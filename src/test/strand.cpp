// strand.cpp: how a goroutine of a simulation starts, gets a stack, is switched to, and ends.
#include "base/fatal.hpp"
#include "base/sanitizer.hpp"
#include "sched/extra.hpp"
#include "sched/switch.hpp"
#include "test/engine.hpp"

#include <weft/detail/future_state.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cxxabi.h>
#include <tuple>
#include <typeinfo>

namespace weft::test {
namespace {

// Each use leaves a few frames in TSan's picture of the stack, which has room for 65,536.
[[maybe_unused]] constexpr int fiber_uses_max = 1'000;

using sched::goroutine;

}  // namespace

// ---- Starting and ending ----

goroutine* engine::take_record() {
  point();
  return new_strand();
}

goroutine* engine::take_record_inside() noexcept { return new_strand(); }

void engine::start(goroutine* g) noexcept {
  strand& s = static_cast<strand&>(*g);
  if (clock_runs_) {  // a timer starts it: it has no parent
    s.chain = mix(s.chain, rest_hash_);
    admit(s);
    if (tracing_) note_for(s, "its time has come", {});
    return;
  }
  strand& me = *current_;
  drain(me);  // other goroutines must see the stores before what follows and orders them
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
  engine& e = *engine::current();
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
    message += std::string(type != nullptr ? type : typeid(e).name()) + ": " + printable(e.what());
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
  switch_to(next != nullptr ? static_cast<goroutine*>(next) : &host_, true, &discard_);
  __builtin_unreachable();
}

// ---- Switching ----

void engine::go_to(strand* next) {
  goroutine* const from = current_ != nullptr ? static_cast<goroutine*>(current_) : &host_;
  current_ = next;
  switch_to(next != nullptr ? static_cast<goroutine*>(next) : &host_, false, from);
}

void engine::switch_to(goroutine* to, bool for_good, goroutine* from) {
  strand* const s = to == &host_ ? nullptr : static_cast<strand*>(to);
  const bool fresh = s != nullptr && !s->begun;
  if (fresh) give_stack(*s);
  from->saved_errno = errno;
  from->eh = *eh_;
  from->fp.capture();
  const void* const low = s != nullptr ? static_cast<const void*>(s->stack->low) : host_low_;
  const std::size_t bytes = s != nullptr ? s->stack->bytes() : host_bytes_;
  base::sanitizer::start_switch(for_good ? nullptr : &from->fake_stack, low, bytes);
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
  const void* low = nullptr;
  std::size_t bytes = 0;
  base::sanitizer::finish_switch(who != nullptr ? who->fake_stack : nullptr, &low, &bytes);
  if (!knows_host_) {  // the first switch comes from there
    knows_host_ = true;
    host_low_ = low;
    host_bytes_ = bytes;
  }
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
// Making a fiber takes long, so fibers are used again.
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

}  // namespace weft::test
