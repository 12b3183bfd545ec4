// net_conn_test.cpp: connections, listeners and packets over loopback, and the poller beneath them.
#include "beat.hpp"
#include "bytes.hpp"
#include "open_descriptors.hpp"
#include "plain_socket.hpp"
#include "read_text.hpp"
#include "runtime_fixture.hpp"
#include "sched/poller.hpp"

#include <weft/net.hpp>
#include <weft/weft.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fcntl.h>
#include <fstream>
#include <malloc.h>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

using namespace std::chrono_literals;
using weft::errc;
using weft::expected;
using weft::detail::wait_reason;
using weft::net::conn;
using weft::test::bytes;
using weft::test::count_descriptors;
using weft::test::eventually;
using weft::test::has_ipv6;
using weft::test::procs_scope;
using weft::test::read_all;
using weft::test::read_some;
using weft::test::runtime_test;
using weft::test::scaled;
using weft::test::until_waiting;
namespace net = weft::net;

// A text in which a piece that is lost or out of place shows.
std::string patterned(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 13 + i / 257);
  return text;
}

struct pair_of_conns {
  conn client;
  conn server;
};

pair_of_conns connected(std::string_view network = "tcp",
                        std::string_view address = "127.0.0.1:0") {
  auto l = net::listen(network, address);
  if (!l) throw std::system_error(l.error());
  auto client = net::dial(network, l->local_address().to_string());
  auto server = l->accept();
  if (!client || !server) throw std::runtime_error("cannot connect");
  return {std::move(*client), std::move(*server)};
}

void echo(conn& c) {
  for (std::string text = read_some(c); !text.empty(); text = read_some(c)) {
    EXPECT_TRUE(c.write(bytes(text)));
  }
}

class net_conn : public runtime_test {
 protected:
  static void SetUpTestSuite() { (void)connected(); }  // what is made once
  void SetUp() override { before_ = count_descriptors(); }
  void TearDown() override {
    runtime_test::TearDown();
    EXPECT_EQ(count_descriptors(), before_) << "descriptors were left behind";
    EXPECT_FALSE(weft::sched::the_poller.is_waited_for());
  }

 private:
  std::ptrdiff_t before_ = 0;
};

TEST_F(net_conn, what_is_written_is_read) {
  weft::run([] {
    auto [client, server] = connected();
    ASSERT_TRUE(client.write(bytes("hello")));
    EXPECT_EQ(read_some(server), "hello");
    ASSERT_TRUE(server.write(bytes("good bye")));
    EXPECT_EQ(read_some(client), "good bye");
  });
}

TEST_F(net_conn, plain_threads_may_use_one_too) {
  auto [client, server] = connected();
  std::thread answers([&server = server] {
    const std::string text = read_some(server);
    EXPECT_TRUE(server.write(bytes(text + text)));
  });
  std::this_thread::sleep_for(5ms);
  ASSERT_TRUE(client.write(bytes("abc")));
  EXPECT_EQ(read_some(client), "abcabc");
  answers.join();
}

TEST_F(net_conn, a_plain_thread_waits_while_all_machines_sleep) {
  auto [client, server] = connected();
  for (int i = 0; i < 20; ++i) {
    std::thread late([&client = client] {
      std::this_thread::sleep_for(10ms);  // the monitor is asleep by then, too
      EXPECT_TRUE(client.write(bytes("x")));
    });
    EXPECT_EQ(read_some(server), "x");
    late.join();
  }
}

TEST_F(net_conn, ipv6_and_both_protocols_on_one_listener) {
  weft::run([] {
    auto l = net::listen("tcp", ":0");
    ASSERT_TRUE(l) << l.error().message();
    const std::string port = std::to_string(l->local_address().port());
    auto v4 = net::dial("tcp", "127.0.0.1:" + port);
    ASSERT_TRUE(v4) << v4.error().message();
    if (!has_ipv6()) GTEST_SKIP() << weft::test::no_ipv6;
    ASSERT_TRUE(l->local_address().is_v6());
    auto v6 = net::dial("tcp", "[::1]:" + port);
    ASSERT_TRUE(v6) << v6.error().message();
    EXPECT_TRUE(v6->remote_address().is_v6());
    EXPECT_TRUE(l->accept());
    EXPECT_TRUE(l->accept());
    auto only = net::listen("tcp6", "[::1]:0");
    ASSERT_TRUE(only) << only.error().message();
    EXPECT_FALSE(net::dial("tcp", "127.0.0.1:" + std::to_string(only->local_address().port())));
  });
}

TEST_F(net_conn, addresses_of_both_ends_agree) {
  auto [client, server] = connected();
  EXPECT_EQ(client.local_address(), server.remote_address());
  EXPECT_EQ(client.remote_address(), server.local_address());
  EXPECT_EQ(client.local_address().host(), "127.0.0.1");
}

TEST_F(net_conn, unix_sockets_and_their_files) {
  const std::string path = "/tmp/weft-test-" + std::to_string(::getpid()) + ".sock";
  weft::run([&] {
    {
      auto l = net::listen("unix", path);
      ASSERT_TRUE(l) << l.error().message();
      EXPECT_EQ(l->local_address().to_string(), path);
      auto client = net::dial("unix", path);
      ASSERT_TRUE(client) << client.error().message();
      auto server = l->accept();
      ASSERT_TRUE(server);
      ASSERT_TRUE(client->write(bytes("over a file")));
      EXPECT_EQ(read_some(*server), "over a file");
      EXPECT_EQ(::access(path.c_str(), F_OK), 0);
      auto moved = std::move(*l);
      EXPECT_EQ(::access(path.c_str(), F_OK), 0);
    }
    EXPECT_NE(::access(path.c_str(), F_OK), 0) << "the file is still there";
  });
}

