// stop.cpp: stopping all goroutines when the process ends.
//
// When a process exits, its static objects are destroyed, and goroutines that still run would use
// them. So all machines are stopped first. Their stacks are not unwound, and the exit does not wait
// until their goroutines end:
//
//   asleep or searching     sees `stopping` before it runs another goroutine
//   enters the runtime      finds `stopped` on its seat and stays there
//   computes in user code   gets a signal, whose handler does not return
//   is paused               is released from its pause, because it may hold a lock; then computes,
//                           and is stopped by a signal
//
// A thread must not be stopped in the middle of malloc, stdio or the loader: the thread that runs
// the destructors needs the locks of those libraries. So the handler looks where it has interrupted
// the code. In one of those libraries the handler lets the thread go on, and is called again a
// moment later. (The vDSO takes no lock, but an allocator may call it under one.) A thread that is
// never met anywhere else within three seconds goes on. A thread that sleeps there in a system call
// is left alone after a few milliseconds: when the call returns, its goroutine goes on until it
// next enters the runtime. To stop the thread with a signal then would be wrong: it may have taken
// a lock since that the destructors need, for example the allocator's.
//
// Not every such lock is in a library: an allocator may be linked into the program, and so may all
// of libc. Therefore, when every machine has stopped, the exiting thread makes a trial: it
// allocates, throws and so on. If a thread was stopped while it held a lock that the trial needs,
// the trial hangs. Then a timer interrupts the trial and lets one thread go on for a moment, then
// the next one, and so on; after all of them, two at a time, for longer. The timer stops these
// threads again. Most often the exiting thread itself has the lock at that moment, so that they do
// not. A trial that did not hang while all other threads were stopped shows that the locks are
// free; and no thread is left to take one. If some threads cannot be stopped within three seconds,
// no more are stopped from then on, and the trial shows that the stopped ones hold no lock.
//
// The signal is SIGURG, which does nothing by default. The handler is installed only when the
// process ends, because then the process has no more use for a handler of its own.
//
// Memory order:
//   [ST1] Store-then-load with an asymmetric barrier. The exiting thread stores `stopping` and
//         `stopped` on all seats, passes the heavy barrier, and then looks which machines are
//         inside or asleep. A machine stores that it is inside, or no longer asleep, and then loads
//         its seat's word or `stopping`. So a machine that is taken for a harmless one does not get
//         into user code any more.
//   [ST2] A machine that has stopped, sleeps or is held by the signal -> the exiting thread, before
//         it runs destructors: what the machine's goroutines did. And back: a machine that is let
//         go sees what the exiting thread did.
//   [ST3] The end of a machine's pause -> the exiting thread: that the machine is awake. Without it
//         the exiting thread might see the pause ended and the machine still asleep, and take it
//         for harmless.
//   [ST4] Store-then-load, seq_cst: a machine says that it is held, then looks whether threads are
//         stopped no more; the exiting thread says so, then makes a trial. So a machine is held
//         before that trial, or goes on.
#include "sched/stop.hpp"

#include "base/backtrace.hpp"
#include "base/clock.hpp"
#include "base/futex.hpp"
#include "base/interrupt.hpp"
#include "base/sanitizer.hpp"
#include "sched/exit.hpp"
#include "sched/monitor_sleep.hpp"
#include "sched/poller.hpp"
#include "sched/preempt.hpp"
#include "sched/scheduler.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <link.h>
#include <malloc.h>
#include <mutex>
#include <new>
#include <string_view>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

