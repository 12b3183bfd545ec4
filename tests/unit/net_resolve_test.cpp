// Names to addresses: what is known at once, what a name server says, and what happens when it says
// nothing.
#include "beat.hpp"
#include "dns_server.hpp"
#include "net/look_up.hpp"
#include "open_descriptors.hpp"
#include "runtime_fixture.hpp"

#include <weft/context.hpp>
#include <weft/net.hpp>
#include <weft/sync.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace {

using namespace std::chrono_literals;
using weft::context;
using weft::detail::wait_reason;
using weft::net::address;
using weft::net::ip_family;
using weft::net::resolve;
using weft::net::resolve_errc;
using weft::net::resolve_family;
using weft::test::count_descriptors;
using weft::test::dns_server;
using weft::test::eventually;
using weft::test::procs_scope;
using weft::test::until_waiting;
using manner = dns_server::manner;

std::vector<std::string> hosts_of(const weft::expected<std::vector<address>>& found) {
  std::vector<std::string> result;
  EXPECT_TRUE(found) << found.error().message();
  if (!found) return result;
  for (const address& a : *found) {
    EXPECT_EQ(a.port(), 0);
    result.push_back(a.host());
  }
  return result;
}
std::vector<std::string> sorted_hosts_of(const weft::expected<std::vector<address>>& found) {
  std::vector<std::string> result = hosts_of(found);
  std::ranges::sort(result);
  return result;
}

using strings = std::vector<std::string>;

class net_resolve_at_once : public weft::test::runtime_test {
 protected:
  void SetUp() override { has_server_ = weft::net::use_name_servers(server_.where()); }
  void TearDown() override {
    weft::net::use_name_servers("");
    runtime_test::TearDown();
  }

  bool has_server_ = false;
  dns_server server_{{
      {"both.weft.test", {{"192.0.2.1", "192.0.2.2", "192.0.2.1", "2001:db8::1"}}},
      {"four.weft.test", {{"192.0.2.4"}}},
      {"six.weft.test", {{"2001:db8::6"}}},
      {"none.weft.test", {}},
      {"silent.weft.test", {{}, manner::is_silent}},
      {"long.weft.test", {{"192.0.2.7", "2001:db8::7"}, manner::truncates}},
      {"broken.weft.test", {{}, manner::fails}},
  }};
};

class net_resolve : public net_resolve_at_once {
 protected:
  void SetUp() override {
    net_resolve_at_once::SetUp();
    if (!has_server_) {
      GTEST_SKIP() << "built without c-ares: the C library cannot be pointed at a test's server";
    }
  }
};

TEST_F(net_resolve_at_once, a_literal_is_its_own_answer) {
  EXPECT_EQ(hosts_of(resolve("192.0.2.9")), strings{"192.0.2.9"});
  EXPECT_EQ(hosts_of(resolve("2001:db8::9")), strings{"2001:db8::9"});
  EXPECT_EQ(hosts_of(resolve("fe80::1%lo")), strings{"fe80::1%lo"});
  EXPECT_EQ(resolve("fe80::1%weft_none").error(), std::errc::no_such_device);
  EXPECT_EQ(resolve_family("192.0.2.9", ip_family::v6, context::background()).error(),
            resolve_errc::no_address);
  EXPECT_EQ(server_.asked(), 0);
}

TEST_F(net_resolve_at_once, what_is_no_name_is_not_asked_for) {
  EXPECT_EQ(resolve("").error(), std::errc::invalid_argument);
  using std::string_view_literals::operator""sv;
  for (const std::string_view host : {"a b"sv, " a"sv, "a\0b"sv, "[::1]"sv, "a:80"sv, "a/b"sv,
                                      ".a"sv, "a..b"sv, "."sv, "a\n"sv, "::1::"sv, "fe80::zz"sv}) {
    const auto found = resolve(host);
    ASSERT_FALSE(found) << host;
    EXPECT_EQ(found.error(), resolve_errc::host_not_found) << host;
  }
  EXPECT_EQ(resolve(std::string(300, 'a')).error(), resolve_errc::host_not_found);
  EXPECT_EQ(resolve(std::string(64, 'a') + ".weft.test").error(), resolve_errc::host_not_found);
  EXPECT_EQ(server_.asked(), 0);
}

