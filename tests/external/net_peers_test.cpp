// Sockets and peers that know nothing of weft: other people's programs (nc, socat), and plain
// blocking sockets used by clients with bad manners.
#include "bytes.hpp"
#include "child_process.hpp"
#include "external_fixture.hpp"
#include "open_descriptors.hpp"
#include "plain_socket.hpp"
#include "server_process.hpp"
#include "stress_watchdog.hpp"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <weft/go.hpp>
#include <weft/net.hpp>
#include <weft/sync.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace weft {
namespace {

using namespace std::chrono_literals;
using test::bytes;
using test::is_lost;
using test::plain_socket;
using test::stream_of_bytes;

// Returns: that many bytes which are no text.
std::string some_bytes(std::size_t n, std::uint64_t number = 1) {
  std::string s(n, '\0');
  stream_of_bytes(number).fill(s.data(), n);
  return s;
}

bool has_program(const std::string& name) {
  std::istringstream path(std::getenv("PATH") != nullptr ? std::getenv("PATH") : "/usr/bin:/bin");
  for (std::string folder; std::getline(path, folder, ':');) {
    if (::access((folder + "/" + name).c_str(), X_OK) == 0) return true;
  }
  return false;
}

#define NEEDS(program, package)                                                   \
  if (!has_program(program)) {                                                    \
    GTEST_SKIP() << "there is no " program " here (apt-get install " package ")"; \
  }

struct shell_result {
  int status = -1;
  std::string output = {};

  // That the command ended well and printed what it had sent.
  void expect_back(const std::string& sent, const char* way = "") const {
    EXPECT_EQ(status, 0) << way;
    EXPECT_TRUE(output == sent) << output.size() << " bytes came back " << way;
  }
};

// Runs a command, for a minute at most, and waits for it as plain threads do.
shell_result shell(const std::string& command) {
  std::FILE* const pipe = ::popen(("exec timeout 60 " + command).c_str(), "re");
  if (pipe == nullptr) return {};
  shell_result r;
  char some[16384];
  for (std::size_t n; (n = std::fread(some, 1, sizeof some, pipe)) > 0;) r.output.append(some, n);
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) r.status = WEXITSTATUS(status);
  return r;
}

// A goroutine for each connection, as a server of weft's is written.
class stream_server {
 public:
  using handler = std::function<void(net::conn&)>;

  explicit stream_server(std::string_view network, std::string_view address, handler serve = &echo)
      : listener_(net::listen(network, address).value()), serve_(std::move(serve)) {
    all_.go([this] {
      for (;;) {
        auto c = listener_.accept();
        if (!c) {
          EXPECT_EQ(c.error(), std::error_code(errc::closed)) << c.error().message();
          return;
        }
        all_.go([this, c = std::move(*c)]() mutable { serve_(c); });
      }
    });
  }
  explicit stream_server(handler serve = &echo)
      : stream_server("tcp", "127.0.0.1:0", std::move(serve)) {}
  stream_server(const stream_server&) = delete;
  stream_server& operator=(const stream_server&) = delete;
  // Waits for the clients to go.
  ~stream_server() {
    EXPECT_FALSE(listener_.close());
    all_.wait();
  }

  net::address address() const { return listener_.local_address(); }
  std::string port() const { return std::to_string(address().port()); }

  static void echo(net::conn& c) {
    char some[4096];
    for (;;) {
      const auto n = c.read(bytes(some, sizeof some));
      if (!n) {
        EXPECT_TRUE(is_lost(n.error())) << n.error().message();
        return;
      }
      if (*n == 0) return;
      const auto written = c.write(bytes(some, *n));
      if (!written) {
        EXPECT_TRUE(is_lost(written.error())) << written.error().message();
        return;
      }
      EXPECT_EQ(*written, *n);
    }
  }

 private:
  net::listener listener_;
  const handler serve_;
  wait_group all_;
};

