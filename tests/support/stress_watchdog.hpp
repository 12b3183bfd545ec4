// stress_watchdog.hpp: turns a hang into a report. A stress test that is not over after its time
// prints what the scheduler knows (stress_dump.hpp) and the line that replays it, and aborts.
#pragma once

#include "base/fatal.hpp"
#include "stress_dump.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace weft::test {

class watchdog {
 public:
  // `replay` is printed with the report.
  watchdog(std::chrono::seconds limit, std::string replay)
      : replay_(std::move(replay)), thread_([this, limit] { watch(limit); }) {}
  watchdog(const watchdog&) = delete;
  watchdog& operator=(const watchdog&) = delete;

  ~watchdog() {
    {
      const std::lock_guard hold(mutex_);
      over_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

 private:
  void watch(std::chrono::seconds limit) {
    std::unique_lock hold(mutex_);
    if (changed_.wait_for(hold, limit, [this] { return over_; })) return;
    base::write_stderr("\nthe test hangs; to replay it:\n" + replay_ + "\n");
    scheduler_dump::print();
    std::abort();
  }

  const std::string replay_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace weft::test