// A machine without a network still knows its own names, and sends no questions about them.
TEST_F(net_resolve_at_once, localhost_needs_no_name_server) {
  for (const char* const host : {"localhost", "LOCALHOST", "localhost.", "a.b.localhost"}) {
    const auto found = resolve(host);
    ASSERT_TRUE(found) << host << ": " << found.error().message();
    ASSERT_FALSE(found->empty());
    for (const address& a : *found) {
      EXPECT_TRUE(a.host().starts_with("127.") || a.host() == "::1") << a.host();
    }
  }
  EXPECT_EQ(server_.asked(), 0);
}

TEST_F(net_resolve, both_families_are_found_and_each_address_once) {
  EXPECT_EQ(sorted_hosts_of(resolve("both.weft.test")),
            (strings{"192.0.2.1", "192.0.2.2", "2001:db8::1"}));
  EXPECT_EQ(sorted_hosts_of(resolve("Both.WEFT.test.")),
            (strings{"192.0.2.1", "192.0.2.2", "2001:db8::1"}));
  EXPECT_EQ(hosts_of(resolve("four.weft.test")), strings{"192.0.2.4"});
  EXPECT_EQ(hosts_of(resolve("six.weft.test")), strings{"2001:db8::6"});
}

TEST_F(net_resolve, one_family_asks_for_that_one_only) {
  EXPECT_EQ(sorted_hosts_of(resolve_family("both.weft.test", ip_family::v4, context::background())),
            (strings{"192.0.2.1", "192.0.2.2"}));
  EXPECT_EQ(server_.asked_v6("both.weft.test"), 0);
  EXPECT_EQ(hosts_of(resolve_family("both.weft.test", ip_family::v6, context::background())),
            strings{"2001:db8::1"});
  EXPECT_EQ(server_.asked_v4("both.weft.test"), 1);
}

// A program must be able to tell a misspelt name from a server that is out of order.
TEST_F(net_resolve, errors_say_what_the_server_said) {
  const auto missing = resolve("missing.weft.test");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error(), resolve_errc::host_not_found);
  EXPECT_STREQ(missing.error().category().name(), "weft.resolve");
  EXPECT_EQ(missing.error().message(), "no such host");
  EXPECT_EQ(resolve("none.weft.test").error(), resolve_errc::no_address);
  const auto broken = resolve("broken.weft.test");
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error(), resolve_errc::try_again);
  EXPECT_EQ(broken.error(), std::errc::resource_unavailable_try_again);
}

TEST_F(net_resolve, a_truncated_answer_is_asked_for_again_by_tcp) {
  EXPECT_EQ(sorted_hosts_of(resolve("long.weft.test")), (strings{"192.0.2.7", "2001:db8::7"}));
  EXPECT_EQ(server_.asked_by_tcp(), 2);
}

// The wait for a name server must not be a processor's: with a single one the others go on.
TEST_F(net_resolve, a_silent_server_holds_up_nobody_until_the_deadline) {
  const procs_scope one(1);
  weft::test::beat b;
  const auto [ctx, cancel] = weft::with_timeout(context::background(), 300ms);
  const auto begin = weft::clock::now();
  std::error_code e;
  weft::wait_group all;
  all.go([&, c = ctx] { e = resolve(c, "silent.weft.test").error(); });
  all.wait();
  EXPECT_EQ(e, weft::errc::deadline_exceeded);
  EXPECT_GE(weft::clock::now() - begin, 300ms);
  EXPECT_GE(server_.asked(), 1);
  b.expect_kept({.median = 3ms, .p99 = 30ms});
}

