// stress_dump.hpp: everything the scheduler knows, on stderr, for a process that hangs.
//
// It takes the scheduler's lock if it can be had and reads on without it if not: a report with a
// torn line is worth more than none. What each thread does is asked of the thread itself, by a
// signal whose handler leaves its stack behind.
#pragma once

#include "base/backtrace.hpp"
#include "base/clock.hpp"
#include "base/fatal.hpp"
#include "base/symbolize.hpp"
#include "sched/scheduler.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

namespace weft::test {

// What a thread that was asked leaves behind.
struct thread_stack {
  static constexpr std::size_t frames_max = 64;
  void* pcs[frames_max] = {};
  std::size_t size = 0;
  std::atomic<bool> ready{false};  // [TD1] the thread's release -> the asker's acquire: the frames
};

class scheduler_dump {
 public:
  static void print() {
    base::write_stderr("\n==== the scheduler ====\n");
    const bool locked = lock();
    if (!locked) base::write_stderr("(the scheduler's lock cannot be had)\n");
    print_counts();
    print_processors();
    print_lists();
    print_machines();
    if (locked) sched::the_scheduler.lock.unlock();
    print_goroutines();
    print_threads();
  }

 private:
  static constexpr std::size_t frames_max = thread_stack::frames_max;
  static constexpr std::size_t goroutines_shown = 40;
  static constexpr int stack_signal = SIGUSR2;

  using text = base::text;