TEST_F(net_conn, the_end_of_the_stream_is_zero_and_stays_so) {
  weft::run([] {
    auto [client, server] = connected();
    ASSERT_TRUE(client.write(bytes("last words")));
    EXPECT_FALSE(client.close());
    EXPECT_EQ(read_all(server), "last words");
    std::byte one[1];
    EXPECT_EQ(server.read(one).value(), 0u);
  });
}

// The data and the end may come with one event: a read that gets less than it asked for must not
// wait for another.
TEST_F(net_conn, the_end_is_noticed_however_it_comes) {
  weft::run([] {
    for (int i = 0; i < scaled(2000, 200); ++i) {
      auto [client, server] = connected();
      weft::wait_group reader;
      reader.go([&server = server] { EXPECT_EQ(read_all(server), "x"); });
      if (i % 2 == 0) weft::this_goroutine::yield();
      ASSERT_TRUE(client.write(bytes("x")));
      if (i % 3 == 0) weft::this_goroutine::yield();
      if (i % 5 == 0) {
        EXPECT_FALSE(client.close_write());
      } else {
        EXPECT_FALSE(client.close());
      }
      reader.wait();
    }
  });
}

TEST_F(net_conn, half_closed_ones_can_still_be_read) {
  weft::run([] {
    auto [client, server] = connected();
    ASSERT_TRUE(client.write(bytes("question")));
    EXPECT_FALSE(client.close_write());
    EXPECT_EQ(read_all(server), "question");
    ASSERT_TRUE(server.write(bytes("answer")));
    EXPECT_FALSE(server.close());
    EXPECT_EQ(read_all(client), "answer");
    EXPECT_FALSE(client.write(bytes("more")));
  });
}

TEST_F(net_conn, an_empty_read_and_an_empty_write_do_nothing) {
  weft::run([] {
    auto [client, server] = connected();
    EXPECT_EQ(client.read({}).value(), 0u);
    EXPECT_EQ(client.write(std::span<const std::byte>()).value(), 0u);
    EXPECT_EQ(client.write(std::span<const std::span<const std::byte>>()).value(), 0u);
  });
}

// A literal's NUL would be sent by a span of its array.
TEST_F(net_conn, text_is_written_and_read_as_bytes_are) {
  weft::run([] {
    auto [client, server] = connected();
    const char* const pointer = "pointer";
    char array[10] = "array";
    EXPECT_EQ(client.write("literal").value(), 7u);
    EXPECT_EQ(read_some(server), "literal");
    EXPECT_EQ(client.write(std::string("a\0b", 3)).value(), 3u);
    EXPECT_EQ(read_some(server), std::string("a\0b", 3));
    EXPECT_EQ(client.write(pointer).value(), 7u);
    EXPECT_EQ(read_some(server), "pointer");
    EXPECT_EQ(client.write(array).value(), 5u);
    EXPECT_EQ(read_some(server), "array");
    EXPECT_EQ(client.write({array, 3}).value(), 3u);
    EXPECT_EQ(read_some(server), "arr");
    const char full[2][3] = {{'a', 'b', 'c'}, {'d', 'e', 'f'}};  // without a NUL
    EXPECT_EQ(client.write(full[0]).value(), 3u);
    EXPECT_EQ(read_some(server), "abc");

    EXPECT_EQ(client.write("0123456789").value(), 10u);
    char three[3];
    EXPECT_EQ(server.read(three).value(), 3u);
    EXPECT_EQ(std::string_view(three, 3), "012");
    EXPECT_EQ(server.read({three, 1}).value(), 1u);
    EXPECT_EQ(three[0], '3');
    EXPECT_EQ(server.read(std::span(three).first(2)).value(), 2u);
    EXPECT_EQ(std::string_view(three, 2), "45");
    std::string rest(100, '\0');
    EXPECT_EQ(server.read(rest).value(), 4u);
    EXPECT_EQ(rest.substr(0, 4), "6789");
  });
}

// Text must not come between what programs passed when there was none.
TEST_F(net_conn, bytes_and_pieces_mean_what_they_meant) {
  weft::run([] {
    auto [client, server] = connected();
    std::byte two[2] = {std::byte{'x'}, std::byte{'y'}};
    const std::vector<std::byte> many(2, std::byte{'m'});
    EXPECT_EQ(client.write(two).value(), 2u);
    EXPECT_EQ(client.write({two, 1}).value(), 1u);
    EXPECT_EQ(client.write(many).value(), 2u);
    EXPECT_EQ(client.write(std::as_bytes(std::span("nul"))).value(), 4u);
    EXPECT_EQ(read_some(server), std::string("xyxmmnul\0", 9));
    const std::array<std::span<const std::byte>, 2> pieces{bytes("one "), bytes("two")};
    EXPECT_EQ(client.write(pieces).value(), 7u);
    EXPECT_EQ(client.write({pieces.data(), 1}).value(), 4u);
    EXPECT_EQ(read_some(server), "one twoone ");
    EXPECT_EQ(server.read({}).value(), 0u);
    EXPECT_EQ(client.write(many).value(), 2u);
    std::vector<std::byte> into(10);
    EXPECT_EQ(server.read(into).value(), 2u);
  });
}

TEST_F(net_conn, a_large_write_waits_for_its_reader) {
  weft::run([] {
    auto [client, server] = connected();
    const std::string text = patterned(8 << 20);
    weft::wait_group writer;
    writer.go([&, &client = client] {
      EXPECT_EQ(client.write(bytes(text)).value(), text.size());
      EXPECT_FALSE(client.close());
    });
    EXPECT_TRUE(read_all(server) == text);
    writer.wait();
  });
}