TEST_F(net_resolve_at_once, a_context_that_has_ended_asks_for_nothing) {
  const auto [ctx, cancel] = weft::with_cancel(context::background());
  cancel();
  EXPECT_EQ(resolve(ctx, "both.weft.test").error(), weft::errc::canceled);
  EXPECT_EQ(server_.asked(), 0);
}

// Many goroutines that look up the same name after a restart must not flood the name server.
TEST_F(net_resolve, those_who_ask_at_the_same_time_share_one_question) {
  constexpr std::size_t crowd = 100;
  server_.hold();
  std::vector<weft::expected<std::vector<address>>> found(crowd);
  weft::wait_group all;
  for (auto& mine : found) {
    all.go([&mine] { mine = resolve("both.weft.test"); });
  }
  EXPECT_TRUE(until_waiting(crowd, wait_reason::future));
  server_.release();
  all.wait();
  for (const auto& each : found) {
    EXPECT_EQ(sorted_hosts_of(each), (strings{"192.0.2.1", "192.0.2.2", "2001:db8::1"}));
  }
  EXPECT_EQ(server_.asked_v4("both.weft.test"), 1);
  EXPECT_EQ(server_.asked_v6("both.weft.test"), 1);
  // What was shared is not kept.
  EXPECT_TRUE(resolve("both.weft.test"));
  EXPECT_EQ(server_.asked_v4("both.weft.test"), 2);
}

// The first caller began the look-up, and must be able to give up without ending it.
TEST_F(net_resolve, one_who_gives_up_leaves_the_others_their_answer) {
  server_.hold();
  const auto [ctx, cancel] = weft::with_cancel(context::background());
  weft::expected<std::vector<address>> first, second;
  weft::wait_group one, other;
  one.go([&, c = ctx] { first = resolve(c, "four.weft.test"); });
  ASSERT_TRUE(until_waiting(1, wait_reason::future));
  other.go([&] { second = resolve("four.weft.test"); });
  ASSERT_TRUE(until_waiting(2, wait_reason::future));
  cancel();
  one.wait();
  ASSERT_FALSE(first);
  EXPECT_EQ(first.error(), weft::errc::canceled);
  server_.release();
  other.wait();
  EXPECT_EQ(hosts_of(second), strings{"192.0.2.4"});
  EXPECT_EQ(server_.asked_v4("four.weft.test"), 1);
}

// A look-up without waiters must end (the fixture counts goroutines), and others must not join it.
TEST_F(net_resolve, the_last_one_to_give_up_ends_the_question) {
  server_.hold();
  const auto [ctx, cancel] = weft::with_cancel(context::background());
  weft::wait_group all;
  for (int i = 0; i < 3; ++i) {
    all.go([c = ctx] { EXPECT_EQ(resolve(c, "four.weft.test").error(), weft::errc::canceled); });
  }
  ASSERT_TRUE(until_waiting(3, wait_reason::future));
  ASSERT_TRUE(eventually([&] { return server_.asked_v4("four.weft.test") == 1; }));
  cancel();
  all.wait();
  EXPECT_TRUE(eventually([] { return weft::num_goroutine() == for_ever(); }));
  server_.release();
  EXPECT_EQ(hosts_of(resolve("four.weft.test")), strings{"192.0.2.4"});
  EXPECT_EQ(server_.asked_v4("four.weft.test"), 2);
}

TEST_F(net_resolve, many_names_at_once_leave_no_descriptor_behind) {
  ASSERT_TRUE(resolve("both.weft.test"));
  const auto before = count_descriptors();
  constexpr int names = 50;
  weft::wait_group all;
  for (int i = 0; i < names; ++i) {
    all.go([i] {
      EXPECT_EQ(resolve("x" + std::to_string(i) + ".weft.test").error(),
                resolve_errc::host_not_found);
    });
  }
  all.wait();
  // The one before may not have been closed yet when they were counted.
  EXPECT_TRUE(eventually([&] { return count_descriptors() <= before; }))
      << count_descriptors() << " for " << before;
}

}  // namespace
