// switch.cpp: how a goroutine starts, waits, goes on and ends.
//
// Goroutines switch straight from one to the next. The thread's own stack (machine::scheduler) is
// used only when there is nothing to run, or for an errand: something that cannot be done on the
// stack of the goroutine that it concerns.
//
// The path of one goroutine:
//
//   start    its record goes into `fresh`; no stack yet
//   begin    the machine that picks it either stands already on the stack of a goroutine that has
//            just ended (goroutine_main loops, nothing is switched), or takes a stack from the
//            processor's cache
//   wait     prepare_park: status waiting, busy = 1, inside from here on. Then the primitive puts
//            it where a waker finds it. suspend: saves errno, exception state and FP control, picks
//            the next goroutine and switches; the switch clears busy
//   ready    a waker pushes it on a queue, perhaps before it has switched away
//   resume   the machine that picks it waits for busy to be 0 [C1] and switches to it
//   end      its record and its stack go into the caches of the processor on which it ended
//
// Nothing that came from this_machine() survives suspend(): it is read again after every switch.
#include "sched/switch.hpp"
#include "arch/entry.hpp"
#include "base/clock.hpp"
#include "base/fatal.hpp"
#include "base/sanitizer.hpp"
#include "sched/enter.hpp"
#include "sched/extra.hpp"
#include "sched/order.hpp"
#include "sched/scheduler.hpp"
#include "sched/simulation.hpp"

