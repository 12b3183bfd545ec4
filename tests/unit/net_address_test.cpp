// Addresses: their text forms, there and back, and which ones are the same.
#include "net/host_port.hpp"

#include <weft/net.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

namespace {

using weft::net::address;
using namespace weft::net;
using std::string_view_literals::operator""sv;

address parsed(std::string_view text) {
  const auto a = address::parse(text);
  EXPECT_TRUE(a) << text << ": " << a.error().message();
  return a.value_or(address());
}

address mapped(const char (&v4)[4], std::uint16_t port) {
  sockaddr_in6 native{};
  native.sin6_family = AF_INET6;
  native.sin6_port = htons(port);
  native.sin6_addr.s6_addr[10] = native.sin6_addr.s6_addr[11] = 0xff;
  std::memcpy(native.sin6_addr.s6_addr + 12, v4, 4);
  return address::from_native(&native, sizeof native);
}

// What a program prints or stores it must be able to read back.
TEST(net_address, to_string_writes_what_parse_reads) {
  for (const char* const text : {"192.0.2.1:80", "0.0.0.0:0", "255.255.255.255:65535", "[::]:1",
                                 "[::1]:443", "[2001:db8::1:0:0:1]:8080", "[fe80::1%lo]:22",
                                 "[fe80::1%4294967295]:22", "/run/server.sock", "@abstract"}) {
    const address a = parsed(text);
    EXPECT_EQ(a.to_string(), text);
    EXPECT_EQ(parsed(a.to_string()), a);
  }
}

TEST(net_address, parts_are_those_of_the_text) {
  const address v4 = parsed("192.0.2.1:80");
  EXPECT_TRUE(v4.is_v4());
  EXPECT_FALSE(v4.is_v6() || v4.is_unix());
  EXPECT_EQ(v4.host(), "192.0.2.1");
  EXPECT_EQ(v4.port(), 80);
  EXPECT_EQ(v4.size(), sizeof(sockaddr_in));

  const address v6 = parsed("[2001:DB8:0::1]:65535");
  EXPECT_TRUE(v6.is_v6());
  EXPECT_FALSE(v6.is_v4() || v6.is_unix());
  EXPECT_EQ(v6.host(), "2001:db8::1");
  EXPECT_EQ(v6.port(), 65535);
  EXPECT_EQ(v6.with_port(1).to_string(), "[2001:db8::1]:1");
  EXPECT_EQ(v6.port(), 65535);

  for (const char* const text : {"192.0.2.1", "[::1]", "::1", "fe80::1%1"}) {
    EXPECT_EQ(parsed(text).port(), 0) << text;
  }
  EXPECT_EQ(parsed("fe80::1%1").host(), "fe80::1%lo");
  EXPECT_EQ(parsed("[fe80::1%lo]:22"), parsed("[fe80::1%1]:22"));
}

TEST(net_address, whatever_is_no_address_is_an_invalid_argument) {
  for (const std::string_view text : {""sv,
                                      ":80"sv,
                                      "localhost"sv,
                                      "localhost:80"sv,
                                      "192.0.2.1:"sv,
                                      "192.0.2.1:65536"sv,
                                      "192.0.2.1:-1"sv,
                                      "192.0.2.1:+1"sv,
                                      "192.0.2.1:80 "sv,
                                      " 192.0.2.1:80"sv,
                                      "192.0.2.1:http"sv,
                                      "192.0.2"sv,
                                      "192.0.2.256"sv,
                                      "192.0.2.01"sv,
                                      "192.0.2.1%lo"sv,
                                      "[::1"sv,
                                      "::1]:80"sv,
                                      "[::1]80"sv,
                                      "[::1]:80:90"sv,
                                      "[]:80"sv,
                                      "[]"sv,
                                      "[::1%]:80"sv,
                                      "[::1%0]:80"sv,
                                      "1::2::3"sv,
                                      "12345::"sv,
                                      "192.0.2.1\0"sv,
                                      "::1\0:80"sv,
                                      "[::ffff:192.0.2.1%1]:80"sv}) {
    const auto a = address::parse(text);
    ASSERT_FALSE(a) << '"' << text << "\" became " << a->to_string();
    EXPECT_EQ(a.error(), std::errc::invalid_argument) << text;
  }
  EXPECT_EQ(address::parse("[fe80::1%weft_none]:80").error(), std::errc::no_such_device);
}

// A server on both protocols sees IPv4 peers in IPv6 form, and must not have to care.
TEST(net_address, an_ipv4_address_in_ipv6_form_is_the_ipv4_address) {
  const address a = mapped({'\x7f', 0, 0, 1}, 80);
  EXPECT_TRUE(a.is_v4());
  EXPECT_FALSE(a.is_v6());
  EXPECT_EQ(a.to_string(), "127.0.0.1:80");
  EXPECT_EQ(a, parsed("127.0.0.1:80"));
  EXPECT_EQ(parsed("127.0.0.1:80"), a);
  EXPECT_NE(a, parsed("127.0.0.1:81"));
  EXPECT_EQ(a.with_port(81), parsed("127.0.0.1:81"));
  EXPECT_EQ(a.size(), sizeof(sockaddr_in6)) << "the kernel wants it back as it came";
  EXPECT_EQ(parsed("[::ffff:127.0.0.1]:80").size(), sizeof(sockaddr_in));
}

TEST(net_address, differs_by_host_port_zone_and_kind) {
  const char* const texts[] = {"192.0.2.1:80",
                               "192.0.2.2:80",
                               "192.0.2.1:81",
                               "[::1]:80",
                               "[fe80::1%1]:80",
                               "[fe80::1%2]:80",
                               "[::1]:81",
                               "/run/a",
                               "/run/ab",
                               "@run/a",
                               "@a"};
  for (const char* const a : texts) {
    for (const char* const b : texts) {
      EXPECT_EQ(parsed(a) == parsed(b), a == b) << a << " and " << b;
    }
    EXPECT_NE(parsed(a), address());
  }
  EXPECT_EQ(address(), address());
  sockaddr_in6 flow{};
  flow.sin6_family = AF_INET6;
  flow.sin6_addr = in6addr_loopback;
  flow.sin6_port = htons(80);
  flow.sin6_flowinfo = 7;
  EXPECT_EQ(address::from_native(&flow, sizeof flow), parsed("[::1]:80"));
}

TEST(net_address, unix_paths_fit_or_are_refused) {
  const std::string longest(sizeof(sockaddr_un::sun_path) - 1, 'x');
  EXPECT_EQ(address::from_path(longest)->to_string(), longest);
  EXPECT_EQ(address::from_path(longest + "x").error(), std::errc::filename_too_long);
  const std::string abstract = "@" + longest;
  EXPECT_EQ(address::from_path(abstract)->to_string(), abstract);
  EXPECT_EQ(address::from_path(abstract + "x").error(), std::errc::filename_too_long);
  EXPECT_EQ(address::from_path("a\0b"sv).error(), std::errc::invalid_argument);

  const auto path = *address::from_path("run.sock");
  EXPECT_TRUE(path.is_unix());
  EXPECT_EQ(path.host(), "run.sock");
  EXPECT_EQ(path.port(), 0);
  EXPECT_EQ(path.with_port(80), path);
  const auto without_name = *address::from_path("");
  EXPECT_TRUE(without_name.is_unix());
  EXPECT_EQ(without_name.to_string(), "");
}

// The kernel reports some paths with the zero at their end and some without.
TEST(net_address, a_path_is_the_same_with_and_without_its_end) {
  sockaddr_un native{};
  native.sun_family = AF_UNIX;
  std::strcpy(native.sun_path, "/run/a");
  constexpr std::size_t begin = offsetof(sockaddr_un, sun_path);
  const auto without_end = address::from_native(&native, begin + 6);
  EXPECT_EQ(without_end, address::from_native(&native, begin + 7));
  EXPECT_EQ(without_end, *address::from_path("/run/a"));
  EXPECT_EQ(without_end, address::from_native(&native, sizeof native));
  EXPECT_EQ(without_end.to_string(), "/run/a");
}

TEST(net_address, what_the_kernel_did_not_fill_is_empty) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  EXPECT_EQ(address::from_native(&v4, 0), address());
  EXPECT_EQ(address::from_native(&v4, 1), address());
  EXPECT_EQ(address::from_native(&v4, sizeof v4 - 1), address());
  const std::byte too_long[200] = {};
  EXPECT_EQ(address::from_native(too_long, sizeof too_long), address());
  EXPECT_EQ(address().to_string(), "");
  EXPECT_EQ(address().port(), 0);
  EXPECT_EQ(address().with_port(5), address());
}

