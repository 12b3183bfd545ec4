// signal.cpp: signals turned into messages.
//
// The handler may run on any thread and interrupt any code, even the runtime. It only sets a flag
// and bumps a futex word, and keeps errno. A service thread wakes up, takes the lock and sends the
// signal to the channels that want it. The service is a thread and not a goroutine: so signals
// arrive even if all processors are busy, and the service is not counted among the program's
// goroutines.
//
// stop() promises that nothing is sent to the channel afterwards, and that no signal is lost. So it
// does this, in order: it clears `wanted`; it waits for the handlers that may not have seen that;
// it delivers what those handlers have recorded, itself, under the lock; and then it removes the
// channel. A handler that sees `wanted` cleared does what the signal did before weft caught it.
//
//     handler                         stop, under the lock
//     in_handlers += 1                wanted = false
//     wanted? record : as before      in_handlers == 0?
//     in_handlers -= 1                deliver what is recorded
//
// [SG1] is that pair: either the handler sees that the signal is not wanted, or stop sees the
// handler in in_handlers, waits for it, and then sees what it recorded. Both words are seq_cst.
//
// [SG2] The handler records a signal, then bumps the bell; the service reads the bell, then takes
// what is recorded, and sleeps only if the bell has not changed since. So no signal waits for the
// next one.
//
// The handler blocks all signals while it runs, so it is never paused (preempt.cpp). So stop()
// waits for a few instructions at most.
//
// Faults (SIGSEGV and similar signals) are never delivered, even if a channel wants the signal;
// signals of these numbers that a process has sent are. The preemption signal has a handler
// already, which passes on the signals that are not its own.
//
// Locks: `lock` of the registry; a weft::mutex, held for the time of a few sends that never wait.
#include "base/signal.hpp"
#include "base/futex.hpp"
#include "base/sanitizer.hpp"
#include "io/sigpipe.hpp"
#include "sched/machine_thread.hpp"
#include "sched/preempt.hpp"
#include "sched/scheduler.hpp"
#include "sched/simulation.hpp"
#include "sched/start.hpp"

#include <weft/go.hpp>
#include <weft/os.hpp>
#include <weft/sync.hpp>

