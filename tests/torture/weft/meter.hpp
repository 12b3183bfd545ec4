// How long goroutines waited, counted without locks and without memory: a histogram of logarithmic
// buckets, eight to a power of two, so that a percentile is right within 12 per cent. The longest
// wait is kept exactly. All counters are statistics that are not read before the program is over:
// relaxed accesses do.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace torture {

// What a goroutine waited for, as it can see it itself.
enum class wait : std::uint8_t {
  yield,  // from the call to the return
  fresh,  // from go to the first instant
  timer,  // beyond the time a sleep, a ticker or after_func was to end
  wake,   // from when the partner should have sent to the return of a receive that was waiting
  io,     // what it received came through a socket
  back,   // of a call that blocks the thread: beyond its nominal time
  hog,    // a gap above 0.2 ms in the life of a goroutine that does nothing but compute
};
inline constexpr std::array<const char*, 7> wait_names = {"yield", "fresh", "timer", "wake",
                                                          "io",    "back",  "hog"};

class meter {
 public:
  void add(std::int64_t wait_ns, std::int64_t at_ns) noexcept {
    const std::int64_t wait = wait_ns < 0 ? 0 : wait_ns;
    buckets_[bucket(wait)].fetch_add(1, std::memory_order_relaxed);
    std::int64_t worst = worst_ns_.load(std::memory_order_relaxed);
    while (wait > worst) {
      if (worst_ns_.compare_exchange_weak(worst, wait, std::memory_order_relaxed)) {
        worst_at_ns_.store(at_ns, std::memory_order_relaxed);
        return;
      }
    }
  }

  std::uint64_t count() const noexcept {
    std::uint64_t sum = 0;
    for (const auto& b : buckets_) sum += b.load(std::memory_order_relaxed);
    return sum;
  }

  // Returns: the upper edge of the bucket in which the q-th part of all waits ends.
  std::int64_t percentile(double q) const noexcept {
    const auto rank = static_cast<std::uint64_t>(std::ceil(static_cast<double>(count()) * q));
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      seen += buckets_[i].load(std::memory_order_relaxed);
      if (seen >= rank && seen != 0) return edge(i) < worst_ns() ? edge(i) : worst_ns();
    }
    return worst_ns();
  }

  std::int64_t worst_ns() const noexcept { return worst_ns_.load(std::memory_order_relaxed); }
  std::int64_t worst_at_ns() const noexcept { return worst_at_ns_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t bucket_count = 320;  // up to 2^41 ns, half an hour

  static std::size_t bucket(std::int64_t ns) noexcept {
    if (ns < 8) return static_cast<std::size_t>(ns);
    const auto v = static_cast<std::uint64_t>(ns);
    const auto power = static_cast<int>(std::bit_width(v)) - 1;
    const auto index = static_cast<std::size_t>(power - 2) * 8 + ((v >> (power - 3)) & 7);
    return index < bucket_count ? index : bucket_count - 1;
  }
  static std::int64_t edge(std::size_t index) noexcept {
    if (index < 8) return static_cast<std::int64_t>(index);
    return static_cast<std::int64_t>(index % 8 + 9) << (index / 8 - 1);
  }

  std::array<std::atomic<std::uint64_t>, bucket_count> buckets_{};
  std::atomic<std::int64_t> worst_ns_{0};
  std::atomic<std::int64_t> worst_at_ns_{0};
};

// Jain's index of fairness: 1 if all got equal parts, 1/n if one got everything.
template <class Range>
double jain(const Range& shares) {
  double sum = 0;
  double squares = 0;
  double n = 0;
  for (const auto share : shares) {
    const auto x = static_cast<double>(share);
    sum += x;
    squares += x * x;
    ++n;
  }
  return squares == 0 ? 1 : sum * sum / (n * squares);
}

}  // namespace torture
