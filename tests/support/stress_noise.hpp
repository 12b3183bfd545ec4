// stress_noise.hpp: how late this machine is anyway, so that a test can tell a wake-up that was
// lost, and found again by chance a second later, from a machine that was busy with others.
//
// A thread sleeps for 2 ms again and again and notes by how much it overslept.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace weft::test {

class noise_meter {
 public:
  using duration = std::chrono::steady_clock::duration;

  noise_meter() : thread_([this] { listen(); }) {}
  noise_meter(const noise_meter&) = delete;
  noise_meter& operator=(const noise_meter&) = delete;
  ~noise_meter() {
    over_.store(true, std::memory_order_relaxed);
    thread_.join();
  }

  // Returns: by how much the thread has overslept in the worst moment so far.
  duration worst() const {
    return duration(worst_.load(std::memory_order_relaxed));  // a statistic
  }

  // Returns: how long something may take that needs no time, in the worst moment so far.
  duration allowance() const { return std::chrono::milliseconds(400) + 10 * worst(); }

 private:
  void listen() {
    using clock = std::chrono::steady_clock;
    constexpr std::chrono::milliseconds nap{2};
    while (!over_.load(std::memory_order_relaxed)) {
      const auto begin = clock::now();
      std::this_thread::sleep_for(nap);
      const duration late = clock::now() - begin - nap;
      if (late.count() > worst_.load(std::memory_order_relaxed)) {
        worst_.store(late.count(), std::memory_order_relaxed);
      }
    }
  }

  std::atomic<bool> over_{false};        // relaxed: nothing else is passed along
  std::atomic<duration::rep> worst_{0};  // written by the thread only
  std::thread thread_;
};

}  // namespace weft::test
