// input_buffer.hpp: bytes that have been read and not yet used, in one piece of memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

namespace weft::http {

class input_buffer {
 public:
  static constexpr std::size_t small_bytes = 4096;
  static constexpr std::size_t large_bytes = std::size_t{64} << 10;

  // It grows up to about that for bytes that have to lie side by side.
  explicit input_buffer(std::size_t bytes_max) : bytes_max_(std::max(bytes_max, small_bytes)) {}

  bool empty() const noexcept { return begin_ == end_; }
  std::string_view view() const noexcept { return {bytes_.get() + begin_, end_ - begin_}; }
  void consume(std::size_t n) noexcept { begin_ += n; }
  void fill(std::size_t n) noexcept { end_ += n; }

  // Returns: the free space to read into; empty if the buffer holds as many bytes as it may. What
  // view() returned may move.
  std::span<char> space(std::size_t wanted = small_bytes) {
    if (empty()) {
      begin_ = end_ = 0;
      if (capacity_ < wanted) resize(wanted);
    } else if (end_ == capacity_) {
      if (begin_ != 0) {
        std::memmove(bytes_.get(), bytes_.get() + begin_, end_ - begin_);
        end_ -= begin_;
        begin_ = 0;
      } else if (capacity_ < bytes_max_) {
        resize(std::min(bytes_max_, 2 * capacity_));
      }
    }
    return {bytes_.get() + end_, capacity_ - end_};
  }
  // Frees memory that a small message does not need. Requires: the buffer is empty.
  void shrink() noexcept {
    begin_ = end_ = 0;
    if (capacity_ <= small_bytes) return;
    bytes_.reset();
    capacity_ = 0;
  }

 private:
  void resize(std::size_t n) {
    auto larger = std::make_unique_for_overwrite<char[]>(n);
    std::copy_n(bytes_.get(), std::min(end_, n), larger.get());
    bytes_ = std::move(larger);
    capacity_ = n;
  }

  const std::size_t bytes_max_;
  std::unique_ptr<char[]> bytes_;
  std::size_t capacity_ = 0;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace weft::http
