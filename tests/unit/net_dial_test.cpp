// Dialling: which peer it reaches, which error it returns if it reaches none, and that a context
// ends it.
#include "dns_server.hpp"
#include "net/connect.hpp"
#include "net/dial.hpp"
#include "net/look_up.hpp"
#include "net/socket_options.hpp"
#include "open_descriptors.hpp"
#include "plain_socket.hpp"
#include "runtime_fixture.hpp"

#include <weft/context.hpp>
#include <weft/net.hpp>
#include <weft/sync.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

using namespace std::chrono_literals;
using weft::context;
using weft::detail::wait_reason;
using weft::net::address;
using weft::net::dial;
using weft::test::count_descriptors;
using weft::test::dns_server;
using weft::test::eventually;
using weft::test::has_ipv6;
using weft::test::procs_scope;
using weft::test::until_waiting;

weft::expected<weft::net::conn> dial_addresses(const std::vector<address>& addresses,
                                               const context& ctx) {
  return weft::net::dial_addresses(addresses, ctx);
}

constexpr const char* no_cares =
    "built without c-ares: the C library cannot be pointed at a test's server";

class net_dial : public weft::test::runtime_test {
 protected:
  void TearDown() override {
    weft::net::use_name_servers("");
    runtime_test::TearDown();
  }
};

