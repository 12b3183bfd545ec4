// vector_clock.hpp: which part of each goroutine's past is visible at a point; races are found by
// it. An event of goroutine g at its time n is visible where clock[g] >= n.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft::test {

class vector_clock {
 public:
  std::uint32_t operator[](std::size_t i) const {
    if (i < few) return low_[i];
    return i - few < high_.size() ? high_[i - few] : 0;
  }
  void set(std::size_t i, std::uint32_t time) {
    if (i < few) {
      low_[i] = time;
    } else {
      if (i - few >= high_.size()) high_.resize(i - few + 1);
      high_[i - few] = time;
    }
  }
  void tick(std::size_t i) { set(i, (*this)[i] + 1); }

  void join(const vector_clock& from) {
    for (std::size_t i = 0; i < few; ++i) {
      if (low_[i] < from.low_[i]) low_[i] = from.low_[i];
    }
    if (from.high_.empty()) return;
    if (high_.size() < from.high_.size()) high_.resize(from.high_.size());
    for (std::size_t i = 0; i < from.high_.size(); ++i) {
      if (high_[i] < from.high_[i]) high_[i] = from.high_[i];
    }
  }

  // Calls f(goroutine) for each goroutine of which `this` knows more than `other`.
  template <class F>
  void for_each_beyond(const vector_clock& other, F&& f) const {
    for (std::size_t i = 0; i < few + high_.size(); ++i) {
      if ((*this)[i] > other[i]) f(i);
    }
  }

 private:
  static constexpr std::size_t few = 8;  // without an allocation
  std::array<std::uint32_t, few> low_{};
  std::vector<std::uint32_t> high_;
};

}  // namespace weft::test
