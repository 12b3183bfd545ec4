// go.cpp: how a goroutine is started: weft/go.hpp's `go` and `run`.
//
// A start has two halves. begin_start() takes a record, and the caller puts the callable into its
// storage, outside the runtime, because that may allocate and throw. Then commit_start() queues the
// record; or abort_start() gives it back. The goroutine gets a stack when it first runs
// (switch.cpp), unless it asks for a size of its own (place).
#include <weft/go.hpp>

#include "base/env.hpp"
#include "sched/enter.hpp"
#include "sched/exit.hpp"
#include "sched/extra.hpp"
#include "sched/inside.hpp"
#include "sched/order.hpp"
#include "sched/scheduler.hpp"
#include "sched/simulation.hpp"
#include "sched/start.hpp"
#include "sched/wake.hpp"
#include "stack/pool.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cxxabi.h>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

namespace weft {
namespace {

using sched::goroutine;
using sched::machine;
using sched::mode;
using sched::processor;
using sched::state;
using sched::the_scheduler;

std::atomic<bool> main_has_id_1{false};

constexpr std::uint64_t id_batch = 16;

std::uint64_t new_id(processor& p) noexcept {
  if (p.next_id == p.ids_end) [[unlikely]] {
    p.next_id = the_scheduler.next_id.fetch_add(id_batch, std::memory_order_relaxed);
    p.ids_end = p.next_id + id_batch;
  }
  return p.next_id++;
}

[[noreturn]] void throw_no_memory(const char* what) {
  throw std::system_error(ENOMEM, std::generic_category(), what);
}

goroutine* take_record_outside() {
  sched::goroutine_list one;
  if (the_scheduler.records.take(one, 1) == 0) throw_no_memory("weft: no memory for a goroutine");
  return one.pop_front();
}

void return_record(goroutine* g) noexcept {
  sched::inside here;
  if (g->stack != nullptr) {
    stack::central().put(&g->stack, 1);
    g->stack = nullptr;
  }
  sched::goroutine_list one;
  one.push_back(g);
  the_scheduler.records.put(one);
  here.leave();
}

// Code that was in main() is often used to more stack than a goroutine has, so it gets as much as
// the kernel gives a process.
constexpr std::size_t main_stack_bytes = std::size_t{8} << 20;

// Gives the goroutine a stack of its own size at once, so that the caller is told if there is no
// memory for it.
void place(goroutine* g, std::size_t bytes) {
  if (bytes > stack::reserve_max) {
    throw std::system_error(
        EINVAL, std::generic_category(),
        "weft: a stack of " + std::to_string(bytes) + " bytes was asked for; the limit is 1 GiB");
  }
  int error = 0;
  const bool inside = sched::this_machine() != nullptr;
  machine* const m = inside ? sched::enter() : nullptr;
  const std::size_t n = stack::central().take(bytes, &g->stack, 1, error);
  if (inside) sched::leave(m);
  if (n == 0) {
    throw std::system_error(error, std::generic_category(),
                            "weft: no memory for a stack of " + std::to_string(bytes) + " bytes");
  }
  g->how = mode::placed;
}

// Throws while goroutines wait for memory for their stacks: no more of them are started then.
void check_shortage() {
  if (!the_scheduler.stack_shortage.load(std::memory_order_relaxed)) [[likely]]
    return;
  throw_no_memory("weft: no memory for a goroutine's stack");
}

goroutine* take_record() {
  machine* m = sched::this_machine();
  if (m == nullptr) [[unlikely]] {
    if (sched::simulation* const s = sched::this_simulation()) return s->take_record();
    sched::ensure_started();
    return take_record_outside();
  }
  m = sched::enter(m);
  goroutine* const g = m->p->records.take(the_scheduler.records);
  sched::leave(m);
  if (g == nullptr) throw_no_memory("weft: no memory for a goroutine");
  return g;
}

}  // namespace

namespace detail {

goroutine* begin_start(start_as who) {
  check_shortage();
  goroutine* const g = take_record();
  if (g->how == mode::simulated) [[unlikely]]
    return g;
  g->how = mode::fresh;
  g->id = 0;
  if (who == start_as::main && !main_has_id_1.exchange(true, std::memory_order_relaxed)) g->id = 1;
  return g;
}

goroutine* begin_start(const go_options& options) {
  goroutine* const g = begin_start(start_as::child);
  try {
    if (options.stack_size != 0) place(g, options.stack_size);
    sched::set_name(g, options.name, options.where);
  } catch (...) {
    abort_start(g);
    throw;
  }
  return g;
}

goroutine* begin_start_inside() noexcept {
  machine* const m = sched::this_machine();
  if (m == nullptr) return sched::this_simulation()->take_record_inside();
  goroutine* const g = m->p->records.take(the_scheduler.records);
  if (g != nullptr) {
    g->how = mode::fresh;
    g->id = 0;
  }
  return g;
}

void* task_storage(goroutine* g) noexcept {
  static_assert(task_bytes == goroutine::storage_bytes);
  return g->storage;
}

namespace {

[[gnu::always_inline]] inline void note_start(machine* m, goroutine* g,
                                              std::uint64_t parent) noexcept {
  processor& p = *m->p;
  g->created_by = parent;
  if (g->id == 0) g->id = new_id(p);
  // relaxed: only the holder writes; num_goroutine reads a sum.
  p.started.store(p.started.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

[[gnu::always_inline]] inline void commit(goroutine* g, void (*invoke)(void*),
                                          const void* created_at) noexcept {
  g->invoke = invoke;
  g->created_at = created_at;
  g->set_status(state::runnable);
  machine* m = sched::this_machine();
  if (m == nullptr) [[unlikely]] {
    if (sched::simulation* const s = sched::this_simulation()) {
      s->start(g);
      return;
    }
    g->created_by = 0;
    if (g->id == 0) g->id = the_scheduler.next_id.fetch_add(1, std::memory_order_relaxed);
    the_scheduler.outside_started.fetch_add(1, std::memory_order_relaxed);
    sched::inject(sched::global_queue::from::shared, g);
    return;
  }
  m = sched::enter(m);
  note_start(m, g, m->g->id);
  sched::push_fresh(*m->p, g);
  sched::work_made(m);
  sched::leave(m);
}

}  // namespace

void commit_start(goroutine* g, void (*invoke)(void*)) noexcept {
  commit(g, invoke, __builtin_return_address(0));
}

void commit_start_inside(goroutine* g, void (*invoke)(void*)) noexcept {
  g->invoke = invoke;
  g->created_at = nullptr;
  g->set_status(state::runnable);
  if (machine* const m = sched::this_machine()) {
    note_start(m, g, 0);
    sched::push_woken(*m->p, g);
    sched::work_made(m);
  } else {
    sched::this_simulation()->start(g);
  }
}

void abort_start(goroutine* g) noexcept {
  if (g->extra.load(std::memory_order_relaxed) != nullptr) sched::destroy_extra(g);
  if (g->how == mode::simulated) return sched::this_simulation()->drop(g);
  if (g->id == 1) main_has_id_1.store(false, std::memory_order_relaxed);
  return_record(g);
}

// UBSan: a forced unwinding has no object that the reference could be bound to.
__attribute__((no_sanitize("undefined"))) void call_capturing(void (*call)(void*), void* argument,
                                                              std::exception_ptr& thrown) {
  try {
    call(argument);
  } catch (const abi::__forced_unwind&) {
    throw;  // this_goroutine::exit unwinds the stack
  } catch (...) {
    thrown = std::current_exception();
  }
}

void throw_future_error(std::future_errc why) { throw std::future_error(why); }

std::exception_ptr make_broken_promise() {
  return std::make_exception_ptr(std::future_error(std::future_errc::broken_promise));
}

void run_main(void (*call)(void*), void* argument) {
  // The exiting machine may call run(), because a destructor does not know which thread exits.
  const machine* const m = sched::this_machine();
  if ((m != nullptr && !sched::is_exiting(m)) || sched::this_simulation() != nullptr) {
    throw std::logic_error("weft::run was called in a goroutine");
  }
  struct main_call {
    void (*call)(void*);
    void* argument;
    std::exception_ptr thrown;
    one_shot<seam> done;
  };
  main_call c{call, argument, nullptr, {}};
  struct main_task {
    main_call* c;
    void operator()() const {
      struct finisher {
        main_call* c;
        ~finisher() {
          if (this_goroutine::id() == 1) main_has_id_1.store(false, std::memory_order_relaxed);
          c->done.set();
        }
      };
      const finisher last{c};  // also when main ends by this_goroutine::exit
      call_capturing(c->call, c->argument, c->thrown);
    }
  };
  goroutine* const g = begin_start(start_as::main);
  try {
    place(g, std::max(main_stack_bytes, base::env().stack_bytes));
  } catch (...) {
    // Memory is short, so main gets no more stack than others do.
  }
  using task_type = task<main_task>;
  ::new (task_storage(g)) task_type(main_task{&c});
  commit(g, &invoke_in_place<task_type>, __builtin_return_address(0));
  // From here on only goroutines carry the program on: deadlock.cpp relies on that.
  sched::the_scheduler.runs.fetch_add(1, std::memory_order_relaxed);
  c.done.wait(wait_reason::run);
  sched::the_scheduler.runs.fetch_sub(1, std::memory_order_relaxed);
  sched::register_exit_again();
  if (c.thrown != nullptr) std::rethrow_exception(c.thrown);
}

}  // namespace detail

}  // namespace weft