TEST_F(net_conn, many_pieces_go_out_in_order) {
  weft::run([] {
    auto [client, server] = connected();
    std::vector<std::string> texts;
    std::string all;
    for (int i = 0; i < 300; ++i) {  // more than one system call takes, with empty ones
      texts.push_back(i % 7 == 0 ? ""
                                 : std::string(static_cast<std::size_t>(i * 37 % 5000), 'a') +
                                       std::to_string(i));
      all += texts.back();
    }
    std::vector<std::span<const std::byte>> pieces;
    for (const std::string& t : texts) pieces.push_back(bytes(t));
    weft::wait_group writer;
    writer.go([&, &client = client] {
      EXPECT_EQ(client.write(pieces).value(), all.size());
      EXPECT_FALSE(client.close());
    });
    EXPECT_TRUE(read_all(server) == all);
    writer.wait();
  });
}

TEST_F(net_conn, a_whole_write_is_never_torn_by_another) {
  weft::run([] {
    constexpr std::size_t size = 200'000;  // more than the kernel's buffer takes at once
    auto [client, server] = connected();
    weft::wait_group writers;
    for (char c = 'a'; c < 'a' + 8; ++c) {
      writers.go([c, &client = client] { EXPECT_TRUE(client.write(bytes(std::string(size, c)))); });
    }
    weft::go([&, &client = client] {
      writers.wait();
      EXPECT_FALSE(client.close_write());
    });
    const std::string all = read_all(server);
    ASSERT_EQ(all.size(), 8 * size);
    for (std::size_t at = 0; at < all.size(); at += size) {
      EXPECT_EQ(std::string_view(all).substr(at, size).find_first_not_of(all[at]),
                std::string_view::npos);
    }
    writers.wait();
  });
}

