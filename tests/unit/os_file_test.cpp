// os_file_test.cpp: files on a disk. A slow one must not stall a processor, and nothing that the
// kernel still works on may be given away.
#include "beat.hpp"
#include "bytes.hpp"
#include "child_process.hpp"
#include "eventually.hpp"
#include "os/ring.hpp"
#include "runtime_fixture.hpp"
#include "temporary_directory.hpp"

#include <weft/weft.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

namespace os = weft::os;
using namespace std::chrono_literals;
using weft::test::bytes;
using weft::test::eventually;
using weft::test::procs_scope;
using weft::test::run_program;
using weft::test::runtime_test;
using weft::test::scaled;
using weft::test::temporary_directory;

// Reads `n` bytes from there.
std::string text_at(os::file& f, std::uint64_t offset, std::size_t n) {
  std::string s(n, '\0');
  const auto got = f.pread(bytes(s.data(), n), offset);
  EXPECT_TRUE(got.has_value()) << got.error().message();
  s.resize(got.value_or(0));
  return s;
}

// Which file a descriptor leads to; none if it is closed. (A number that was given back may lead to
// another one at once: the runtime opens files of its own.)
using identity = std::pair<dev_t, ino_t>;
identity identity_of(int fd) {
  struct stat s{};
  return ::fstat(fd, &s) == 0 ? identity(s.st_dev, s.st_ino) : identity();
}

weft::expected<std::size_t> sync_of(os::file& f) {
  if (const std::error_code e = f.fdatasync()) return std::unexpected(e);
  return 0;
}

class os_file : public runtime_test {
 protected:
  std::string path(const std::string& name = "file") const { return folder_ / name; }
  os::file make(const std::string& name = "file", int flags = O_RDWR) const {
    auto f = os::open(path(name), flags | O_CREAT);
    EXPECT_TRUE(f.has_value()) << f.error().message();
    return std::move(*f);
  }
  // Whether the file system lets the kernel's memory be passed by. One in memory does not.
  bool has_direct() const {
    const auto d = os::open(path("direct"), O_RDWR | O_CREAT | O_DIRECT);
    EXPECT_TRUE(d || d.error() == std::errc::invalid_argument) << d.error().message();
    return d.has_value();
  }
  // A file whose pages are not in memory, as far as the kernel follows advice.
  os::file make_cold(const std::string& name, std::size_t size) const {
    os::file f = make(name);
    const std::string block(1 << 16, 'c');
    for (std::size_t at = 0; at < size; at += block.size()) EXPECT_TRUE(f.write(bytes(block)));
    EXPECT_FALSE(f.fsync());
    EXPECT_EQ(::posix_fadvise(f.native_handle(), 0, 0, POSIX_FADV_DONTNEED), 0);
    EXPECT_TRUE(f.seek(0));
    return f;
  }

 private:
  // Not where temporary files are kept: that may be memory.
  const temporary_directory folder_{std::filesystem::current_path()};
};

TEST_F(os_file, what_is_written_can_be_read) {
  weft::run([&] {
    os::file f = make();
    EXPECT_EQ(f.write(bytes("hello, ")), 7u);
    EXPECT_EQ(f.write(bytes("world")), 5u);
    EXPECT_EQ(f.size(), 12u);
    EXPECT_EQ(f.seek(0), 0u);
    std::array<std::byte, 100> into;
    EXPECT_EQ(f.read(into), 12u);
    EXPECT_EQ(std::memcmp(into.data(), "hello, world", 12), 0);
    EXPECT_EQ(f.read(into), 0u);
    EXPECT_EQ(f.seek(-5, os::seek_from::end), 7u);
    EXPECT_EQ(f.read(std::span(into).first(2)), 2u);
    EXPECT_EQ(f.seek(1, os::seek_from::current), 10u);
    EXPECT_EQ(f.pwrite(bytes("J"), 0), 1u);
    EXPECT_EQ(text_at(f, 0, 5), "Jello");
    EXPECT_FALSE(f.truncate(5));
    EXPECT_EQ(f.size(), 5u);
    EXPECT_FALSE(f.fsync());
    EXPECT_FALSE(f.fdatasync());
  });
}

