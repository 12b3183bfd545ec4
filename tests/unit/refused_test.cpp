// refused_test.cpp: a bit of everything while a sandbox refuses one of the system calls that the
// runtime makes, from the start or later (death/refused_call.cpp). All goes well without it, or who
// cannot do without gets an error, or the process ends and says why.
#include "base/sanitizer.hpp"
#include "child_process.hpp"
#include "temporary_directory.hpp"

#include <gtest/gtest.h>

#include <sys/syscall.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using weft::test::child_result;
using weft::test::run_program;
using weft::test::temporary_directory;

struct row {
  const char* name;
  long number;
  std::string_view may_fail = "";  // parts that cannot do without, and say so
  bool may_end = false;            // the process itself cannot, and says so
};

constexpr std::string_view everything =
    "start goroutines channels time hogs blocking net packets names signals files copies threads";
// Not here: what the C library itself breaks without (brk, rt_sigreturn, exit), and what a program
// cannot do its own work without (write, close).
constexpr row rows[] = {
    // What makes things faster.
    {"io_uring_setup", SYS_io_uring_setup},
    {"io_uring_enter", SYS_io_uring_enter},
    {"io_uring_register", SYS_io_uring_register},
    {"preadv2", SYS_preadv2},
    {"epoll_pwait2", SYS_epoll_pwait2},
#ifdef SYS_epoll_wait
    {"epoll_wait", SYS_epoll_wait},
#endif
    {"copy_file_range", SYS_copy_file_range},
    {"sendfile", SYS_sendfile},
    {"splice", SYS_splice},
    {"sched_getattr", SYS_sched_getattr},
    {"sched_setattr", SYS_sched_setattr},
    {"sched_getaffinity", SYS_sched_getaffinity},
    {"sched_yield", SYS_sched_yield},
    {"madvise", SYS_madvise},
    {"process_madvise", SYS_process_madvise},
    {"mremap", SYS_mremap},
    {"munmap", SYS_munmap},
    {"prctl", SYS_prctl},
    {"prlimit64", SYS_prlimit64},
    {"getrandom", SYS_getrandom},
    {"uname", SYS_uname},
    {"setsockopt", SYS_setsockopt},
    {"getsockopt", SYS_getsockopt, "net packets names copies"},
    {"clock_gettime", SYS_clock_gettime},
    {"clock_nanosleep", SYS_clock_nanosleep},
    {"pidfd_open", SYS_pidfd_open},
    {"getdents64", SYS_getdents64},
    {"gettid", SYS_gettid, "signals"},
    {"getpid", SYS_getpid, "signals"},
    {"set_robust_list", SYS_set_robust_list},
    {"rseq", SYS_rseq, "", true},
    // What stops hogs.
    {"timer_create", SYS_timer_create},
    {"timer_settime", SYS_timer_settime},
    {"timer_delete", SYS_timer_delete},
    {"tgkill", SYS_tgkill, "signals"},
    {"rt_sigaction", SYS_rt_sigaction, "signals"},
    {"rt_sigprocmask", SYS_rt_sigprocmask, "signals"},
    {"sigaltstack", SYS_sigaltstack},
    // What the network and files are made of.
    {"epoll_create1", SYS_epoll_create1, "net packets names files copies"},
    {"epoll_ctl", SYS_epoll_ctl, "net packets names files copies"},
    {"eventfd2", SYS_eventfd2, "net packets names files copies"},
    {"socket", SYS_socket, "net packets copies"},
    {"bind", SYS_bind, "net packets copies"},
    {"listen", SYS_listen, "net packets copies"},
    {"connect", SYS_connect, "net packets copies"},
    {"accept4", SYS_accept4, "net packets copies"},
    {"getsockname", SYS_getsockname, "net packets copies"},
    {"getpeername", SYS_getpeername, "net packets copies"},
    {"sendto", SYS_sendto, "net packets copies"},
    {"recvfrom", SYS_recvfrom, "net packets copies"},
    {"sendmsg", SYS_sendmsg, "packets"},
    {"recvmsg", SYS_recvmsg, "packets"},
    {"shutdown", SYS_shutdown, "copies"},
    {"openat", SYS_openat, "files copies names"},
    {"newfstatat", SYS_newfstatat, "files copies"},
    {"fcntl", SYS_fcntl, "files copies"},
    {"read", SYS_read, "files copies names"},
    {"pread64", SYS_pread64, "files copies"},
    {"pwrite64", SYS_pwrite64, "files"},
    {"lseek", SYS_lseek, "copies"},
    {"ftruncate", SYS_ftruncate, "copies"},
#ifdef SYS_unlink
    {"unlink", SYS_unlink, "net"},  // the name of a socket stays
#endif
    {"fsync", SYS_fsync, "files"},
    {"pipe2", SYS_pipe2, "files"},
#ifdef SYS_poll
    {"poll", SYS_poll, "files"},
#else
    {"ppoll", SYS_ppoll, "files"},
#endif
    // What threads and memory are made of.
    {"clone3", SYS_clone3, "start threads"},
    {"mprotect", SYS_mprotect, "start"},
    {"mmap", SYS_mmap, everything, true},
    {"membarrier", SYS_membarrier, "", true},
    {"futex", SYS_futex, "", true},
};