TEST_F(net_conn, many_readers_of_one_connection_lose_nothing) {
  weft::run([] {
    auto [client, server] = connected();
    std::atomic<std::size_t> got{0};
    weft::wait_group readers;
    for (int i = 0; i < 8; ++i) {
      readers.go([&, &server = server] {
        std::byte some[100];
        for (;;) {
          const auto n = server.read(some);
          if (!n || *n == 0) return;
          got += *n;
        }
      });
    }
    const std::string text(1000, 'x');
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(client.write(bytes(text)));
    EXPECT_FALSE(client.close());
    readers.wait();
    EXPECT_EQ(got, 100'000u);
  });
}

// --- Closing -------------------------------------------------------------------------------------

TEST_F(net_conn, close_wakes_everybody_who_waits) {
  weft::run([] {
    auto [client, server] = connected();
    weft::wait_group all;
    for (int i = 0; i < 4; ++i) {
      all.go([&client = client] {
        std::byte some[10];
        const auto n = client.read(some);
        ASSERT_FALSE(n);
        EXPECT_EQ(n.error(), errc::closed);
        EXPECT_EQ(n.error(), std::errc::bad_file_descriptor);
      });
      all.go([&client = client] {
        const std::string much(64 << 20, 'x');
        const auto n = client.write(bytes(much));
        ASSERT_FALSE(n);
        EXPECT_EQ(n.error(), errc::closed);
      });
    }
    ASSERT_TRUE(until_waiting(2, wait_reason::io));
    EXPECT_FALSE(client.close());
    EXPECT_EQ(client.close(), errc::closed);
    all.wait();
    EXPECT_FALSE(client.is_open());
    EXPECT_EQ(client.native_handle(), -1);
    EXPECT_EQ(client.set_no_delay(true), errc::closed);
    EXPECT_EQ(client.close_write(), errc::closed);
    EXPECT_EQ(client.remote_address(), net::address());
  });
}

TEST_F(net_conn, close_wakes_who_accepts) {
  weft::run([] {
    auto l = net::listen("tcp", "127.0.0.1:0");
    ASSERT_TRUE(l);
    weft::wait_group all;
    for (int i = 0; i < 3; ++i) {
      all.go([&] {
        const auto c = l->accept();
        ASSERT_FALSE(c);
        EXPECT_EQ(c.error(), errc::closed);
      });
    }
    ASSERT_TRUE(until_waiting(1, wait_reason::io));
    EXPECT_FALSE(l->close());
    all.wait();
    EXPECT_EQ(l->close(), errc::closed);
    EXPECT_EQ(l->accept().error(), errc::closed);
  });
}

TEST_F(net_conn, a_handle_that_was_moved_from_is_closed) {
  auto [client, server] = connected();
  conn other = std::move(client);
  std::byte some[1];
  EXPECT_EQ(client.read(some).error(), errc::closed);
  EXPECT_EQ(client.write(some).error(), errc::closed);
  EXPECT_EQ(client.close(), errc::closed);
  client.set_deadline(weft::clock::now());
  EXPECT_TRUE(other.is_open());
  EXPECT_EQ(conn().close(), errc::closed);
  EXPECT_EQ(net::listener().accept().error(), errc::closed);
  EXPECT_EQ(net::packet_conn().read_from(some).error(), errc::closed);
}

TEST_F(net_conn, a_reset_is_an_error_and_kills_nobody) {
  weft::run([] {
    auto [client, server] = connected();
    EXPECT_FALSE(client.set_linger(0s));
    weft::wait_group reader;
    reader.go([&server = server] {
      std::byte some[10];
      const auto n = server.read(some);
      ASSERT_FALSE(n);
      EXPECT_EQ(n.error(), std::errc::connection_reset);
    });
    ASSERT_TRUE(until_waiting(1, wait_reason::io));
    EXPECT_FALSE(client.close());
    reader.wait();
    const std::string much(1 << 20, 'x');
    const auto n = server.write(bytes(much));  // SIGPIPE would end the process
    ASSERT_FALSE(n);
    EXPECT_EQ(n.error(), std::errc::broken_pipe);
  });
}

// --- Deadlines -----------------------------------------------------------------------------------

TEST_F(net_conn, a_deadline_ends_a_wait_and_stays_until_it_is_changed) {
  weft::run([] {
    auto [client, server] = connected();
    std::byte some[10];
    const auto start = weft::clock::now();
    client.set_read_deadline(start + 20ms);
    for (int i = 0; i < 3; ++i) {
      const auto n = client.read(some);
      ASSERT_FALSE(n);
      EXPECT_EQ(n.error(), errc::timed_out);
      EXPECT_EQ(n.error(), std::errc::timed_out);
      EXPECT_GE(weft::clock::now() - start, 20ms);
    }
    EXPECT_TRUE(client.write(bytes("writes have their own")));
    client.set_read_deadline({});
    ASSERT_TRUE(server.write(bytes("late")));
    EXPECT_EQ(read_some(client), "late");
  });
}

TEST_F(net_conn, a_deadline_in_the_past_wakes_at_once_who_waits) {
  weft::run([] {
    auto [client, server] = connected();
    weft::wait_group all;
    all.go([&client = client] {
      std::byte some[10];
      EXPECT_EQ(client.read(some).error(), errc::timed_out);
    });
    all.go([&client = client] {
      const std::string much(64 << 20, 'x');
      EXPECT_EQ(client.write(bytes(much)).error(), errc::timed_out);
    });
    ASSERT_TRUE(until_waiting(2, wait_reason::io));
    client.set_deadline(weft::clock::now() - 1h);
    all.wait();
  });
}

TEST_F(net_conn, a_deadline_can_be_changed_while_others_wait) {
  weft::run([] {
    auto [client, server] = connected();
    client.set_read_deadline(weft::clock::now() + 1h);
    weft::wait_group all;
    all.go([&client = client] {
      std::byte some[10];
      EXPECT_EQ(client.read(some).error(), errc::timed_out);
    });
    ASSERT_TRUE(until_waiting(1, wait_reason::io));
    client.set_read_deadline(weft::clock::now() + 10ms);
    all.wait();

    client.set_read_deadline(weft::clock::now() + 30ms);
    all.go([&client = client] { EXPECT_EQ(read_some(client), "in time"); });
    ASSERT_TRUE(until_waiting(1, wait_reason::io));
    client.set_read_deadline({});
    weft::this_goroutine::sleep_for(50ms);
    ASSERT_TRUE(server.write(bytes("in time")));
    all.wait();
  });
}

TEST_F(net_conn, a_deadline_may_be_so_long_from_now) {
  weft::run([] {
    auto [client, server] = connected();
    char some[10];
    const auto start = weft::clock::now();
    client.set_deadline(20ms);
    EXPECT_EQ(client.read(some).error(), errc::timed_out);
    EXPECT_GE(weft::clock::now() - start, 20ms);
    client.set_deadline(std::chrono::hours::max());  // as good as none
    ASSERT_TRUE(server.write("late"));
    EXPECT_EQ(client.read(some).value(), 4u);
    client.set_read_deadline(-1s);
    EXPECT_EQ(client.read(some).error(), errc::timed_out);
    client.set_write_deadline(0s);
    EXPECT_EQ(client.write(std::string(64 << 20, 'x')).error(), errc::timed_out);
    auto l = net::listen("tcp", "127.0.0.1:0");
    ASSERT_TRUE(l);
    l->set_deadline(0.01s);
    EXPECT_EQ(l->accept().error(), errc::timed_out);
  });
}

// What net.hpp tells everybody to compare with.
TEST_F(net_conn, both_ways_to_be_late_are_stds_timed_out) {
  weft::run([] {
    auto [client, server] = connected();
    char some[10];
    client.set_deadline(0s);
    const std::error_code by_deadline = client.read(some).error();
    const auto [ctx, cancel] = weft::with_timeout(weft::context::background(), 0s);
    const std::error_code by_context = net::dial(ctx, "tcp", "127.0.0.1:1").error();
    EXPECT_EQ(by_deadline, std::errc::timed_out);
    EXPECT_EQ(by_context, std::errc::timed_out);
    EXPECT_EQ(by_context, errc::deadline_exceeded);
    EXPECT_NE(by_context, by_deadline);
  });
}

// The idiom of context.hpp.
TEST_F(net_conn, a_context_ends_a_read_by_a_deadline) {
  weft::run([] {
    auto [client, server] = connected();
    const auto c = std::make_shared<conn>(std::move(client));
    const auto [ctx, cancel] = weft::with_cancel(weft::context::background());
    {
      const auto undo = weft::after_func(ctx, [c] { c->set_deadline(weft::clock::now()); });
      weft::wait_group reader;
      reader.go([&] {
        char some[10];
        EXPECT_EQ(c->read(some).error(), errc::timed_out);
      });
      ASSERT_TRUE(until_waiting(1, wait_reason::io));
      cancel();
      reader.wait();
      EXPECT_FALSE(undo());
    }
    // The function goes, and what it owns with it, when it has returned and `undo` is gone.
    EXPECT_TRUE(eventually([&] { return c.use_count() == 1; }));
  });
}

TEST_F(net_conn, accept_has_a_deadline_too) {
  weft::run([] {
    auto l = net::listen("tcp", "127.0.0.1:0");
    ASSERT_TRUE(l);
    l->set_deadline(weft::clock::now() + 10ms);
    EXPECT_EQ(l->accept().error(), errc::timed_out);
    l->set_deadline({});
    auto c = net::dial("tcp", l->local_address().to_string());
    EXPECT_TRUE(c);
    EXPECT_TRUE(l->accept());
  });
}

// --- Packets -------------------------------------------------------------------------------------

TEST_F(net_conn, datagrams_keep_their_limits_and_tell_where_they_come_from) {
  weft::run([] {
    auto a = net::listen_packet("udp", "127.0.0.1:0");
    auto b = net::listen_packet("udp", "127.0.0.1:0");
    ASSERT_TRUE(a && b);
    ASSERT_TRUE(a->write_to(bytes("one"), b->local_address()));
    ASSERT_TRUE(a->write_to(bytes("three"), b->local_address()));
    ASSERT_TRUE(a->write_to({}, b->local_address()));
    std::byte some[100];
    for (const std::string_view text : {"one", "three", ""}) {
      const auto got = b->read_from(some);
      ASSERT_TRUE(got);
      EXPECT_EQ(std::string_view(reinterpret_cast<char*>(some), got->first), text);
      EXPECT_EQ(got->second, a->local_address());
    }
    b->set_read_deadline(weft::clock::now() + 5ms);
    EXPECT_EQ(b->read_from(some).error(), errc::timed_out);

    b->set_deadline({});
    ASSERT_TRUE(a->write_to("text", b->local_address()));
    ASSERT_TRUE(a->write_to(std::string("cut"), b->local_address()));
    char text[4];
    EXPECT_EQ(b->read_from(text).value().first, 4u);
    EXPECT_EQ(std::string_view(text, 4), "text");
    EXPECT_EQ(b->read_from({text, 2}).value().first, 2u);
    EXPECT_EQ(std::string_view(text, 2), "cu");
    b->set_deadline(1ms);
    EXPECT_EQ(b->read_from(text).error(), errc::timed_out);
  });
}

TEST_F(net_conn, unix_datagrams) {
  const std::string path = "/tmp/weft-test-" + std::to_string(::getpid()) + ".dgram";
  weft::run([&] {
    auto server = net::listen_packet("unixgram", path);
    ASSERT_TRUE(server) << server.error().message();
    auto client = net::listen_packet("unixgram", "");
    ASSERT_TRUE(client) << client.error().message();
    ASSERT_TRUE(client->write_to(bytes("hello"), server->local_address()));
    std::byte some[100];
    const auto got = server->read_from(some);
    ASSERT_TRUE(got);
    EXPECT_EQ(got->first, 5u);
    ASSERT_TRUE(server->write_to(bytes("there"), got->second)) << got->second.to_string();
    EXPECT_EQ(client->read_from(some).value().first, 5u);
  });
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
}

// --- Copying -------------------------------------------------------------------------------------

// A client writes `size` bytes to a proxy, which copies them on to a server.
void copy_through(pair_of_conns& in, pair_of_conns& out, std::size_t size) {
  const std::string text = patterned(size);
  weft::wait_group all;
  all.go([&] {
    EXPECT_TRUE(in.client.write(bytes(text)));
    EXPECT_FALSE(in.client.close_write());
  });
  all.go([&] {
    const auto copied = net::copy(out.client, in.server);
    EXPECT_TRUE(copied) << copied.error().message();
    EXPECT_EQ(copied.value_or(0), size);
    EXPECT_FALSE(out.client.close_write());
  });
  EXPECT_TRUE(read_all(out.server) == text);
  all.wait();
}

TEST_F(net_conn, copy_moves_everything_to_the_end) {
  weft::run([] {
    pair_of_conns in = connected();
    pair_of_conns out = connected();
    copy_through(in, out, 3'000'000);
  });
}

// All descriptors that the process may have, for as long as a block lasts; few, so that it is
// quick.
class no_descriptors_left {
 public:
  no_descriptors_left() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(count_descriptors()) + 100;
    ::setrlimit(RLIMIT_NOFILE, &few);
    for (int fd = ::dup(STDERR_FILENO); fd >= 0; fd = ::dup(STDERR_FILENO)) taken_.push_back(fd);
  }
  no_descriptors_left(const no_descriptors_left&) = delete;
  no_descriptors_left& operator=(const no_descriptors_left&) = delete;
  ~no_descriptors_left() {
    for (const int fd : taken_) ::close(fd);
    ::setrlimit(RLIMIT_NOFILE, &before_);
  }

 private:
  rlimit before_{};
  std::vector<int> taken_;
};