// A socket of the kernel's, without the library under test.
class raw_socket {
 public:
  explicit raw_socket(const address& where) : address_(where) {
    const auto* const native = static_cast<const sockaddr*>(where.data());
    fd_ = ::socket(native->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    is_bound_ = ::bind(fd_, native, static_cast<socklen_t>(where.size())) == 0;
    address_ = name(&::getsockname);
  }
  explicit raw_socket(std::string_view where) : raw_socket(*address::parse(where)) {}
  raw_socket(const raw_socket&) = delete;
  raw_socket& operator=(const raw_socket&) = delete;
  ~raw_socket() { ::close(fd_); }

  int fd() const { return fd_; }
  bool is_bound() const { return is_bound_; }
  const address& where() const { return address_; }
  address peer() const { return name(&::getpeername); }
  raw_socket& listen(int backlog = 16) {
    EXPECT_EQ(::listen(fd_, backlog), 0);
    return *this;
  }

 private:
  address name(int (*get)(int, sockaddr*, socklen_t*)) const {
    sockaddr_storage native{};
    socklen_t size = sizeof native;
    get(fd_, reinterpret_cast<sockaddr*>(&native), &size);
    return address::from_native(&native, size);
  }

  int fd_ = -1;
  bool is_bound_ = false;
  address address_;
};

// A listener that never accepts and has a full queue: connecting to it takes for ever.
class deaf_listener {
 public:
  explicit deaf_listener(std::string_view where) : socket_(where) {
    socket_.listen(0);
    for (int i = 0; i < 4; ++i) {
      const auto* const native = static_cast<const sockaddr*>(socket_.where().data());
      const int fd = ::socket(native->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
      (void)::connect(fd, native, static_cast<socklen_t>(socket_.where().size()));
      callers_.push_back(fd);
    }
  }
  deaf_listener(const deaf_listener&) = delete;
  deaf_listener& operator=(const deaf_listener&) = delete;
  ~deaf_listener() {
    for (const int fd : callers_) ::close(fd);
  }
  const raw_socket& operator*() const { return socket_; }
  const address& where() const { return socket_.where(); }

 private:
  raw_socket socket_;
  std::vector<int> callers_;
};

int option(int fd, int level, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  EXPECT_EQ(::getsockopt(fd, level, name, &value, &size), 0);
  return value;
}

TEST_F(net_dial, what_is_no_network_or_no_address_is_an_invalid_argument) {
  const std::pair<const char*, const char*> bad[] = {
      {"", "127.0.0.1:80"},
      {"udp", "127.0.0.1:80"},
      {"tcp5", "127.0.0.1:80"},
      {"TCP", "127.0.0.1:80"},
      {"tcp", ""},
      {"tcp", "127.0.0.1"},
      {"tcp", "::1:80"},
      {"tcp", "127.0.0.1:65536"},
      {"tcp", "127.0.0.1:-1"},
      {"tcp", "[::1]:none_such"},
      {"unix", ""},
  };
  for (const auto& [network, text] : bad) {
    const auto c = dial(network, text);
    ASSERT_FALSE(c) << network << ' ' << text;
    EXPECT_EQ(c.error(), std::errc::invalid_argument) << network << ' ' << text;
  }
  EXPECT_EQ(dial("unix", std::string(200, 'x')).error(), std::errc::filename_too_long);
  EXPECT_EQ(dial("tcp4", "[::1]:80").error(), weft::net::resolve_errc::no_address);
  EXPECT_EQ(dial("tcp6", "127.0.0.1:80").error(), weft::net::resolve_errc::no_address);
  EXPECT_EQ(dial("tcp", "a b:80").error(), weft::net::resolve_errc::host_not_found);
  EXPECT_EQ(dial_addresses({}, context::background()).error(), std::errc::invalid_argument);
}

TEST_F(net_dial, bytes_go_both_ways) {
  raw_socket server("127.0.0.1:0");
  server.listen();
  for (const char* const network : {"tcp", "tcp4"}) {
    weft::wait_group all;
    all.go([&] {
      auto c = dial(network, server.where().to_string());
      ASSERT_TRUE(c) << c.error().message();
      EXPECT_EQ(c->remote_address(), server.where());
      const std::array word{std::byte{'h'}, std::byte{'i'}};
      EXPECT_EQ(c->write(word), 2u);
      std::array<std::byte, 2> echo{};
      EXPECT_EQ(c->read(echo), 2u);
      EXPECT_EQ(echo, word);
    });
    const int peer = ::accept4(server.fd(), nullptr, nullptr, SOCK_CLOEXEC);
    char text[2] = {};
    EXPECT_EQ(::recv(peer, text, 2, MSG_WAITALL), 2);
    EXPECT_EQ(::send(peer, text, 2, 0), 2);
    all.wait();
    ::close(peer);
  }
}

// Small writes must not wait for each other, and a peer that vanished must be noticed.
TEST_F(net_dial, a_tcp_connection_has_the_defaults) {
  raw_socket server("127.0.0.1:0");
  server.listen();
  const auto c = dial("tcp", server.where().to_string());
  ASSERT_TRUE(c) << c.error().message();
  const int fd = c->native_handle();
  EXPECT_EQ(option(fd, IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_EQ(option(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_EQ(option(fd, IPPROTO_TCP, TCP_KEEPIDLE), 15);
  EXPECT_EQ(option(fd, IPPROTO_TCP, TCP_KEEPINTVL), 15);
  EXPECT_EQ(option(fd, IPPROTO_TCP, TCP_KEEPCNT), 9);
  EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_NE(::fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
}

TEST_F(net_dial, nobody_listens) {
  const raw_socket taken("127.0.0.1:0");  // so that no other socket gets the port
  EXPECT_EQ(dial("tcp", taken.where().to_string()).error(), std::errc::connection_refused);
  weft::wait_group all;
  all.go([&] {
    EXPECT_EQ(dial("tcp4", taken.where().to_string()).error(), std::errc::connection_refused);
  });
  all.wait();
}

// An empty host is this machine, whichever protocol it listens on.
TEST_F(net_dial, no_host_means_this_machine) {
  raw_socket four("127.0.0.1:0");
  four.listen();
  const auto c = dial("tcp", ":" + std::to_string(four.where().port()));
  ASSERT_TRUE(c) << c.error().message();
  EXPECT_EQ(c->remote_address(), four.where());
  if (!has_ipv6()) GTEST_SKIP() << weft::test::no_ipv6;
  raw_socket six("[::1]:0");
  six.listen();
  const auto d = dial("tcp", ":" + std::to_string(six.where().port()));
  ASSERT_TRUE(d) << d.error().message();
  EXPECT_EQ(d->remote_address(), six.where());
}

TEST_F(net_dial, a_context_that_has_ended_connects_to_nobody) {
  raw_socket server("127.0.0.1:0");
  server.listen();
  const auto [ctx, cancel] = weft::with_cancel(context::background());
  cancel();
  EXPECT_EQ(dial(ctx, "tcp", server.where().to_string()).error(), weft::errc::canceled);
  const auto [late, cancel_late] = weft::with_timeout(context::background(), 0s);
  EXPECT_EQ(dial(late, "tcp", server.where().to_string()).error(), weft::errc::deadline_exceeded);
  EXPECT_EQ(dial(late, "unix", "/nowhere").error(), weft::errc::deadline_exceeded);
}

TEST_F(net_dial, a_deadline_ends_an_attempt_that_nobody_answers) {
  const deaf_listener deaf("127.0.0.1:0");
  const auto begin = weft::clock::now();
  const auto [ctx, cancel] = weft::with_timeout(context::background(), 50ms);
  EXPECT_EQ(dial(ctx, "tcp", deaf.where().to_string()).error(), weft::errc::deadline_exceeded);
  EXPECT_GE(weft::clock::now() - begin, 50ms);
}

TEST_F(net_dial, cancelling_ends_an_attempt_at_once) {
  const deaf_listener deaf("127.0.0.1:0");
  const auto before = count_descriptors();
  constexpr int dialers = 20;
  const auto [ctx, cancel] = weft::with_cancel(context::background());
  weft::wait_group all;
  for (int i = 0; i < dialers; ++i) {
    all.go([&, c = ctx] {
      EXPECT_EQ(dial(c, "tcp", deaf.where().to_string()).error(), weft::errc::canceled);
    });
  }
  ASSERT_TRUE(until_waiting(dialers, wait_reason::io));
  cancel();
  all.wait();  // for minutes, if it were the kernel's time-out
  EXPECT_LE(count_descriptors(), before);
}

// A request's context often ends before its connection goes back to a pool.
TEST_F(net_dial, the_context_means_nothing_to_a_connection) {
  raw_socket server("127.0.0.1:0");
  server.listen();
  const auto [ctx, cancel] = weft::with_cancel(context::background());
  auto c = dial(ctx, "tcp", server.where().to_string());
  ASSERT_TRUE(c) << c.error().message();
  cancel();
  const int peer = ::accept4(server.fd(), nullptr, nullptr, SOCK_CLOEXEC);
  EXPECT_EQ(::send(peer, "x", 1, 0), 1);
  std::array<std::byte, 1> x{};
  EXPECT_EQ(c->read(x), 1u);
  EXPECT_EQ(c->write(x), 1u);
  ::close(peer);
}

// The end of a context and the end of an attempt meet in every order, and neither a descriptor nor
// a goroutine is lost, nor a connection that works reported as none without reason.
TEST_F(net_dial, cancelling_races_with_success) {
  raw_socket server("127.0.0.1:0");
  server.listen(256);  // more than dial here: the last one must not wait for those before it
  ASSERT_TRUE(dial("tcp", server.where().to_string()));  // and what the poller opens is open
  const auto before = count_descriptors();
  std::atomic<bool> over{false};
  std::thread accepts([&] {
    while (!over.load()) {
      const int peer = ::accept4(server.fd(), nullptr, nullptr, SOCK_CLOEXEC);
      if (peer != -1) ::close(peer);
    }
  });
  const std::string where = server.where().to_string();
  weft::wait_group all;
  for (int i = 0; i < 200; ++i) {
    all.go([&where] {
      const auto [ctx, cancel] = weft::with_cancel(context::background());
      weft::go([c = cancel] { c(); });
      const auto c = dial(ctx, "tcp", where);
      EXPECT_TRUE(c || c.error() == weft::errc::canceled) << c.error().message();
    });
  }
  all.wait();
  over.store(true);
  EXPECT_TRUE(dial("tcp", where));
  accepts.join();
  EXPECT_TRUE(eventually([&] { return count_descriptors() <= before; }));
}

TEST_F(net_dial, addresses_are_tried_in_turn_and_the_first_error_is_told) {
  raw_socket server("127.0.0.1:0");
  server.listen();
  const raw_socket refuses("127.0.0.1:0");
  const address unreachable = *address::parse("255.255.255.255:1");
  const auto c =
      dial_addresses({unreachable, refuses.where(), server.where()}, context::background());
  ASSERT_TRUE(c) << c.error().message();
  EXPECT_EQ(c->remote_address(), server.where());
  EXPECT_EQ(dial_addresses({unreachable, refuses.where()}, context::background()).error(),
            std::errc::network_unreachable);
  EXPECT_EQ(dial_addresses({refuses.where(), unreachable}, context::background()).error(),
            std::errc::connection_refused);
}

TEST_F(net_dial, each_address_has_a_fair_share_of_the_time_but_not_too_little) {
  using weft::net::share_of;
  EXPECT_EQ(share_of(60s, 3), 20s);
  EXPECT_EQ(share_of(60s, 1), 60s);
  EXPECT_EQ(share_of(6s, 3), 2s);
  EXPECT_EQ(share_of(5s, 3), 2s);
  EXPECT_EQ(share_of(1s, 3), 1s);
  EXPECT_EQ(share_of(0s, 3), 0s);
}

// One address that does not answer must leave time for the next one.
TEST_F(net_dial, a_deaf_address_does_not_use_up_the_time_of_the_next) {
  const deaf_listener deaf("127.0.0.1:0");
  raw_socket server("127.0.0.1:0");
  server.listen();
  const auto [ctx, cancel] = weft::with_timeout(context::background(), 60s);
  const auto begin = weft::clock::now();
  std::vector<address> many(29, server.where());
  many.insert(many.begin(), deaf.where());
  const auto c = dial_addresses(many, ctx);
  ASSERT_TRUE(c) << c.error().message();
  EXPECT_EQ(c->remote_address(), server.where());
  EXPECT_GE(weft::clock::now() - begin, 2s);
  cancel();
}

class net_dial_both : public net_dial {
 protected:
  void SetUp() override {
    if (!has_ipv6()) GTEST_SKIP() << weft::test::no_ipv6;
  }
};

// A broken IPv6 costs a blink, not a time-out; and so does a broken IPv4.
TEST_F(net_dial_both, the_other_family_begins_while_the_first_is_waiting) {
  for (const auto& [first, second] :
       {std::pair("127.0.0.1:0", "[::1]:0"), std::pair("[::1]:0", "127.0.0.1:0")}) {
    const deaf_listener deaf(first);
    raw_socket server(second);
    server.listen();
    const auto begin = weft::clock::now();
    const auto c = dial_addresses({deaf.where(), server.where()}, context::background());
    ASSERT_TRUE(c) << c.error().message();
    EXPECT_EQ(c->remote_address(), server.where());
    EXPECT_GE(weft::clock::now() - begin, 300ms);
  }
}

TEST_F(net_dial_both, the_other_family_begins_when_the_first_has_failed) {
  const raw_socket refuses("[::1]:0");
  raw_socket server("127.0.0.1:0");
  server.listen();
  auto fastest = std::chrono::nanoseconds::max();
  for (int i = 0; i < 5; ++i) {
    const auto begin = weft::clock::now();
    const auto c = dial_addresses({refuses.where(), server.where()}, context::background());
    ASSERT_TRUE(c) << c.error().message();
    EXPECT_EQ(c->remote_address(), server.where());
    fastest = std::min<std::chrono::nanoseconds>(fastest, weft::clock::now() - begin);
  }
  EXPECT_LT(fastest, 300ms) << "it waited for the head start to be over";
}

TEST_F(net_dial_both, the_first_family_wins_if_it_can) {
  raw_socket six("[::1]:0"), four("127.0.0.1:0");
  six.listen(64);
  four.listen(64);
  const auto before = count_descriptors();
  int wins = 0;
  for (int i = 0; i < 20; ++i) {
    const auto c = dial_addresses({six.where(), four.where()}, context::background());
    ASSERT_TRUE(c) << c.error().message();
    if (c->remote_address() == six.where()) ++wins;
  }
  EXPECT_GT(wins, 15) << "unless the machine slept for 300 ms again and again";
  EXPECT_TRUE(eventually([&] { return count_descriptors() <= before; }));
}

TEST_F(net_dial_both, if_all_fail_the_error_is_the_first_addresses) {
  const raw_socket refuses("[::1]:0");
  const address unreachable = *address::parse("255.255.255.255:1");
  EXPECT_EQ(dial_addresses({refuses.where(), unreachable}, context::background()).error(),
            std::errc::connection_refused);
  EXPECT_EQ(dial_addresses({unreachable, refuses.where()}, context::background()).error(),
            std::errc::network_unreachable);
}

TEST_F(net_dial_both, a_context_ends_both) {
  const deaf_listener six("[::1]:0"), four("127.0.0.1:0");
  const auto [ctx, cancel] = weft::with_cancel(context::background());
  weft::wait_group all;
  all.go([&, c = ctx] {
    EXPECT_EQ(dial_addresses({six.where(), four.where()}, c).error(), weft::errc::canceled);
  });
  ASSERT_TRUE(until_waiting(2, wait_reason::io));
  cancel();
  all.wait();
}

// A name with both kinds of address, and a server that has only one of them.
TEST_F(net_dial_both, a_name_leads_to_the_address_on_which_a_server_listens) {
  const dns_server names({{"both.weft.test", {{"127.0.0.1", "::1"}}}});
  if (!weft::net::use_name_servers(names.where())) GTEST_SKIP() << no_cares;
  for (const char* const where : {"127.0.0.1:0", "[::1]:0"}) {
    raw_socket server(where);
    server.listen();
    const std::string port = std::to_string(server.where().port());
    const auto c = dial("tcp", "both.weft.test:" + port);
    ASSERT_TRUE(c) << c.error().message();
    EXPECT_EQ(c->remote_address(), server.where());
    const char* const right = server.where().is_v4() ? "tcp4" : "tcp6";
    const char* const wrong = server.where().is_v4() ? "tcp6" : "tcp4";
    EXPECT_TRUE(dial(right, "both.weft.test:" + port));
    EXPECT_EQ(dial(wrong, "both.weft.test:" + port).error(), std::errc::connection_refused);
  }
}

TEST_F(net_dial, localhost_by_name) {
  raw_socket server("127.0.0.1:0");
  server.listen();
  const auto c = dial("tcp", "localhost:" + std::to_string(server.where().port()));
  ASSERT_TRUE(c) << c.error().message();
  EXPECT_EQ(c->remote_address(), server.where());
}

TEST_F(net_dial, a_deadline_covers_the_look_up_too) {
  const dns_server names({{"silent.weft.test", {{}, dns_server::manner::is_silent}}});
  if (!weft::net::use_name_servers(names.where())) GTEST_SKIP() << no_cares;
  const auto [ctx, cancel] = weft::with_timeout(context::background(), 50ms);
  EXPECT_EQ(dial(ctx, "tcp", "silent.weft.test:80").error(), weft::errc::deadline_exceeded);
}

TEST_F(net_dial, unix_sockets_by_path_and_by_abstract_name) {
  const std::string unique = "weft_dial_" + std::to_string(::getpid());
  const std::string path = std::filesystem::temp_directory_path() / unique;
  for (const std::string& where : {path, "@" + unique}) {
    EXPECT_EQ(dial("unix", where).error(),
              where == path ? std::errc::no_such_file_or_directory : std::errc::connection_refused);
    raw_socket server(*address::from_path(where));
    ASSERT_TRUE(server.is_bound());
    EXPECT_EQ(dial("unix", where).error(), std::errc::connection_refused);
    server.listen();
    auto c = dial("unix", where);
    ASSERT_TRUE(c) << c.error().message();
    EXPECT_EQ(c->remote_address().to_string(), where);
    const int peer = ::accept4(server.fd(), nullptr, nullptr, SOCK_CLOEXEC);
    EXPECT_EQ(::send(peer, "x", 1, 0), 1);
    std::array<std::byte, 8> x{};
    EXPECT_EQ(c->read(x), 1u);
    ::close(peer);
  }
  std::filesystem::remove(path);
}

// The kernel refuses at once where a blocking call would wait for room; we wait.
TEST_F(net_dial, a_unix_socket_with_its_hands_full_is_waited_for) {
  const std::string where = "@weft_deaf_" + std::to_string(::getpid());
  const deaf_listener deaf(where);
  {
    const auto [ctx, cancel] = weft::with_timeout(context::background(), 20ms);
    EXPECT_EQ(dial(ctx, "unix", where).error(), weft::errc::deadline_exceeded);
  }
  weft::wait_group all;
  std::error_code e;
  std::atomic<bool> is_through{false};
  all.go([&] {
    const auto c = dial("unix", where);
    e = c ? std::error_code() : c.error();
    is_through.store(true);
  });
  for (int i = 0; i < 10; ++i) weft::this_goroutine::yield();
  EXPECT_FALSE(is_through.load());
  ::close(::accept4((*deaf).fd(), nullptr, nullptr, SOCK_CLOEXEC));
  ::close(::accept4((*deaf).fd(), nullptr, nullptr, SOCK_CLOEXEC));
  all.wait();
  EXPECT_FALSE(e) << e.message();
}

TEST_F(net_dial, a_socket_connected_to_itself_is_recognised) {
  const raw_socket alone("127.0.0.1:0");
  const auto* const native = static_cast<const sockaddr*>(alone.where().data());
  ASSERT_EQ(::connect(alone.fd(), native, static_cast<socklen_t>(alone.where().size())), 0);
  EXPECT_TRUE(weft::net::is_self_connected(alone.fd()));

  raw_socket server("127.0.0.1:0");
  server.listen();
  const auto c = dial("tcp", server.where().to_string());
  ASSERT_TRUE(c);
  EXPECT_FALSE(weft::net::is_self_connected(c->native_handle()));
}

// Gives the calling thread a network of its own, where the only port to dial from is this one.
bool enter_network_with_one_port(std::uint16_t port) {
  if (::unshare(CLONE_NEWNET) != 0) return false;
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq lo{};
  std::strcpy(lo.ifr_name, "lo");
  lo.ifr_flags = IFF_UP | IFF_RUNNING;
  const bool is_up = ::ioctl(fd, SIOCSIFFLAGS, &lo) == 0;
  ::close(fd);
  std::FILE* const range = std::fopen("/proc/sys/net/ipv4/ip_local_port_range", "we");
  if (range == nullptr) return false;
  const bool is_written = std::fprintf(range, "%d %d\n", port, port) > 0;
  return std::fclose(range) == 0 && is_written && is_up;
}

// A client of a server that is down must get an error, and not talk to itself on the server's port.
TEST_F(net_dial, nobody_is_connected_to_itself) {
  bool is_possible = false;
  std::error_code e;
  bool raw_is_connected = false;
  std::thread elsewhere([&] {
    constexpr std::uint16_t port = 40000;
    is_possible = enter_network_with_one_port(port);
    if (!is_possible) return;
    {
      // What the kernel does by itself.
      const address where = address::parse("127.0.0.1")->with_port(port);
      const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const linger at_once{1, 0};
      (void)::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
      raw_is_connected = ::connect(fd, static_cast<const sockaddr*>(where.data()),
                                   static_cast<socklen_t>(where.size())) == 0;
      ::close(fd);
    }
    const auto c = dial("tcp", "127.0.0.1:40000");
    if (!c) e = c.error();
  });
  elsewhere.join();
  if (!is_possible)
    GTEST_SKIP() << "a network namespace of its own, with one port, needs CAP_SYS_ADMIN";
  EXPECT_TRUE(raw_is_connected);
  EXPECT_EQ(e, std::errc::connection_refused) << e.message();
}

// From one processor and many goroutines at once, as a client under load does.
TEST_F(net_dial, many_at_once) {
  const procs_scope one(1);
  raw_socket server("127.0.0.1:0");
  server.listen(512);
  const std::string where = server.where().to_string();
  weft::wait_group all;
  std::atomic<int> connected{0};
  for (int i = 0; i < 200; ++i) {
    all.go([&] { connected.fetch_add(dial("tcp", where) ? 1 : 0); });
  }
  all.wait();
  EXPECT_EQ(connected.load(), 200);
}

}  // namespace
