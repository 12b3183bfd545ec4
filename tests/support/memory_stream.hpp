// memory_stream.hpp: a peer of an HTTP connection, in memory. What it sends is fixed beforehand,
// piece by piece, as a socket would deliver it.
#pragma once

#include "http/connection.hpp"
#include "http/stream.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace weft::test {

class memory_stream final : public http::stream {
 public:
  explicit memory_stream(std::vector<std::string> pieces)
      : pieces_(std::make_move_iterator(pieces.begin()), std::make_move_iterator(pieces.end())) {}

  // When all pieces are read: the end of the stream, or that error.
  std::error_code at_end;
  std::error_code write_error;
  std::function<void(memory_stream&)> before_read;  // called at each read

  std::string output;
  std::size_t reads = 0;
  std::size_t writes = 0;
  std::size_t files_sent = 0;      // so many calls
  std::size_t read_deadlines = 0;  // set so often
  std::size_t write_deadlines = 0;
  std::size_t read_bytes_max = 0;  // the largest space it was given
  bool write_closed = false;
  bool broken_off = false;
  clock::time_point read_deadline{};
  clock::time_point
      write_deadline{};  // is kept, as a socket's is: also by writes that need no wait
  bool keep_output = true;

  expected<std::size_t> read(std::span<char> into) override {
    ++reads;
    read_bytes_max = std::max(read_bytes_max, into.size());
    if (before_read) before_read(*this);
    if (pieces_.empty()) {
      if (at_end) return std::unexpected(at_end);
      return 0;
    }
    std::string& next = pieces_.front();
    const std::size_t n = std::min(into.size(), next.size() - offset_);
    std::memcpy(into.data(), next.data() + offset_, n);
    offset_ += n;
    if (offset_ == next.size()) {
      offset_ = 0;
      pieces_.pop_front();
    }
    return n;
  }
  std::error_code wait_for_end() override { return errc::timed_out; }  // no test watches it
  std::error_code write(std::span<const std::string_view> pieces) override {
    ++writes;
    if (write_error) return write_error;
    if (write_deadline != clock::time_point() && clock::now() >= write_deadline) {
      return errc::timed_out;
    }
    if (keep_output) {
      for (const std::string_view p : pieces) output += p;
    }
    return {};
  }
  expected<std::uint64_t> send_file(os::file& from, std::uint64_t count) override {
    std::string bytes(static_cast<std::size_t>(count), '\0');
    const auto n = from.read(std::as_writable_bytes(std::span(bytes)));
    if (!n) return std::unexpected(n.error());
    ++files_sent;
    output.append(bytes, 0, *n);
    return *n;
  }
  void set_read_deadline(clock::time_point when) override {
    ++read_deadlines;
    read_deadline = when;
  }
  void set_write_deadline(clock::time_point when) override {
    ++write_deadlines;
    write_deadline = when;
  }
  void close_write() override { write_closed = true; }
  void break_off() override { broken_off = true; }

  // What was not read.
  std::size_t left() const { return pieces_.size(); }
  void push(std::string piece) { pieces_.push_back(std::move(piece)); }

 private:
  std::deque<std::string> pieces_;
  std::size_t offset_ = 0;
};

}  // namespace weft::test
