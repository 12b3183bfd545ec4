// report.cpp: what a process prints when it dies because of a goroutine, and reports of stalls.
//
// Each report names the goroutine first, then all others, a paragraph each: id, name, state, wait
// reason, stack, where it was created. Before that, the report freezes the world as far as
// possible: every machine stops at its next entry into the runtime, so parked goroutines stay
// parked while their stacks are read. The process ends with status 2 in any case, by a deadline if
// need be. (A report of a stall neither freezes nor ends anything.)
#include "sched/report.hpp"

#include "arch/entry.hpp"
#include "base/backtrace.hpp"
#include "base/clock.hpp"
#include "base/fatal.hpp"
#include "base/symbolize.hpp"
#include "sched/counters.hpp"
#include "sched/enter.hpp"
#include "sched/scheduler.hpp"
#include "sched/simulation.hpp"
#include "sched/stop.hpp"
#include "sched/switch.hpp"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <iterator>
#include <string_view>
#include <ucontext.h>
#include <unistd.h>

namespace weft::sched {
namespace {

constexpr int deadline_seconds = 20;
constexpr std::size_t frames_max = 256;
constexpr std::size_t goroutines_shown = 100;
constexpr std::size_t frame_max = std::size_t{16} << 20;  // farther below is no overflow
constexpr std::size_t below_sp_max = 4096;                // a function may touch so much below sp
constexpr std::size_t name_shown = 200;                   // characters

constexpr std::string_view not_in_handlers =
    "weft must not be called in a signal handler; os::notify() (weft/os.hpp) sends signals to a "
    "channel";

struct sigaction previous_segv;
struct sigaction previous_bus;

std::string_view to_string(state s) noexcept {
  switch (s) {
    case state::unused:
      return "unused";
    case state::runnable:
      return "runnable";
    case state::running:
      return "running";
    case state::waiting:
      return "waiting";
    case state::blocking:
      return "blocking";
    case state::preempted:
      return "preempted";
  }
  return "unknown";
}

void print_header(const goroutine* g) noexcept {
  base::text line;
  line << "goroutine " << g->id;
  const goroutine_extra* const extra = g->extra.load(std::memory_order_acquire);  // [G1]
  if (extra != nullptr && extra->name != nullptr) {
    const std::string_view name(extra->name);
    line << " \"";
    line.printable(name.substr(0, name_shown)) << (name.size() > name_shown ? "...\"" : "\"");
  }
  const state s = g->get_status();
  line << " [" << to_string(s);
  if (s == state::waiting) {
    line << ": " << detail::to_string(g->reason.load(std::memory_order_relaxed));
  }
  if (g->how == mode::bound) line << ", locked to thread";
  line << "]:\n";
  base::write_stderr(line.view());
}

void print_origin(const goroutine* g, base::symbolize_options options) noexcept {
  base::text line;
  line << "created by goroutine " << g->created_by;
  const goroutine_extra* const extra = g->extra.load(std::memory_order_acquire);  // [G1]
  if (g->created_by == 0) {
    line.clear();
    line << "created by a thread";
  }
  if (extra != nullptr && extra->file != nullptr) {
    line << " in " << extra->function << "\n\t" << extra->file << ":" << extra->line << "\n\n";
    base::write_stderr(line.view());
    return;
  }
  line << " at\n";
  base::write_stderr(line.view());
  void* pc = const_cast<void*>(g->created_at);
  if (pc != nullptr) base::print_stack(&pc, 1, options);
  base::write_stderr("\n");
}

void print_parked(const goroutine* g) noexcept {
  print_header(g);
  // The saved context of a goroutine that is on its thread is out of date.
  const state s = g->get_status();
  if (g->stack != nullptr && (s == state::waiting || s == state::runnable)) {
    void* pcs[frames_max];
    const base::saved_frame at{g->context.pc, g->context.sp, g->context.fp};
    base::print_stack(pcs, base::capture_from(at, pcs, frames_max));
  }
  print_origin(g, {});
}

void print_others(const goroutine* first) noexcept {
  std::size_t shown = 0;
  std::size_t hidden = 0;
  the_scheduler.records.for_each([&](const goroutine& g) {
    const state s = g.get_status();
    if (&g == first || s == state::unused) return;
    if (shown == goroutines_shown) {
      ++hidden;
      return;
    }
    ++shown;
    print_parked(&g);
  });
  if (hidden != 0) {
    base::text line;
    line << "... and " << static_cast<std::uint64_t>(hidden) << " more goroutines\n";
    base::write_stderr(line.view());
  }
}

goroutine* this_goroutine_record() noexcept {
  if (machine* const m = this_machine()) return m->g;
  simulation* const s = this_simulation();
  return s != nullptr ? s->self() : nullptr;
}

[[noreturn]] void on_escaped_exception() {
  base::begin_last_words();
  base::arm_deadline(deadline_seconds);
  freeze_goroutines();
  const goroutine* const g = this_goroutine_record();
  base::text line;
  line << "weft: an exception left goroutine " << g->id << ": ";
  if (!base::describe_exception(line)) line << "unknown";
  line << "\n\n";
  base::write_stderr(line.view());
  print_header(g);
  void* pcs[frames_max];
  base::print_stack(pcs, base::capture(pcs, frames_max, 0));
  print_origin(g, {});
  print_others(g);
  base::exit_process();
}

// Writes what fatal() adds to its message.
void describe_goroutines() noexcept {
  base::arm_deadline(deadline_seconds);
  if (simulation* const s = this_simulation()) s->last_words();
  freeze_goroutines();
  const goroutine* const g = this_goroutine_record();
  if (g != nullptr) {
    base::write_stderr("\n");
    print_header(g);
    void* pcs[frames_max];
    base::print_stack(pcs, base::capture(pcs, frames_max, 0));
    print_origin(g, {});
  }
  print_others(g);
}

// At least so much time is between two reports of stalls.
constexpr std::int64_t stall_gap_ns = 1'000'000'000;

bool may_report_stall() noexcept {
  static constinit std::atomic<std::int64_t> next_ns{0};
  const std::int64_t now = base::now_ns();
  std::int64_t next = next_ns.load(std::memory_order_relaxed);
  return now >= next &&
         next_ns.compare_exchange_strong(next, now + stall_gap_ns, std::memory_order_relaxed);
}

void print_stall(const machine* m, const goroutine* g, std::string_view how) noexcept {
  the_counters.stall_reports.add();
  base::text line;
  line << "weft: stall: goroutine " << g->id << " has held its processor for "
       << m->stalled_ns.load(std::memory_order_relaxed) / 1'000'000 << " ms" << how << "\n\n";
  base::write_stderr(line.view());
  print_header(g);
}

[[noreturn]] void report_overflow(const stack::extent* s, const void* ucontext) noexcept {
  base::begin_last_words();
  const lock_outside not_to_be_paused;
  base::arm_deadline(deadline_seconds);
  const goroutine* const g = this_goroutine_record();
  base::text line;
  line << "weft: fatal: stack overflow: goroutine ";
  if (g != nullptr) {
    line << g->id;
  } else {
    line << "unknown";
  }
  line << " used up its stack of " << static_cast<std::uint64_t>(s->bytes())
       << " bytes (WEFT_STACK or go_options::stack_size make it larger)\n\n";
  base::write_stderr(line.view());
  // The overflow may be in malloc, so names stay mangled.
  const base::symbolize_options options{.in_signal = true};
  if (g != nullptr) print_header(g);
  static base::long_stack frames;  // one report per process; too large for the signal stack
  base::capture_interrupted(ucontext, frames);
  base::print_stack(frames, options);
  if (g != nullptr) print_origin(g, options);
  if (simulation* const simulated = this_simulation()) simulated->last_words();
  base::exit_process();
}

// Returns: the stack that the thread has overrun: at its guard, or with a frame larger than the
// guard. Null if the address is in another stack, which happens to lie below.
const stack::extent* find_overflow(const siginfo_t* info, const void* ucontext) noexcept {
  if (const stack::extent* const s = stack::find_guard(info->si_addr)) return s;
  const goroutine* const g = this_goroutine_record();
  if (g == nullptr || g->stack == nullptr || info->si_code <= 0) return nullptr;
  const auto sp = reinterpret_cast<std::uintptr_t>(base::frame_of(ucontext).sp);
  const auto low = reinterpret_cast<std::uintptr_t>(g->stack->low);
  const auto touched = reinterpret_cast<std::uintptr_t>(info->si_addr);
  const stack_t& signals = static_cast<const ucontext_t*>(ucontext)->uc_stack;
  const auto on_signals = sp - reinterpret_cast<std::uintptr_t>(signals.ss_sp) < signals.ss_size;
  const bool is_over = sp < low && low - sp <= frame_max && !on_signals &&
                       touched + below_sp_max >= sp && touched < low;
  return is_over ? g->stack : nullptr;
}

// Prints where a goroutine that a signal has interrupted is, and where it comes from.
void print_interrupted(const goroutine* g, const void* ucontext) noexcept {
  // The goroutine may be in malloc, so names stay mangled.
  const base::symbolize_options options{.in_signal = true};
  void* pcs[frames_max / 4];
  base::print_stack(pcs, base::capture_interrupted(ucontext, pcs, std::size(pcs)), options);
  if (g != nullptr) print_origin(g, options);
}

// Names the goroutine before the default action ends the process.
void report_fault(int signal, const siginfo_t* info, const void* ucontext) noexcept {
  const machine* const m = this_machine();
  const goroutine* const g = this_goroutine_record();
  if (m == nullptr && g == nullptr) return;
  base::begin_last_words();  // other threads that fault meanwhile wait there
  const lock_outside not_to_be_paused;
  base::arm_deadline(deadline_seconds);
  base::text line;
  line << "weft: " << (signal == SIGSEGV ? "SIGSEGV" : "SIGBUS");
  if (g != nullptr) {
    line << " in goroutine " << g->id;
  } else {
    line << " on a thread of the runtime that runs no goroutine";
  }
  if (info->si_code > 0) {
    line << ", which touched ";
    line.hex(reinterpret_cast<std::uintptr_t>(info->si_addr));
  }
  line << "\n";
  // Only in a signal handler does the user's code run inside the runtime.
  if (m != nullptr && (g == nullptr || m->seat.inside_hint())) {
    line << "weft: it is inside the runtime: " << not_in_handlers << "\n";
  }
  line << "\n";
  base::write_stderr(line.view());
  if (g != nullptr) print_header(g);
  print_interrupted(g, ucontext);
  ::alarm(0);
}

void on_fault(int signal, siginfo_t* info, void* ucontext) {
  const int saved = errno;
  if (const stack::extent* const s = find_overflow(info, ucontext)) report_overflow(s, ucontext);
  if (simulation* const s = this_simulation()) s->last_words();
  errno = saved;
  // The fault is not ours: go on as if this handler had not been there.
  const struct sigaction& previous = signal == SIGSEGV ? previous_segv : previous_bus;
  if ((previous.sa_flags & SA_SIGINFO) != 0 && previous.sa_sigaction != nullptr) {
    previous.sa_sigaction(signal, info, ucontext);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
  } else {
    report_fault(signal, info, ucontext);
    // Returning repeats the fault, now with its default action, so that a core dump shows it.
    ::signal(signal, SIG_DFL);
    if (info->si_code <= 0) ::raise(signal);  // a signal that was sent does not repeat itself
  }
}

}  // namespace

void die_in_handler() noexcept {
  base::text line;
  line << "a signal handler has interrupted weft, and calls it: " << not_in_handlers;
  base::fatal(line.view());
}

void report_stall(machine* m, const void* ucontext) noexcept {
  if (!may_report_stall()) return;
  const goroutine* const g = m->g;
  print_stall(m, g, "");
  print_interrupted(g, ucontext);
}

void report_blocked_stall(machine* m, const goroutine* g, int system_call) noexcept {
  if (!may_report_stall()) return;
  base::text how;
  if (system_call >= 0) {
    how << ", asleep in system call " << system_call;
  } else if (system_call == -1) {
    how << ", asleep in a page fault";
  }
  print_stall(m, g, how.view());
  base::write_stderr("\n");
}

void install_reports() noexcept {
  base::prepare_backtrace();
  arch::entry_hooks hooks;
  hooks.on_escaped_exception = &on_escaped_exception;
  set_exit_hook(hooks);
  arch::set_entry_hooks(hooks);
  base::set_fatal_hook(&describe_goroutines);
  struct sigaction action{};
  action.sa_sigaction = &on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGSEGV, &action, &previous_segv);
  ::sigaction(SIGBUS, &action, &previous_bus);
}

}  // namespace weft::sched