TEST_F(os_file, text_is_written_and_read_as_bytes_are) {
  weft::run([&] {
    os::file f = make();
    EXPECT_EQ(f.write("hello"), 5u);  // without the NUL
    EXPECT_EQ(f.write(std::string(", ")), 2u);
    const char world[] = "world and all";
    EXPECT_EQ(f.write({world, 5}), 5u);
    EXPECT_EQ(f.pwrite("J", 0), 1u);
    EXPECT_EQ(f.pwrite({world, 1}, 12), 1u);
    EXPECT_EQ(f.size(), 13u);
    char five[5];
    EXPECT_EQ(f.pread(five, 0), 5u);
    EXPECT_EQ(std::string_view(five, 5), "Jello");
    EXPECT_EQ(f.pread({five, 2}, 7), 2u);
    EXPECT_EQ(std::string_view(five, 2), "wo");
    EXPECT_EQ(f.seek(7), 7u);
    std::string rest(100, '\0');
    EXPECT_EQ(f.read(rest), 6u);
    EXPECT_EQ(rest.substr(0, 6), "worldw");

    // Nothing at all is no text, and no bytes either.
    EXPECT_EQ(f.write({}), 0u);
    EXPECT_EQ(f.pwrite({}, 0), 0u);
    EXPECT_EQ(f.read({}), 0u);
    EXPECT_EQ(f.pread({}, 0), 0u);
    EXPECT_EQ(f.size(), 13u);
  });
}

TEST_F(os_file, a_plain_thread_can_do_all_of_it) {
  os::file f = make();
  EXPECT_EQ(f.write(bytes("thread")), 6u);
  EXPECT_EQ(text_at(f, 1, 3), "hre");
  EXPECT_FALSE(f.fsync());
  EXPECT_FALSE(f.close());
}

TEST_F(os_file, errors_are_the_systems) {
  EXPECT_EQ(os::open(path("none"), O_RDONLY).error(), std::errc::no_such_file_or_directory);
  EXPECT_EQ(os::open(std::string_view("a\0b", 3), O_RDONLY).error(), std::errc::invalid_argument);
  EXPECT_EQ(os::file::adopt(-1).error(), std::errc::bad_file_descriptor);
  os::file f = make("x", O_WRONLY);
  std::array<std::byte, 1> into;
  EXPECT_EQ(f.read(into).error(), std::errc::bad_file_descriptor);
  EXPECT_NE(f.read(into).error(), weft::errc::closed);  // it is open
  EXPECT_EQ(f.set_deadline(weft::clock::now()), std::errc::operation_not_supported);
  EXPECT_EQ(f.set_deadline(1s), std::errc::operation_not_supported);
  auto null = os::open("/dev/null", O_RDWR);
  ASSERT_TRUE(null);
  EXPECT_EQ(null->set_deadline(1s), std::errc::operation_not_supported);
  auto folder = os::open(std::filesystem::path(path()).parent_path(), O_RDONLY | O_DIRECTORY);
  ASSERT_TRUE(folder);
  EXPECT_EQ(folder->read(into).error(), std::errc::is_a_directory);
}