// Ours, or the C library's.
bool has_ended_with_words(const child_result& r) {
  if (r.signal == SIGABRT) {
    return r.says("Fatal glibc error: ") || r.says("The futex facility returned an unexpected");
  }
  return r.status == 2 && (r.says("weft: fatal: ") || r.says("weft: an exception left goroutine"));
}

// What the parts that failed are called.
std::vector<std::string> failed_parts(const child_result& r) {
  std::vector<std::string> parts;
  std::istringstream in(r.output);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("after ")) continue;
    parts.push_back(line.substr(6, line.find(':') - 6));
  }
  return parts;
}

class refused : public testing::Test {
 protected:
  void expect_endured(const row& call, int error, const char* when) {
    const std::string trace = std::string(call.name) + ", " +
                              (error == EPERM ? "EPERM" : "ENOSYS") + ", from the " + when;
    SCOPED_TRACE(trace);
    const child_result r = run_program(
        "refused_call",
        {.arguments = {std::to_string(call.number), std::to_string(error), when, folder_ / trace},
         .patience = 60s});
    if (r.status == 77) {
      is_there_ = false;
      return;
    }
    if (call.may_end && has_ended_with_words(r)) return;
    EXPECT_EQ(r.status, 0) << r;
    for (const std::string& part : failed_parts(r)) {
      EXPECT_NE(call.may_fail.find(part), call.may_fail.npos) << r;
    }
  }

  const temporary_directory folder_;
  std::atomic<bool> is_there_{true};
};

TEST_F(refused, one_call_at_a_time) {
  if (sizeof(WEFT_EMULATOR) > 1) GTEST_SKIP() << "a filter sees the emulator's system calls";
  if (WEFT_ASAN || WEFT_TSAN) GTEST_SKIP() << "sanitizers cannot do without these calls themselves";
  // Most of the time they sleep.
  constexpr std::size_t at_a_time = 8;
  std::vector<std::jthread> threads;
  std::atomic<std::size_t> next{0};
  for (std::size_t i = 0; i < at_a_time; ++i) {
    threads.emplace_back([&] {
      for (std::size_t n = next++; n < std::size(rows) * 4 && is_there_; n = next++) {
        expect_endured(rows[n / 4], n % 2 == 0 ? ENOSYS : EPERM, n % 4 < 2 ? "start" : "later");
      }
    });
  }
  threads.clear();
  if (!is_there_) GTEST_SKIP() << "no filter can be installed here";
}

// It would hang, or spin: nobody would be woken any more.
TEST_F(refused, without_any_way_to_wait_for_events_the_process_ends) {
  if (sizeof(WEFT_EMULATOR) > 1) GTEST_SKIP() << "a filter sees the emulator's system calls";
  std::string calls = std::to_string(SYS_epoll_pwait) + "," + std::to_string(SYS_epoll_pwait2);
#ifdef SYS_epoll_wait
  calls += "," + std::to_string(SYS_epoll_wait);
#endif
  for (const int error : {ENOSYS, EPERM}) {
    const child_result r = run_program(
        "refused_call",
        {.arguments = {calls, std::to_string(error), "later", folder_ / "f"}, .patience = 20s});
    if (r.status == 77) GTEST_SKIP() << "no filter can be installed here";
    EXPECT_EQ(r.status, 2) << r;
    EXPECT_TRUE(r.says("weft: fatal: the kernel refuses epoll_wait")) << r;
  }
}

}  // namespace
