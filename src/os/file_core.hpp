// file_core.hpp: what a file is behind its handle.
//
// There are two kinds of files. A file that the poller can watch (pipe, FIFO, terminal, socket) is
// an io::descriptor, which has its own locks and its own way to close. A file that the poller
// cannot watch (on a disk) is a plain descriptor with a word that counts the calls in flight.
// close() sets a mark in that word, and the last call to leave closes the kernel's descriptor. So
// no other file gets the descriptor's number while a call is in flight.
//
// Invariants:
//   I1  The kernel's descriptor is open while the word is not `closed` or counts a call.
//   I2  No call is counted in a word that is `closed`; so its count reaches zero once.
//   I3  The core is freed by the thread that sees the count at zero and both marks: the last call
//       to leave, or the handle's destructor if no call is in flight.
//
// Memory order:
//   [OF1] a leaving call's release -> the acquire of the thread that frees the core: all calls are
//         over.
//   [OF2] close's release -> is_open's acquire: what the closer did before.
#pragma once

#include "io/descriptor.hpp"

#include <weft/os.hpp>
#include <weft/sync.hpp>

#include <atomic>
#include <cstdint>

namespace weft::os {

class file_core {
 public:
  // What kind of file it is. This decides where calls wait.
  enum class kind : std::uint8_t {
    disk,      // regular files and block devices: reads are tried without waiting first
    device,    // everything else that the poller cannot watch
    polled,    // non-blocking
    blocking,  // watched by the poller, but shared: left in blocking mode
  };
  struct traits {
    bool is_direct = false;       // O_DIRECT: bypasses the kernel's memory
    bool is_synchronous = false;  // O_SYNC, O_DSYNC: a write waits for the disk
  };

  file_core(int fd, kind k, traits t) noexcept : fd_(fd), kind_(k), traits_(t) {
    tries_now_.store(k == kind::disk && !t.is_direct, std::memory_order_relaxed);
  }
  file_core(io::descriptor_ptr d, kind k) noexcept
      : fd_(d->fd()), kind_(k), traits_{}, descriptor_(std::move(d)) {}
  file_core(const file_core&) = delete;
  file_core& operator=(const file_core&) = delete;

  int fd() const noexcept { return fd_; }
  kind what() const noexcept { return kind_; }
  // Null for a plain descriptor.
  io::descriptor* polled() const noexcept { return descriptor_.get(); }

  std::error_code close();
  bool is_open() const noexcept;
  // To be called when the handle is gone.
  void drop() noexcept;

  // One call in flight on a plain descriptor. Empty if the file is closed.
  class call {
   public:
    explicit call(file_core& c) noexcept : core_(c.begin() ? &c : nullptr) {}
    call(const call&) = delete;
    call& operator=(const call&) = delete;
    ~call() {
      if (core_ != nullptr) core_->end();
    }
    explicit operator bool() const noexcept { return core_ != nullptr; }

   private:
    file_core* const core_;
  };

  expected<std::size_t> read(std::span<std::byte> into);
  expected<std::size_t> write(std::span<const std::byte> from);
  // The same for a plain descriptor. `done` becomes how much was written, also before an error.
  std::error_code write_counted(std::span<const std::byte> from, std::size_t& done);
  expected<std::size_t> pread(std::span<std::byte> into, std::uint64_t offset);
  expected<std::size_t> pwrite(std::span<const std::byte> from, std::uint64_t offset);
  enum class syncs : std::uint8_t { everything, data };
  std::error_code sync(syncs what);

  // Guards the position of a file on a disk. For other files, reads and writes have a lock each.
  mutex& read_lock() noexcept { return first_lock_; }
  mutex& write_lock() noexcept { return kind_ == kind::disk ? first_lock_ : second_lock_; }

 private:
  static constexpr std::uint64_t closed = 1;
  static constexpr std::uint64_t dropped = 2;
  static constexpr std::uint64_t one_call = 4;

  bool begin() noexcept;
  void end() noexcept;

  // Returns: an error if that offset is not valid.
  std::error_code offset_error(std::uint64_t offset) const noexcept;
  // offset: -1: the file's position.
  expected<std::size_t> read_plain(std::span<std::byte> into, std::int64_t offset);
  // `done` counts what is written.
  std::error_code write_plain(std::span<const std::byte> from, std::int64_t offset,
                              std::size_t& done);
  std::int64_t read_now(std::span<std::byte> into, std::int64_t offset) noexcept;
  std::int64_t read_patiently(std::span<std::byte> into, std::int64_t offset);
  std::int64_t write_patiently(std::span<const std::byte> from, std::int64_t offset);

  const int fd_;
  const kind kind_;
  const traits traits_;
  std::atomic<bool> tries_now_{false};  // cleared if the file system cannot; a hint
  std::atomic<std::uint64_t> word_{0};
  mutex first_lock_;
  mutex second_lock_;
  io::descriptor_ptr descriptor_;
};

struct file_access {
  static file make(file_core* c) noexcept {
    return file(std::unique_ptr<file_core, file_core_deleter>(c));
  }
  // Returns: null for a handle that was moved from or made by default.
  static file_core* of(const file& f) noexcept { return f.core_.get(); }
};

}  // namespace weft::os