namespace weft::sched {
namespace {

scheduler& sched = the_scheduler;

constexpr int stop_signal = SIGURG;
constexpr std::int64_t stopping_ns = 1'000'000'000;
constexpr std::int64_t stopping_more_ns = 2'000'000'000;  // beside trials
constexpr std::uint32_t same_place_max = 100;             // rounds
constexpr std::int64_t pause_ns = 50'000;
constexpr std::int64_t tick_ns = 150'000;  // a trial without progress from tick to tick hangs
constexpr std::uint32_t ticks_max = 64;
constexpr int stdio_tries = 1000;
constexpr std::int64_t last_ns = 10'000'000;
// Long, because an exit that gives up its trials too early may hang in a destructor.
constexpr std::int64_t trials_ns = 10'000'000'000;

const machine* exiting_machine = nullptr;  // null if a plain thread exits

std::atomic<bool> stops_no_more{false};  // [ST4]

// Used by the exiting thread, which makes a trial, and by its handler, which interrupts the trial.
std::atomic<std::uint32_t> trial_steps{0};  // how far it has got
std::uint32_t seen_steps = 0;               // trial_steps at the last tick
bool has_hung = false;
// Which threads go on when the trial hangs.
struct turns {
  std::uint32_t at = 0;     // index of the next thread's machine in the table of machines
  std::uint32_t width = 1;  // how many threads go on at a time
  std::uint32_t ticks = 1;  // how many ticks they have
  std::uint32_t left = 0;   // how many ticks are left to the threads that go on now
};
turns turn;

struct range {
  std::uintptr_t begin, end;
};
constexpr std::size_t ranges_max = 16;
range untouchable[ranges_max];
std::size_t untouchable_count = 0;
bool is_libc_shared = false;

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
  const std::string_view path = info->dlpi_name;
  is_libc_shared = is_libc_shared || path.find("/libc.") != path.npos ||
                   path.find("/libc-") != path.npos || path.find("/ld-musl") != path.npos;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD || (header.p_flags & PF_X) == 0) continue;
    if (untouchable_count == ranges_max) return 1;
    const std::uintptr_t begin = info->dlpi_addr + header.p_vaddr;
    untouchable[untouchable_count++] = {begin, begin + header.p_memsz};
  }
  return 0;
}

void on_tick() noexcept;

void on_stop(int, siginfo_t* info, void* ucontext) {
  if (info->si_code == SI_TIMER) {  // ours, or a timer of preempt.cpp with the same signal
    if (info->si_value.sival_ptr == &trial_steps) on_tick();
    return;
  }
  machine* const m = this_machine();
  if (m == nullptr || m->seat.inside_hint()) return;               // it stops by itself
  if (m->holds_lock.load(std::memory_order_relaxed) != 0) return;  // the next signal stops it
  const std::uintptr_t pc = base::interrupted_pc(ucontext);
  if (interrupts_libraries(pc)) {
    // stop_place and stop_rounds are relaxed: only this handler writes them, and is_left_alone()
    // reads a hint. A thread that fills a lot of memory also stays at one instruction, but not at a
    // system call. (ThreadSanitizer calls the handler late, with an old `pc`. So there the thread
    // need not be at a system call.)
    const bool stays = m->stop_place.load(std::memory_order_relaxed) == pc &&
                       (base::sanitizer::is_thread || base::is_at_system_call(pc));
    m->stop_place.store(pc, std::memory_order_relaxed);
    m->stop_rounds.store(stays ? m->stop_rounds.load(std::memory_order_relaxed) + 1 : 0,
                         std::memory_order_relaxed);
    return;
  }
  m->is_held.store(1, std::memory_order_seq_cst);  // [ST2] [ST4]
  if (stops_no_more.load(std::memory_order_seq_cst))
    m->is_held.store(0, std::memory_order_seq_cst);          // [ST4]
  while (m->is_held.load(std::memory_order_seq_cst) != 0) {  // [ST2]
    base::futex_wait(m->is_held, 1);
  }
}

// Whether the thread stays in a system call, somewhere in a library.
bool is_left_alone(const machine* m) noexcept {
  return m->stop_rounds.load(std::memory_order_relaxed) > same_place_max;
}

// Whether the machine cannot get into user code for now.
bool is_harmless(machine* m) noexcept {
  if (m->has_stopped.load(std::memory_order_acquire)) return true;          // [ST2]
  if (m->is_held.load(std::memory_order_seq_cst) != 0) return true;         // [ST2]
  if (m->is_paused.load(std::memory_order_acquire)) return false;           // [ST3]
  return is_left_alone(m) || m->is_asleep.load(std::memory_order_acquire);  // [ST1] [ST2]
}

void pause_a_moment() noexcept {
  const timespec pause{0, pause_ns};
  ::nanosleep(&pause, nullptr);
}

// Sends the signal to all machines that could still get into user code. Returns: whether there were
// none.
bool signal_rest() noexcept {
  bool none = true;
  for (const auto& slot : sched.machine_table) {
    machine* const m = slot.load(std::memory_order_acquire);  // [MT1]
    if (m == nullptr) break;
    if (m == exiting_machine || is_harmless(m)) continue;
    none = false;
    // A machine inside the runtime gets no signal: it is about to read `stopped` on its seat, or to
    // leave the runtime. The next round sees which.
    const pid_t thread = m->thread_id.load(std::memory_order_relaxed);
    if (!m->seat.inside_hint() && thread != 0) {
      ::syscall(SYS_tgkill, ::getpid(), thread, stop_signal);
    }
  }
  return none;
}