#include <algorithm>
#include <atomic>
#include <bitset>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace weft::os {
namespace {

constexpr int signals_end = 65;  // the kernel's are 1 to 64
using signal_set = std::bitset<signals_end>;

constexpr std::size_t index(int s) noexcept { return static_cast<std::size_t>(s); }

// What a signal did before weft caught it.
struct disposition {
  std::atomic<void*> handler{nullptr};  // SIG_DFL, SIG_IGN, or either kind of function
  std::atomic<int> flags{0};
};

// Used by the handler: no constructor, no destructor. Numbers and not bools, because their atomics
// are inlined even into a function that is not instrumented.
struct signal_state {
  std::atomic<std::uint32_t> wanted{0};    // [SG1] 1: yes; written under the lock
  std::atomic<std::uint32_t> recorded{0};  // 1: the signal has come; the service takes it
  disposition previous;                    // written before the handler is installed
};
constinit signal_state states[signals_end];
constinit std::atomic<std::uint32_t> in_handlers{0};  // [SG1]
constinit std::atomic<std::uint32_t> bell{0};         // futex: bumped for each recorded signal

bool stops_process(int s) noexcept { return s == SIGTSTP || s == SIGTTIN || s == SIGTTOU; }
bool does_nothing(int s) noexcept {
  return s == SIGCHLD || s == SIGURG || s == SIGWINCH || s == SIGCONT;
}

// Does what the signal did before weft caught it. Called in a handler that has blocked all signals.
void act_as_before(int s, siginfo_t* info, void* ucontext) noexcept {
  // relaxed: written before this handler was installed.
  void* const handler = states[s].previous.handler.load(std::memory_order_relaxed);
  const int flags = states[s].previous.flags.load(std::memory_order_relaxed);
  if (handler == reinterpret_cast<void*>(SIG_IGN)) return;
  if (handler != reinterpret_cast<void*>(SIG_DFL)) {
    if ((flags & SA_SIGINFO) != 0) {
      reinterpret_cast<void (*)(int, siginfo_t*, void*)>(handler)(s, info, ucontext);
    } else {
      reinterpret_cast<void (*)(int)>(handler)(s);
    }
    return;
  }
  if (does_nothing(s)) return;
  if (stops_process(s)) {
    ::raise(SIGSTOP);
    return;
  }
  struct sigaction action{};
  action.sa_handler = SIG_DFL;
  ::sigaction(s, &action, nullptr);
  // A fault happens again by itself. Another signal is raised, and comes when this handler returns.
  if (!base::is_fault_signal(s) || info->si_code <= 0) ::raise(s);
}

// Not instrumented: ThreadSanitizer's own code may have been interrupted.
WEFT_NO_TSAN void on_signal(int s, siginfo_t* info, void* ucontext) {
  const int saved = errno;
  const bool is_fault = base::is_fault_signal(s) && info->si_code > 0;
  in_handlers.fetch_add(1, std::memory_order_seq_cst);  // [SG1]
  const bool is_wanted =
      !is_fault && states[s].wanted.load(std::memory_order_seq_cst) != 0;             // [SG1]
  if (is_wanted && states[s].recorded.exchange(1, std::memory_order_seq_cst) == 0) {  // [SG2]
    bell.fetch_add(1, std::memory_order_seq_cst);                                     // [SG2]
    base::futex_wake(bell, 1);
  }
  in_handlers.fetch_sub(1, std::memory_order_seq_cst);  // [SG1]
  if (!is_wanted) act_as_before(s, info, ucontext);     // which may never return
  errno = saved;
}

struct listener {
  chan<int> to;
  std::optional<cancel_function> cancel = {};  // set by notify_context, which has no channel
  std::uint64_t id = 0;                        // set by notify_context, too
  signal_set wants = {};
};

struct registry {
  mutex lock;  // of all that follows
  std::vector<listener> listeners;
  struct sigaction before[signals_end]{};  // of those that are wanted
  std::uint64_t next_id = 1;
  bool has_service = false;
};

// Never destroyed: signals may come until the process has ended.
registry& the_registry() {
  static registry* const r = new registry;
  return *r;
}

void cancel_with(const cancel_function& cancel, int s) {
  const std::exception_ptr cause = std::make_exception_ptr(signal_received(s));
  // cancel may call the user's code, which must not run on this thread.
  try {
    go([cancel, cause] { cancel(cause); });
  } catch (...) {
    cancel(cause);  // no goroutine can be started
  }
}

void deliver_locked(registry& r) {
  for (int s = 1; s < signals_end; ++s) {
    if (states[s].recorded.load(std::memory_order_relaxed) == 0) continue;
    if (states[s].recorded.exchange(0, std::memory_order_seq_cst) == 0) continue;  // [SG2]
    for (const listener& l : r.listeners) {
      if (!l.wants[index(s)]) continue;
      if (l.cancel) {
        cancel_with(*l.cancel, s);
      } else {
        (void)l.to.try_send(int{s});  // if the channel is full or closed the signal is lost
      }
    }
  }
}

void* serve(void*) {
  registry& r = the_registry();
  for (;;) {
    const std::uint32_t rung = bell.load(std::memory_order_seq_cst);  // [SG2]
    {
      // Not lock(): a service that sleeps in weft would be counted twice (deadlock.cpp).
      while (!r.lock.try_lock()) base::yield_thread();
      const std::lock_guard hold(r.lock, std::adopt_lock);
      deliver_locked(r);
    }
    base::futex_wait(bell, rung);
  }
}

void* handler_of(const struct sigaction& a) noexcept {
  return (a.sa_flags & SA_SIGINFO) != 0 ? reinterpret_cast<void*>(a.sa_sigaction)
                                        : reinterpret_cast<void*>(a.sa_handler);
}

// Catches a signal that no listener has wanted until now.
void catch_locked(registry& r, int s) {
  signal_state& state = states[s];
  state.wanted.store(1, std::memory_order_seq_cst);  // [SG1]
  if (sched::listen_to_preemption_signal(s, &on_signal)) return;
  struct sigaction before{};
  ::sigaction(s, nullptr, &before);
  // If the handler is ours already, the program had replaced it for a while and then restored it.
  // Then r.before is still right.
  if (handler_of(before) != reinterpret_cast<void*>(&on_signal)) {
    r.before[s] = before;
    state.previous.handler.store(handler_of(before), std::memory_order_relaxed);
    state.previous.flags.store(before.sa_flags, std::memory_order_relaxed);
  }
  (void)base::install_handler(s, &on_signal, nullptr);  // cannot fail: checked() has run
}

// Stops catching a signal that no listener wants any more. Requires: no handler is about to record
// it.
void release_locked(registry& r, int s) {
  if (sched::listen_to_preemption_signal(s, nullptr)) return;
  struct sigaction now{};
  ::sigaction(s, nullptr, &now);
  if (handler_of(now) != reinterpret_cast<void*>(&on_signal)) return;  // not ours any more
  ::sigaction(s, &r.before[s], nullptr);
}

signal_set wanted_locked(const registry& r) {
  signal_set all;
  for (const listener& l : r.listeners) all |= l.wants;
  return all;
}

// Requires: `l` is in the list, or an end of it.
void remove_locked(registry& r, std::vector<listener>::iterator l) {
  if (l == r.listeners.end()) return;
  const signal_set mine = std::exchange(l->wants, {});
  const signal_set gone = mine & ~wanted_locked(r);
  l->wants = mine;
  for (int s = 1; s < signals_end; ++s) {
    if (gone[index(s)]) states[s].wanted.store(0, std::memory_order_seq_cst);  // [SG1]
  }
  while (in_handlers.load(std::memory_order_seq_cst) != 0) this_goroutine::yield();  // [SG1]
  deliver_locked(r);
  r.listeners.erase(l);
  for (int s = 1; s < signals_end; ++s) {
    if (gone[index(s)]) release_locked(r, s);
  }
}

void add_locked(registry& r, listener& l, const signal_set& more) {
  const signal_set fresh = more & ~wanted_locked(r);
  l.wants |= more;
  for (int s = 1; s < signals_end; ++s) {
    if (fresh[index(s)]) catch_locked(r, s);
  }
}

// Throws: std::invalid_argument.
signal_set checked(std::initializer_list<int> signals) {
  signal_set set;
  for (const int s : signals) {
    struct sigaction unused{};
    // The C library reserves 32 and 33, and sigaction refuses them.
    if (s < 1 || s >= signals_end || s == SIGKILL || s == SIGSTOP ||
        ::sigaction(s, nullptr, &unused) != 0) {
      throw std::invalid_argument("weft::os::notify: " + std::to_string(s) +
                                  " is not a signal that can be caught");
    }
    set.set(index(s));
  }
  if (signals.size() != 0) return set;
  for (int s = 1; s < signals_end; ++s) {
    struct sigaction action{};
    if (s == SIGKILL || s == SIGSTOP || s == SIGABRT || base::is_fault_signal(s)) continue;
    if (::sigaction(s, nullptr, &action) != 0 || sched::is_preemption_signal(s)) continue;
    set.set(index(s));
  }
  return set;
}

void prepare_locked(registry& r) {
  if (r.has_service) return;
  if (const int error = sched::start_service("weft-signals", &serve)) {
    throw std::system_error(error, std::generic_category(), "weft::os::notify");
  }
  r.has_service = true;
}

std::string name_of(int s) {
  const char* const name = ::sigdescr_np(s);
  return name != nullptr ? name : "signal " + std::to_string(s);
}

// Signals come from outside, and nothing from outside may enter a simulation.
void require_outside(const char* what) {
  if (sched::this_simulation() == nullptr) return;
  throw std::logic_error(std::string(what) +
                         ": no signals come into bubble() or explore() (weft/test.hpp)");
}

}  // namespace

