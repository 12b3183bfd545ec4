#include "base/kernel.hpp"

#include "base/fatal.hpp"

#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <sched.h>
#include <string_view>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

namespace weft::base {

bool kernel_at_least(int major, int minor) noexcept {
  utsname name{};
  if (::uname(&name) != 0) return false;
  char* rest = nullptr;
  const long has_major = std::strtol(name.release, &rest, 10);
  const long has_minor = *rest == '.' ? std::strtol(rest + 1, nullptr, 10) : 0;
  return has_major > major || (has_major == major && has_minor >= minor);
}

std::int64_t cpu_time_ns(pid_t thread) noexcept {
  // The kernel's numbering of per-thread clocks: the complement of the thread, and two bits each
  // for "per thread" and "as scheduled".
  const auto clock = static_cast<clockid_t>((~static_cast<unsigned>(thread) << 3) | 6u);
  timespec used{};
  if (::clock_gettime(clock, &used) != 0) return -1;
  return static_cast<std::int64_t>(used.tv_sec) * 1'000'000'000 + used.tv_nsec;
}

namespace {

// Reads a file of /proc/self/task/<thread>. Returns: its text, cut off where it does not fit.
template <std::size_t size>
std::string_view read_about(pid_t thread, const char* what, char (&line)[size]) noexcept {
  text path;
  path << "/proc/self/task/" << static_cast<int>(thread) << "/" << what;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  const ssize_t n = ::read(file, line, sizeof line - 1);
  ::close(file);
  if (n <= 0) return {};
  line[n] = '\0';
  return {line, static_cast<std::size_t>(n)};
}

}  // namespace

thread_activity activity_of(pid_t thread) noexcept {
  char line[256];
  const std::string_view stat = read_about(thread, "stat", line);
  // "id (name) state ...", where the name may contain anything.
  const std::size_t at = stat.rfind(')');
  if (at == stat.npos || at + 2 >= stat.size()) return thread_activity::unknown;
  switch (stat[at + 2]) {
    case 'S':
    case 'D':
      return thread_activity::sleeps;
    default:
      return thread_activity::runs;
  }
}

std::int64_t sleeps_of(pid_t thread) noexcept {
  constexpr std::string_view name = "\nvoluntary_ctxt_switches:";
  char lines[4096];
  const std::string_view status = read_about(thread, "status", lines);
  const std::size_t at = status.find(name);
  if (at == status.npos) return -1;
  return std::strtoll(status.data() + at + name.size(), nullptr, 10);
}

int system_call_of(pid_t thread) noexcept {
  char line[256];
  const std::string_view call = read_about(thread, "syscall", line);
  if (call.empty() || call.starts_with("running")) return -1;
  return static_cast<int>(std::strtol(line, nullptr, 10));
}

timely::timely() noexcept { ::prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); }
timely::~timely() { ::prctl(PR_SET_TIMERSLACK, 0, 0, 0, 0); }  // 0: the thread's own

constexpr std::uint64_t reset_on_fork = 1;

void ask_for_slice(pid_t thread, std::int64_t slice_ns, slice_for whom) noexcept {
  struct {
    std::uint32_t size;
    std::uint32_t policy;
    std::uint64_t flags;
    std::int32_t nice;
    std::uint32_t priority;
    std::uint64_t runtime;
    std::uint64_t deadline;
    std::uint64_t period;
    std::uint32_t util_min;
    std::uint32_t util_max;
  } attributes{};
  if (::syscall(SYS_sched_getattr, thread, &attributes, sizeof attributes, 0) != 0) return;
  // The program has set a policy of its own, or the next line would undo its policy in children.
  if (attributes.policy != SCHED_OTHER || attributes.nice < 0) return;
  if (whom == slice_for::itself) {
    attributes.flags |=
        reset_on_fork;  // threads and processes that this thread starts do not inherit it
  }
  attributes.runtime = static_cast<std::uint64_t>(slice_ns);
  ::syscall(SYS_sched_setattr, thread, &attributes, 0);  // refused by kernels before 6.12
}

}  // namespace weft::base