TEST_F(os_file, the_mode_and_close_on_exec_are_as_asked) {
  const mode_t before = ::umask(0);
  auto f = os::open(path(), O_RDWR | O_CREAT, 0640);
  ::umask(before);
  ASSERT_TRUE(f);
  struct stat about{};
  ASSERT_EQ(::fstat(f->native_handle(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0640u);
  EXPECT_NE(::fcntl(f->native_handle(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(os_file, a_second_close_says_closed) {
  os::file f = make();
  const int fd = f.native_handle();
  const identity file = identity_of(fd);
  EXPECT_TRUE(f.is_open());
  EXPECT_FALSE(f.close());
  EXPECT_EQ(f.close(), weft::errc::closed);
  EXPECT_FALSE(f.is_open());
  EXPECT_EQ(f.native_handle(), -1);
  EXPECT_NE(identity_of(fd), file);
  std::array<std::byte, 1> into;
  EXPECT_EQ(f.read(into).error(), weft::errc::closed);
  EXPECT_EQ(f.pread(into, 0).error(), weft::errc::closed);
  EXPECT_EQ(f.write(into).error(), weft::errc::closed);
  EXPECT_EQ(f.pwrite(into, 0).error(), weft::errc::closed);
  EXPECT_EQ(f.fsync(), weft::errc::closed);
  EXPECT_EQ(f.size().error(), weft::errc::closed);
  EXPECT_EQ(f.seek(0).error(), weft::errc::closed);
  EXPECT_EQ(f.truncate(0), weft::errc::closed);
}

TEST_F(os_file, moving_leaves_a_closed_one_and_the_destructor_closes) {
  os::file f = make("a");
  const int first = f.native_handle();
  const identity file = identity_of(first);
  os::file g = std::move(f);
  EXPECT_FALSE(f.is_open());  // NOLINT: that is the question
  EXPECT_EQ(f.close(), weft::errc::closed);
  EXPECT_EQ(g.native_handle(), first);
  g = make("b");
  EXPECT_NE(identity_of(first), file);
}

TEST_F(os_file, append_writes_at_the_end) {
  os::file f = make("log", O_RDWR | O_APPEND);
  weft::wait_group all;
  for (int i = 0; i < 50; ++i) {
    all.go([&] { EXPECT_TRUE(f.write(bytes("0123456789\n"))); });
  }
  all.wait();
  EXPECT_EQ(f.size(), 550u);
  for (int i = 0; i < 50; ++i)
    EXPECT_EQ(text_at(f, static_cast<unsigned>(i) * 11u, 11), "0123456789\n");
}

TEST_F(os_file, pread_at_and_across_the_end) {
  weft::run([&] {
    os::file f = make();
    ASSERT_TRUE(f.write(bytes(std::string(5000, 'x'))));
    EXPECT_EQ(text_at(f, 4990, 100).size(), 10u);
    EXPECT_EQ(text_at(f, 5000, 100).size(), 0u);
    EXPECT_EQ(text_at(f, 1'000'000'000'000, 100).size(), 0u);
    std::array<std::byte, 1> into;
    EXPECT_EQ(f.pread(into, ~std::uint64_t{0}).error(), std::errc::invalid_argument);
    EXPECT_EQ(f.pread({}, 0), 0u);
    EXPECT_EQ(f.write({}), 0u);
  });
}

// Writes and reads of several goroutines do not mix: each record comes out as it went in.
TEST_F(os_file, the_position_is_shared_without_tearing) {
  constexpr std::size_t record = 4096;
  constexpr int writers = 16;
  const procs_scope two(2);
  os::file f = make();
  weft::wait_group all;
  for (int w = 0; w < writers; ++w) {
    all.go([&, w] {
      const std::string mine(record, static_cast<char>('a' + w));
      for (int i = 0; i < 20; ++i) EXPECT_EQ(f.write(bytes(mine)), record);
    });
  }
  all.wait();
  EXPECT_EQ(f.size(), writers * 20 * record);
  ASSERT_TRUE(f.seek(0));
  std::array<std::atomic<int>, writers> seen{};
  for (int r = 0; r < 8; ++r) {
    all.go([&] {
      std::string got(record, '\0');
      while (f.read(std::as_writable_bytes(std::span(got))) == record) {
        EXPECT_EQ(got, std::string(record, got[0]));
        seen.at(static_cast<std::size_t>(got[0] - 'a')).fetch_add(1);
      }
    });
  }
  all.wait();
  for (const auto& n : seen) EXPECT_EQ(n.load(), 20);
}

TEST_F(os_file, a_hundred_megabytes_with_a_hole) {
  weft::run([&] {
    constexpr std::uint64_t size = 100u << 20;
    os::file f = make();
    ASSERT_FALSE(f.truncate(size));
    ASSERT_EQ(f.pwrite(bytes("end"), size - 3), 3u);
    EXPECT_EQ(text_at(f, size - 4, 10), std::string("\0end", 4));
    std::vector<std::byte> all(size);
    EXPECT_EQ(f.read(all), size);
    EXPECT_TRUE(
        std::all_of(all.begin(), all.end() - 3, [](std::byte b) { return b == std::byte{}; }));
  });
}

// What is not in memory goes another way than what is; both must give the same.
TEST_F(os_file, a_cold_file_is_read_whole) {
  weft::run([&] {
    constexpr std::size_t size = 8u << 20;
    os::file f = make_cold("cold", size);
    std::vector<std::byte> all(size);
    EXPECT_EQ(f.read(all), size);
    EXPECT_TRUE(
        std::all_of(all.begin(), all.end(), [](std::byte b) { return b == std::byte{'c'}; }));
    EXPECT_EQ(f.read(all), 0u);
  });
}

TEST_F(os_file, ten_thousand_goroutines_read_a_page_each) {
  constexpr std::size_t page = 4096;
  const int readers = scaled(10'000, 1'000);
  os::file f = make_cold("pages", 10'000 * page);
  for (int i = 0; i < readers; ++i) {
    const auto at = static_cast<std::uint64_t>(i);
    const std::string mark = std::to_string(i);
    ASSERT_TRUE(f.pwrite(bytes(mark), at * page));
  }
  ASSERT_FALSE(f.fsync());
  ASSERT_EQ(::posix_fadvise(f.native_handle(), 0, 0, POSIX_FADV_DONTNEED), 0);
  weft::wait_group all;
  std::atomic<int> right{0};
  for (int i = 0; i < readers; ++i) {
    all.go([&, i] {
      std::array<char, page> into;
      const auto n =
          f.pread(std::as_writable_bytes(std::span(into)), static_cast<std::uint64_t>(i) * page);
      const std::string mark = std::to_string(i);
      if (n == page && std::string_view(into.data(), mark.size()) == mark) right.fetch_add(1);
    });
  }
  all.wait();
  EXPECT_EQ(right.load(), readers);
}

// Few reads get there by themselves: a disk has to be slow for it.
TEST_F(os_file, the_ring_does_what_system_calls_do) {
  if (!os::has_ring()) {
    GTEST_SKIP() << "io_uring is off (WEFT_DEBUG=iouring=0), or this kernel or container has none";
  }
  constexpr std::size_t page = 4096;
  constexpr int pages = 3'000;  // more than the ring holds at a time
  os::file f = make_cold("ring", pages * page);
  const int fd = f.native_handle();
  weft::wait_group all;
  std::atomic<int> right{0};
  for (int i = 0; i < pages; ++i) {
    all.go([&, i] {
      std::string text = std::to_string(i);
      const std::int64_t at = std::int64_t{i} * static_cast<std::int64_t>(page);
      const std::int64_t size = static_cast<std::int64_t>(text.size());
      if (os::run_on_ring({os::operation::write, fd, text.data(), text.size(), at}) != size) return;
      std::array<char, page> into;
      if (os::run_on_ring({os::operation::read, fd, into.data(), page, at}) != page) return;
      if (std::string_view(into.data(), text.size()) == text && into.back() == 'c') ++right;
    });
  }
  all.wait();
  EXPECT_EQ(right.load(), pages);
  weft::run([&] {
    std::array<char, 3> into;
    const auto end = static_cast<std::int64_t>(f.size().value());
    EXPECT_EQ(os::run_on_ring({os::operation::read, fd, into.data(), 3, end}), 0);
    EXPECT_EQ(os::run_on_ring({os::operation::read, -1, into.data(), 3, 0}), -EBADF);
    EXPECT_EQ(os::run_on_ring({.what = os::operation::sync, .fd = fd}), 0);
    EXPECT_EQ(os::run_on_ring({.what = os::operation::sync_data, .fd = fd}), 0);
  });
}

// One processor: a goroutine that kept it while it waits for the disk would make the others late.
TEST_F(os_file, two_hundred_syncs_beside_a_beat) {
  const procs_scope one(1);
  weft::test::beat b;
  weft::wait_group all;
  for (int i = 0; i < 200; ++i) {
    all.go([&, i] {
      os::file f = make("sync" + std::to_string(i % 20));
      EXPECT_TRUE(
          f.pwrite(bytes(std::string(10'000, 's')), static_cast<std::uint64_t>(i) * 10'000));
      EXPECT_FALSE(i % 2 == 0 ? f.fsync() : f.fdatasync());
    });
  }
  all.wait();
  b.expect_kept({.median = 20ms, .p99 = 200ms});
}

TEST_F(os_file, synchronous_writes) {
  weft::run([&] {
    os::file s = make("synchronous", O_RDWR | O_SYNC);
    EXPECT_EQ(s.write(bytes("on the disk")), 11u);
    EXPECT_EQ(s.pwrite(bytes("O"), 0), 1u);
    EXPECT_EQ(text_at(s, 0, 20), "On the disk");
  });
}

TEST_F(os_file, direct_writes) {
  weft::run([&] {
    if (!has_direct()) {
      GTEST_SKIP() << "the file system of " << path()
                   << " has no O_DIRECT: it is in memory, perhaps";
    }
    auto d = os::open(path("direct"), O_RDWR | O_CREAT | O_DIRECT);
    ASSERT_TRUE(d) << d.error().message();
    void* const block = std::aligned_alloc(4096, 8192);
    std::memset(block, 'd', 8192);
    const std::span<std::byte> span(static_cast<std::byte*>(block), 8192);
    EXPECT_EQ(d->write(span), 8192u);
    std::memset(block, 0, 8192);
    EXPECT_EQ(d->pread(span, 0), 8192u);
    EXPECT_EQ(span[8191], std::byte{'d'});
    // Over what is there, one after the other: the position moves on.
    EXPECT_EQ(d->seek(0), 0u);
    for (const int c : {'1', '2'}) {
      std::memset(block, c, 4096);
      EXPECT_EQ(d->write(span.first(4096)), 4096u);
    }
    EXPECT_EQ(d->pread(span, 0), 8192u);
    EXPECT_EQ(span[0], std::byte{'1'});
    EXPECT_EQ(span[4096], std::byte{'2'});
    std::free(block);
  });
}

// The kernel still works on the descriptor: its number must not become another file's. Afterwards
// it may.
TEST_F(os_file, close_during_calls_waits_for_them_to_let_go) {
  for (int round = 0; round < 20; ++round) {
    os::file f = make_cold("closing", 1 << 20);
    const identity file = identity_of(f.native_handle());
    weft::wait_group all;
    weft::latch started(8);
    for (int i = 0; i < 8; ++i) {
      all.go([&, i] {
        std::vector<std::byte> into(1 << 16);
        started.count_down();
        for (std::uint64_t at = static_cast<std::uint64_t>(i);; ++at) {
          const auto n = i == 0 ? sync_of(f) : f.pread(into, (at % 16) << 16);
          if (!n) {
            EXPECT_EQ(n.error(), weft::errc::closed);
            return;
          }
        }
      });
    }
    started.wait();
    const int fd = f.native_handle();
    EXPECT_FALSE(f.close());
    all.wait();
    EXPECT_NE(identity_of(fd), file);
  }
}

// What was written before the error is not told, but is there, and in its place; what was not can
// still be read from a file that it was to be copied from.
TEST_F(os_file, a_write_that_fails_half_way) {
  for (const int flags : {0, O_SYNC, O_DSYNC, O_APPEND, O_APPEND | O_DSYNC, O_DIRECT,
                          O_DIRECT | O_DSYNC, O_DIRECT | O_APPEND}) {
    if ((flags & O_DIRECT) != 0 && !has_direct()) continue;
    for (const std::string how : {"write", "pwrite", "copy", "receive"}) {
      // The pieces of a copy are whole blocks in memory only by chance.
      if ((flags & O_DIRECT) != 0 && how != "write" && how != "pwrite") continue;
      SCOPED_TRACE(how + " " + std::to_string(flags));
      const std::string name = path("limited" + how + std::to_string(flags));
      const auto r =
          run_program("file_too_large", {.arguments = {"limit", name, std::to_string(flags), how}});
      EXPECT_EQ(r.status, 0) << r;
    }
  }
}

TEST_F(os_file, a_write_that_fills_the_disk) {
  std::filesystem::create_directory(path("disk"));
  for (const int flags : {0, O_SYNC, O_DSYNC, O_APPEND, O_APPEND | O_DSYNC}) {
    for (const std::string how : {"write", "pwrite", "copy", "receive"}) {
      SCOPED_TRACE(how + " " + std::to_string(flags));
      const auto r = run_program("file_too_large",
                                 {.arguments = {"disk", path("disk"), std::to_string(flags), how}});
      if (r.status == 77) GTEST_SKIP() << "no file system can be mounted here";
      EXPECT_EQ(r.status, 0) << r;
    }
  }
}

// O_DIRECT has what is written on the disk at once, and no file system in memory has O_DIRECT.
TEST_F(os_file, a_direct_write_that_fills_the_disk) {
  std::filesystem::create_directory(path("disk"));
  for (const int flags : {0, O_DIRECT, O_DIRECT | O_DSYNC, O_DIRECT | O_APPEND}) {
    SCOPED_TRACE(flags);
    const auto r = run_program(
        "file_too_large", {.arguments = {"ext4", path("disk"), std::to_string(flags), "pieces"}});
    if (r.status == 77) GTEST_SKIP() << "ext4 cannot be mounted on a loop device here";
    EXPECT_EQ(r.status, 0) << r;
  }
}

// Signals that cut calls short. Each of the process's threads but the first gets a thousand in a
// second, for as long as this object lives. The first thread sleeps in weft::run, and would get all
// the signals of a timer of the process.
class cut_short {
 public:
  cut_short() {
    struct sigaction action{};
    action.sa_handler = [](int) { ++others; };
    action.sa_flags = SA_ONSTACK;  // without SA_RESTART
    ::sigaction(SIGALRM, &action, nullptr);
    others = 0;
    sender_ = std::thread([this] { send(); });
  }
  cut_short(const cut_short&) = delete;
  cut_short& operator=(const cut_short&) = delete;
  // The handler stays: a signal may be on its way, and would end the process without it.
  ~cut_short() {
    ends_ = true;
    sender_.join();
  }

  // How many have arrived.
  static int seen() { return others; }

 private:
  void send() {
    const pid_t process = ::getpid();
    while (!ends_) {
      for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
        const auto id = static_cast<pid_t>(std::stol(thread.path().filename()));
        if (id != process && id != ::gettid()) ::syscall(SYS_tgkill, process, id, SIGALRM);
      }
      std::this_thread::sleep_for(1ms);
    }
  }

  static inline std::atomic<int> others{0};
  std::atomic<bool> ends_{false};
  std::thread sender_;
};

// Memory for O_DIRECT.
class blocks {
 public:
  explicit blocks(std::size_t size)
      : bytes_(static_cast<std::byte*>(std::aligned_alloc(4096, size)), size) {}
  blocks(const blocks&) = delete;
  blocks& operator=(const blocks&) = delete;
  ~blocks() { std::free(bytes_.data()); }
  std::span<std::byte> get() const { return bytes_; }

 private:
  const std::span<std::byte> bytes_;
};

TEST_F(os_file, signals_cut_nothing_short) {
  weft::run([&] {
    const cut_short now;
    std::string text(4 << 20, '\0');
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 13 + i / 257);
    for (const int flags : {0, O_DSYNC, O_SYNC, O_APPEND}) {
      os::file first = make("first" + std::to_string(flags), O_RDWR | flags);
      os::file second = make("second" + std::to_string(flags), O_RDWR | flags);
      os::file third = make("third" + std::to_string(flags), O_RDWR | flags);
      EXPECT_EQ(first.write(text), text.size());
      EXPECT_EQ(first.seek(0), 0u);
      EXPECT_EQ(os::copy(second, first), text.size());
      EXPECT_EQ(second.seek(0), 0u);
      auto listener = weft::net::listen("tcp", "127.0.0.1:0").value();
      auto out = weft::net::dial("tcp", listener.local_address().to_string()).value();
      auto in = listener.accept().value();
      weft::wait_group sender;
      sender.go([&] {
        EXPECT_EQ(os::copy(out, second), text.size());
        EXPECT_FALSE(out.close());
      });
      EXPECT_EQ(os::copy(third, in), text.size());
      sender.wait();
      EXPECT_FALSE(third.fsync());
      EXPECT_TRUE(text_at(third, 0, text.size() + 1) == text);
      EXPECT_EQ(third.pwrite(text, 0), text.size());
    }
    if (has_direct()) {
      const blocks from(text.size());
      const blocks into(text.size());
      std::memcpy(from.get().data(), text.data(), text.size());
      for (const int flags : {O_DIRECT, O_DIRECT | O_DSYNC, O_DIRECT | O_APPEND}) {
        os::file f = make("direct" + std::to_string(flags), O_RDWR | flags);
        EXPECT_EQ(f.write(from.get()), text.size());
        EXPECT_EQ(f.seek(0), 0u);
        EXPECT_EQ(f.read(into.get()), text.size());
        EXPECT_TRUE(std::ranges::equal(into.get(), from.get()));
        if ((flags & O_APPEND) == 0) {
          EXPECT_EQ(f.pwrite(from.get(), 0), text.size());
        }
      }
    }
    EXPECT_GT(cut_short::seen(), 100);
  });
}

// What a signal does cut short in the kernel, at the least: a long write to this device (which may
// be given any bytes), and the opening of a FIFO, which waits for the other end.
TEST_F(os_file, what_signals_cut_short_goes_on) {
  weft::run([&] {
    const cut_short now;
    auto device = os::open("/dev/urandom", O_WRONLY);
    ASSERT_TRUE(device) << device.error().message();
    const std::string text(scaled(32, 4) << 20, 'x');
    EXPECT_EQ(device->write(text), text.size());

    ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
    weft::wait_group reader;
    std::atomic<int> before{-1};
    reader.go([&] {
      before = cut_short::seen();
      auto f = os::open(path("fifo"), O_RDONLY);
      ASSERT_TRUE(f) << f.error().message();
      char got[4];
      EXPECT_EQ(f->read(got), 2u);
    });
    EXPECT_TRUE(eventually([&] { return before >= 0 && cut_short::seen() > before + 200; }));
    auto writer = os::open(path("fifo"), O_WRONLY | O_NONBLOCK);
    ASSERT_TRUE(writer) << "the reader does not wait any more: " << writer.error().message();
    EXPECT_EQ(writer->write("hi"), 2u);
    reader.wait();
    EXPECT_GT(cut_short::seen(), 100);
  });
}

// --- Copies --------------------------------------------------------------------------------------

// Both ends have one position, and one lock.
TEST_F(os_file, a_file_is_not_copied_over_itself) {
  weft::run([&] {
    os::file f = make();
    ASSERT_EQ(f.write("0123456789"), 10u);
    EXPECT_EQ(os::copy(f, f), 0u);  // nothing is left
    ASSERT_EQ(f.seek(5), 5u);
    EXPECT_EQ(os::copy(f, f, 0), 0u);
    EXPECT_EQ(os::copy(f, f).error(), std::errc::invalid_argument);
    EXPECT_EQ(os::copy(f, f, 1).error(), std::errc::invalid_argument);
    EXPECT_EQ(f.seek(0, os::seek_from::current), 5u);
    os::file appends = make("file", O_RDWR | O_APPEND);
    EXPECT_EQ(os::copy(appends, appends).error(), std::errc::invalid_argument);
    EXPECT_EQ(text_at(f, 0, 20), "0123456789");
  });
}

// It ends where it ended: a copy that reads what it has just written would go on until the disk is
// full.
TEST_F(os_file, a_file_can_be_copied_to_its_own_end) {
  weft::run([&] {
    for (const int append : {0, O_APPEND}) {
      const std::string name = "grows" + std::to_string(append);
      os::file from = make(name);
      os::file to = make(name, O_RDWR | append);
      ASSERT_EQ(from.write("0123456789"), 10u);
      ASSERT_EQ(from.seek(2), 2u);
      ASSERT_EQ(to.seek(0, os::seek_from::end), 10u);
      EXPECT_EQ(os::copy(to, from), 8u);
      EXPECT_EQ(text_at(from, 0, 100), "012345678923456789");
      if (append != 0) continue;
      ASSERT_EQ(from.seek(0) == 0u && to.seek(4) == 4u, true);
      EXPECT_EQ(os::copy(to, from, 5).error(), std::errc::invalid_argument);
      EXPECT_EQ(os::copy(from, to, 5).error(), std::errc::invalid_argument);
      EXPECT_EQ(os::copy(to, from, 4), 4u);
      EXPECT_EQ(text_at(from, 0, 100), "012301238923456789");
    }
  });
}

// Each holds one position's lock, and wants the other's.
TEST_F(os_file, two_files_can_be_copied_to_each_other_at_once) {
  weft::run([&] {
    os::file a = make("a");
    os::file b = make("b");
    ASSERT_FALSE(a.truncate(8 << 20));
    ASSERT_FALSE(b.truncate(8 << 20));
    weft::wait_group all;
    for (int i = 0; i < 4; ++i) {
      all.go([&, i] {
        for (int round = 0; round < scaled(2000, 200); ++round) {
          os::file& to = i % 2 == 0 ? a : b;
          os::file& from = i % 2 == 0 ? b : a;
          EXPECT_TRUE(os::copy(to, from, 4096));
          if (round % 100 == 0) {
            EXPECT_TRUE(to.seek(0) && from.seek(0));
          }
        }
      });
    }
    all.wait();
  });
}

TEST_F(os_file, a_full_device_says_so) {
  auto full = os::open("/dev/full", O_WRONLY);
  ASSERT_TRUE(full);
  EXPECT_EQ(full->write(bytes("x")).error(), std::errc::no_space_on_device);
  auto zero = os::open("/dev/zero", O_RDONLY);
  ASSERT_TRUE(zero);
  std::array<std::byte, 10> into;
  EXPECT_EQ(zero->read(into), 10u);
}

// A file system that cannot try without waiting.
TEST_F(os_file, files_of_the_kernel_can_be_read) {
  weft::run([&] {
    auto f = os::open("/proc/self/status", O_RDONLY);
    ASSERT_TRUE(f);
    std::string text(1 << 16, '\0');
    const auto n = f->read(std::as_writable_bytes(std::span(text)));
    ASSERT_TRUE(n);
    EXPECT_NE(text.find("VmRSS"), text.npos);
  });
}

TEST_F(os_file, the_backend_can_be_seen_and_switched_off) {
  const auto off = run_program(
      "file_backend", {.arguments = {path("off")}, .environment = {{"WEFT_DEBUG", "iouring=0"}}});
  EXPECT_EQ(off.status, 0) << off;
  EXPECT_EQ(off.output, "blocking calls\n");
  const auto on = run_program("file_backend", {.arguments = {path("on")}});
  EXPECT_EQ(on.status, 0) << on;
  // This process may have been told to do without; the other one has not.
  if (os::file_backend() == "io_uring") {
    EXPECT_EQ(on.output, "io_uring\n");
  }
}

// After a file has been used, with threads of the kernel's own in the process, too.
TEST_F(os_file, a_deadlock_is_still_found) {
  if (sizeof(WEFT_EMULATOR) > 1) {
    GTEST_SKIP() << "an emulator does not tell how many threads there are, so none is reported";
  }
  const auto r = run_program("file_deadlock", {.arguments = {path("dead")}});
  EXPECT_EQ(r.status, 2) << r;
  EXPECT_TRUE(r.says("all goroutines are asleep - deadlock!")) << r;
}

}  // namespace