// Sends back what comes, to whom it came from.
class packet_server {
 public:
  packet_server(std::string_view network, std::string_view address)
      : socket_(net::listen_packet(network, address).value()) {
    all_.go([this] {
      std::vector<char> some(65536);
      for (;;) {
        const auto got = socket_.read_from(bytes(some.data(), some.size()));
        if (!got) {
          EXPECT_EQ(got.error(), std::error_code(errc::closed)) << got.error().message();
          return;
        }
        const auto sent = socket_.write_to(bytes(some.data(), got->first), got->second);
        EXPECT_TRUE(sent.has_value()) << sent.error().message();
      }
    });
  }
  packet_server(const packet_server&) = delete;
  packet_server& operator=(const packet_server&) = delete;
  ~packet_server() {
    EXPECT_FALSE(socket_.close());
    all_.wait();
  }
  std::string port() const { return std::to_string(socket_.local_address().port()); }

 private:
  net::packet_conn socket_;
  wait_group all_;
};

class net_peers : public test::external_test {
 protected:
  // A file for a program to read.
  std::string file_of(const std::string& text) {
    const std::string path = directory_ / "input";
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  std::string path_of(const char* name) const { return directory_ / name; }

  void TearDown() override {
    test::external_test::TearDown();
    EXPECT_EQ(test::count_sockets(), sockets_before_);
  }

 private:
  const std::ptrdiff_t sockets_before_ = [] {
    // The poller's own descriptors are made when there is a socket, and stay.
    (void)net::listen("tcp", "127.0.0.1:0").value();
    return test::count_sockets();
  }();
  test::temporary_directory directory_;
  // A test that hangs tells where.
  const test::watchdog dog_{100s,
                            std::string("--gtest_filter=*") +
                                ::testing::UnitTest::GetInstance()->current_test_info()->name()};
};

// ---- other people's programs
// ----------------------------------------------------------------------

// nc says that it has nothing more to send (-N) and waits for the end of the answer.
TEST_P(net_peers, nc_gets_back_what_it_sent) {
  NEEDS("nc", "netcat-openbsd");
  const stream_server server;
  const std::string sent = some_bytes(1'000'000);
  const auto r = shell("nc -N 127.0.0.1 " + server.port() + " < " + file_of(sent));
  r.expect_back(sent);
}

TEST_P(net_peers, nc_gets_back_what_it_sent_to_a_path) {
  NEEDS("nc", "netcat-openbsd");
  const stream_server server("unix", path_of("server"));
  const std::string sent = some_bytes(1'000'000);
  const auto r = shell("nc -N -U " + path_of("server") + " < " + file_of(sent));
  r.expect_back(sent);
}

TEST_P(net_peers, socat_gets_back_what_it_sent) {
  NEEDS("socat", "socat");
  const std::string sent = some_bytes(1'000'000);
  const std::string input = file_of(sent);
  {
    const stream_server server("tcp4", "127.0.0.1:0");
    const auto r = shell("socat -t 30 - TCP4:127.0.0.1:" + server.port() + " < " + input);
    r.expect_back(sent, "over TCP");
  }
  {
    const stream_server server("unix", path_of("server"));
    const auto r = shell("socat -t 30 - UNIX-CONNECT:" + path_of("server") + " < " + input);
    r.expect_back(sent, "from a path");
  }
  EXPECT_NE(::access(path_of("server").c_str(), F_OK), 0) << "the path was left behind";
}

TEST_P(net_peers, socat_gets_back_what_it_sent_over_ipv6) {
  NEEDS("socat", "socat");
  if (!test::has_ipv6()) GTEST_SKIP() << test::no_ipv6;
  const stream_server server("tcp6", "[::1]:0");
  const std::string sent = some_bytes(300'000);
  const auto r = shell("socat -t 30 - TCP6:[::1]:" + server.port() + " < " + file_of(sent));
  r.expect_back(sent);
}

// socat ends a conversation of packets with an empty one, and takes an empty one for the end.
TEST_P(net_peers, socat_gets_back_its_packets) {
  NEEDS("socat", "socat");
  const std::string sent = some_bytes(3000);
  const std::string input = file_of(sent);
  {
    const packet_server server("udp", "127.0.0.1:0");
    const auto r =
        shell("socat -t 30 - UDP4:127.0.0.1:" + server.port() + ",shut-null,null-eof < " + input);
    r.expect_back(sent, "over UDP");
  }
  {
    const packet_server server("unixgram", path_of("packets"));
    const auto r = shell("socat -t 30 - UNIX-SENDTO:" + path_of("packets") +
                         ",bind=" + path_of("client") + ",shut-null,null-eof < " + input);
    r.expect_back(sent, "from a path");
  }
}

// The other way round: weft is the client. (No more at a time than the pipe holds in which socat
// turns it round: it would wait for itself.)
TEST_P(net_peers, socat_serves) {
  NEEDS("socat", "socat");
  const std::string path = path_of("socat");
  test::server_process socat({.program = "/usr/bin/socat",
                              .arguments = {"socat", "-d", "-d", "UNIX-LISTEN:" + path, "PIPE"},
                              .directory = "/tmp"});
  ASSERT_TRUE(socat.until_it_says("listening on")) << socat.log();
  auto c = net::dial("unix", path);
  ASSERT_TRUE(c.has_value()) << c.error().message();
  for (std::uint64_t round = 0; round < 100; ++round) {
    const std::string sent = some_bytes(4000, round);
    std::string back;
    ASSERT_EQ(c->write(bytes(sent)).value_or(0), sent.size());
    char some[1500];
    while (back.size() < sent.size()) {
      const auto n = c->read(bytes(some, sizeof some));
      ASSERT_TRUE(n.has_value()) << n.error().message();
      ASSERT_NE(*n, 0u);
      back.append(some, *n);
    }
    ASSERT_TRUE(back == sent);
  }
}

// ---- clients with bad manners
// ---------------------------------------------------------------------

// Each byte is an event of its own, and none may be lost between two of them.
TEST_P(net_peers, a_client_that_sends_one_byte_at_a_time) {
  const stream_server server;
  const plain_socket client(server.address());
  const std::string sent = some_bytes(static_cast<std::size_t>(test::scaled(3000, 500)));
  for (const char c : sent) {
    ASSERT_EQ(client.send(&c, 1), 1);
    char back = 0;
    ASSERT_EQ(client.receive(&back, 1), 1);
    ASSERT_EQ(back, c);
  }
  for (const char c : sent) ASSERT_EQ(client.send(&c, 1), 1);
  EXPECT_TRUE(client.receive_exactly(sent.size()) == sent);
}

// The buffers are full most of the time: the write has to wait and go on again and again, and may
// not lose a byte or return before it is through.
TEST_P(net_peers, a_client_that_reads_slowly_gets_all) {
  const std::string all = some_bytes(150'000);
  std::atomic<std::size_t> written{0};
  const stream_server server([&](net::conn& c) {
    const int small = 4096;
    ::setsockopt(c.native_handle(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    const auto n = c.write(bytes(all));
    EXPECT_TRUE(n.has_value()) << n.error().message();
    written = n.value_or(0);
  });
  const plain_socket client(server.address(), plain_socket::mode::blocking, 4096);
  std::string got;
  char some[1024];
  for (ssize_t n; (n = client.receive(some, sizeof some)) > 0;) {
    got.append(some, static_cast<std::size_t>(n));
    if (got.size() < all.size() / 4) {
      EXPECT_EQ(written.load(), 0u) << "the write returned before its time";
    }
    std::this_thread::sleep_for(10ms);  // that is what is slow about it
  }
  EXPECT_TRUE(got == all) << got.size() << " bytes came";
}

TEST_P(net_peers, a_reset_ends_a_read_that_waits) {
  std::error_code error;
  std::atomic<std::size_t> got{0};
  {
    const stream_server server([&](net::conn& c) {
      char some[16];
      for (;;) {
        const auto n = c.read(bytes(some, sizeof some));
        if (!n) {
          error = n.error();
          return;
        }
        ASSERT_NE(*n, 0u) << "a reset looks like the end of the stream";
        got += *n;
      }
    });
    plain_socket client(server.address());
    ASSERT_TRUE(test::until_waiting(2, detail::wait_reason::io));  // it and the acceptor
    ASSERT_TRUE(client.send_all("abc"));
    ASSERT_TRUE(test::eventually([&] { return got == 3; }));
    ASSERT_TRUE(test::until_waiting(2, detail::wait_reason::io));
    client.reset();
  }
  EXPECT_EQ(error, std::errc::connection_reset) << error.message();
}

TEST_P(net_peers, a_reset_ends_a_write_that_waits) {
  const std::string much = some_bytes(20'000'000);
  std::error_code error;
  std::error_code later;
  {
    const stream_server server([&](net::conn& c) {
      const auto n = c.write(bytes(much));
      ASSERT_FALSE(n.has_value());
      error = n.error();
      later = c.write(bytes("x")).error();
    });
    plain_socket client(server.address());
    EXPECT_EQ(client.receive_exactly(100'000).size(), 100'000u);
    ASSERT_TRUE(test::until_waiting(2, detail::wait_reason::io));
    client.reset();
  }
  EXPECT_TRUE(is_lost(error)) << error.message();
  EXPECT_EQ(later, std::errc::broken_pipe) << later.message();
}

// The end of the stream is the end of one direction only.
TEST_P(net_peers, a_half_closed_client_gets_its_answer) {
  std::atomic<int> ended{0};
  const std::string answer = some_bytes(2'000'000);
  const stream_server server([&](net::conn& c) {
    char some[100];
    std::size_t got = 0;
    for (;;) {
      const auto n = c.read(bytes(some, sizeof some));
      ASSERT_TRUE(n.has_value()) << n.error().message();
      got += *n;
      if (*n == 0) break;
    }
    EXPECT_EQ(got, 1000u);
    EXPECT_EQ(c.read(bytes(some, sizeof some)).value_or(1), 0u) << "the end stays the end";
    EXPECT_EQ(c.write(bytes(answer)).value_or(0), answer.size());
    ++ended;
  });
  for (int i = 0; i < 3; ++i) {
    const plain_socket client(server.address());
    ASSERT_TRUE(client.send_all(some_bytes(1000)));
    client.close_write();
    EXPECT_TRUE(client.receive_all() == answer);
  }
  EXPECT_EQ(ended.load(), 3);
}

// By default a process that writes to a vanished peer is killed. A server must not be.
TEST_P(net_peers, a_client_that_vanishes_is_an_error_and_no_signal) {
  struct sigaction deadly{};
  deadly.sa_handler = SIG_DFL;
  struct sigaction before{};
  ASSERT_EQ(::sigaction(SIGPIPE, &deadly, &before), 0);
  const auto write_until_it_fails = [](net::conn& c) {
    const std::string some = some_bytes(1000);
    const std::array pieces{bytes(some), bytes(some)};
    for (int i = 0; i < 1'000'000; ++i) {
      const auto n = i % 2 == 0 ? c.write(bytes(some)) : c.write(std::span(pieces));
      if (n) continue;
      EXPECT_TRUE(is_lost(n.error())) << n.error().message();
      EXPECT_EQ(c.write(bytes(some)).error(), std::errc::broken_pipe);
      EXPECT_EQ(c.write(std::span(pieces)).error(), std::errc::broken_pipe);
      return;
    }
    ADD_FAILURE() << "who reads all that";
  };
  for (const std::string network : {"tcp", "unix"}) {
    const stream_server server(network, network == "tcp" ? "127.0.0.1:0" : path_of("server"),
                               write_until_it_fails);
    for (int i = 0; i < 10; ++i) {
      plain_socket client(server.address());
      if (i % 2 == 0) (void)client.receive_exactly(1);
      client.close();
    }
  }
  ::sigaction(SIGPIPE, &before, nullptr);
}

// As above, where the kernel copies by itself and cannot suppress the signal (io/sigpipe.hpp).
TEST_P(net_peers, copying_to_a_client_that_vanishes_is_an_error_and_no_signal) {
  struct sigaction action{};
  ASSERT_EQ(::sigaction(SIGPIPE, nullptr, &action), 0);
  ASSERT_NE(action.sa_handler, SIG_IGN);  // children would inherit that
  const stream_server source([](net::conn& c) {
    const std::string some = some_bytes(10'000);
    while (c.write(bytes(some))) {
    }
  });
  {
    const stream_server server([&](net::conn& c) {
      auto from = net::dial("tcp", source.address().to_string());
      ASSERT_TRUE(from.has_value()) << from.error().message();
      for (int i = 0; i < 2; ++i) {  // the first may say that it was reset, the next knows
        const auto n = net::copy(c, *from);
        ASSERT_FALSE(n.has_value());
        EXPECT_TRUE(is_lost(n.error())) << n.error().message();
      }
    });
    for (int i = 0; i < 5; ++i) {
      plain_socket client(server.address());
      EXPECT_EQ(client.receive_exactly(100'000), [] {
        std::string all;
        while (all.size() < 100'000) all += some_bytes(10'000);
        return all;
      }());
      i % 2 == 0 ? client.close() : client.reset();
    }
  }
}

// What the kernel's copy has left in the buffer is there for a read, though no event says so again.
TEST_P(net_peers, a_read_after_a_copy_that_failed_gets_the_rest) {
  auto l = net::listen("tcp", "127.0.0.1:0").value();
  const std::string much = some_bytes(100'000);
  for (int i = 0; i < 20; ++i) {
    plain_socket gone(l.local_address());
    auto to = l.accept().value();
    gone.reset();
    const plain_socket source(l.local_address());
    auto from = l.accept().value();
    char some[16];
    ASSERT_TRUE(source.send_all("abc"));
    ASSERT_EQ(from.read(bytes(some, sizeof some)).value_or(0), 3u);
    wait_group all;
    all.go([&] { EXPECT_FALSE(net::copy(to, from).has_value()); });
    ASSERT_TRUE(test::until_waiting(1, detail::wait_reason::io));
    ASSERT_TRUE(source.send_all(much));
    all.wait();
    // A part of it went with the copy.
    const auto n = from.read(bytes(some, sizeof some));
    ASSERT_TRUE(n.has_value()) << n.error().message();
    ASSERT_EQ(*n, sizeof some);
  }
}

// The kernel interrupts a read at urgent data, so that it returns less than there is. What follows
// has come already and no event announces it.
TEST_P(net_peers, urgent_data_does_not_hide_what_follows) {
  const stream_server server;
  for (int i = 0; i < test::scaled(200, 50); ++i) {
    const plain_socket client(server.address());
    // At once, and so, mostly, before the server looks.
    ASSERT_TRUE(client.send_all("before"));
    ASSERT_EQ(client.send("!", 1, MSG_OOB), 1);
    ASSERT_TRUE(client.send_all("after"));
    ASSERT_EQ(client.receive_exactly(11), "beforeafter") << "in round " << i;
  }
}

// ---- descriptors
// ----------------------------------------------------------------------------------

// Without descriptors a server that gives up is lost, and one that tries on and on takes all the
// time there is.
TEST(scarce_descriptors, a_server_without_descriptors_waits_for_some) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP()
      << "UndefinedBehaviorSanitizer makes a pipe in order to see whether an object's type "
         "can be read, and this program leaves none to be had";
#endif
  const auto r = test::run_program("scarce_descriptors");
  EXPECT_EQ(r.status, 0) << r;
  EXPECT_EQ(r.output, "some wait\n60 are served\n") << r;
}

// What was left behind of a connection that was closed may be used by mistake. Its record is
// somebody else's by then, who must not notice.
TEST_P(net_peers, a_closed_connection_does_not_touch_the_next) {
  auto l = net::listen("tcp", "127.0.0.1:0").value();
  const plain_socket first_client(l.local_address());
  auto first = l.accept().value();
  ASSERT_TRUE(first_client.send_all("abc"));
  char some[16];
  ASSERT_EQ(first.read(bytes(some, sizeof some)).value_or(0), 3u);  // less than it asked for
  ASSERT_FALSE(first.close());

  const plain_socket second_client(l.local_address());
  auto second = l.accept().value();
  std::string got;
  wait_group all;
  all.go([&] {
    char text[16];
    const auto n = second.read(bytes(text, sizeof text));
    ASSERT_TRUE(n.has_value()) << n.error().message();
    got.assign(text, *n);
  });
  ASSERT_TRUE(test::until_waiting(1, detail::wait_reason::io));
  first.set_deadline(weft::clock::now() - 1s);
  EXPECT_EQ(first.read(bytes(some, sizeof some)).error(), std::error_code(errc::closed));
  EXPECT_EQ(first.write(bytes("x")).error(), std::error_code(errc::closed));
  EXPECT_EQ(first.close_write(), std::error_code(errc::closed));
  EXPECT_EQ(first.close(), std::error_code(errc::closed));
  ASSERT_TRUE(second_client.send_all("hello"));
  all.wait();
  EXPECT_EQ(got, "hello");
}

// The number of a descriptor that was closed is the next one's, and so is its record. An event for
// the former that is still under way must not end up there: nobody may read what was meant for
// another, or take another's end for its own.
TEST_P(net_peers, a_thousand_descriptors_come_and_go_with_events_in_flight) {
  constexpr std::size_t token_bytes = 8;
  std::atomic<int> mixed{0};
  std::atomic<int> served{0};
  {
    const stream_server server([&](net::conn& c) {
      char some[token_bytes * 4];
      std::string first;
      std::string all;
      for (int turn = 0;; ++turn) {
        const auto n = c.read(bytes(some, sizeof some));
        if (!n || *n == 0) break;
        all.append(some, *n);
        if (all.size() < token_bytes) continue;
        if (first.empty()) first = all.substr(0, token_bytes);
        // One in four is left by the server, in the middle of whatever comes.
        if (turn == 1 && first[0] % 4 == 0) break;
        if (!c.write(bytes(some, *n))) break;
      }
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (all.size() >= token_bytes && all[i] != first[i % token_bytes]) ++mixed;
      }
      ++served;
    });
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 250; ++i) {
          const std::string token =
              some_bytes(token_bytes, static_cast<std::uint64_t>(t * 1000 + i + 1));
          plain_socket client(server.address());
          const int messages = 1 + i % 4;
          bool was_left = false;
          for (int k = 0; k < messages && !was_left; ++k) was_left = !client.send_all(token);
          // Some stay for the answer, others leave while it is under way.
          if (i % 3 == 0) {
            std::string due;
            for (int k = 0; k < messages; ++k) due += token;
            const std::string got = client.receive_exactly(due.size());
            EXPECT_TRUE(due.starts_with(got));
            if (token[0] % 4 != 0) {
              EXPECT_EQ(got.size(), due.size());
            }
          }
          i % 2 == 0 ? client.close() : client.reset();
        }
      });
    }
    for (std::thread& t : threads) t.join();
  }
  EXPECT_EQ(mixed.load(), 0);
  EXPECT_GT(served.load(), 900);  // a connection may be reset before it is accepted
}

INSTANTIATE_TEST_SUITE_P(on, net_peers, ::testing::Values(1, 2, 4), test::processors_name);

}  // namespace
}  // namespace weft
