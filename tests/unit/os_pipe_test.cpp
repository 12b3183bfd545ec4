// os_pipe_test.cpp: files that the poller watches: pipes, FIFOs and terminals; and copies between
// files and connections.
#include "beat.hpp"
#include "bytes.hpp"
#include "eventually.hpp"
#include "net/socket_access.hpp"
#include "plain_socket.hpp"
#include "read_text.hpp"
#include "runtime_fixture.hpp"
#include "temporary_directory.hpp"

#include <weft/weft.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

namespace os = weft::os;
namespace net = weft::net;
using namespace std::chrono_literals;
using weft::detail::wait_reason;
using weft::test::bytes;
using weft::test::procs_scope;
using weft::test::read_all;
using weft::test::read_some;
using weft::test::runtime_test;
using weft::test::scaled;
using weft::test::temporary_directory;
using weft::test::until_waiting;

class os_pipe : public runtime_test {
 protected:
  std::string path(const std::string& name) const { return folder_ / name; }

 private:
  const temporary_directory folder_{std::filesystem::current_path()};
};

TEST_F(os_pipe, a_reader_waits_for_the_writer) {
  const procs_scope one(1);
  auto ends = os::pipe();
  ASSERT_TRUE(ends);
  auto& [reader, writer] = *ends;
  weft::wait_group all;
  all.go([&] { EXPECT_EQ(read_some(reader), "hello"); });
  EXPECT_TRUE(until_waiting(1, wait_reason::io));
  all.go([&] { EXPECT_EQ(writer.write(bytes("hello")), 5u); });
  all.wait();
  EXPECT_NE(::fcntl(reader.native_handle(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(os_pipe, plain_threads_can_wait_too) {
  auto ends = os::pipe();
  ASSERT_TRUE(ends);
  std::thread t([&] { EXPECT_EQ(read_some(ends->first), "hello"); });
  EXPECT_EQ(ends->second.write(bytes("hello")), 5u);
  t.join();
}

TEST_F(os_pipe, the_end_of_the_stream) {
  auto ends = os::pipe();
  ASSERT_TRUE(ends);
  weft::wait_group all;
  all.go([&] {
    EXPECT_EQ(read_some(ends->first), "x");
    EXPECT_EQ(read_some(ends->first), "");
    EXPECT_EQ(read_some(ends->first), "");
  });
  EXPECT_TRUE(ends->second.write(bytes("x")));
  EXPECT_FALSE(ends->second.close());
  EXPECT_EQ(ends->second.close(), weft::errc::closed);
  all.wait();
}

// A close that misses one waiter leaks that goroutine for ever.
TEST_F(os_pipe, close_wakes_every_reader) {
  auto ends = os::pipe();
  ASSERT_TRUE(ends);
  weft::wait_group all;
  for (int i = 0; i < 4; ++i) {
    all.go([&] {
      std::array<std::byte, 10> into;
      EXPECT_EQ(ends->first.read(into).error(), weft::errc::closed);
    });
  }
  EXPECT_TRUE(until_waiting(1, wait_reason::io));
  EXPECT_FALSE(ends->first.close());
  all.wait();
}

TEST_F(os_pipe, close_wakes_a_writer) {
  auto ends = os::pipe();
  ASSERT_TRUE(ends);
  weft::wait_group all;
  all.go([&] {
    EXPECT_EQ(ends->second.write(bytes(std::string(1 << 20, 'x'))).error(), weft::errc::closed);
  });
  EXPECT_TRUE(until_waiting(1, wait_reason::io));
  EXPECT_FALSE(ends->second.close());
  all.wait();
}

// The kernel raises SIGPIPE, which must not kill this process.
TEST_F(os_pipe, a_write_that_fails_half_way) {
  auto ends = os::pipe();
  ASSERT_TRUE(ends);
  weft::wait_group all;
  all.go([&] {
    EXPECT_EQ(ends->second.write(bytes(std::string(1 << 20, 'x'))).error(), std::errc::broken_pipe);
    EXPECT_EQ(ends->second.write(bytes("x")).error(), std::errc::broken_pipe);
  });
  EXPECT_EQ(read_some(ends->first, 1000).size(), 1000u);
  EXPECT_FALSE(ends->first.close());
  all.wait();
}

TEST_F(os_pipe, whole_writes_are_not_torn) {
  const procs_scope two(2);
  constexpr std::size_t size = 200'000;
  auto ends = os::pipe();
  ASSERT_TRUE(ends);
  weft::wait_group all;
  for (const char c : {'a', 'b', 'c', 'd'}) {
    all.go([&, c] { EXPECT_EQ(ends->second.write(bytes(std::string(size, c))), size); });
  }
  std::string got;
  while (got.size() < 4 * size) got += read_some(ends->first, 1 << 16);
  all.wait();
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(got.substr(i * size, size), std::string(size, got[i * size]));
}

TEST_F(os_pipe, deadlines) {
  auto ends = os::pipe();
  ASSERT_TRUE(ends);
  weft::run([&] {
    auto& [reader, writer] = *ends;
    std::array<std::byte, 10> into;
    EXPECT_FALSE(reader.set_deadline(weft::clock::now() + 10ms));
    EXPECT_EQ(reader.read(into).error(), weft::errc::timed_out);
    EXPECT_EQ(reader.read(into).error(), weft::errc::timed_out);
    EXPECT_FALSE(reader.set_read_deadline({}));
    EXPECT_TRUE(writer.write(bytes("x")));
    EXPECT_EQ(reader.read(into), 1u);
    EXPECT_FALSE(writer.set_write_deadline(weft::clock::now() + 10ms));
    EXPECT_EQ(writer.write(bytes(std::string(1 << 20, 'x'))).error(), weft::errc::timed_out);
    EXPECT_FALSE(writer.close());
    EXPECT_EQ(writer.set_deadline({}), weft::errc::closed);
  });
}

TEST_F(os_pipe, text_and_durations) {
  auto ends = os::pipe();
  ASSERT_TRUE(ends);
  weft::run([&] {
    auto& [reader, writer] = *ends;
    char into[10];
    EXPECT_EQ(writer.write("text"), 4u);
    EXPECT_EQ(reader.read(into), 4u);
    EXPECT_EQ(std::string_view(into, 4), "text");
    EXPECT_FALSE(reader.set_read_deadline(10ms));
    EXPECT_EQ(reader.read(into).error(), weft::errc::timed_out);
    EXPECT_FALSE(writer.set_write_deadline(10ms));
    EXPECT_EQ(writer.write(std::string(1 << 20, 'x')).error(), weft::errc::timed_out);
  });
}

// A copy of standard input is one's own: closing it leaves the stream alone.
TEST_F(os_pipe, a_duplicate_is_adopted_and_the_original_stays) {
  int fds[2];
  ASSERT_EQ(::pipe2(fds, O_CLOEXEC), 0);
  {
    auto reader = os::file::adopt(::dup(fds[0]));
    ASSERT_TRUE(reader);
    EXPECT_EQ(::write(fds[1], "x", 1), 1);
    EXPECT_EQ(read_some(*reader), "x");
  }
  EXPECT_EQ(::write(fds[1], "y", 1), 1);
  char y = 0;
  EXPECT_EQ(::read(fds[0], &y, 1), 1);
  EXPECT_EQ(y, 'y');
  ::close(fds[0]);
  ::close(fds[1]);
}

TEST_F(os_pipe, what_a_pipe_cannot_do) {
  auto ends = os::pipe();
  ASSERT_TRUE(ends);
  std::array<std::byte, 10> into;
  EXPECT_EQ(ends->first.pread(into, 0).error(), std::errc::invalid_seek);
  EXPECT_EQ(ends->second.pwrite(into, 0).error(), std::errc::invalid_seek);
  EXPECT_EQ(ends->first.seek(0).error(), std::errc::invalid_seek);
  EXPECT_EQ(ends->first.fsync(), std::errc::invalid_argument);
  EXPECT_EQ(ends->first.read({}), 0u);
}

// Opening one waits for the other side, in the kernel; then reading does. Neither takes the only
// processor.
TEST_F(os_pipe, a_fifo_that_blocks_beside_a_beat) {
  const procs_scope one(1);
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  weft::test::beat b;
  weft::wait_group all;
  all.go([&] {
    auto reader = os::open(path("fifo"), O_RDONLY);
    ASSERT_TRUE(reader);
    EXPECT_EQ(read_all(*reader, 1 << 16), "one two");
  });
  weft::this_goroutine::sleep_for(20ms);
  all.go([&] {
    auto writer = os::open(path("fifo"), O_WRONLY);
    ASSERT_TRUE(writer);
    EXPECT_TRUE(writer->write(bytes("one ")));
    weft::this_goroutine::sleep_for(20ms);
    EXPECT_TRUE(writer->write(bytes("two")));
  });
  all.wait();
  b.expect_kept({.median = 10ms, .p99 = 100ms});
}

// Standard input, say: its mode is everybody's.
TEST_F(os_pipe, an_adopted_one_keeps_its_mode) {
  const procs_scope one(1);
  int fds[2];
  ASSERT_EQ(::pipe2(fds, O_CLOEXEC), 0);
  auto reader = os::file::adopt(fds[0]);
  auto writer = os::file::adopt(fds[1]);
  ASSERT_TRUE(reader && writer);
  EXPECT_EQ(reader->native_handle(), fds[0]);
  constexpr std::size_t size = 300'000;
  std::atomic<bool> has_all{false};
  weft::wait_group all;
  all.go([&] {
    std::size_t got = 0;
    while (got < size && !HasFailure()) got += read_some(*reader, 10'000).size();
    EXPECT_EQ(got, size);
    has_all = true;
    std::array<std::byte, 10> into;
    EXPECT_EQ(reader->read(into).error(), weft::errc::closed);
  });
  EXPECT_TRUE(until_waiting(1, wait_reason::io));
  all.go([&] { EXPECT_EQ(writer->write(bytes(std::string(size, 'x'))), size); });
  EXPECT_EQ(::fcntl(fds[0], F_GETFL) & O_NONBLOCK, 0);
  EXPECT_EQ(::fcntl(fds[1], F_GETFL) & O_NONBLOCK, 0);
  EXPECT_TRUE(weft::test::eventually([&] { return has_all.load(); }));
  EXPECT_TRUE(until_waiting(1, wait_reason::io));
  EXPECT_FALSE(reader->close());
  all.wait();
}

TEST_F(os_pipe, a_terminal) {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (master < 0) {
    GTEST_SKIP() << "no pseudo-terminal can be had (/dev/ptmx): " << std::strerror(errno);
  }
  ASSERT_EQ(::grantpt(master), 0);
  ASSERT_EQ(::unlockpt(master), 0);
  char name[100];
  ASSERT_EQ(::ptsname_r(master, name, sizeof name), 0);
  const int inherited = ::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
  ASSERT_GE(inherited, 0);
  {
    auto opened = os::open(name, O_RDWR | O_NOCTTY);
    auto adopted = os::file::adopt(inherited);
    ASSERT_TRUE(opened && adopted);
    EXPECT_NE(::fcntl(opened->native_handle(), F_GETFL) & O_NONBLOCK, 0);
    EXPECT_EQ(::fcntl(inherited, F_GETFL) & O_NONBLOCK, 0);  // not one open file, but two
    for (os::file* const f : {&*opened, &*adopted}) {
      weft::wait_group all;
      all.go([&] { EXPECT_EQ(read_some(*f), "a line\n"); });
      EXPECT_TRUE(until_waiting(1, wait_reason::io));
      EXPECT_EQ(::write(master, "a line\n", 7), 7);
      all.wait();
      all.go([&] {
        std::array<std::byte, 10> into;
        EXPECT_EQ(f->read(into).error(), weft::errc::closed);
      });
      EXPECT_TRUE(until_waiting(1, wait_reason::io));
      EXPECT_FALSE(f->close());
      all.wait();
    }
  }
  ::close(master);
}

TEST_F(os_pipe, hundreds_of_blocked_readers_on_one_processor) {
  const procs_scope one(1);
  constexpr int pairs = 200;
  std::vector<std::pair<os::file, os::file>> all_ends;
  for (int i = 0; i < pairs; ++i) {
    auto ends = os::pipe();
    ASSERT_TRUE(ends);
    all_ends.push_back(std::move(*ends));
  }
  weft::wait_group all;
  std::atomic<int> right{0};
  for (int i = 0; i < pairs; ++i) {
    all.go([&, i] {
      if (read_some(all_ends[static_cast<std::size_t>(i)].first) == std::to_string(i)) ++right;
    });
  }
  EXPECT_TRUE(until_waiting(pairs, wait_reason::io));
  for (int i = 0; i < pairs; ++i) {
    EXPECT_TRUE(all_ends[static_cast<std::size_t>(i)].second.write(bytes(std::to_string(i))));
  }
  all.wait();
  EXPECT_EQ(right.load(), pairs);
}

// ---------------------------------------------------------------------------------------- copies

std::pair<net::conn, net::conn> connected() {
  int fds[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
  auto a = weft::io::descriptor::adopt(fds[0]);
  auto b = weft::io::descriptor::adopt(fds[1]);
  EXPECT_TRUE(a && b);
  return {net::socket_access::make_conn(std::move(*a)),
          net::socket_access::make_conn(std::move(*b))};
}

std::string pattern(std::size_t size) {
  std::string s(size, '\0');
  for (std::size_t i = 0; i < size; ++i) s[i] = static_cast<char>('a' + i / 7 % 26);
  return s;
}

TEST_F(os_pipe, a_file_goes_into_a_connection) {
  const procs_scope one(1);
  const std::string text = pattern(3'000'000);
  auto f = os::open(path("source"), O_RDWR | O_CREAT);
  ASSERT_TRUE(f);
  ASSERT_TRUE(f->write(bytes(text)));
  ASSERT_TRUE(f->seek(1000));
  auto [a, b] = connected();
  weft::wait_group all;
  all.go([&] {
    EXPECT_EQ(os::copy(a, *f, 500'000), 500'000u);
    EXPECT_EQ(os::copy(a, *f), text.size() - 501'000);
    EXPECT_EQ(os::copy(a, *f), 0u);
    EXPECT_FALSE(a.close());
    EXPECT_EQ(os::copy(a, *f).error(), weft::errc::closed);
  });
  EXPECT_EQ(read_all(b, 10'000), text.substr(1000));
  all.wait();
}

TEST_F(os_pipe, a_connection_goes_into_a_file) {
  const procs_scope one(1);
  const std::string text = pattern(3'000'000);
  for (const int append : {0, O_APPEND}) {
    auto f = os::open(path("target" + std::to_string(append)), O_RDWR | O_CREAT | append);
    ASSERT_TRUE(f);
    auto [a, b] = connected();
    weft::wait_group all;
    all.go([&] {
      EXPECT_EQ(os::copy(*f, b, 1234), 1234u);
      EXPECT_EQ(os::copy(*f, b), text.size() - 1234);
    });
    EXPECT_EQ(a.write(bytes(text)), text.size());
    EXPECT_FALSE(a.close());
    all.wait();
    ASSERT_TRUE(f->seek(0));
    EXPECT_TRUE(read_all(*f, 1 << 16) == text);
  }
}

TEST_F(os_pipe, a_file_goes_into_a_file) {
  const std::string text = pattern(3'000'000);
  auto source = os::open(path("source"), O_RDWR | O_CREAT);
  ASSERT_TRUE(source);
  ASSERT_TRUE(source->write(bytes(text)));
  for (const int append : {0, O_APPEND}) {
    ASSERT_TRUE(source->seek(1000));
    auto target = os::open(path("copy" + std::to_string(append)), O_RDWR | O_CREAT | append);
    ASSERT_TRUE(target);
    ASSERT_TRUE(target->write("head "));
    EXPECT_EQ(os::copy(*target, *source, 500'000), 500'000u);
    EXPECT_EQ(os::copy(*target, *source, 0), 0u);
    EXPECT_EQ(os::copy(*target, *source), text.size() - 501'000);
    EXPECT_EQ(os::copy(*target, *source), 0u);
    ASSERT_TRUE(target->seek(0));
    EXPECT_TRUE(read_all(*target, 1 << 16) == "head " + text.substr(1000));
    EXPECT_FALSE(target->close());
    EXPECT_EQ(os::copy(*target, *source).error(), weft::errc::closed);
  }
  // One that has no size, and one that is no file.
  auto proc = os::open("/proc/self/stat", O_RDONLY);
  auto small = os::open(path("small"), O_RDWR | O_CREAT);
  auto ends = os::pipe();
  ASSERT_TRUE(proc && small && ends);
  const auto copied = os::copy(*small, *proc);
  ASSERT_TRUE(copied);
  EXPECT_GT(*copied, 10u);
  ASSERT_TRUE(small->seek(0));
  EXPECT_EQ(os::copy(ends->second, *small), *copied);
  EXPECT_FALSE(ends->second.close());
  EXPECT_EQ(os::copy(*small, ends->first), *copied);
  EXPECT_EQ(small->size(), 2 * *copied);
  auto unwritable = os::open(path("small"), O_RDONLY);
  ASSERT_TRUE(unwritable && source->seek(0));
  EXPECT_EQ(os::copy(*unwritable, *source).error(), std::errc::bad_file_descriptor);
}

TEST_F(os_pipe, a_pipe_and_a_connection) {
  const std::string text = pattern(500'000);
  auto in = os::pipe();
  auto out = os::pipe();
  ASSERT_TRUE(in && out);
  auto [a, b] = connected();
  weft::wait_group all;
  all.go([&] {
    EXPECT_EQ(in->second.write(bytes(text)), text.size());
    EXPECT_FALSE(in->second.close());
  });
  all.go([&] {
    EXPECT_EQ(os::copy(a, in->first), text.size());
    EXPECT_FALSE(a.close());
  });
  all.go([&] {
    EXPECT_EQ(os::copy(out->second, b), text.size());
    EXPECT_FALSE(out->second.close());
  });
  EXPECT_TRUE(read_all(out->first, 1 << 16) == text);
  all.wait();
}

// A splice stops before urgent data for good, and what followed it was missing from the file.
TEST_F(os_pipe, a_copy_into_a_file_goes_on_after_urgent_data) {
  const std::string before = pattern(20'000);
  const std::string after = pattern(30'000);
  for (const bool ends_first : {true, false}) {
    SCOPED_TRACE(ends_first);
    auto listener = net::listen("tcp", "127.0.0.1:0").value();
    weft::test::plain_socket peer(listener.local_address());
    net::conn from = listener.accept().value();
    auto to = os::open(path("urgent"), O_RDWR | O_CREAT | O_TRUNC);
    ASSERT_TRUE(to);
    EXPECT_TRUE(peer.send_all(before));
    EXPECT_EQ(peer.send("!", 1, MSG_OOB), 1);
    EXPECT_TRUE(peer.send_all(after));
    if (ends_first) peer.close();
    weft::wait_group all;
    all.go([&] { EXPECT_EQ(os::copy(*to, from), before.size() + after.size()); });
    EXPECT_TRUE(weft::test::eventually([&] { return to->size() == before.size() + after.size(); }));
    peer.close();
    all.wait();
    ASSERT_TRUE(to->seek(0));
    EXPECT_TRUE(read_all(*to, 1 << 16) == before + after);
  }
}

TEST_F(os_pipe, a_copy_ends_with_what_it_copies_to) {
  auto f = os::open(path("long"), O_RDWR | O_CREAT);
  ASSERT_TRUE(f);
  ASSERT_FALSE(f->truncate(50 << 20));
  auto [a, b] = connected();
  weft::wait_group all;
  all.go([&] { EXPECT_EQ(os::copy(a, *f).error(), std::errc::broken_pipe); });
  EXPECT_TRUE(until_waiting(1, wait_reason::io));
  EXPECT_FALSE(b.close());  // SIGPIPE for the other side, which survives
  all.wait();
  auto [c, d] = connected();
  all.go([&] { EXPECT_EQ(os::copy(c, *f).error(), weft::errc::closed); });
  EXPECT_TRUE(until_waiting(1, wait_reason::io));
  EXPECT_FALSE(c.close());
  all.wait();
}

// How else would one go on after a time-out.
TEST_F(os_pipe, the_position_tells_how_far_a_copy_came) {
  const std::string text = pattern(3'000'000);
  auto source = os::open(path("from"), O_RDWR | O_CREAT);
  auto target = os::open(path("to"), O_RDWR | O_CREAT);
  ASSERT_TRUE(source && target);
  ASSERT_TRUE(source->write(text));
  ASSERT_TRUE(source->seek(0));
  auto [a, b] = connected();
  a.set_write_deadline(20ms);
  EXPECT_EQ(os::copy(a, *source).error(), weft::errc::timed_out);
  const std::uint64_t sent = source->seek(0, os::seek_from::current).value();
  EXPECT_GT(sent, 0u);
  EXPECT_LT(sent, text.size());
  EXPECT_FALSE(a.close_write());
  EXPECT_TRUE(read_all(b, 1 << 16) == text.substr(0, sent));

  EXPECT_EQ(b.write("some of it"), 10u);
  a.set_read_deadline(20ms);
  EXPECT_EQ(os::copy(*target, a).error(), weft::errc::timed_out);
  EXPECT_EQ(target->seek(0, os::seek_from::current), 10u);
}

}  // namespace
