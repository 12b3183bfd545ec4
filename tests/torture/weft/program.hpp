// The program that runs: its end, its groups, and what is known of it when it is over.
//
// The end. A program lasts until its deadline and until its finite groups (those with rounds) are
// done, but not beyond the cap. Each goroutine asks over() between two rounds, and a goroutine that
// waits for a partner is released by that partner. So after a lost wake-up the program does not
// end, and the watch ends the process.
//
// Metering. A wait is counted when it ends, also after the deadline. So a goroutine that never ran
// before the deadline counts, too, with a wait since its start.
#pragma once

#include "clock.hpp"
#include "meter.hpp"
#include "table.hpp"

#include <weft/go.hpp>
#include <weft/sync.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace torture {

class program;

// Whether the program waits for a goroutine of a finite group, or only for its partner.
enum class counted : std::uint8_t { no, yes };

class group {
 public:
  group(program& all, const line& parameters);

  const line& parameters() const noexcept { return parameters_; }
  std::int64_t number(const char* key) const { return parameters_.number(key); }
  std::size_t size() const noexcept { return size_; }
  bool is_finite() const noexcept { return rounds_ != 0; }

  // Starts a goroutine and meters how long it takes to begin.
  template <class F>
  void start(counted c, F body);

  // Returns: whether a goroutine that has done so many rounds goes on.
  bool more(std::int64_t rounds) const noexcept;

  // The wait is over now and began when the goroutine could have gone on.
  void waited(wait kind, std::int64_t since_ns) noexcept;
  // Like waited(), for a goroutine that received what was sent at `sent_ns` and has been waiting
  // since `began_ns`. What lay there already is no wait.
  void received(wait kind, std::int64_t sent_ns, std::int64_t began_ns) noexcept {
    if (sent_ns > began_ns) waited(kind, sent_ns);
  }
  // For what should have ended at `due_ns` and must not have ended before.
  void was_due(wait kind, std::int64_t due_ns) noexcept;
  void sleep(std::int64_t us);

  // Owner only, when it ends. Read when the program is over.
  void made_progress(std::size_t i, std::int64_t turns) noexcept { progress_[i] = turns; }

  const meter& of(wait kind) const noexcept { return meters_[static_cast<std::size_t>(kind)]; }
  const std::vector<std::int64_t>& progress() const noexcept { return progress_; }

 private:
  program& all_;
  const line& parameters_;
  const std::size_t size_;
  const std::int64_t rounds_;
  std::vector<std::int64_t> progress_;
  std::array<meter, wait_names.size()> meters_;
};

class program {
 public:
  explicit program(const table& t);

  // In run's main: starts everything and waits for its end.
  void run();

  bool is_over(std::int64_t now) const noexcept {
    return now >= cap_ns_ ||
           (now >= deadline_ns_ && finite_left_.load(std::memory_order_relaxed) == 0);
  }
  // Uses so much CPU, or less if the program ends meanwhile.
  void compute(std::int64_t us) const noexcept;

  // Takes note of how much CPU the process has used by now. For the watch, every sample_ns.
  void sample_cpu() noexcept;
  // Of the end that the program must reach at the latest, if no goroutine hangs.
  std::int64_t latest_end_ns() const noexcept { return has_finite_ ? cap_ns_ : deadline_ns_; }
  std::int64_t start_ns() const noexcept { return start_ns_; }
  std::int64_t steps_per_us() const noexcept { return steps_per_us_; }

  void print_json() const;

  static constexpr std::int64_t cap_after_ns = 10'000'000'000;
  static constexpr std::int64_t sample_ns = 10'000'000;

 private:
  friend class group;

  void finite_ended() noexcept;
  void check_stall(std::int64_t since_ns, std::int64_t now) noexcept;

  const table& table_;
  std::int64_t steps_per_us_;
  std::int64_t start_ns_;
  std::int64_t deadline_ns_;
  std::int64_t cap_ns_;
  std::int64_t started_ns_ = 0;  // when main had started all goroutines
  bool has_finite_ = false;
  std::deque<group> groups_;
  weft::wait_group alive_;
  std::atomic<std::int64_t> finite_left_{0};
  std::atomic<std::int64_t> finite_end_ns_{0};

  // Statistics, read when the program is over.
  std::atomic<int> never_ran_{0};
  std::atomic<int> early_{0};
  std::atomic<int> stalls_{0};
  std::atomic<std::int64_t> stall_ns_{0};
  std::atomic<std::int64_t> stall_cpu_ns_{0};
  // The CPU time used, every sample_ns since the start; the watch writes, check_stall reads.
  static constexpr std::size_t samples_max = 4096;
  std::array<std::atomic<std::int64_t>, samples_max> cpu_ns_{};
  std::atomic<std::size_t> samples_{0};
};

// groups.cpp: starts the goroutines of one group.
void start_group(program& all, group& g);
// group_io.cpp: starts a group of the kinds sockets and files. Returns: whether it was one of them.
bool start_io_group(program& all, group& g);

template <class F>
void group::start(counted c, F body) {
  const bool finite = c == counted::yes && is_finite();
  all_.alive_.add(1);
  weft::go([this, finite, started = now_ns(), body = std::move(body)]() mutable {
    const std::int64_t now = now_ns();
    waited(wait::fresh, started);
    if (now > all_.deadline_ns_ && started < (all_.start_ns_ + all_.deadline_ns_) / 2) {
      all_.never_ran_.fetch_add(1, std::memory_order_relaxed);
    }
    body();
    if (finite) all_.finite_ended();
    all_.alive_.done();
  });
}

}  // namespace torture