// A splice stops before urgent data for good: the peer, which may be anybody, would decide that
// what follows is lost.
TEST_F(net_conn, copy_goes_on_after_urgent_data) {
  weft::run([] {
    const std::string before = patterned(100'000);
    const std::string after = patterned(300'000);
    auto listener = net::listen("tcp", "127.0.0.1:0").value();
    weft::test::plain_socket peer(listener.local_address());
    net::conn in = listener.accept().value();
    pair_of_conns out = connected();
    std::jthread sender([&] {
      EXPECT_TRUE(peer.send_all(before));
      EXPECT_EQ(peer.send("!", 1, MSG_OOB), 1);
      EXPECT_TRUE(peer.send_all(after));
      peer.close();
    });
    weft::wait_group all;
    all.go([&] {
      weft::this_goroutine::sleep_for(20ms);  // all of it is there, the end included
      EXPECT_EQ(net::copy(out.client, in), before.size() + after.size());
      EXPECT_FALSE(out.client.close_write());
    });
    EXPECT_TRUE(read_all(out.server) == before + after);
    all.wait();
  });
}

// A proxy at its limit of descriptors has to go on with those it has.
TEST_F(net_conn, copy_goes_on_without_descriptors) {
  weft::run([] {
    pair_of_conns in = connected();
    pair_of_conns out = connected();
    const no_descriptors_left now;
    copy_through(in, out, 1'000'000);
  });
}

// A proxy has many connections on which nothing moves, and two copies for each of them.
TEST_F(net_conn, copy_holds_no_descriptors_while_nothing_moves) {
  weft::run([] {
    auto [client, middle_in] = connected();
    auto [middle_out, server] = connected();
    const std::ptrdiff_t before = count_descriptors();
    weft::wait_group all;
    std::uint64_t copied = 0;
    all.go([&, &in = middle_in, &out = middle_out] {
      copied = net::copy(out, in).value_or(0);
      EXPECT_FALSE(out.close_write());
    });
    std::uint64_t total = 0;
    // Nothing, little, as much as is worth a pipe; and each again.
    for (const std::size_t size : {0, 1, 1'000, 16'384, 100'000, 1'000'000, 1, 300'000}) {
      const std::string text(size, 'x');
      weft::wait_group sent;
      sent.go([&, &client = client] { EXPECT_TRUE(client.write(bytes(text))); });
      std::string got;
      while (got.size() < size) got += read_some(server);
      sent.wait();
      total += size;
      EXPECT_TRUE(eventually([] { return weft::test::count_waiting(wait_reason::io) == 1; }));
      EXPECT_EQ(count_descriptors(), before) << size;
    }
    EXPECT_FALSE(client.close());
    all.wait();
    EXPECT_EQ(copied, total);
    EXPECT_EQ(read_all(server), "");
  });
}

// Nor does a client that does not read cost a proxy more descriptors than its connections.
TEST_F(net_conn, copy_holds_no_descriptors_while_nothing_is_taken) {
  weft::run([] {
    pair_of_conns in = connected();
    pair_of_conns out = connected();
    const std::ptrdiff_t before = count_descriptors();
    const std::string text = patterned(32 << 20);
    weft::wait_group all;
    all.go([&] {
      EXPECT_EQ(in.client.write(bytes(text)), text.size());
      EXPECT_FALSE(in.client.close_write());
    });
    all.go([&] {
      EXPECT_EQ(net::copy(out.client, in.server), text.size());
      EXPECT_FALSE(out.client.close_write());
    });
    std::string got;
    for (int stall = 0; stall < 3; ++stall) {
      // Long enough for it to see that nothing moves.
      weft::this_goroutine::sleep_for(200ms);
      EXPECT_TRUE(eventually([&] {
        return weft::test::count_waiting(wait_reason::io) != 0 && count_descriptors() == before;
      }));
      for (const std::size_t enough = got.size() + (4 << 20); got.size() < enough;) {
        got += read_some(out.server);
      }
    }
    got += read_all(out.server);
    EXPECT_TRUE(got == text);
    all.wait();
  });
}

// --- Out of descriptors -------------------------------------------------------------------------

// A server without descriptors looks dead from outside. It says why, but not for each client, and
// goes on when it has some again.
TEST_F(net_conn, accept_tells_that_it_has_no_descriptors) {
  weft::run([] {
    auto l = net::listen("tcp", "127.0.0.1:0").value();
    ::testing::internal::CaptureStderr();
    std::string said;
    {
      std::vector<conn> clients;
      for (int i = 0; i < 3; ++i)
        clients.push_back(net::dial("tcp", l.local_address().to_string()).value());
      weft::wait_group all;
      {
        const no_descriptors_left now;
        all.go([&] {
          for (int i = 0; i < 3; ++i) EXPECT_TRUE(l.accept());
        });
        EXPECT_TRUE(until_waiting(1, wait_reason::io));
        weft::this_goroutine::sleep_for(100ms);  // several attempts
      }
      all.wait();
      said = ::testing::internal::GetCapturedStderr();
    }
    EXPECT_EQ(said, "weft: accept on " + l.local_address().to_string() +
                        ": Too many open files; new connections have to wait\n");
  });
}

// --- After a crowd -------------------------------------------------------------------------------

// "name:  12345 kB" of /proc/self/status.
std::int64_t own_status(std::string_view name) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(name)) return std::stoll(line.substr(name.size() + 1));
  }
  return -1;
}

