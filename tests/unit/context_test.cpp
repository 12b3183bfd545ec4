// Contexts: the tree, its causes, deadlines and values, and the operations that take one.
#include "eventually.hpp"

#include <weft/context.hpp>
#include <weft/test.hpp>
#include <weft/weft.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using weft::context;
using weft::errc;
using weft::with_cancel;
using weft::with_timeout;
using weft::test::bubble;
using weft::test::explore;

std::string what_of(const std::exception_ptr& e) {
  try {
    if (e != nullptr) std::rethrow_exception(e);
  } catch (const std::exception& x) {
    return x.what();
  }
  return "";
}

TEST(context, the_background_never_ends) {
  const context c = context::background();
  EXPECT_FALSE(c.done());
  EXPECT_FALSE(c.err());
  EXPECT_EQ(c.cause(), nullptr);
  EXPECT_FALSE(c.deadline());
  EXPECT_FALSE(c.stop_token().stop_possible());
}

TEST(context, errors_are_those_of_the_standard_too) {
  EXPECT_EQ(make_error_code(errc::canceled), std::errc::operation_canceled);
  EXPECT_EQ(make_error_code(errc::deadline_exceeded), std::errc::timed_out);
  EXPECT_EQ(make_error_code(errc::closed), std::errc::bad_file_descriptor);
  EXPECT_EQ(make_error_code(errc::timed_out), std::errc::timed_out);
  EXPECT_STREQ(make_error_code(errc::closed).category().name(), "weft");
}

// When cancel returns the whole tree is cancelled, and nothing above or beside it.
TEST(context, cancel_reaches_everything_below) {
  auto [root, cancel_root] = with_cancel(context::background());
  auto [left, cancel_left] = with_cancel(root);
  auto [right, cancel_right] = with_cancel(root);
  auto [leaf, cancel_leaf] = with_cancel(left);
  const weft::context_key<int> key{"key"};
  const context below = with_value(leaf, key, 5);
  cancel_left();
  EXPECT_EQ(left.err(), errc::canceled);
  EXPECT_EQ(leaf.err(), errc::canceled);
  EXPECT_EQ(below.err(), errc::canceled);
  EXPECT_FALSE(below.done().recv());
  EXPECT_FALSE(root.err());
  EXPECT_FALSE(right.err());
  cancel_root();
  EXPECT_EQ(right.err(), errc::canceled);
  auto [late, cancel_late] = with_cancel(root);
  EXPECT_EQ(late.err(), errc::canceled);
}

TEST(context, the_first_cause_wins) {
  auto [root, cancel_root] = with_cancel(context::background());
  auto [child, cancel_child] = with_cancel(root);
  cancel_child(std::make_exception_ptr(std::runtime_error("mine")));
  cancel_child(std::make_exception_ptr(std::runtime_error("later")));
  cancel_root(std::make_error_code(std::errc::io_error));
  EXPECT_EQ(what_of(child.cause()), "mine");
  EXPECT_EQ(child.err(), errc::canceled);
  EXPECT_EQ(root.err(), errc::canceled);
  EXPECT_EQ(what_of(root.cause()),
            std::system_error(std::make_error_code(std::errc::io_error)).what());
  auto [plain, cancel_plain] = with_cancel(context::background());
  cancel_plain();
  EXPECT_EQ(what_of(plain.cause()), "context canceled");
}

TEST(context, deadlines_end_it_and_the_earlier_counts) {
  bubble([] {
    const auto start = weft::clock::now();
    auto [outer, cancel_outer] = with_timeout(context::background(), 1h);
    auto [inner, cancel_inner] = with_timeout(outer, 2h);
    auto [sooner, cancel_sooner] = with_timeout(outer, 1min);
    EXPECT_EQ(outer.deadline(), start + 1h);
    EXPECT_EQ(inner.deadline(), start + 1h);
    EXPECT_EQ(sooner.deadline(), start + 1min);
    sooner.done().recv();
    EXPECT_EQ(weft::clock::now(), start + 1min);
    EXPECT_EQ(sooner.err(), errc::deadline_exceeded);
    EXPECT_FALSE(outer.err());
    inner.done().recv();
    EXPECT_EQ(weft::clock::now(), start + 1h);
    EXPECT_EQ(inner.err(), errc::deadline_exceeded);
    auto [past, cancel_past] = with_timeout(context::background(), -1s);
    EXPECT_EQ(past.err(), errc::deadline_exceeded);
  });
}