void stop_all(std::int64_t until_ns) noexcept {
  while (!signal_rest() && base::now_ns() < until_ns) pause_a_moment();
}

// Of the threads that the signal has stopped, lets the next `turn.width` go on.
void let_next_go() noexcept {
  for (std::uint32_t n = 0; n < turn.width;) {
    machine* const m = sched.machine_table[turn.at].load(std::memory_order_acquire);  // [MT1]
    if (m == nullptr) {  // all have had their turn
      turn = {.at = 0,
              .width = std::min(turn.width * 2, machines_max),
              .ticks = std::min(turn.ticks * 2, ticks_max)};
      return;
    }
    ++turn.at;
    if (m->is_held.exchange(0, std::memory_order_seq_cst) == 0) continue;  // [ST2]
    base::futex_wake(m->is_held, 1);
    ++n;
  }
}

// A part of on_tick().
void see_to_trial() noexcept {
  const std::uint32_t steps = trial_steps.load(std::memory_order_relaxed);
  const bool gets_on = std::exchange(seen_steps, steps) != steps;
  if (!gets_on) has_hung = true;
  if (!gets_on && turn.left != 0) {
    --turn.left;
    return;
  }
  turn.left = 0;
  // The next threads go on only when those before have stopped again: more would get in the way.
  if (!stops_no_more.load(std::memory_order_relaxed) && !signal_rest()) return;
  if (gets_on) return;
  let_next_go();
  turn.left = turn.ticks;
}

// Holds the locks of stdout and stderr while it lives, unless another thread holds one for long,
// asleep in a system call. They are taken in advance, because a thread that prints all the time
// would nearly always be stopped while it holds one.
class stdio_locks {
 public:
  stdio_locks() noexcept {
    if (is_libc_shared) return;  // then no thread is stopped inside stdio
    int tries = 0;
    for (held& h : files_) {
      while (!(h.locked = ::ftrylockfile(h.file) == 0) && ++tries < stdio_tries) pause_a_moment();
    }
  }
  stdio_locks(const stdio_locks&) = delete;
  stdio_locks& operator=(const stdio_locks&) = delete;
  ~stdio_locks() {
    for (const held& h : files_) {
      if (h.locked) ::funlockfile(h.file);
    }
  }

 private:
  struct held {
    std::FILE* file;
    bool locked = false;
  };
  held files_[2] = {{stdout}, {stderr}};
};

// While it lives, a timer calls on_tick() in the calling thread's signal handler.
class trial_timer {
 public:
  trial_timer() noexcept {
    ::sigemptyset(&signals_);
    ::sigaddset(&signals_, stop_signal);
    ::pthread_sigmask(SIG_UNBLOCK, &signals_, &before_);
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = stop_signal;
    event.sigev_value.sival_ptr = &trial_steps;
    event._sigev_un._tid = ::gettid();
    has_timer_ = ::syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &id_) == 0;
    if (has_timer_) arm();
  }
  // Arms the timer for one tick.
  static void arm() noexcept {
    if (id_ == no_timer) return;  // the signal came late
    const itimerspec once{{0, 0}, {0, tick_ns}};
    ::syscall(SYS_timer_settime, id_, 0, &once, nullptr);
  }
  trial_timer(const trial_timer&) = delete;
  trial_timer& operator=(const trial_timer&) = delete;
  ~trial_timer() {
    if (has_timer_) ::syscall(SYS_timer_delete, std::exchange(id_, no_timer));
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  explicit operator bool() const noexcept { return has_timer_; }

 private:
  static constexpr int no_timer = -1;
  static inline constinit int id_ = no_timer;
  bool has_timer_ = false;
  sigset_t signals_;
  sigset_t before_;
};

// Runs in the timer's handler, on the exiting thread, during a trial. (A thread that has lost its
// core makes no progress either, but then the tick comes late, too.) With hundreds of threads it
// may take longer than a tick; so the next tick begins when this one is over, and the trial gets on
// in between.
void on_tick() noexcept {
  const int saved = errno;
  see_to_trial();
  trial_timer::arm();
  errno = saved;
}

int note_nothing(dl_phdr_info*, std::size_t, void*) { return 1; }
void do_nothing() noexcept {}
void count_step() noexcept { trial_steps.fetch_add(1, std::memory_order_relaxed); }

