// child_process.hpp: runs one of the programs in tests/death and tells how it ended and what it
// wrote.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace weft::test {

struct child_options {
  std::vector<std::string> arguments = {};
  std::vector<std::pair<std::string, std::string>> environment = {};  // added to ours
  std::function<void()> before_exec = {};  // in the child; only what is safe after fork
  std::chrono::seconds patience{120};      // then it is killed
};

struct child_result {
  int status = -1;  // of exit; -1 if it did not exit
  int signal = 0;   // that killed it; 0 if none did
  bool timed_out = false;
  std::string output = {};
  std::string errors = {};

  bool says(const std::string& text) const { return errors.find(text) != std::string::npos; }
};

inline std::ostream& operator<<(std::ostream& out, const child_result& r) {
  return out << "status " << r.status << ", signal " << r.signal
             << (r.timed_out ? ", killed after its time was up" : "") << "\n--- stdout\n"
             << r.output << "--- stderr\n"
             << r.errors.substr(0, 10'000) << "---\n";
}

namespace child_process_parts {

inline std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

class pipe_ends {
 public:
  pipe_ends() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe");
  }
  pipe_ends(const pipe_ends&) = delete;
  pipe_ends& operator=(const pipe_ends&) = delete;
  ~pipe_ends() {
    close_end(0);
    close_end(1);
  }
  int reader() const { return ends_[0]; }
  int writer() const { return ends_[1]; }
  void close_writer() { close_end(1); }

  // Returns: false at the end of the stream.
  bool read_some(std::string& into) const {
    std::array<char, 4096> buffer;
    const ssize_t n = ::read(reader(), buffer.data(), buffer.size());
    if (n > 0) into.append(buffer.data(), static_cast<std::size_t>(n));
    return n > 0 || (n < 0 && errno == EINTR);
  }

 private:
  void close_end(std::size_t i) {
    if (ends_[i] >= 0) ::close(ends_[i]);
    ends_[i] = -1;
  }
  std::array<int, 2> ends_{-1, -1};
};

}  // namespace child_process_parts

// Runs WEFT_DEATH_DIR/<program>, under the emulator if there is one.
inline child_result run_program(const std::string& program, const child_options& options = {}) {
  std::vector<std::string> words = child_process_parts::words(WEFT_EMULATOR);
  words.emplace_back(WEFT_DEATH_DIR "/");
  words.back() += program;
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  std::vector<std::string> variables;
  for (char** v = environ; *v != nullptr; ++v) {
    if (std::string(*v).rfind("WEFT_", 0) != 0) variables.emplace_back(*v);
  }
  for (const auto& [name, value] : options.environment) variables.push_back(name + "=" + value);
  // Everything is built before the fork: the child of a threaded process may not allocate.
  std::vector<char*> argv;
  std::vector<char*> envp;
  for (std::string& w : words) argv.push_back(w.data());
  for (std::string& v : variables) envp.push_back(v.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);

  child_process_parts::pipe_ends out;
  child_process_parts::pipe_ends err;
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork");
  if (child == 0) {
    ::dup2(out.writer(), STDOUT_FILENO);
    ::dup2(err.writer(), STDERR_FILENO);
    if (options.before_exec) options.before_exec();
    ::execvpe(argv[0], argv.data(), envp.data());  // an emulator is looked up in PATH
    ::_exit(127);
  }
  out.close_writer();
  err.close_writer();

  child_result result;
  const auto deadline = std::chrono::steady_clock::now() + options.patience;
  std::array<pollfd, 2> ends{pollfd{out.reader(), POLLIN, 0}, pollfd{err.reader(), POLLIN, 0}};
  while (ends[0].fd >= 0 || ends[1].fd >= 0) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) {
      result.timed_out = true;
      ::kill(child, SIGKILL);
      break;
    }
    if (::poll(ends.data(), ends.size(), static_cast<int>(left.count())) < 0) continue;
    if (ends[0].revents != 0 && !out.read_some(result.output)) ends[0].fd = -1;
    if (ends[1].revents != 0 && !err.read_some(result.errors)) ends[1].fd = -1;
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) result.status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

}  // namespace weft::test
