// go.cpp: the API of weft/go.hpp on top of the scheduler.
#include <weft/go.hpp>

#include "base/clock.hpp"
#include "sched/extra.hpp"
#include "sched/inside.hpp"
#include "sched/scheduler.hpp"
#include "sched/simulation.hpp"
#include "sched/start.hpp"
#include "sched/stop.hpp"
#include "sched/switch.hpp"

#include <atomic>
#include <cerrno>
#include <cxxabi.h>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

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

// What was main() is often used to more than a goroutine has: as much as the kernel gives a
// process.
constexpr std::size_t main_stack_bytes = std::size_t{8} << 20;

// A goroutine of its own stack size gets the stack at once, so that a lack of memory is known to
// whoever asked for it.
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

// While goroutines wait for memory for their stacks, nobody starts more of them.
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
    throw;  // this_goroutine::exit, on its way out
  } catch (...) {
    thrown = std::current_exception();
  }
}

void throw_future_error(std::future_errc why) { throw std::future_error(why); }

std::exception_ptr make_broken_promise() {
  return std::make_exception_ptr(std::future_error(std::future_errc::broken_promise));
}

void run_main(void (*call)(void*), void* argument) {
  // A destructor does not know who called exit.
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
    // Memory is short: then it has no more than the others.
  }
  using task_type = task<main_task>;
  ::new (task_storage(g)) task_type(main_task{&c});
  commit(g, &invoke_in_place<task_type>, __builtin_return_address(0));
  // From here on nobody but goroutines carries the program on.
  sched::the_scheduler.runs.fetch_add(1, std::memory_order_relaxed);
  c.done.wait(wait_reason::run);
  sched::the_scheduler.runs.fetch_sub(1, std::memory_order_relaxed);
  sched::register_exit_again();
  if (c.thrown != nullptr) std::rethrow_exception(c.thrown);
}

void sleep_until_ns(std::int64_t deadline_ns) {
  prepare_park(wait_reason::sleep);
  park_until(deadline_ns, nullptr, nullptr);
}

std::int64_t clock_now_ns() noexcept {
  if (time_is_simulated()) return sched::this_simulation()->now_ns();
  return base::now_ns();
}

bool time_is_simulated() noexcept {
  return simulating.load(std::memory_order_relaxed) && sched::this_simulation() != nullptr;
}

std::uint64_t new_local_key() noexcept {
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

namespace {

// A plain thread's values, destroyed when the thread ends.
struct thread_locals {
  goroutine holder;
  ~thread_locals() {
    if (holder.extra.load(std::memory_order_relaxed) != nullptr) sched::destroy_extra(&holder);
  }
};

goroutine* holder_of_locals() {
  if (machine* const m = sched::this_machine()) return m->g;
  if (sched::simulation* const s = sched::this_simulation()) return s->self();
  thread_local thread_locals mine;
  return &mine.holder;
}

}  // namespace

void* find_local(std::uint64_t key) { return sched::find_local(holder_of_locals(), key); }

void add_local(std::uint64_t key, void* value, void (*destroy)(void*)) {
  sched::add_local(holder_of_locals(), key, value, destroy);
}

}  // namespace detail

int max_procs() {
  if (const sched::simulation* const s = sched::this_simulation()) return s->procs();
  sched::ensure_started();
  return static_cast<int>(the_scheduler.procs.load(std::memory_order_relaxed));
}

int max_procs(int n) {
  if (n < 1) throw std::invalid_argument("weft::max_procs: " + std::to_string(n) + " is below 1");
  if (const sched::simulation* const s = sched::this_simulation()) return s->procs();
  sched::ensure_started();
  const std::uint32_t before = sched::resize_by_hand(static_cast<std::uint32_t>(n));
  // If the caller's own processor was retired, it goes on only when it has another.
  if (machine* const m = sched::this_machine()) sched::leave(sched::enter(m));
  return static_cast<int>(before);
}

std::size_t num_goroutine() {
  if (const sched::simulation* const s = sched::this_simulation()) return s->goroutines();
  std::uint64_t ended = 0;
  std::uint64_t started = 0;
  const std::uint32_t procs = the_scheduler.procs_made.load(std::memory_order_acquire);  // [P1]
  // Ends first: a goroutine that starts and ends meanwhile must not make the difference negative.
  for (std::uint32_t i = 0; i < procs; ++i) {
    ended += the_scheduler.processors[i]
                 .load(std::memory_order_relaxed)
                 ->ended.load(std::memory_order_relaxed);
  }
  for (std::uint32_t i = 0; i < procs; ++i) {
    started += the_scheduler.processors[i]
                   .load(std::memory_order_relaxed)
                   ->started.load(std::memory_order_relaxed);
  }
  started += the_scheduler.outside_started.load(std::memory_order_relaxed);
  return started > ended ? static_cast<std::size_t>(started - ended) : 0;
}

void detail::yield() noexcept { this_goroutine::yield(); }

namespace this_goroutine {

std::uint64_t id() {
  if (const machine* const m = sched::this_machine()) return m->g->id;
  sched::simulation* const s = sched::this_simulation();
  return s != nullptr ? s->self()->id : 0;
}

void yield() {
  machine* m = sched::this_machine();
  if (m == nullptr) [[unlikely]] {
    if (sched::simulation* const s = sched::this_simulation()) return s->yield();
    if (!sched::yield_at_exit()) std::this_thread::yield();
    return;
  }
  if (!m->seat.enter()) [[unlikely]] {
    bool has_waited = false;
    m = sched::enter_slow(m, sched::entry::parks, &has_waited);
    // It had lost its processor and waited for its turn: that is what it wanted.
    if (has_waited) return sched::leave(m);
  }
  processor& p = *m->p;
  sched::count_pick(p);
  if (--p.until_look == 0) [[unlikely]] {
    (void)sched::pass_turn(m);
  } else if (goroutine* const next = sched::pick_fast(p)) {
    goroutine* const g = m->g;
    sched::mark_runnable(g);
    sched::push_ready(p, g);
    sched::leave_queued(m, g, next);
  }
  sched::leave(sched::this_machine());
}

void exit() {
  const machine* const m = sched::this_machine();
  sched::simulation* const s = sched::this_simulation();
  if (m == nullptr && s == nullptr) {
    throw std::logic_error("weft::this_goroutine::exit on a plain thread");
  }
  arch::unwind_goroutine(*sched::unwind_storage_of(m != nullptr ? m->g : s->self()));
}

void lock_thread() {
  machine* m = sched::this_machine();
  if (m == nullptr || sched::is_exiting(m)) return;  // there is no other thread then
  m = sched::enter();
  goroutine* const g = m->g;
  ++m->locks;
  g->how = mode::bound;
  g->bound = m;
  sched::leave(m);
}

void unlock_thread() {
  machine* m = sched::this_machine();
  if (m == nullptr || m->locks == 0) return;
  m = sched::enter();
  goroutine* const g = m->g;
  if (--m->locks == 0) {
    g->how = mode::parked;
    g->bound = nullptr;
  }
  sched::leave(m);
}

}  // namespace this_goroutine
}  // namespace weft
