// server_process.hpp: a server that a test starts for itself and that does not outlive it.
//
// The server lives in a directory of its own, which goes with it; its clients find its socket
// there. It stops in the destructor, so also when the test fails; if the test itself is killed,
// the kernel tells the server (PR_SET_PDEATHSIG), which is why it must be started by a thread that
// stays: the main one. What it writes is kept by a thread that reads it all the time, because a
// server whose pipe is full stands still, and is printed when something went wrong.
#pragma once

#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child_process.hpp"
#include "temporary_directory.hpp"

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace weft::test {

// Whom a server runs as.
struct account {
  uid_t user;
  gid_t group;

  // Returns: the first of the accounts that exists if we are root, whom some servers refuse to
  // serve; else nothing, which is ourselves.
  static std::optional<account> instead_of_root(const std::vector<std::string>& names) {
    if (::geteuid() != 0) return std::nullopt;
    for (const std::string& name : names) {
      if (const passwd* const entry = ::getpwnam(name.c_str())) {
        return account{entry->pw_uid, entry->pw_gid};
      }
    }
    return std::nullopt;
  }
};

// A directory that a server of that account may use.
class server_directory : public temporary_directory {
 public:
  explicit server_directory(const std::optional<account>& owner) {
    if (owner && ::chown(path().c_str(), owner->user, owner->group) != 0) {
      throw std::runtime_error("chown " + path().string());
    }
  }
};

struct server_options {
  std::string program;                 // where it is
  std::vector<std::string> arguments;  // with its name as the first
  std::filesystem::path directory;     // it starts there
  std::optional<account> run_as = std::nullopt;
  int stop_signal = SIGTERM;
};

class server_process {
 public:
  explicit server_process(server_options options) : options_(std::move(options)) {
    // Everything is built before the fork: the child of a threaded process may not allocate.
    std::vector<char*> argv;
    for (std::string& a : options_.arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    std::vector<std::string> variables;
    for (char** v = environ; *v != nullptr; ++v) {
      // Its messages are read, so they must be in the language we know.
      const std::string variable = *v;
      if (!variable.starts_with("LC_") && !variable.starts_with("LANG")) {
        variables.push_back(variable);
      }
    }
    variables.emplace_back("LC_ALL=C");
    std::vector<char*> envp;
    for (std::string& v : variables) envp.push_back(v.data());
    envp.push_back(nullptr);

    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("fork");
    if (pid_ == 0) become_server(parent, argv.data(), envp.data());
    said_.close_writer();
    reader_ = std::thread([this] { listen(); });
  }
  server_process(const server_process&) = delete;
  server_process& operator=(const server_process&) = delete;
  ~server_process() {
    stop();
    reader_.join();
  }

  // Waits until the server has written `text`.
  // Returns: false if it ended without or took too long.
  bool until_it_says(const std::string& text,
                     std::chrono::seconds patience = std::chrono::seconds(60)) {
    std::unique_lock hold(mutex_);
    changed_.wait_for(hold, patience,
                      [&] { return silent_ || log_.find(text) != std::string::npos; });
    return log_.find(text) != std::string::npos;
  }

  // Waits until it has ended by itself. Returns: its exit status, or -1 if it was killed, also by
  // us because it took too long.
  int until_it_ends(std::chrono::seconds patience) {
    if (!await_end(patience)) kill_it(SIGKILL);
    return reap();
  }

  // What it has written so far.
  std::string log() {
    const std::lock_guard hold(mutex_);
    return log_;
  }

 private:
  [[noreturn]] void become_server(pid_t parent, char** argv, char** envp) {
    ::dup2(said_.writer(), STDOUT_FILENO);
    ::dup2(said_.writer(), STDERR_FILENO);
    if (const auto& who = options_.run_as) {
      if (::setgroups(0, nullptr) != 0 || ::setgid(who->group) != 0 || ::setuid(who->user) != 0) {
        ::_exit(126);
      }
    }
    // After setuid, which clears it. The test may have died before this line.
    ::prctl(PR_SET_PDEATHSIG, options_.stop_signal);
    if (::getppid() != parent) ::_exit(126);
    if (::chdir(options_.directory.c_str()) != 0) ::_exit(126);
    ::execve(options_.program.c_str(), argv, envp);
    ::_exit(127);
  }

  void listen() {
    for (std::string some; said_.read_some(some); some.clear()) {
      const std::lock_guard hold(mutex_);
      log_ += some;
      changed_.notify_all();
    }
    const std::lock_guard hold(mutex_);
    silent_ = true;
    changed_.notify_all();
  }

  void stop() {
    if (pid_ < 0) return;
    kill_it(options_.stop_signal);
    if (!await_end(std::chrono::seconds(20))) kill_it(SIGKILL);
    reap();
  }

  void kill_it(int signal) const {
    ::kill(pid_, signal);
  }  // not reaped yet: it is still its number

  bool await_end(std::chrono::milliseconds patience) const {
    // glibc 2.36 is the first to have a function for it.
    const int fd = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
    if (fd < 0) throw std::runtime_error("pidfd_open");
    pollfd end{fd, POLLIN, 0};
    const auto deadline = std::chrono::steady_clock::now() + patience;
    int n = 0;
    do {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      n = left.count() <= 0 ? 0 : ::poll(&end, 1, static_cast<int>(left.count()));
    } while (n < 0 && errno == EINTR);
    ::close(fd);
    return n > 0;
  }

  int reap() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  server_options options_;
  child_process_parts::pipe_ends said_;
  pid_t pid_ = -1;  // -1: it has been reaped
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string log_;      // guarded by mutex_
  bool silent_ = false;  // guarded by mutex_; it will say nothing more
  std::thread reader_;
};

}  // namespace weft::test