// The limit of descriptors is as high as may be, for as long as a block lasts.
class many_descriptors {
 public:
  many_descriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit most = before_;
    most.rlim_cur = most.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &most);
  }
  many_descriptors(const many_descriptors&) = delete;
  many_descriptors& operator=(const many_descriptors&) = delete;
  ~many_descriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  static int left() {
    rlimit now{};
    ::getrlimit(RLIMIT_NOFILE, &now);
    return static_cast<int>(std::min<rlim_t>(now.rlim_cur, 1 << 20)) -
           static_cast<int>(count_descriptors());
  }

 private:
  rlimit before_{};
};

// Opens so many connections, each with a goroutine and a buffer at both ends, and closes them.
void be_crowded(int connections) {
  auto l = net::listen("tcp", "127.0.0.1:0").value();
  weft::wait_group all;
  weft::latch up(connections);
  const weft::chan<int> leave;
  all.go([&] {
    while (auto c = l.accept()) {
      all.go([c = std::make_shared<conn>(std::move(*c))] {
        std::vector<std::byte> buffer(4096);
        for (auto n = c->read(buffer); n && *n != 0; n = c->read(buffer)) {
          if (!c->write(std::span(buffer).first(*n))) return;
        }
      });
    }
  });
  for (int i = 0; i < connections; ++i) {
    all.go([&] {
      auto c = net::dial("tcp", l.local_address().to_string());
      EXPECT_TRUE(c) << c.error().message();
      std::vector<char> buffer(4096);
      if (c) {
        EXPECT_EQ(c->write("hello"), 5u);
        EXPECT_EQ(c->read(buffer), 5u);
      }
      up.count_down();
      leave.recv();
    });
  }
  up.wait();
  leave.close();
  EXPECT_TRUE(eventually([] { return weft::num_goroutine() <= 2; }));
  EXPECT_FALSE(l.close());
  all.wait();
}

