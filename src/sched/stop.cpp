// stop.cpp: stopping all goroutines when the process ends.
//
// When a process exits, its static objects are destroyed, and goroutines that still run would use
// them. So all machines are stopped first, neither unwound nor waited for:
//
//   asleep or searching     sees `stopping` before it runs another goroutine
//   enters the runtime      finds `stopped` on its seat and stays there
//   computes in user code   gets a signal, whose handler never returns
//   is paused               goes on computing, and is stopped like that: it may hold a lock
//
// A thread must not be stopped in the middle of malloc, stdio or the loader: the thread that runs
// the destructors needs the same locks. So the handler looks where it has interrupted the code; in
// one of those libraries it lets it go on, and is called again a moment later. A thread that stays
// there, because it sleeps in a system call, is left alone after a few milliseconds.
//
// The signal is SIGURG, which does nothing by default, and its handler is installed only now: the
// process has no more use for its own.
#include "sched/stop.hpp"

#include "base/backtrace.hpp"
#include "base/clock.hpp"
#include "sched/scheduler.hpp"

#include <csignal>
#include <cstdint>
#include <link.h>
#include <mutex>
#include <string_view>
#include <sys/syscall.h>
#include <unistd.h>

namespace weft::sched {
namespace {

scheduler& sched = the_scheduler;

constexpr int stop_signal = SIGURG;
constexpr std::int64_t patience_ns = 1'000'000'000;
constexpr std::uint32_t same_place_max = 100;  // rounds
constexpr std::int64_t pause_ns = 50'000;

struct range {
  std::uintptr_t begin, end;
};
constexpr std::size_t ranges_max = 16;
range untouchable[ranges_max];
std::size_t untouchable_count = 0;

bool is_untouchable(std::string_view path) noexcept {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  for (const std::string_view prefix :
       {"libc.so", "libc-", "ld-", "ld.so", "libpthread", "libstdc++", "libc++", "libgcc_s",
        "libasan", "libtsan", "libubsan", "liblsan", "linux-vdso"}) {
    if (name.starts_with(prefix)) return true;
  }
  return name.find("malloc") != name.npos;
}

int note_library(dl_phdr_info* info, std::size_t, void*) {
  if (info->dlpi_name == nullptr || !is_untouchable(info->dlpi_name)) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD || (header.p_flags & PF_X) == 0) continue;
    if (untouchable_count == ranges_max) return 1;
    const std::uintptr_t begin = info->dlpi_addr + header.p_vaddr;
    untouchable[untouchable_count++] = {begin, begin + header.p_memsz};
  }
  return 0;
}

void on_stop(int, siginfo_t*, void* ucontext) {
  machine* const m = this_machine();
  if (m == nullptr || m->chair.inside_hint()) return;              // it stops by itself
  if (m->holds_lock.load(std::memory_order_relaxed) != 0) return;  // another time
  const std::uintptr_t pc = base::interrupted_pc(ucontext);
  if (interrupts_libraries(pc)) {
    // relaxed: only this handler writes them; stop_machines() reads a hint.
    const bool moved = m->stop_place.load(std::memory_order_relaxed) != pc;
    m->stop_place.store(pc, std::memory_order_relaxed);
    m->stop_rounds.store(moved ? 0 : m->stop_rounds.load(std::memory_order_relaxed) + 1,
                         std::memory_order_relaxed);
    return;
  }
  m->has_stopped.store(true, std::memory_order_release);
  for (;;) ::pause();
}

// Whether the machine can no longer get into user code.
bool is_harmless(machine* m) noexcept {
  if (m->has_stopped.load(std::memory_order_acquire)) return true;
  if (m->is_paused.load(std::memory_order_acquire)) return false;  // about to go on
  if (m->stop_rounds.load(std::memory_order_relaxed) > same_place_max) return true;  // it sleeps
  return m->is_asleep.load(std::memory_order_acquire);
}

// The destructors of static objects may use weft, so the one thread that goes on has a processor.
void keep_processor(machine* self) noexcept {
  (void)self->chair.enter();
  if (settle_here(self) == seat::taken && !acquire_processor(self)) {
    processor* const p = sched.processors[0].load(std::memory_order_relaxed);
    const std::lock_guard hold(sched.lock);
    self->p = p;  // whoever had it has stopped
    p->holder.store(self, std::memory_order_release);
    self->chair.reclaim();
  }
  leave(self);
}

}  // namespace

WEFT_NO_TSAN bool interrupts_libraries(std::uintptr_t pc) noexcept {
  for (std::size_t i = 0; i < untouchable_count; ++i) {
    if (pc >= untouchable[i].begin && pc < untouchable[i].end) return true;
  }
  return false;
}

void prepare_stop() noexcept { ::dl_iterate_phdr(&note_library, nullptr); }

void stop_machines() noexcept {
  machine* const self = this_machine();
  if (self != nullptr) self->holds_lock.fetch_add(1, std::memory_order_relaxed);  // never paused
  sched.stopping.store(true, std::memory_order_seq_cst);
  {
    const std::lock_guard hold(sched.lock);  // retake() looks under it
  }
  for (const auto& slot : sched.machine_table) {
    machine* const m = slot.load(std::memory_order_acquire);
    if (m == nullptr) break;
    if (m != self) m->chair.stop();
  }
  base::heavy_barrier();
  release_paused();

  struct sigaction action{};
  action.sa_sigaction = &on_stop;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  ::sigfillset(&action.sa_mask);
  ::sigaction(stop_signal, &action, nullptr);
  const std::int64_t end = base::now_ns() + patience_ns;
  for (bool all = false; !all && base::now_ns() < end;) {
    all = true;
    for (const auto& slot : sched.machine_table) {
      machine* const m = slot.load(std::memory_order_acquire);
      if (m == nullptr) break;
      if (m == self || is_harmless(m)) continue;
      all = false;
      // Inside it is on its way to its seat's word, or out again: the next round sees which.
      const pid_t thread = m->thread_id.load(std::memory_order_relaxed);
      if (!m->chair.inside_hint() && thread != 0) {
        ::syscall(SYS_tgkill, ::getpid(), thread, stop_signal);
      }
    }
    if (!all) {
      const timespec pause{0, pause_ns};
      ::nanosleep(&pause, nullptr);
    }
  }
  if (self != nullptr) keep_processor(self);
}

}  // namespace weft::sched