void notify(chan<int> c, std::initializer_list<int> signals) {
  require_outside("weft::os::notify");
  if (!c) throw std::invalid_argument("weft::os::notify: the channel is nil");
  c.core()->require_home();
  sched::ensure_started();  // its handlers are what comes back after stop()
  io::ignore_sigpipe();     // the same
  const signal_set set = checked(signals);
  registry& r = the_registry();
  const std::lock_guard hold(r.lock);
  prepare_locked(r);
  auto l = std::ranges::find_if(r.listeners, [&](const listener& x) { return x.to == c; });
  if (l == r.listeners.end()) l = r.listeners.insert(l, listener{.to = std::move(c)});
  add_locked(r, *l, set);
}

void stop(const chan<int>& c) {
  if (!c) return;
  registry& r = the_registry();
  const std::lock_guard hold(r.lock);
  remove_locked(r, std::ranges::find_if(r.listeners, [&](const listener& l) { return l.to == c; }));
}

signal_received::signal_received(int signal)
    : std::system_error(errc::canceled, name_of(signal) + ": signal received"), signal_(signal) {}

signal_context notify_context(const context& parent, std::initializer_list<int> signals) {
  require_outside("weft::os::notify_context");
  auto [ctx, cancel] = with_cancel(parent);
  sched::ensure_started();
  io::ignore_sigpipe();
  const signal_set set = checked(signals);
  registry& r = the_registry();
  const std::lock_guard hold(r.lock);
  prepare_locked(r);
  const std::uint64_t id = r.next_id++;
  r.listeners.push_back({.to = nullptr, .cancel = cancel, .id = id, .wants = {}});
  add_locked(r, r.listeners.back(), set);
  return {std::move(ctx), stop_function(id, std::move(cancel))};
}

void stop_function::operator()() const {
  {
    registry& r = the_registry();
    const std::lock_guard hold(r.lock);
    remove_locked(r, std::ranges::find_if(r.listeners, [&](const listener& l) {
                    return l.cancel.has_value() && l.id == id_;
                  }));
  }
  cancel_();
}

}  // namespace weft::os