TEST(context, a_forgotten_cancel_is_found) {
  const auto r = weft::test::try_explore(
      {.runs = 1}, [] { const auto pair = with_timeout(context::background(), 1h); });
  EXPECT_NE(r.failure.find("timer is left behind"), std::string::npos) << r.report;
  explore({.runs = 1}, [] {
    auto [c, cancel] = with_timeout(context::background(), 1h);
    cancel();
  });
}

TEST(context, values_are_found_by_their_keys) {
  static const weft::context_key<std::string> user{"user"};
  static const weft::context_key<std::string> other{"user"};
  const context a = with_value(context::background(), user, "ada");
  const context b = with_value(a, user, "bob");
  auto [c, cancel] = with_cancel(b);
  EXPECT_EQ(*a.value(user), "ada");
  EXPECT_EQ(*c.value(user), "bob");
  EXPECT_EQ(c.value(other), nullptr);
  const context free = without_cancel(c);
  cancel();
  EXPECT_FALSE(free.err());
  EXPECT_EQ(*free.value(user), "bob");
}

TEST(context, stop_tokens_work_both_ways) {
  auto [c, cancel] = with_cancel(context::background());
  const std::stop_token token = c.stop_token();
  int called = 0;
  const std::stop_callback on_stop(token, [&, cancel = cancel] {
    ++called;
    cancel();  // once more, from inside
  });
  EXPECT_FALSE(token.stop_requested());
  cancel();
  EXPECT_TRUE(token.stop_requested());
  EXPECT_EQ(called, 1);
  EXPECT_TRUE(c.stop_token().stop_requested());

  std::stop_source source;
  const context from = with_stop(context::background(), source.get_token());
  EXPECT_FALSE(from.err());
  source.request_stop();
  EXPECT_EQ(from.err(), errc::canceled);
}

TEST(context, after_func_is_called_once_or_prevented) {
  explore({.runs = 2'000}, [] {
    auto [c, cancel] = with_cancel(context::background());
    int called = 0;
    const auto stop = after_func(c, [&] { ++called; });
    bool prevented = false;
    weft::wait_group all;
    all.go([&] { prevented = stop(); });
    all.go([cancel = cancel] { cancel(); });
    all.wait();
    weft::test::wait();
    EXPECT_EQ(called, prevented ? 0 : 1);
    EXPECT_FALSE(stop());
  });
  bubble([] {
    auto [c, cancel] = with_cancel(context::background());
    cancel();
    int called = 0;
    const auto stop = after_func(c, [&] { ++called; });
    weft::test::wait();
    EXPECT_EQ(called, 1);
  });
}

// A tree that is cancelled from several places at once: every cancel that returns leaves its part
// cancelled, and done is closed whenever err is set and seen through it.
TEST(context, simultaneous_cancels) {
  explore({.runs = 3'000}, [] {
    auto [root, cancel_root] = with_cancel(context::background());
    auto [middle, cancel_middle] = with_cancel(root);
    auto [leaf, cancel_leaf] = with_cancel(middle);
    weft::wait_group all;
    all.go([&, leaf = leaf, cancel_root = cancel_root] {
      cancel_root();
      EXPECT_TRUE(leaf.err());
      EXPECT_EQ(leaf.done().try_recv().error(), weft::chan_status::closed);
    });
    all.go([&, leaf = leaf, cancel_middle = cancel_middle] {
      cancel_middle();
      EXPECT_EQ(leaf.done().try_recv().error(), weft::chan_status::closed);
    });
    all.go([&, leaf = leaf, cancel_leaf = cancel_leaf] {
      cancel_leaf();
      EXPECT_EQ(leaf.done().try_recv().error(), weft::chan_status::closed);
    });
    all.wait();
  });
}

TEST(context, children_that_go_away_leave_no_trace) {
  auto [root, cancel] = with_cancel(context::background());
  for (int i = 0; i < 1000; ++i) {
    auto [child, cancel_child] = with_cancel(root);
    if (i % 2 == 0) cancel_child();
  }
  cancel();
}

