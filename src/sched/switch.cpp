// switch.cpp: how a goroutine starts, waits, goes on and ends.
//
// Goroutines switch straight from one to the next. The thread's own stack (machine::scheduler) is
// used only when there is nothing to run or when something has to be done that cannot be done on
// the stack of the goroutine it concerns: an errand.
//
// The path of one goroutine:
//
//   start    its record goes into `fresh`; no stack yet
//   begin    whoever picks it either already stands on the stack of a goroutine that has just ended
//            (goroutine_main loops, nothing is switched) or takes a stack from the processor's
//            cache
//   wait     prepare_park: status waiting, busy = 1, inside from here on. The primitive makes it
//            findable. suspend: saves errno, exception state and FP control, picks the next one and
//            switches; the switch clears busy.
//   ready    whoever wakes it pushes it on a queue, perhaps before it has switched away
//   resume   whoever picks it waits for busy to be 0 [C1] and switches to it
//   end      the record and the stack go back to the caches of whichever processor it ended on
//
// Nothing that came from this_machine() survives suspend(): it is read again after every switch.
#include "arch/entry.hpp"
#include "base/check.hpp"
#include "base/sanitizer.hpp"
#include "sched/extra.hpp"
#include "sched/scheduler.hpp"

#include <cstddef>

namespace weft::sched {
namespace {

namespace sanitizer = base::sanitizer;

// The last bytes of every stack are kept for this_goroutine::exit, whose unwinder needs a place
// that outlives all frames.
constexpr std::size_t reserved_bytes = sizeof(arch::unwind_storage);

std::byte* first_frame(const stack::extent* s) noexcept { return s->top - reserved_bytes; }

void save_thread_state(machine* m, goroutine* g) noexcept {
  g->saved_errno = *m->errno_address;
  g->eh = *m->eh;
  g->fp = arch::fp_control::capture();
}

void restore_thread_state(machine* m, const goroutine* g) noexcept {
  *m->errno_address = g->saved_errno;
  *m->eh = g->eh;
}

// [C1] The goroutine was found by its waker before its registers had left its last machine.
void await_saved(const goroutine* g) noexcept {
  for (int turn = 0; g->context.busy.load(std::memory_order_acquire) != 0; ++turn) {
    if (turn < 1000) {
      base::pause();
    } else {
      base::yield_thread();  // that machine has lost its core
    }
  }
}

// What the sanitizers have to know about the flow of control that is left. `fake_stack` is null if
// it never comes back.
[[gnu::always_inline]] inline void announce_goroutine([[maybe_unused]] void** fake_stack,
                                                      [[maybe_unused]] goroutine* to) noexcept {
#if WEFT_ASAN
  sanitizer::start_switch(fake_stack, to->stack->low, to->stack->bytes());
#endif
#if WEFT_TSAN
  if (to->fiber == nullptr) to->fiber = sanitizer::create_fiber();
  sanitizer::switch_to_fiber(to->fiber, sanitizer::fiber_sync::none);
#endif
}

[[gnu::always_inline]] inline void announce_scheduler([[maybe_unused]] void** fake_stack,
                                                      [[maybe_unused]] machine* m) noexcept {
#if WEFT_ASAN
  sanitizer::start_switch(fake_stack, m->stack_low, m->stack_bytes);
#endif
#if WEFT_TSAN
  sanitizer::switch_to_fiber(m->fiber, sanitizer::fiber_sync::none);
#endif
}

[[gnu::always_inline]] inline void announce_arrival([[maybe_unused]] void* fake_stack) noexcept {
#if WEFT_ASAN
  sanitizer::finish_switch(fake_stack, nullptr, nullptr);
#endif
}

#if WEFT_ASAN
#define WEFT_FAKE_STACK(flow) (&(flow)->fake_stack)
#define WEFT_FAKE_STACK_OF(flow) ((flow)->fake_stack)
#else
#define WEFT_FAKE_STACK(flow) nullptr
#define WEFT_FAKE_STACK_OF(flow) nullptr
#endif

// Whether `next` can be switched to from a goroutine's stack. If it needs a stack and there is one,
// it has it afterwards.
bool prepare_to_run(machine* m, goroutine* next) noexcept {
  switch (next->how) {
    case mode::parked:
      return true;
    case mode::fresh: {
      int error = 0;
      next->stack = m->p->stacks.take(error);
      return next->stack != nullptr;
    }
    case mode::placed:
      return true;
    case mode::bound:
      return next->bound == m;
    case mode::thread:
      break;
  }
  base::fatal("a plain thread's record is in a run queue");
}

// Switches to `next`, which prepare_to_run() has accepted, leaving the caller in `from`.
[[gnu::always_inline]] inline void switch_to(machine* m, arch::context* from, void** fake_stack,
                                             const arch::fp_control& current,
                                             goroutine* next) noexcept {
  m->g = next;
  next->set_status(state::running);
  if (next->how == mode::parked || next->how == mode::bound) {
    await_saved(next);
    if (!(current == next->fp)) next->fp.install();
    announce_goroutine(fake_stack, next);
    arch::switch_context(from, &next->context);
  } else {
    next->how = mode::parked;  // how it will be resumed
    announce_goroutine(fake_stack, next);
    arch::start_context(from, first_frame(next->stack), &goroutine_main, nullptr);
  }
}

[[gnu::always_inline]] inline void switch_to_scheduler(machine* m, arch::context* from,
                                                       void** fake_stack) noexcept {
  m->g = nullptr;
  announce_scheduler(fake_stack, m);
  arch::switch_context(from, &m->scheduler);
}

// Leaves goroutine `g` for `next`, or for the scheduler if that is null or cannot run from here.
void leave_for(machine* m, goroutine* g, goroutine* next) noexcept {
  save_thread_state(m, g);
  if (next != nullptr && !prepare_to_run(m, next)) [[unlikely]] {
    m->task = errand::run;
    m->errand_goroutine = next;
    next = nullptr;
  }
  if (next != nullptr) {
    switch_to(m, &g->context, WEFT_FAKE_STACK(g), g->fp, next);
  } else {
    switch_to_scheduler(m, &g->context, WEFT_FAKE_STACK(g));
  }
  // Resumed, perhaps on another machine.
  announce_arrival(WEFT_FAKE_STACK_OF(g));
  restore_thread_state(this_machine(), g);
}

// The goroutine that runs here has returned from its function or has been unwound. Returns only if
// another fresh goroutine now owns this stack.
void end_goroutine() {
  machine* m = this_machine();
  goroutine* const g = m->g;
  // In user mode: names and goroutine-local values are on the heap, and their destructors are the
  // user's.
  if (g->extra.load(std::memory_order_relaxed) != nullptr) destroy_extra(g);

  m = enter();
  processor* const p = m->p;
  stack::extent* const s = g->stack;
  const bool was_bound = g->how == mode::bound;
  g->stack = nullptr;
  g->bound = nullptr;
  g->locks = 0;
  g->set_status(state::unused);
  // relaxed: only the holder writes; num_goroutine reads a sum.
  p->ended.store(p->ended.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
#if WEFT_TSAN
  void* const old_fiber = g->fiber;
  g->fiber = nullptr;
#endif
  p->records.put(g, the_scheduler.records);

  if (was_bound) {
    m->task = errand::end_bound;
    m->errand_stack = s;
#if WEFT_TSAN
    m->dead_fiber = old_fiber;
#endif
    switch_to_scheduler(m, &m->discard, nullptr);
    __builtin_unreachable();
  }

  goroutine* const next = pick(m);
  const bool is_default = s->size_class == stack::default_class;
  if (next != nullptr && next->how == mode::fresh && is_default) {
    next->stack = s;
    next->how = mode::parked;
    next->set_status(state::running);
    m->g = next;
#if WEFT_TSAN
    next->fiber = sanitizer::create_fiber();
    sanitizer::switch_to_fiber(next->fiber, sanitizer::fiber_sync::none);
    sanitizer::destroy_fiber(old_fiber);
#endif
    return;
  }
#if WEFT_TSAN
  m->dead_fiber = old_fiber;
#endif
  if (!is_default || (next != nullptr && !prepare_to_run(m, next))) [[unlikely]] {
    // The scheduler buries the stack, or finds a way to run `next`, or both.
    if (is_default) {
      p->stacks.put(s);
    } else {
      m->errand_stack = s;
    }
    m->task = next != nullptr ? errand::run : errand::none;
    m->errand_goroutine = next;
    switch_to_scheduler(m, &m->discard, nullptr);
    __builtin_unreachable();
  }
  // Still standing on it, but nobody can take it from the cache before the switch: inside until
  // then.
  p->stacks.put(s);
  if (next == nullptr) {
    switch_to_scheduler(m, &m->discard, nullptr);
  } else {
    switch_to(m, &m->discard, nullptr, arch::fp_control::capture(), next);
  }
  __builtin_unreachable();
}

// this_goroutine::exit has run every destructor: go on as if the function had returned.
void on_goroutine_exit() {
  end_goroutine();
  goroutine_main(nullptr);
}

}  // namespace

void set_exit_hook(arch::entry_hooks& hooks) noexcept {
  hooks.on_goroutine_exit = &on_goroutine_exit;
}

arch::unwind_storage* unwind_storage_of(const goroutine* g) noexcept {
  return reinterpret_cast<arch::unwind_storage*>(first_frame(g->stack));
}

void goroutine_main(void*) {
  announce_arrival(nullptr);
  for (;;) {
    machine* const m = this_machine();
    goroutine* const g = m->g;
#if WEFT_TSAN
    if (m->dead_fiber != nullptr) {
      sanitizer::destroy_fiber(m->dead_fiber);
      m->dead_fiber = nullptr;
    }
#endif
    *m->eh = {};
    *m->errno_address = 0;
    if (!(arch::fp_control::capture() == m->fp)) m->fp.install();
    leave(m);
    g->invoke(g->storage);
    end_goroutine();
  }
}

machine* enter_slow(machine* m) noexcept {
  for (;;) {
    const std::uint32_t word = m->chair.settle();
    switch (seat::kind_of(word)) {
      case seat::free:
        return m;
      case seat::asked:
        if (m->chair.accept(word)) hand_over(m, seat::thief_of(word));
        break;
      case seat::taken: {
        if (acquire_processor(m)) return m;
        goroutine* const g = m->g;
        g->context.busy.store(1, std::memory_order_relaxed);  // ordered by the inbox's lock
        g->set_status(state::runnable);
        if (g->how == mode::bound) {
          m->task = errand::wait_bound;
          m->errand_goroutine = g;
        } else {
          m->task = errand::lost;
        }
        inject(g);
        leave_for(m, g, nullptr);
        return this_machine();
      }
      case seat::stopped:
        stop_here();
      case seat::pending:
        break;  // settle() has waited it out
    }
  }
}

void suspend(machine* m, goroutine* g) noexcept {
  if (g->how == mode::bound) [[unlikely]] {
    m->task = errand::wait_bound;
    m->errand_goroutine = g;
    leave_for(m, g, nullptr);
    return;
  }
  goroutine* const next = pick(m);
  if (next == g) {                                        // made ready before it had gone
    g->context.busy.store(0, std::memory_order_relaxed);  // its own thread reads it next
    g->set_status(state::running);
    return;
  }
  leave_for(m, g, next);
}

void suspend_for(machine* m, goroutine* g, goroutine* next) noexcept { leave_for(m, g, next); }

bool can_run_here(machine* m, goroutine* g) noexcept { return prepare_to_run(m, g); }

void run_goroutine(machine* m, goroutine* g) noexcept {
  switch_to(m, &m->scheduler, WEFT_FAKE_STACK(m), m->fp, g);
  announce_arrival(WEFT_FAKE_STACK_OF(m));
  m->fp.install();
#if WEFT_TSAN
  if (m->dead_fiber != nullptr) {
    sanitizer::destroy_fiber(m->dead_fiber);
    m->dead_fiber = nullptr;
  }
#endif
}

}  // namespace weft::sched