  static bool lock() {
    for (int turn = 0; turn < 1000; ++turn) {
      if (sched::the_scheduler.lock.try_lock()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  static text& put(text& out, const sched::processor* p) {
    if (p == nullptr) return out << "-";
    return out << "P" << p->index;
  }
  // Machines are named by their thread.
  static text& put(text& out, const sched::machine* m) {
    if (m == nullptr) return out << "-";
    return out << "M" << static_cast<int>(m->thread_id);
  }
  static text& put(text& out, const sched::goroutine* g) {
    if (g == nullptr) return out << "-";
    return out << "G" << g->id;
  }

  static std::string_view name(sched::processor::idleness how) {
    switch (how) {
      case sched::processor::idleness::busy:
        return "busy";
      case sched::processor::idleness::listening:
        return "listening";
      case sched::processor::idleness::dozing:
        return "dozing";
      case sched::processor::idleness::numb:
        return "numb";
    }
    return "?";
  }

  static std::string_view name(sched::state s) {
    switch (s) {
      case sched::state::unused:
        return "unused";
      case sched::state::runnable:
        return "runnable";
      case sched::state::running:
        return "running";
      case sched::state::waiting:
        return "waiting";
      case sched::state::blocking:
        return "blocking";
      case sched::state::preempted:
        return "preempted";
    }
    return "?";
  }

  static void put_due(text& line, std::int64_t when_ns) {
    if (when_ns == base::never) {
      line << "never";
    } else {
      line << "in " << (when_ns - base::now_ns()) / 1000 << " us";
    }
  }

  static void print_counts() {
    const sched::scheduler& s = sched::the_scheduler;
    text line;
    line << "max_procs " << s.procs.load(std::memory_order_relaxed) << ", made "
         << s.procs_made.load(std::memory_order_relaxed) << "; searching "
         << s.idle.searching_hint() << ", listening " << s.idle.listening_hint() << ", idle "
         << s.idle_count.load(std::memory_order_relaxed);
    for (const auto& [name, which] : {std::pair{"woken", sched::global_queue::from::woken},
                                      {"shared", sched::global_queue::from::shared},
                                      {"overflow", sched::global_queue::from::overflow}}) {
      line << "; " << name << " " << static_cast<std::uint64_t>(s.global.size_hint(which));
    }
    line << "; machines " << s.machines << ", spare " << s.spare.size() << "; keeper ";
    put(line, s.keeper) << " until ";
    put_due(line, s.keeper_until_ns);
    line << "\n";
    base::write_stderr(line.view());
  }

  static void print_processors() {
    const sched::scheduler& s = sched::the_scheduler;
    const std::uint32_t made = s.procs_made.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < made; ++i) {
      const sched::processor* const p = s.processors[i].load(std::memory_order_relaxed);
      text line;
      put(line, p) << ": holder ";
      put(line, p->holder.load(std::memory_order_relaxed))
          << ", " << name(p->idle)
          << (p->retiring.load(std::memory_order_relaxed) ? ", retiring" : "")
          << (p->retired ? ", retired" : "") << "; next ";
      put(line, p->next.load(std::memory_order_relaxed))
          << ", ready " << p->ready.look_hint().size() << ", fresh " << p->fresh.look_hint().size()
          << ", picks " << p->picks.load(std::memory_order_relaxed) << "; first timer ";
      put_due(line, p->timers.earliest_hint());
      line << "\n";
      base::write_stderr(line.view());
    }
  }

  static void print_lists() {
    const sched::scheduler& s = sched::the_scheduler;
    text line;
    line << "idle list:";
    int left = 2000;  // a broken list may be a circle
    for (const sched::processor* p = s.idle_processors.front(); p != nullptr && --left > 0;
         p = sched::idle_processor_list::after(p)) {
      put(line << " ", p);
    }
    line << "\nstarting:";
    for (const sched::processor* p = s.starting.front(); p != nullptr && --left > 0;
         p = sched::idle_processor_list::after(p)) {
      put(line << " ", p);
    }
    line << "\nspare list:";
    for (const sched::machine* m = s.spare.front(); m != nullptr && --left > 0;
         m = sched::machine_list::after(m)) {
      put(line << " ", m);
    }
    line << "\n";
    base::write_stderr(line.view());
  }

  static void print_machines() {
    for (const auto& slot : sched::the_scheduler.machine_table) {
      const sched::machine* const m = slot.load(std::memory_order_acquire);
      if (m == nullptr) break;
      if (!m->is_live) continue;
      text line;
      put(line, m) << ": ";
      put(line, m->p) << ", runs ";
      put(line, m->g) << ", " << (m->seat.inside_hint() ? "inside" : "outside")
                      << (m->searching ? ", searching" : "") << (m->is_spare ? ", spare" : "")
                      << ", errand " << static_cast<int>(m->task) << ", granted ";
      put(line, m->granted) << ", last ";
      put(line, m->last_p) << "\n";
      base::write_stderr(line.view());
    }
  }

  static void print_goroutines() {
    std::size_t counts[7] = {};
    std::size_t shown = 0;
    sched::the_scheduler.records.for_each([&](const sched::goroutine& g) {
      const sched::state s = g.get_status();
      ++counts[static_cast<std::size_t>(s)];
      if (s == sched::state::unused || ++shown > goroutines_shown) return;
      text line;
      put(line, &g) << " [" << name(s) << ", "
                    << weft::detail::to_string(g.reason.load(std::memory_order_relaxed))
                    << "], mode " << static_cast<int>(g.how) << ", busy "
                    << g.context.busy.load(std::memory_order_relaxed) << ", bound to ";
      put(line, g.bound) << "\n";
      base::write_stderr(line.view());
      if (s == sched::state::waiting && g.stack != nullptr) {
        void* pcs[frames_max];
        const base::saved_frame at{g.context.pc, g.context.sp, g.context.fp};
        print_frames(pcs, base::capture_from(at, pcs, frames_max));
      }
    });
    text line;
    line << "goroutines by state:";
    for (std::size_t i = 1; i < std::size(counts); ++i) {
      line << " " << name(static_cast<sched::state>(i)) << " "
           << static_cast<std::uint64_t>(counts[i]);
    }
    line << "\n";
    base::write_stderr(line.view());
  }

  // Unlike print_stack this leaves nothing out: the runtime is what is looked at.
  static void print_frames(void* const* pcs, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      base::symbolize(
          pcs[i],
          [](void*, const base::frame& f) {
            text line;
            line << "      " << (f.function != nullptr ? f.function : "?") << " "
                 << (f.file != nullptr ? f.file : "") << ":" << f.line << "\n";
            base::write_stderr(line.view());
          },
          nullptr);
    }
  }

  static inline thread_stack asked_;

  static void on_stack_signal(int, siginfo_t*, void* ucontext) {
    const int saved = errno;
    asked_.size = base::capture_interrupted(ucontext, asked_.pcs, frames_max);
    asked_.ready.store(true, std::memory_order_release);  // [TD1]
    errno = saved;
  }

  static void print_threads() {
    base::prepare_backtrace();
    struct sigaction action{};
    action.sa_sigaction = &on_stack_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    ::sigaction(stack_signal, &action, nullptr);
    DIR* const tasks = ::opendir("/proc/self/task");
    if (tasks == nullptr) return;
    while (const dirent* const entry = ::readdir(tasks)) {
      const int id = std::atoi(entry->d_name);
      if (id == 0 || id == ::gettid()) continue;
      text line;
      line << "thread " << id << " " << first_line(id, "comm") << ", in " << first_line(id, "wchan")
           << ", system call " << first_line(id, "syscall") << "\n";
      base::write_stderr(line.view());
      asked_.ready.store(false, std::memory_order_relaxed);
      ::syscall(SYS_tgkill, ::getpid(), id, stack_signal);
      for (int turn = 0; turn < 100 && !asked_.ready.load(std::memory_order_acquire); ++turn) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      // The runtime's service threads block every signal.
      if (asked_.ready.load(std::memory_order_acquire)) print_frames(asked_.pcs, asked_.size);
    }
    ::closedir(tasks);
  }

  static std::string first_line(int thread, const char* file) {
    const std::string path = "/proc/self/task/" + std::to_string(thread) + "/" + file;
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return "?";
    char buffer[128];
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    ::close(fd);
    const std::string_view all(buffer, n > 0 ? static_cast<std::size_t>(n) : 0);
    return std::string(all.substr(0, all.find('\n')));
  }
};

}  // namespace weft::test
