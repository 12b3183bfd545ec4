// switch.hpp: going from one goroutine to another: the part that yield and park have inlined.
// switch.cpp has the essay.
#pragma once

#include "arch/context.hpp"
#include "arch/entry.hpp"
#include "base/check.hpp"
#include "base/sanitizer.hpp"
#include "sched/enter.hpp"
#include "sched/order.hpp"
#include "sched/wake.hpp"

#include <cstddef>
#include <cstdint>

namespace weft::sched {

// The last bytes of every stack are kept for this_goroutine::exit: its unwinder needs memory that
// outlives all frames.
inline constexpr std::size_t reserved_bytes = sizeof(arch::unwind_storage);

// Where this_goroutine::exit keeps its state: above the goroutine's first frame.
arch::unwind_storage* unwind_storage_of(const goroutine* g) noexcept;
void set_exit_hook(arch::entry_hooks& hooks) noexcept;

// The outermost C++ function on every goroutine stack.
[[noreturn]] void goroutine_main(void*);

// Runs `g` from the scheduler's stack; returns when the machine is back there.
void run_goroutine(machine* m, goroutine* g) noexcept;

inline std::byte* first_frame(const stack::extent* s) noexcept { return s->top - reserved_bytes; }

[[gnu::always_inline]] inline void save_thread_state(machine* m, goroutine* g) noexcept {
  g->saved_errno = *m->errno_address;
  g->eh = *m->eh;
  g->fp.capture();
}

[[gnu::always_inline]] inline void restore_thread_state(machine* m, const goroutine* g) noexcept {
  *m->errno_address = g->saved_errno;
  *m->eh = g->eh;
}

void await_saved_slow(const goroutine* g) noexcept;

// [C1] A waker may find the goroutine before its registers have left its last machine.
[[gnu::always_inline]] inline void await_saved(const goroutine* g) noexcept {
  if (g->context.busy.load(std::memory_order_acquire) != 0) [[unlikely]]  // [C1]
    await_saved_slow(g);
}

// Whether to check for AddressSanitizer. `never`: the caller has checked, and it is not there.
enum class announce : std::uint8_t { if_needed, never };

// Tells the sanitizers that this flow of control is left. `fake_stack` is null if it never comes
// back.
template <announce when>
[[gnu::always_inline]] inline void announce_goroutine([[maybe_unused]] void** fake_stack,
                                                      [[maybe_unused]] goroutine* to) noexcept {
  if constexpr (when == announce::if_needed) {
    if (base::sanitizer::has_address()) [[unlikely]] {
      base::sanitizer::start_switch(fake_stack, to->stack->low, to->stack->bytes());
    }
  }
#if WEFT_TSAN
  // The switch orders both goroutines for TSan: the second continues what the runtime did on behalf
  // of the first, without leaving in between.
  if (to->fiber == nullptr) to->fiber = base::sanitizer::create_fiber();
  base::sanitizer::switch_to_fiber(to->fiber, base::sanitizer::fiber_sync::happens_before);
#endif
}

template <announce when>
[[gnu::always_inline]] inline void announce_scheduler([[maybe_unused]] void** fake_stack,
                                                      [[maybe_unused]] machine* m) noexcept {
  if constexpr (when == announce::if_needed) {
    base::sanitizer::start_switch(fake_stack, m->stack_low, m->stack_bytes);
  }
#if WEFT_TSAN
  base::sanitizer::switch_to_fiber(m->fiber, base::sanitizer::fiber_sync::happens_before);
#endif
}

[[gnu::always_inline]] inline void announce_arrival(void* fake_stack) noexcept {
  base::sanitizer::finish_switch(fake_stack, nullptr, nullptr);
}

// Destroys the TSan fiber of the goroutine that ended on this machine before the switch.
[[gnu::always_inline]] inline void bury_fiber([[maybe_unused]] machine* m) noexcept {
#if WEFT_TSAN
  if (m->dead_fiber == nullptr) return;
  base::sanitizer::destroy_fiber(m->dead_fiber);
  m->dead_fiber = nullptr;
#endif
}

// Whether `next` can be switched to from a goroutine's stack. If `next` needs a stack and there is
// one, `next` has it afterwards. A goroutine that is still busy leaving its last machine cannot be
// switched to: two goroutines that leave for each other would wait for each other. The scheduler's
// stack can wait.
bool prepare_to_run_slow(machine* m, goroutine* next) noexcept;
[[gnu::always_inline]] inline bool prepare_to_run(machine* m, goroutine* next) noexcept {
  // acquire: [C1].
  return (next->how == mode::parked && next->context.busy.load(std::memory_order_acquire) == 0) ||
         prepare_to_run_slow(m, next);
}

// Switches to `next`, which prepare_to_run() has accepted, leaving the caller in `from`.
template <announce when = announce::if_needed>
[[gnu::always_inline]] inline void switch_to(machine* m, arch::context* from, void** fake_stack,
                                             const arch::fp_control& current,
                                             goroutine* next) noexcept {
  WEFT_ASSERT(m->seat.inside_hint() && next->stack != nullptr);
  WEFT_ASSERT(next->get_status() == state::runnable);
  m->g = next;
  next->set_status(state::running);
  if (next->how == mode::parked || next->how == mode::bound) {
    WEFT_ASSERT(next->context.busy.load(std::memory_order_relaxed) == 0);
    WEFT_ASSERT(next->how != mode::bound || next->bound == m);
    if (!(current == next->fp)) next->fp.install();
    announce_goroutine<when>(fake_stack, next);
    arch::switch_context(from, &next->context);
  } else {
    next->how = mode::parked;  // the way in which it will be resumed
    announce_goroutine<when>(fake_stack, next);
    arch::start_context(from, first_frame(next->stack), &goroutine_main, nullptr);
  }
}

template <announce when = announce::if_needed>
[[gnu::always_inline]] inline void switch_to_scheduler(machine* m, arch::context* from,
                                                       void** fake_stack) noexcept {
  m->g = nullptr;
  announce_scheduler<when>(fake_stack, m);
  arch::switch_context(from, &m->scheduler);
}

template <announce when>
[[gnu::always_inline]] inline void switch_from_as(machine* m, goroutine* g,
                                                  goroutine* next) noexcept {
  save_thread_state(m, g);
  if (next != nullptr && !prepare_to_run(m, next)) [[unlikely]] {
    m->task = errand::run;
    m->errand_goroutine = next;
    next = nullptr;
  }
  if (next != nullptr) {
    switch_to<when>(m, &g->context, &g->fake_stack, g->fp, next);
  } else {
    switch_to_scheduler<when>(m, &g->context, &g->fake_stack);
  }
  // Here the goroutine is resumed, perhaps on another machine.
  machine* const here = this_machine();
  if constexpr (when == announce::if_needed) announce_arrival(g->fake_stack);
  bury_fiber(here);
  restore_thread_state(here, g);
}

// Leaves goroutine `g` for `next`, or for the scheduler if `next` is null or cannot run from here.
// Checks for AddressSanitizer once; the goroutine comes back on the path by which it left.
void switch_from_announced(machine* m, goroutine* g, goroutine* next) noexcept;
[[gnu::always_inline]] inline void switch_from(machine* m, goroutine* g, goroutine* next) noexcept {
  if (base::sanitizer::has_address()) [[unlikely]] {
    switch_from_announced(m, g, next);
  } else {
    switch_from_as<announce::never>(m, g, next);
  }
}

// Parks. Leaves the calling goroutine, which a waker can find already, and runs others until it is
// resumed. Inside before and after; afterwards the machine may be another one.
[[gnu::always_inline]] inline void suspend(machine* m, goroutine* g) noexcept {
  WEFT_ASSERT(m->g == g && m->p != nullptr && m->seat.inside_hint());
  if (g->how == mode::bound) [[unlikely]] {
    m->task = errand::wait_bound;
    m->errand_goroutine = g;
    switch_from(m, g, nullptr);
    return;
  }
  goroutine* const next = pick(*m->p);
  if (next == g) {                                        // made ready before it had left
    g->context.busy.store(0, std::memory_order_relaxed);  // the next reader is this thread
    g->set_status(state::running);
    return;
  }
  switch_from(m, g, next);
}

// To be called before a running goroutine is put into a queue, where others find it at once.
[[gnu::always_inline]] inline void mark_runnable(goroutine* g) noexcept {
  WEFT_ASSERT(g->get_status() == state::running);
  // relaxed: the seat or a lock orders this before the thread that takes `g` from the queue.
  g->context.busy.store(1, std::memory_order_relaxed);
  g->set_status(state::runnable);
}

// Parks. Leaves `g`, which is in a queue, for `next`.
[[gnu::always_inline]] inline void switch_from_queued(machine* m, goroutine* g,
                                                      goroutine* next) noexcept {
  work_made(m);
  if (g->how == mode::bound) [[unlikely]] {
    push_next(*m->p, next);  // `next` runs elsewhere: this thread waits with its goroutine
    suspend(m, g);
  } else {
    switch_from(m, g, next);
  }
}

}  // namespace weft::sched