namespace weft::sched {
namespace {

namespace sanitizer = base::sanitizer;

// There is memory for stacks again: goroutines may be started.
void end_shortage() noexcept {
  // relaxed: a hint; a machine that finds no stack sets it again.
  if (the_scheduler.stack_shortage.load(std::memory_order_relaxed)) [[unlikely]] {
    the_scheduler.stack_shortage.store(false, std::memory_order_relaxed);
  }
}

// What is left of a goroutine that has ended and whose stack is still in use.
struct remains {
  stack::extent* stack;
  void* fiber = nullptr;  // TSan's
};

// Begins `next` on the stack of the goroutine that has ended, on which this is called: nothing is
// switched.
[[gnu::always_inline]] inline void begin_in_place(machine* m, goroutine* next,
                                                  const remains& left) noexcept {
  WEFT_ASSERT(next->how == mode::fresh && next->stack == nullptr);
  next->stack = left.stack;
  next->how = mode::parked;
  next->set_status(state::running);
  m->g = next;
#if WEFT_TSAN
  next->fiber = sanitizer::create_fiber();
  sanitizer::switch_to_fiber(next->fiber, sanitizer::fiber_sync::happens_before);
  sanitizer::destroy_fiber(left.fiber);
#endif
}

// Leaves the stack for `next`, or for the scheduler if `next` is null or cannot run from here.
[[noreturn]] [[gnu::always_inline]] inline void leave_stack(machine* m, goroutine* next,
                                                            const remains& left) noexcept {
#if WEFT_TSAN
  m->dead_fiber = left.fiber;
#endif
  processor* const p = m->p;
  const bool is_default = left.stack->size_class == stack::default_class;
  if (!is_default || (next != nullptr && !prepare_to_run(m, next))) [[unlikely]] {
    // The scheduler gives the stack back, or finds a way to run `next`, or both.
    if (is_default) {
      p->stacks.put(left.stack);
    } else {
      m->errand_stack = left.stack;
    }
    m->task = next != nullptr ? errand::run : errand::none;
    m->errand_goroutine = next;
    switch_to_scheduler(m, &m->discard, nullptr);
    __builtin_unreachable();
  }
  // The machine still stands on this stack. But it is inside until the switch, so no other thread
  // can take the stack from the cache before.
  p->stacks.put(left.stack);
  end_shortage();
  if (next == nullptr) {
    switch_to_scheduler(m, &m->discard, nullptr);
  } else {
    arch::fp_control current;
    current.capture();
    switch_to(m, &m->discard, nullptr, current, next);
  }
  __builtin_unreachable();
}

// The goroutine that runs here has returned from its function or has been unwound. Returns only if
// another fresh goroutine now owns this stack.
void end_goroutine() {
  machine* m = this_machine();
  goroutine* const g = m->g;
  WEFT_ASSERT(g->get_status() == state::running || g->get_status() == state::blocking);
  // Outside the runtime: names and goroutine-local values are on the heap, and the destructors of
  // the values are the user's.
  if (g->extra.load(std::memory_order_relaxed) != nullptr) destroy_extra(g);

  m = enter();
  processor* const p = m->p;
  remains left{.stack = g->stack};
  const bool was_bound = g->how == mode::bound;
  g->stack = nullptr;
  g->bound = nullptr;
  g->set_status(state::unused);
  // relaxed: only the holder writes; num_goroutine reads a sum.
  p->ended.store(p->ended.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
#if WEFT_TSAN
  left.fiber = g->fiber;
  g->fiber = nullptr;
#endif
  p->records.put(g, the_scheduler.records);

  if (was_bound) {
    m->task = errand::end_bound;
    m->errand_stack = left.stack;
#if WEFT_TSAN
    m->dead_fiber = left.fiber;
#endif
    switch_to_scheduler(m, &m->discard, nullptr);
    __builtin_unreachable();
  }
  goroutine* const next = pick(*p);
  if (next == nullptr || next->how != mode::fresh ||
      left.stack->size_class != stack::default_class) {
    leave_stack(m, next, left);
  }
  begin_in_place(m, next, left);
}

// Runs the machine's goroutine, and each fresh one after it that takes over this stack.
[[noreturn]] void run_goroutines() {
  for (;;) {
    machine* const m = this_machine();
    goroutine* const g = m->g;
    bury_fiber(m);
    *m->eh = {};
    *m->errno_address = 0;
    arch::fp_control current;
    current.capture();
    if (!(current == m->fp)) m->fp.install();
    leave(m);
    g->invoke(g->storage);
    end_goroutine();
  }
}

// this_goroutine::exit has run every destructor. Goes on as if the function had returned.
void on_goroutine_exit() {
  if (this_machine() == nullptr) this_simulation()->exited();
  end_goroutine();
  run_goroutines();
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
  run_goroutines();
}

bool prepare_to_run_slow(machine* m, goroutine* next) noexcept {
  switch (next->how) {
    case mode::parked:
      for (int turn = 0; turn < 20; ++turn) {
        base::pause();
        if (next->context.busy.load(std::memory_order_acquire) == 0) return true;  // [C1]
      }
      return false;
    case mode::placed:
      return true;
    case mode::fresh: {
      int error = 0;
      next->stack = m->p->stacks.take(error);
      if (next->stack == nullptr) return false;
      end_shortage();
      return true;
    }
    case mode::bound:
      return next->bound == m;
    case mode::paused:
    case mode::stopped:
      return false;
    case mode::thread:
    case mode::simulated:
      break;
  }
  base::fatal("a record that is no goroutine's is in a run queue");
}

void await_saved_slow(const goroutine* g) noexcept {
  for (int turn = 0; g->context.busy.load(std::memory_order_acquire) != 0; ++turn) {  // [C1]
    if (turn < 1000) {
      base::pause();
    } else {
      base::yield_thread();  // the other machine has lost its core
    }
  }
}

void switch_from_announced(machine* m, goroutine* g, goroutine* next) noexcept {
  switch_from_as<announce::if_needed>(m, g, next);
}

void run_goroutine(machine* m, goroutine* g) noexcept {
  WEFT_ASSERT(m->g == nullptr && m->p != nullptr);
  switch_to(m, &m->scheduler, &m->fake_stack, m->fp, g);
  announce_arrival(m->fake_stack);
  m->fp.install();
  bury_fiber(m);
}

}  // namespace weft::sched