// Takes and gives back the locks that destructors need, as far as there is a way to take them:
// those of the allocator, the loader, exceptions, exit itself and local times.
void try_locks() noexcept {
  constexpr std::size_t sizes = 13;  // up to 96 KiB
  constexpr std::size_t each = 8;
  static void* volatile memory[sizes][each];
  for (std::size_t i = 0; i < sizes; ++i) {
    for (void* volatile& m : memory[i]) {
      m = std::malloc(std::size_t{24} << i);
      count_step();
    }
  }
  for (auto& row : memory) {
    for (void* volatile& m : row) {
      std::free(m);
      count_step();
    }
  }
  try {
    memory[0][0] = ::operator new(100);
    ::operator delete(memory[0][0]);
    throw 0;
  } catch (...) {
  }
  count_step();
  ::dl_iterate_phdr(&note_nothing, nullptr);
  std::atexit(&do_nothing);
  count_step();
  if (!is_libc_shared) {
    (void)::mallinfo2();  // takes all locks of the allocator, one by one
    count_step();
    const std::time_t epoch = 0;
    std::tm local{};
    ::localtime_r(&epoch, &local);
  }
}

// Makes trials until one shows that the stopped threads hold no lock which the exiting thread
// needs, or until `until_ns`. Until `stopping_until_ns` it also stops threads that are not stopped
// yet.
void make_trials(std::int64_t stopping_until_ns, std::int64_t until_ns) noexcept {
  const trial_timer timer;
  if (!timer) return;  // a sandbox may forbid timers; without one a trial might hang for ever
  std::int64_t now = base::now_ns();
  for (bool done = false; !done && now < until_ns; now = base::now_ns()) {
    const bool is_enough = now >= stopping_until_ns;
    if (is_enough) stops_no_more.store(true, std::memory_order_seq_cst);  // [ST4]
    has_hung = false;
    turn.width = 1;
    count_step();
    // The handler uses `has_hung` and `turn`, too.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    done = is_enough || signal_rest();
    try_locks();
    std::atomic_signal_fence(std::memory_order_seq_cst);
    done = done && !has_hung;
  }
}

// Makes the machine or the monitor that sleeps in the poller leave it, so that it takes no events
// from the threads that go on.
void leave_poller(std::int64_t until_ns) noexcept {
  if (the_poller.is_attended()) {
    poke_monitor();
    base::interrupt_poller();
  }
  while (the_poller.is_attended() && base::now_ns() < until_ns) pause_a_moment();
}

}  // namespace

WEFT_NO_TSAN bool interrupts_libraries(std::uintptr_t pc) noexcept {
  for (std::size_t i = 0; i < untouchable_count; ++i) {
    if (pc >= untouchable[i].begin && pc < untouchable[i].end) return true;
  }
  return false;
}

void prepare_stop() noexcept { ::dl_iterate_phdr(&note_library, nullptr); }

void freeze_goroutines() noexcept {
  machine* const self = this_machine();
  if (self != nullptr) self->holds_lock.fetch_add(1, std::memory_order_relaxed);  // never paused
  sched.stopping.store(true, std::memory_order_seq_cst);                          // [ST1] [PR1]
  for (const auto& slot : sched.machine_table) {
    machine* const m = slot.load(std::memory_order_acquire);  // [MT1]
    if (m == nullptr) break;
    if (m != self) m->seat.stop();
  }
  base::heavy_barrier();  // [ST1]
  release_paused();       // paused threads may hold a lock that a report or a destructor needs
}

void stop_machines(int status) noexcept {
  machine* const self = this_machine();
  exiting_machine = self;
  freeze_goroutines();
  {
    const std::lock_guard hold(sched.lock);  // a retake() that has not seen `stopping` is over now
  }

  struct sigaction action{};
  action.sa_sigaction = &on_stop;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  ::sigfillset(&action.sa_mask);
  ::sigaction(stop_signal, &action, nullptr);
  const std::int64_t end = base::now_ns() + stopping_ns;
  const stdio_locks hold;
  stop_all(end);
  leave_poller(end);
  stop_all(end);
  make_trials(end + stopping_more_ns, end + trials_ns);
  // relaxed: only this thread changes it.
  if (!stops_no_more.load(std::memory_order_relaxed)) stop_all(base::now_ns() + last_ns);
  begin_exit(self, status);
}

}  // namespace weft::sched