// A server's worst minute must not be what it costs from then on. The goroutines' stacks go back to
// the kernel by themselves, after a second or two, and threads that are not needed end after five;
// what the program itself had, and has freed, goes back when the C library is asked.
TEST_F(net_conn, what_a_crowd_took_is_given_back) {
  const many_descriptors now;
  const int connections = std::min(scaled(5'000, 300), (many_descriptors::left() - 100) / 2);
  weft::run([&] {
    constexpr std::int64_t kept_kb_max = 32 << 10;  // of 80 to 100 MB; mostly it is 5
    // The main thread, the monitor, the one that makes threads, the file system's, the signals',
    // the four that are kept for calls that block, and one that is about to end.
    const std::int64_t threads_max = weft::max_procs() + 10;
    const std::int64_t before_kb = own_status("RssAnon:");
    be_crowded(connections);
    const std::int64_t at_first_kb = own_status("RssAnon:") - before_kb;
    std::int64_t kept_kb = 0;
    std::int64_t threads = 0;
    for (int i = 0; i < 100; ++i) {
      ::malloc_trim(0);
      kept_kb = own_status("RssAnon:") - before_kb;
      threads = own_status("Threads:");
      const bool is_little = kept_kb <= kept_kb_max || weft::test::slow_build;
      if (is_little && threads <= threads_max) break;
      weft::this_goroutine::sleep_for(100ms);
    }
    std::printf("%d connections: %ld KiB more when they closed, %ld in the end; %ld threads\n",
                connections, static_cast<long>(at_first_kb), static_cast<long>(kept_kb),
                static_cast<long>(threads));
    EXPECT_LE(threads, threads_max);
    if (!weft::test::slow_build) {  // a sanitizer or an emulator keeps memory of its own
      EXPECT_LE(kept_kb, kept_kb_max);
    }
  });
}

// --- Bad input -----------------------------------------------------------------------------------

TEST_F(net_conn, bad_networks_and_addresses_are_errors) {
  EXPECT_EQ(net::listen("tpc", "127.0.0.1:0").error(), std::errc::invalid_argument);
  EXPECT_EQ(net::listen("udp", "127.0.0.1:0").error(), std::errc::invalid_argument);
  EXPECT_EQ(net::listen("tcp", "127.0.0.1").error(), std::errc::invalid_argument);
  EXPECT_FALSE(net::listen("tcp", "127.0.0.1:99999"));
  EXPECT_FALSE(net::listen("tcp4", "[::1]:0"));
  EXPECT_FALSE(net::listen("unix", std::string(200, 'x')));
  EXPECT_EQ(net::listen_packet("tcp", "127.0.0.1:0").error(), std::errc::invalid_argument);
  auto l = net::listen("tcp", "127.0.0.1:0");
  ASSERT_TRUE(l);
  EXPECT_EQ(net::listen("tcp", l->local_address().to_string()).error(), std::errc::address_in_use);
}

// "Invalid argument" alone sends everybody to the source.
TEST_F(net_conn, what_is_wrong_with_an_address_is_told_apart) {
  using enum net::address_errc;
  struct wrong {
    const char* network;
    const char* address;
    net::address_errc what;
  };
  for (const auto& [network, text, what] : std::initializer_list<wrong>{
           {"tpc", "127.0.0.1:80", unknown_network},
           {"", "127.0.0.1:80", unknown_network},
           {"tcp", "127.0.0.1", missing_port},
           {"tcp", "localhost", missing_port},
           {"tcp", "", missing_port},
           {"tcp", "[::1]", missing_port},
           {"tcp", "127.0.0.1:99999", bad_port},
           {"tcp", "127.0.0.1:-1", bad_port},
           {"tcp", "127.0.0.1:no-such-service", bad_port},
           {"tcp", "::1:80", malformed},
           {"tcp", "[::1]x:80", malformed},
           {"tcp", "[::1:80", malformed},
       }) {
    const std::error_code dialled = net::dial(network, text).error();
    EXPECT_EQ(dialled, what) << network << ' ' << text << ": " << dialled.message();
    EXPECT_EQ(dialled, std::errc::invalid_argument);
    EXPECT_EQ(net::listen(network, text).error(), what) << network << ' ' << text;
    EXPECT_EQ(
        net::listen_packet(std::string_view(network) == "tcp" ? "udp" : network, text).error(),
        what);
  }
  EXPECT_EQ(net::listen("udp", "127.0.0.1:0").error(), unknown_network);
  EXPECT_EQ(net::dial("udp", "127.0.0.1:1").error(), unknown_network);
  EXPECT_EQ(net::describe("dial", "tcp", "127.0.0.1:1", net::dial("tcp", "127.0.0.1:1").error()),
            "dial tcp 127.0.0.1:1: Connection refused");
  EXPECT_EQ(net::describe("listen", "tcp", "a", net::listen("tcp", "a").error()),
            "listen tcp a: the address has no port; it must be host:port");
}

// --- The scheduler -------------------------------------------------------------------------------

// A million-goroutine server is mostly idle connections: they cost no time and no thread.
TEST_F(net_conn, a_thousand_idle_ones_and_one_that_talks) {
  const procs_scope procs(2);
  weft::run([] {
    std::vector<pair_of_conns> idle(static_cast<std::size_t>(scaled(1000, 100)));
    weft::wait_group readers;
    for (auto& p : idle) {
      p = connected();
      readers.go([&p] { EXPECT_EQ(read_all(p.server), ""); });
    }
    auto [client, server] = connected();
    readers.go([&server = server] { echo(server); });
    for (int i = 0; i < 1000; ++i) {
      ASSERT_TRUE(client.write(bytes("ping")));
      ASSERT_EQ(read_some(client), "ping");
    }
    EXPECT_FALSE(client.close());
    for (auto& p : idle) EXPECT_FALSE(p.client.close());
    readers.wait();
  });
}

// No processor picks goroutines, so the monitor has to poll.
TEST_F(net_conn, an_answer_comes_although_every_processor_computes) {
  const procs_scope procs(2);
  auto [client, server] = connected();
  std::atomic<bool> stop{false};
  weft::wait_group all;
  for (int i = 0; i < 3; ++i) {
    all.go([&] {
      while (!stop.load(std::memory_order_relaxed)) {
      }
    });
  }
  all.go([&server = server] { echo(server); });
  std::vector<std::chrono::nanoseconds> took;
  for (int i = 0; i < 100; ++i) {
    std::this_thread::sleep_for(1ms);
    const auto start = std::chrono::steady_clock::now();
    ASSERT_TRUE(client.write(bytes("ping")));
    ASSERT_EQ(read_some(client), "ping");
    took.push_back(std::chrono::steady_clock::now() - start);
  }
  stop = true;
  EXPECT_FALSE(client.close());
  all.wait();
  std::ranges::sort(took);
  std::printf("round trip beside hogs: median %ld us, worst %ld us\n",
              static_cast<long>(took[50] / 1us), static_cast<long>(took[99] / 1us));
  EXPECT_LT(took[50], 20ms * scaled(1, 10));
}

// One that never lets go but always has a next one to run: fair picks look at the poller.
TEST_F(net_conn, an_answer_comes_although_others_yield_all_the_time) {
  const procs_scope procs(1);
  auto [client, server] = connected();
  std::atomic<bool> stop{false};
  weft::wait_group all;
  for (int i = 0; i < 4; ++i) {
    all.go([&] {
      while (!stop.load(std::memory_order_relaxed)) weft::this_goroutine::yield();
    });
  }
  all.go([&server = server] { echo(server); });
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(client.write(bytes("ping")));
    ASSERT_EQ(read_some(client), "ping");
  }
  stop = true;
  EXPECT_FALSE(client.close());
  all.wait();
}

// Timers and descriptors are waited for at the same place.
TEST_F(net_conn, timers_are_kept_while_all_wait_for_descriptors) {
  const procs_scope procs(2);
  auto [client, server] = connected();
  weft::wait_group reader;
  reader.go([&server = server] { EXPECT_EQ(read_all(server), "the end"); });
  weft::test::beat b;
  std::this_thread::sleep_for(200ms);
  b.expect_kept({5ms, 200ms});
  ASSERT_TRUE(client.write(bytes("the end")));
  EXPECT_FALSE(client.close());
  reader.wait();
}

// Its thread waits with it and gives the processor away although no machine takes it: then no
// thread would poll.
TEST_F(net_conn, a_goroutine_that_is_locked_to_its_thread_reads_alone) {
  for (const int n : {1, 2}) {
    const procs_scope procs(n);
    auto [client, server] = connected();
    std::thread writes([&client = client] {
      std::this_thread::sleep_for(20ms);
      EXPECT_TRUE(client.write(bytes("x")));
    });
    weft::run([&server = server] {
      weft::this_goroutine::lock_thread();
      EXPECT_EQ(read_some(server), "x");
    });
    writes.join();
  }
}

// As above, for a goroutine in an announced call.
TEST_F(net_conn, others_read_while_one_is_in_a_blocking_call) {
  for (const int n : {1, 2}) {
    const procs_scope procs(n);
    auto [client, server] = connected();
    weft::run([&client = client, &server = server] {
      weft::wait_group all;
      std::atomic<bool> has_read{false};
      all.go([&] {
        EXPECT_EQ(read_some(server), "x");
        has_read = true;
      });
      all.go([&] {
        EXPECT_EQ(read_some(client), "y");
        weft::blocking([&] {
          std::this_thread::sleep_for(10ms);
          EXPECT_EQ(::write(client.native_handle(), "x", 1), 1);
          const auto end = std::chrono::steady_clock::now() + 10s;
          while (!has_read && std::chrono::steady_clock::now() < end) {
            std::this_thread::sleep_for(1ms);
          }
        });
        EXPECT_TRUE(has_read);
      });
      EXPECT_TRUE(until_waiting(2, wait_reason::io));
      ASSERT_TRUE(server.write(bytes("y")));
      all.wait();
    });
  }
}

// Several become ready at once, found by a processor that always has something else to run.
TEST_F(net_conn, who_is_found_in_passing_wakes_other_processors) {
  const procs_scope procs(4);
  std::vector<pair_of_conns> all(8);
  for (auto& p : all) p = connected();
  std::atomic<bool> stop{false};
  std::atomic<int> running{0};
  weft::wait_group done;
  done.go([&] {
    while (!stop.load(std::memory_order_relaxed)) weft::this_goroutine::yield();
  });
  for (auto& p : all) {
    done.go([&] {
      EXPECT_EQ(read_some(p.server), "x");
      ++running;
      // Computes until another does, too.
      const auto end = std::chrono::steady_clock::now() + 10s;
      while (running < 2 && std::chrono::steady_clock::now() < end) {
      }
      EXPECT_GE(running, 2);
    });
  }
  EXPECT_TRUE(until_waiting(all.size(), wait_reason::io));
  for (auto& p : all) ASSERT_TRUE(p.client.write(bytes("x")));
  EXPECT_TRUE(eventually([&] { return running == 8; }));
  stop = true;
  done.wait();
}

TEST_F(net_conn, a_full_queue_of_unix_datagrams_is_waited_for) {
  const std::string path = "/tmp/weft-test-" + std::to_string(::getpid()) + ".full";
  weft::run([&] {
    auto receiver = net::listen_packet("unixgram", path);
    auto first = net::listen_packet("unixgram", "");
    auto second = net::listen_packet("unixgram", "");
    ASSERT_TRUE(receiver && first && second);
    const net::address to = receiver->local_address();
    first->set_write_deadline(weft::clock::now() + 10ms);
    int sent = 0;
    while (first->write_to(bytes("x"), to)) ++sent;
    weft::wait_group writer;
    writer.go([&] { EXPECT_TRUE(second->write_to(bytes("last"), to)); });
    EXPECT_TRUE(until_waiting(1, wait_reason::io));
    std::byte some[10];
    for (int i = 0; i <= sent; ++i) EXPECT_TRUE(receiver->read_from(some));
    writer.wait();
  });
}

TEST_F(net_conn, records_of_descriptors_are_used_again) {
  weft::run([] {
    for (int i = 0; i < scaled(3000, 300); ++i) {
      auto [client, server] = connected();
      weft::wait_group one;
      one.go([&server = server] { (void)read_some(server); });
      ASSERT_TRUE(client.write(bytes("x")));
      one.wait();
    }
  });
}

TEST_F(net_conn, bubbles_have_no_network) {
  auto [client, server] = connected();
  weft::test::bubble([&client = client] {
    std::byte some[1];
    EXPECT_EQ(client.read(some).error(), std::errc::operation_not_supported);
  });
}

}  // namespace
