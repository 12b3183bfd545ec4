// stress_jitter.hpp: stops machines in the middle of whatever they do.
//
// Most races need a thread that loses its core at one particular instruction, which the kernel does
// a few hundred times a second, and hardly ever there. This sends a signal to one machine after the
// other, some thousand times a second, whose handler sleeps for a while: to the runtime that looks
// as if the kernel had run somebody else, at any instruction, inside the runtime or outside it. It
// works and rests in turn, because some races need machines that run at full speed.
#pragma once

#include "base/random.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace weft::test {

class jitter {
 public:
  explicit jitter(base::random chance) {
    struct sigaction action{};
    action.sa_handler = &on_signal;
    action.sa_flags = SA_ONSTACK | SA_RESTART;
    ::sigaction(signal_number, &action, nullptr);
    thread_ = std::thread([this, chance] { shake(chance); });
  }
  jitter(const jitter&) = delete;
  jitter& operator=(const jitter&) = delete;
  ~jitter() {
    over_.store(true, std::memory_order_relaxed);
    thread_.join();
    // The handler stays: signals may still be on their way.
  }

 private:
  static constexpr int signal_number = SIGUSR1;
  static constexpr std::chrono::milliseconds period{150};
  static inline std::atomic<long> stop_ns_{0};  // relaxed: any value will do

  static void on_signal(int) {
    const int saved = errno;
    const timespec pause{0, stop_ns_.load(std::memory_order_relaxed)};
    ::nanosleep(&pause, nullptr);
    errno = saved;
  }

  void shake(base::random chance) {
    std::vector<pid_t> threads;
    const auto began = std::chrono::steady_clock::now();
    for (int turn = 0; !over_.load(std::memory_order_relaxed); ++turn) {
      if ((std::chrono::steady_clock::now() - began) / period % 2 == 0) {
        std::this_thread::sleep_for(period / 10);
        continue;
      }
      if (turn % 32 == 0) threads = machines();
      stop_ns_.store(static_cast<long>(chance.below(200'000)), std::memory_order_relaxed);
      if (!threads.empty()) {
        const auto which = chance.below(static_cast<std::uint32_t>(threads.size()));
        ::syscall(SYS_tgkill, ::getpid(), threads[which], signal_number);
      }
      if (chance.below(4) != 0) {
        std::this_thread::sleep_for(std::chrono::nanoseconds(chance.below(100'000)));
      }
    }
  }

  // Threads come and go: a stale number names no thread, or another thread of this process.
  static std::vector<pid_t> machines() {
    std::vector<pid_t> found;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name;
      std::ifstream(task.path() / "comm") >> name;
      if (name == "weft") found.push_back(std::stoi(task.path().filename()));
    }
    return found;
  }

  std::atomic<bool> over_{false};  // relaxed: nothing else is passed along
  std::thread thread_;
};

}  // namespace weft::test