TEST(net_address, host_and_port_are_split_at_the_last_colon) {
  struct {
    std::string_view text, host, port;
  } const good[] = {
      {"localhost:80", "localhost", "80"},
      {":80", "", "80"},
      {"a:", "a", ""},
      {":", "", ""},
      {"[::1]:80", "::1", "80"},
      {"[a]:http", "a", "http"},
      {"[fe80::1%lo]:80", "fe80::1%lo", "80"},
      {"[]:80", "", "80"},
  };
  for (const auto& [text, host, port] : good) {
    const auto parts = split_host_port(text);
    ASSERT_TRUE(parts) << text;
    EXPECT_EQ(parts->host, host) << text;
    EXPECT_EQ(parts->port, port) << text;
  }
  for (const char* const text :
       {"", "localhost", "::1", "::1:80", "[::1]", "[::1]80", "[::1]:80:90", "[::1:80", "::1]:80",
        "[[::1]]:80", "a:[80]", "a]:80", "[a]b:80"}) {
    const auto parts = split_host_port(text);
    ASSERT_FALSE(parts) << text;
    EXPECT_EQ(parts.error(), std::errc::invalid_argument) << text;
  }
  EXPECT_EQ(join_host_port("localhost", 80), "localhost:80");
  EXPECT_EQ(join_host_port("", 0), ":0");
  EXPECT_EQ(join_host_port("::1", 65535), "[::1]:65535");
}

TEST(net_address, a_port_is_a_number_or_the_name_of_a_service) {
  EXPECT_EQ(parse_port("tcp", "0"), 0);
  EXPECT_EQ(parse_port("tcp", ""), 0);
  EXPECT_EQ(parse_port("tcp", "65535"), 65535);
  EXPECT_EQ(parse_port("tcp", "http"), 80);
  EXPECT_EQ(parse_port("tcp6", "https"), 443);
  EXPECT_EQ(parse_port("udp", "domain"), 53);
  for (const char* const text : {"65536", "-1", "+1", " 1", "0x1", "1.", "weft_none"}) {
    const auto port = parse_port("tcp", text);
    ASSERT_FALSE(port) << text;
    EXPECT_EQ(port.error(), std::errc::invalid_argument) << text;
  }
  EXPECT_FALSE(parse_port("tcp", std::string(5'000, 'x')));
}

}  // namespace