TEST(context, ends_a_receive_a_send_and_a_sleep) {
  explore({.runs = 2'000}, [] {
    auto [c, cancel] = with_cancel(context::background());
    const weft::chan<std::unique_ptr<int>> channel;
    weft::wait_group all;
    all.go([&, c = c] {
      const auto v = channel.recv(c);
      EXPECT_EQ(v.error(), errc::canceled);
    });
    all.go([&, c = c] { EXPECT_EQ(weft::this_goroutine::sleep_for(c, 1h), errc::canceled); });
    all.go([cancel = cancel] { cancel(); });
    all.wait();
    auto value = std::make_unique<int>(5);
    EXPECT_EQ(channel.send(c, value), errc::canceled);
    EXPECT_EQ(*value, 5);
    EXPECT_EQ(channel.try_send(value), weft::chan_status::full) << "nobody waits any more";
  });
}

TEST(context, operations_that_succeed_do_not_mind_it) {
  bubble([] {
    auto [c, cancel] = with_timeout(context::background(), 1h);
    const weft::chan<int> channel(1);
    EXPECT_FALSE(channel.send(c, 3));
    EXPECT_EQ(channel.recv(c), 3);
    EXPECT_FALSE(weft::this_goroutine::sleep_for(c, 1s));
    channel.close();
    EXPECT_EQ(channel.recv(c).error(), errc::closed);
    EXPECT_THROW((void)channel.send(c, 3), weft::closed_channel);
    cancel();
    EXPECT_EQ(weft::this_goroutine::sleep_for(c, 1s), errc::canceled);
  });
}

TEST(context, on_real_processors_a_wide_tree_is_cancelled) {
  const int before = weft::max_procs(8);
  weft::run([] {
    for (int round = 0; round < 20; ++round) {
      auto [root, cancel] = with_timeout(context::background(), 10s);
      weft::wait_group all;
      for (int i = 0; i < 50; ++i) {
        all.go([root = root] {
          auto [mine, cancel_mine] = with_cancel(root);
          auto [below, cancel_below] = with_timeout(mine, 20s);
          EXPECT_FALSE(below.done().recv());
          EXPECT_EQ(below.err(), errc::canceled);
        });
      }
      weft::this_goroutine::yield();
      cancel();
      all.wait();
    }
  });
  weft::max_procs(before);
}

// Whoever is woken by a cancel may drop every handle while the cancel is still at work.
TEST(context, may_go_while_it_is_being_cancelled) {
  std::stop_source source;
  std::optional<context> ctx(with_stop(context::background(), source.get_token()));
  std::optional<weft::cancellable> child(with_cancel(*ctx));
  const std::stop_callback drop(child->ctx.stop_token(), [&] {
    child.reset();
    ctx.reset();
  });
  source.request_stop();

  weft::mutex m;
  m.lock();
  for (int i = 0; i < weft::test::scaled(2'000, 200); ++i) {
    weft::wait_group all;
    {
      auto c = with_cancel(context::background());
      all.go([&c] { c.cancel(); });
      EXPECT_EQ(m.lock(c.ctx), errc::canceled);
    }
    all.wait();
  }
}

// A child's callback cancels the parent while somebody else does, who waits for the child.
TEST(context, two_who_cancel_each_others_part_do_not_wait_for_each_other) {
  auto parent = with_cancel(context::background());
  auto child = with_cancel(parent.ctx);
  const std::stop_callback both(child.ctx.stop_token(), [&] {
    while (!parent.ctx.err()) weft::this_goroutine::yield();
    parent.cancel();
  });
  weft::wait_group all;
  all.go([&] { child.cancel(); });
  all.go([&] {
    while (!child.ctx.err()) weft::this_goroutine::yield();
    parent.cancel();
  });
  all.wait();
  EXPECT_EQ(child.ctx.err(), errc::canceled);
}

// Deeper than a goroutine's stack has room for calls.
TEST(context, a_tree_may_be_deep) {
  weft::wait_group all;
  all.go([] {
    const int depth = weft::test::scaled(20'000, 5'000);
    const weft::context_key<int> key{"depth"};
    auto root = with_cancel(context::background());
    std::vector<weft::cancellable> chain;
    context c = root.ctx;
    for (int i = 0; i < depth; ++i) {
      chain.push_back(with_cancel(with_value(c, key, i)));
      c = chain.back().ctx;
    }
    chain.clear();
    root.cancel();
    EXPECT_EQ(c.err(), errc::canceled);
    EXPECT_EQ(*c.value(key), depth - 1);
  });
  all.wait();
}

}  // namespace
