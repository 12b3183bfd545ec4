// Contexts: the tree, its causes, deadlines and values, and the operations that take one.
#include "allocated.hpp"
#include "base/random.hpp"
#include "eventually.hpp"

#include <weft/context.hpp>
#include <weft/test.hpp>
#include <weft/weft.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>
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

std::exception_ptr because(const char* what) {
  return std::make_exception_ptr(std::runtime_error(what));
}

// Go's table of causes: the first call that ends a context, anywhere in the tree, decides the
// cause; err says only which of the two kinds it was.
TEST(context, the_cause_comes_from_the_first_call_that_ends_it) {
  bubble([] {
    const std::string canceled = "context canceled";
    const std::string too_late = "context deadline exceeded";
    struct row {
      const char* what;
      context ctx;
      std::error_code err;
      std::string cause;
    };
    std::vector<row> rows;
    const context top = context::background();
    const weft::context_key<int> key{"key"};
    std::vector<weft::cancel_function> open;
    const auto keep = [&](weft::cancellable c) {
      open.push_back(c.cancel);
      return c.ctx;
    };

    rows.push_back({"the background", top, {}, ""});
    rows.push_back({"a live one", keep(with_cancel(top)), {}, ""});
    {
      auto [c, cancel] = with_cancel(top);
      cancel(because("mine"));
      rows.push_back({"with a cause", c, errc::canceled, "mine"});
      rows.push_back({"a value below it", with_value(c, key, 1), errc::canceled, "mine"});
      rows.push_back({"a late child", keep(with_cancel(c)), errc::canceled, "mine"});
      rows.push_back({"a late child with time", keep(with_timeout(c, 1h)), errc::canceled, "mine"});
      rows.push_back(
          {"a late child, too late", keep(with_timeout(c, -1h)), errc::canceled, "mine"});
      rows.push_back({"what cannot be cancelled", without_cancel(c), {}, ""});
      rows.push_back({"a child of that", keep(with_cancel(without_cancel(c))), {}, ""});
    }
    {
      auto [c, cancel] = with_cancel(top);
      cancel(std::exception_ptr());
      rows.push_back({"a null cause", c, errc::canceled, canceled});
    }
    {
      auto [parent, cancel_parent] = with_cancel(top);
      auto [child, cancel_child] = with_cancel(with_value(parent, key, 1));
      const context below = keep(with_timeout(child, 1h));
      cancel_parent(because("of the parent"));
      cancel_child(because("too late"));
      rows.push_back({"a child of a cancelled one", child, errc::canceled, "of the parent"});
      rows.push_back({"a grandchild with time", below, errc::canceled, "of the parent"});
    }
    {
      auto [parent, cancel_parent] = with_cancel(top);
      auto [child, cancel_child] = with_cancel(parent);
      cancel_child(because("of the child"));
      rows.push_back({"a parent of a cancelled one", parent, {}, ""});
      auto [other, cancel_other] = with_cancel(parent);
      cancel_other();
      rows.push_back({"a plain child", other, errc::canceled, canceled});
      open.push_back(cancel_parent);
    }
    {
      auto [parent, cancel_parent] = with_cancel(top);
      const context child = keep(with_cancel(parent));
      cancel_parent();
      rows.push_back({"a child of a plain one", child, errc::canceled, canceled});
    }
    {
      auto [c, cancel] = with_timeout(top, 1ms);
      const context child = keep(with_cancel(c));
      auto [other, cancel_other] = with_cancel(c);
      cancel_other(because("before its time"));
      c.done().recv();
      cancel(because("too late"));
      rows.push_back({"one whose time is over", c, errc::deadline_exceeded, too_late});
      rows.push_back({"a child of it", child, errc::deadline_exceeded, too_late});
      rows.push_back({"a child that was first", other, errc::canceled, "before its time"});
    }
    {
      auto [c, cancel] = with_timeout(top, 1ms);
      cancel(because("in time"));
      weft::this_goroutine::sleep_for(1s);
      rows.push_back({"one that was cancelled in time", c, errc::canceled, "in time"});
    }
    {
      const context c = keep(with_timeout(top, -1s));
      rows.push_back({"one that was too late at once", c, errc::deadline_exceeded, too_late});
    }
    {
      std::stop_source source;
      const context c = with_stop(top, source.get_token());
      const context child = keep(with_cancel(c));
      source.request_stop();
      rows.push_back({"a stopped one", c, errc::canceled, canceled});
      rows.push_back({"a child of a stopped one", child, errc::canceled, canceled});
    }

    for (const row& r : rows) {
      EXPECT_EQ(r.ctx.err(), r.err) << r.what;
      EXPECT_EQ(what_of(r.ctx.cause()), r.cause) << r.what;
      EXPECT_EQ(r.ctx.cause() != nullptr, bool(r.err)) << r.what;
      const auto done = r.ctx.done().try_recv();
      EXPECT_EQ(done.error(), r.err ? weft::chan_status::closed : weft::chan_status::empty)
          << r.what;
      EXPECT_EQ(r.ctx.stop_token().stop_requested(), bool(r.err)) << r.what;
    }
    for (const weft::cancel_function& cancel : open) cancel();
  });
}

// Two causes at once: one of them it is, for everybody and for ever, and what tells of the end
// tells of all of it: err comes with a cause, and before done closes everything is set.
TEST(context, the_end_is_seen_as_a_whole) {
  explore({.runs = weft::test::runs(3'000)}, [] {
    auto [parent, cancel_parent] = with_cancel(context::background());
    auto [c, cancel] = with_cancel(parent);
    weft::wait_group all;
    all.go([cancel = cancel] { cancel(because("one")); });
    all.go([cancel = cancel_parent] { cancel(because("two")); });
    std::string seen;
    all.go([&seen, c = c] {
      c.done().recv();
      EXPECT_TRUE(c.stop_token().stop_requested());
      EXPECT_EQ(c.err(), errc::canceled);
      seen = what_of(c.cause());
    });
    for (int i = 0; i < 3; ++i) {
      if (c.cause() != nullptr) {
        EXPECT_EQ(c.err(), errc::canceled);
      }
      if (c.err()) {
        EXPECT_NE(c.cause(), nullptr);
        EXPECT_EQ(c.done().try_recv().error(), weft::chan_status::closed);
        EXPECT_TRUE(c.stop_token().stop_requested());
      }
      weft::this_goroutine::yield();
    }
    all.wait();
    EXPECT_TRUE(seen == "one" || seen == "two") << seen;
    EXPECT_EQ(what_of(c.cause()), seen);
    EXPECT_EQ(what_of(parent.cause()), "two");
  });
}

// A goroutine that polls err() and then looks at done(), or the other way round, must not find them
// different: on real processors, where there is no step between the two.
TEST(context, err_and_done_agree_at_every_instant) {
  weft::run([] {
    int early = 0;
    for (int i = 0; i < weft::test::scaled(20'000, 2'000); ++i) {
      auto [c, cancel] = with_cancel(context::background());
      const auto done = c.done();
      const auto token = c.stop_token();
      weft::wait_group all;
      all.go([cancel = cancel] { cancel(); });
      while (!c.err()) {
        if (weft::max_procs() == 1) weft::this_goroutine::yield();
      }
      early += weft::select(weft::recv(done), weft::otherwise()) == 1 || !token.stop_requested();
      all.wait();
    }
    EXPECT_EQ(early, 0);
  });
}

// A stop callback that looks around finds the whole tree ended, however large it is: tokens, err,
// cause and done of parents, children and siblings.
TEST(context, in_a_stop_callback_everything_has_ended) {
  for (const int n : {1, 3, 200, weft::test::scaled(5'000, 500)}) {
    auto [root, cancel] = with_cancel(context::background());
    std::vector<context> all{root};
    for (int i = 1; i < n; ++i) {
      all.push_back(with_cancel(all[static_cast<std::size_t>(i % 3 == 0 ? 0 : i - 1)]).ctx);
    }
    std::vector<std::stop_token> tokens;
    for (const context& c : all) tokens.push_back(c.stop_token());
    int called = 0;
    int missing = 0;
    const auto look = [&] {
      ++called;
      for (std::size_t i = 0; i < all.size(); i += all.size() / 3 + 1) {
        missing += !all[i].err() + (all[i].cause() == nullptr) + !tokens[i].stop_requested() +
                   (all[i].done().try_recv().error() != weft::chan_status::closed);
      }
      cancel();                                       // once more, from inside
      missing += !with_cancel(all.back()).ctx.err();  // and a child of it
    };
    std::vector<std::unique_ptr<std::stop_callback<std::function<void()>>>> callbacks;
    for (const std::stop_token& t : tokens) {
      callbacks.push_back(std::make_unique<std::stop_callback<std::function<void()>>>(t, look));
    }
    weft::run([&, cancel = cancel] { cancel(); });
    EXPECT_EQ(called, n);
    EXPECT_EQ(missing, 0) << n;
  }
}

// A goroutine that goes on because of done() finds its token stopped, in a wide tree, too.
TEST(context, tokens_are_stopped_before_done_closes) {
  weft::run([] {
    for (int i = 0; i < 50; ++i) {
      auto [c, cancel] = with_cancel(context::background());
      std::vector<weft::cancellable> wide;
      for (int k = 0; k < 500; ++k) wide.push_back(with_cancel(c));
      const auto token = c.stop_token();
      const auto last = wide[0].ctx.stop_token();
      weft::wait_group all;
      all.go([cancel = cancel] { cancel(); });
      all.go([&, done = wide[0].ctx.done()] {
        done.recv();
        EXPECT_TRUE(last.stop_requested());
      });
      c.done().recv();
      EXPECT_TRUE(token.stop_requested());
      all.wait();
    }
  });
}

// A token, function, child or wait that comes while its context is cancelled finds err, cause and
// token in agreement.
TEST(context, ends_as_a_whole_for_what_comes_meanwhile) {
  explore({.runs = weft::test::runs(3'000)}, [] {
    auto [root, cancel] = with_cancel(context::background());
    auto [child, cancel_child] = with_cancel(root);
    weft::mutex locked;
    locked.lock();
    weft::wait_group all;
    all.go([cancel = cancel] { cancel(because("it")); });
    all.go([child = child] {
      const std::stop_token token = child.stop_token();
      weft::test::point();
      if (child.err()) {
        EXPECT_TRUE(token.stop_requested());
        EXPECT_TRUE(child.stop_token().stop_requested());
      }
    });
    int called = 0;
    all.go([&, child = child] {
      const auto stop = after_func(child, [&, child = child] {
        EXPECT_EQ(child.err(), errc::canceled);
        ++called;
      });
      EXPECT_EQ(with_cancel(child).ctx.done().recv(), std::nullopt);
    });
    EXPECT_EQ(locked.lock(child), errc::canceled);
    EXPECT_EQ(what_of(child.cause()), "it");
    all.wait();
    weft::test::wait();
    EXPECT_EQ(called, 1);
  });
}

// A child that is made while its parent is being cancelled is cancelled, too, by one or the other.
TEST(context, a_child_that_is_made_during_the_cancel_is_not_missed) {
  explore({.runs = weft::test::runs(3'000)}, [] {
    auto [parent, cancel] = with_cancel(context::background());
    weft::wait_group all;
    all.go([cancel = cancel] { cancel(because("it")); });
    weft::test::point();
    auto [child, cancel_child] = with_cancel(parent);
    weft::test::point();
    auto [timed, cancel_timed] = with_timeout(child, 1h);
    int called = 0;
    const auto stop = after_func(child, [&] { ++called; });
    all.wait();
    EXPECT_EQ(what_of(child.cause()), "it");
    EXPECT_EQ(timed.err(), errc::canceled);
    EXPECT_FALSE(timed.done().recv());
    weft::test::wait();
    EXPECT_EQ(called, 1);
    EXPECT_FALSE(stop());
  });
}

// Towers of all kinds of contexts: at every height the values of all below it are there, and the
// end of the ground, by a cancel or by the time, is the end of the top.
TEST(context, ends_through_many_layers_of_every_kind) {
  for (const bool by_time : {false, true}) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      bubble([seed, by_time] {
        weft::base::random random(seed);
        constexpr std::size_t layers = 30;
        std::vector<std::unique_ptr<weft::context_key<std::size_t>>> keys;
        std::vector<weft::cancel_function> cancels;
        auto ground = by_time ? with_timeout(context::background(), 200ms)
                              : with_cancel(context::background());
        context top = ground.ctx;
        const auto has_all_values = [&] {
          for (std::size_t i = 0; i < keys.size(); ++i) {
            const std::size_t* const v = top.value(*keys[i]);
            if (v == nullptr || *v != i) return false;
          }
          return true;
        };
        for (std::size_t i = 0; i < layers; ++i) {
          if (random.below(3) == 0) {
            keys.push_back(std::make_unique<weft::context_key<std::size_t>>("a layer"));
            top = with_value(top, *keys.back(), keys.size() - 1);
          } else {
            auto next = random.below(2) == 0 ? with_cancel(top) : with_timeout(top, 1h);
            cancels.push_back(next.cancel);
            top = next.ctx;
          }
          EXPECT_TRUE(has_all_values());
        }
        EXPECT_FALSE(top.err());
        if (by_time) {
          EXPECT_EQ(top.deadline(), weft::clock::now() + 200ms);
          weft::this_goroutine::sleep_for(200ms);
          weft::test::wait();
        } else {
          ground.cancel();
        }
        EXPECT_EQ(top.err(), by_time ? errc::deadline_exceeded : errc::canceled) << seed;
        EXPECT_FALSE(top.done().recv());
        EXPECT_TRUE(has_all_values()) << "they stay";
        for (const weft::cancel_function& cancel : cancels) cancel();
      });
    }
  }
}

// What is cut off from its parent has nothing of it but the values, and can end by itself.
TEST(context, without_cancel_keeps_nothing_but_values) {
  bubble([] {
    const weft::context_key<int> key{"key"};
    auto [parent, cancel] = with_timeout(context::background(), 1s);
    const context cut = without_cancel(with_value(parent, key, 5));
    EXPECT_FALSE(cut.done());
    EXPECT_FALSE(cut.deadline());
    EXPECT_FALSE(cut.stop_token().stop_possible());
    auto [below, cancel_below] = with_timeout(cut, 1h);
    weft::this_goroutine::sleep_for(1min);
    EXPECT_EQ(parent.err(), errc::deadline_exceeded);
    EXPECT_FALSE(cut.err());
    EXPECT_EQ(cut.cause(), nullptr);
    EXPECT_FALSE(below.err());
    cancel_below();
    EXPECT_EQ(below.err(), errc::canceled);
    EXPECT_EQ(*below.value(key), 5);
  });
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

// A function that is still to be called, or a stop token that the program may still have, leaves
// the timer of a context behind. A context that is cancelled or has neither leaves none.
TEST(context, a_forgotten_cancel_is_found) {
  const auto function = weft::test::try_explore(
      {.runs = 1}, [] { (void)after_func(with_timeout(context::background(), 1h).ctx, [] {}); });
  EXPECT_NE(function.failure.find("timer is left behind"), std::string::npos) << function.report;
  const auto stoppable = weft::test::try_explore(
      {.runs = 1}, [] { (void)with_timeout(context::background(), 1h).ctx.stop_token(); });
  EXPECT_NE(stoppable.failure.find("timer is left behind"), std::string::npos) << stoppable.report;
  explore({.runs = 1}, [] {
    auto [c, cancel] = with_timeout(context::background(), 1h);
    const auto token = c.stop_token();
    const auto prevent = after_func(c, [] {});
    cancel();
  });
  explore({.runs = 1}, [] {
    const auto pair = with_timeout(context::background(), 1h);
    const auto below = with_cancel(pair.ctx);
    const auto prevent = after_func(below.ctx, [] {});
    EXPECT_TRUE(prevent());
    EXPECT_EQ(below.ctx.done().try_recv().error(), weft::chan_status::empty);
  });
}

// Whatever still tells of a context keeps it: a goroutine that has nothing but its done(), its
// token or a function hears of its end, by time or by a parent.
TEST(context, done_tokens_and_functions_tell_of_its_end_without_a_handle) {
  bubble([] {
    const auto start = weft::clock::now();
    const auto done = with_timeout(context::background(), 1s).ctx.done();
    const auto below = with_cancel(with_timeout(context::background(), 1s).ctx).ctx.done();
    const std::stop_token token = with_timeout(context::background(), 1s).ctx.stop_token();
    const std::stop_token deep =
        with_cancel(with_timeout(context::background(), 1s).ctx).ctx.stop_token();
    int called = 0;
    const std::stop_callback on_stop(token, [&] { ++called; });
    const std::stop_callback on_deep(deep, [&] { ++called; });
    (void)after_func(with_timeout(context::background(), 1s).ctx, [&] { ++called; });
    (void)after_func(with_cancel(with_timeout(context::background(), 1s).ctx).ctx,
                     [&] { ++called; });
    weft::wait_group all;
    all.go([] { with_timeout(context::background(), 1s).ctx.done().recv(); });
    all.go([] {
      weft::mutex m;
      m.lock();
      EXPECT_EQ(m.lock(with_timeout(context::background(), 1s).ctx), errc::deadline_exceeded);
    });
    EXPECT_FALSE(done.recv());
    EXPECT_FALSE(below.recv());
    all.wait();
    weft::test::wait();
    EXPECT_EQ(called, 4);
    EXPECT_TRUE(token.stop_requested() && deep.stop_requested());
    EXPECT_EQ(weft::clock::now() - start, 1s);

    auto [root, cancel] = with_cancel(context::background());
    const auto of_child = with_cancel(root).ctx.done();
    cancel();
    EXPECT_FALSE(of_child.recv());
  });
}

// The last handle may go while the time comes.
TEST(context, may_be_dropped_at_its_deadline) {
  explore({.runs = weft::test::runs(3'000)}, [] {
    auto root = with_cancel(context::background());
    std::optional<weft::cancellable> timed(with_timeout(root.ctx, 1ms));
    std::optional<weft::receiver<std::monostate>> done(timed->ctx.done());
    weft::wait_group all;
    all.go([&] {
      weft::this_goroutine::sleep_for(1ms);
      timed.reset();
    });
    all.go([&] {
      weft::this_goroutine::sleep_for(1ms);
      done.reset();
    });
    all.go([cancel = root.cancel] {
      weft::this_goroutine::sleep_for(1ms);
      cancel();
    });
    all.wait();
  });
  weft::run([] {
    weft::wait_group all;
    for (int g = 0; g < 4; ++g) {
      all.go([g] {
        for (int i = 0; i < weft::test::scaled(5'000, 500); ++i) {
          const auto c = with_timeout(context::background(), std::chrono::microseconds(i % 20));
          const auto below = with_cancel(c.ctx);
          if (i % 3 == 0) weft::this_goroutine::yield();
          if (i % 4 == g) below.ctx.done().recv();
          if (i % 50 == 0) (void)below.ctx.stop_token();
        }
      });
    }
    all.wait();
  });
}

// An early return drops the handles without a cancel. That must not keep anything until the
// deadline.
TEST(context, dropped_ones_are_given_back) {
  weft::run([] {
    auto [root, cancel] = with_cancel(context::background());
    const auto serve = [root = root](int n) {
      for (int i = 0; i < n; ++i) {
        const auto c = with_timeout(root, 1h);
        const auto below = with_timeout(with_cancel(c.ctx).ctx, 1min);
        (void)below.ctx.done().try_recv();
        const auto stop = after_func(below.ctx, [] {});
        EXPECT_TRUE(stop());
      }
    };
    constexpr int n = weft::test::scaled(20'000, 1'000);
    serve(100);
    const std::size_t used = weft::test::allocated_bytes();
    serve(n);
    EXPECT_LT(weft::test::allocated_bytes(), used + 200'000) << "10 bytes for each would be more";
  });
}

// No error is no cause: as Go's cancel(nil).
TEST(context, a_cause_that_is_no_error_is_none) {
  auto [c, cancel] = with_cancel(context::background());
  cancel(std::error_code());
  EXPECT_EQ(what_of(c.cause()), "context canceled");
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
  explore({.runs = weft::test::runs(2'000)}, [] {
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

// The end by time calls the functions, too. Each function has a goroutine of its own, so that none
// keeps the others waiting, nor the goroutine that cancels.
TEST(context, after_func_is_called_in_another_goroutine_than_cancel) {
  bubble([] {
    const auto start = weft::clock::now();
    auto [timed, cancel_timed] = with_timeout(context::background(), 10ms);
    auto [c, cancel] = with_cancel(timed);
    std::vector<weft::clock::duration> called;
    for (const context& watched : {timed, c}) {
      (void)after_func(watched, [&] { called.push_back(weft::clock::now() - start); });
    }
    weft::this_goroutine::sleep_for(1s);
    EXPECT_EQ(called, (std::vector<weft::clock::duration>{10ms, 10ms}));

    auto [d, cancel_d] = with_cancel(context::background());
    const weft::chan<int> gate;
    int ended = 0;
    for (int i = 0; i < 3; ++i) {
      (void)after_func(d, [&, cancel = cancel_d] {
        cancel();  // once more, from inside
        gate.recv();
        ++ended;
      });
    }
    cancel_d();
    weft::test::wait();
    EXPECT_EQ(ended, 0);
    for (int i = 0; i < 3; ++i) gate.send(i);
    weft::test::wait();
    EXPECT_EQ(ended, 3);
  });
}

// A tree that is cancelled from several places at once: every cancel that returns leaves its part
// cancelled, and done is closed whenever err is set and seen through it.
TEST(context, simultaneous_cancels) {
  explore({.runs = weft::test::runs(3'000)}, [] {
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

// A request's context hangs below one that lives as long as the server: what has ended, or is
// dropped, or does not watch any more, is forgotten up there.
TEST(context, a_parent_that_lives_long_does_not_grow) {
  auto [root, cancel_root] = with_cancel(context::background());
  const auto serve = [root = root](int requests) {
    for (int i = 0; i < requests; ++i) {
      auto [c, cancel] = i % 2 == 0 ? with_cancel(root) : with_timeout(root, 1h);
      const auto stop = after_func(c, [] {});
      const auto stop_root = after_func(root, [] {});
      EXPECT_TRUE(stop());
      EXPECT_TRUE(stop_root());
      cancel();
      const auto dropped = with_cancel(root);
    }
  };
  constexpr int n = weft::test::scaled(20'000, 1'000);
  serve(100);
  const std::size_t used = weft::test::allocated_bytes();
  serve(n);
  EXPECT_LT(weft::test::allocated_bytes(), used + 200'000) << "10 bytes for each would be more";
  cancel_root();
}

TEST(context, ends_a_receive_a_send_and_a_sleep) {
  explore({.runs = weft::test::runs(2'000)}, [] {
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
    EXPECT_EQ(channel.send(c, std::move(value)), errc::canceled);
    EXPECT_EQ(*value, 5);
    EXPECT_EQ(channel.try_send(std::move(value)), weft::chan_status::full)
        << "no receiver waits any more";
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

TEST(context, one_that_was_moved_from_is_the_background) {
  const weft::chan<int> channel(1);
  auto [c, cancel] = with_cancel(context::background());
  context there = std::move(c);
  cancel();
  EXPECT_EQ(channel.send(there, 1), errc::canceled);
  EXPECT_FALSE(channel.send(c, 2));  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(channel.recv(c), 2);
  c = std::move(there);
  EXPECT_EQ(channel.send(c, 3), errc::canceled);
  EXPECT_FALSE(there.done());  // NOLINT(bugprone-use-after-move)
}

// The hand-over and the end of either context may meet: the value is on one side then, never on
// both or neither.
TEST(context, a_value_is_delivered_or_kept_whatever_ends_first) {
  for (const std::size_t filled : {0u, 1u}) {
    explore({.runs = weft::test::runs(3'000)}, [filled] {
      auto [of_sender, cancel_sender] = with_cancel(context::background());
      auto [of_receiver, cancel_receiver] = with_cancel(context::background());
      const weft::chan<std::unique_ptr<int>> channel(filled);
      for (std::size_t i = 0; i < filled; ++i) channel.send(std::make_unique<int>(0));
      auto mine = std::make_unique<int>(5);
      std::size_t sent = filled;
      std::size_t received = 0;
      weft::wait_group all;
      all.go([&, c = of_sender] {
        if (!channel.send(c, std::move(mine))) ++sent;
      });
      all.go([&, c = of_receiver] {
        if (channel.recv(c)) ++received;
      });
      all.go([cancel = cancel_sender] { cancel(); });
      all.go([cancel = cancel_receiver] { cancel(); });
      all.wait();
      EXPECT_EQ(mine == nullptr, sent > filled);
      while (channel.try_recv()) ++received;
      EXPECT_EQ(sent, received);
    });
  }
}

// What cannot be assigned can be received, and what cannot be moved just now is not lost.
TEST(context, a_receive_needs_no_more_of_a_value_than_that_it_can_be_moved) {
  static bool fails = false;
  struct fragile {
    explicit fragile(int n) : value(n) {}
    fragile(fragile&& other) : value(other.value) {
      if (fails) throw std::runtime_error("not now");
    }
    fragile& operator=(fragile&&) = delete;
    const int value;
  };
  auto [c, cancel] = with_cancel(context::background());
  const weft::chan<fragile> channel(1);
  channel.send(fragile(7));
  fails = true;
  EXPECT_THROW((void)channel.recv(c), std::runtime_error);
  fails = false;
  EXPECT_EQ(channel.recv(c)->value, 7);
  EXPECT_FALSE(channel.send(c, fragile(8)));
  EXPECT_EQ(channel.recv(c)->value, 8);
  cancel();
  EXPECT_EQ(channel.recv(c).error(), errc::canceled);
}

// One wait with a context would else make every later use of the channel dearer.
TEST(context, a_wait_with_a_context_does_not_end_a_channels_bias) {
  const int before = weft::max_procs(1);
  weft::run([] {
    auto [c, cancel] = with_cancel(context::background());
    const weft::chan<int> channel(4);
    for (int round = 0; round < 5; ++round) {
      for (int i = 0; i < 1'000; ++i) {
        channel.send(i);
        EXPECT_EQ(channel.recv(), i);
      }
      weft::wait_group all;
      all.go([&, c = c] { EXPECT_EQ(channel.recv(c), 5); });
      all.go([&] {
        // A few hundred uses while the other one waits.
        for (int i = 0; i < 500; ++i) EXPECT_FALSE(channel.try_recv());
        channel.send(5);
      });
      all.wait();
    }
    EXPECT_FALSE(channel.core()->has_forgone_bias());
    EXPECT_EQ(channel.size(), 0u);
    // A select's channel is that for good.
    EXPECT_EQ(weft::select(weft::recv(channel), weft::otherwise()), 1u);
    EXPECT_TRUE(channel.core()->has_forgone_bias());
  });
  weft::max_procs(before);
}

// The same as above on real processors, where one takes a waiter out of its queue while the other
// one's context ends, and channels get a bias in between.
TEST(context, on_real_processors_nothing_is_lost_between_channels_and_contexts) {
  const int before = weft::max_procs(4);
  weft::run([] {
    constexpr int values = weft::test::scaled(4'000, 500);
    for (const std::size_t capacity : {0u, 1u, 3u}) {
      const weft::chan<std::string> channel(capacity);
      std::atomic<int> received{0};
      std::atomic<int> given_up{0};
      const auto soon = [n = std::make_shared<std::atomic<int>>(0)] {
        // relaxed: any mixture of times will do.
        const int turn = n->fetch_add(1, std::memory_order_relaxed);
        return with_timeout(context::background(), std::chrono::microseconds(turn % 7 * 10));
      };
      const auto send_all = [&] {
        for (int i = 0; i < values; ++i) {
          std::string text = "a value that is long enough for a box of its own";
          for (;;) {
            auto [c, cancel] = soon();
            const std::error_code e = channel.send(c, std::move(text));
            cancel();
            if (!e) break;
            EXPECT_EQ(e, std::errc::timed_out);
            EXPECT_EQ(text.size(), 48u) << "it was not sent, so it is here";
            given_up.fetch_add(1, std::memory_order_relaxed);
          }
        }
      };
      const auto receive_all = [&] {
        for (;;) {
          auto [c, cancel] = soon();
          const auto text = channel.recv(c);
          cancel();
          if (text) {
            EXPECT_EQ(text->size(), 48u);
            received.fetch_add(1, std::memory_order_relaxed);
          } else if (text.error() == errc::closed) {
            return;
          } else {
            given_up.fetch_add(1, std::memory_order_relaxed);
          }
        }
      };
      weft::wait_group senders;
      weft::wait_group receivers;
      for (int i = 0; i < 3; ++i) senders.go(send_all);
      for (int i = 0; i < 3; ++i) receivers.go(receive_all);
      receivers.go([&] {
        for (const std::string& text : channel) {
          EXPECT_EQ(text.size(), 48u);
          received.fetch_add(1, std::memory_order_relaxed);
        }
      });
      std::thread thread([&] {
        for (int i = 0; i < values; ++i) channel.send(std::string(48, 'x'));
      });
      senders.wait();
      weft::blocking([&] { thread.join(); });
      channel.close();
      receivers.wait();
      EXPECT_EQ(received.load(), 4 * values);
      EXPECT_GT(given_up.load(), 0);
    }
  });
  weft::max_procs(before);
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

// A goroutine that a cancel wakes may drop every handle while the cancel is still at work.
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

// A child's callback cancels the parent while another goroutine, which waits for the child, does
// so, too.
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

using late_callback = std::optional<std::stop_callback<std::function<void()>>>;

// Libraries clean up in stop callbacks, and cancel whole trees there. A callback that is registered
// while its context is being cancelled may run before that context is closed. If it cancels the
// parent, or makes a child of what it has cancelled, it must not wait for the cancel that runs it.
TEST(context, a_stop_callback_may_cancel_the_parent_at_any_time) {
  explore({.runs = weft::test::runs(2'000)}, [] {
    auto parent = with_cancel(context::background());
    auto child = with_cancel(parent.ctx);
    const std::stop_token token = child.ctx.stop_token();
    late_callback late;
    weft::wait_group all;
    all.go([&] { child.cancel(); });
    all.go([&] {
      late.emplace(token, [&] {
        parent.cancel();
        EXPECT_EQ(parent.ctx.err(), errc::canceled);
        EXPECT_EQ(child.ctx.err(), errc::canceled);
        EXPECT_EQ(with_cancel(parent.ctx).ctx.err(), errc::canceled);
      });
    });
    all.wait();
    EXPECT_EQ(parent.ctx.err(), errc::canceled);
  });
}

// Likewise if another goroutine cancels the parent and waits for the child already.
TEST(context, a_stop_callback_may_cancel_what_another_cancels_at_any_time) {
  explore({.runs = weft::test::runs(5'000)}, [] {
    auto parent = with_cancel(context::background());
    auto child = with_cancel(parent.ctx);
    const std::stop_token token = child.ctx.stop_token();
    late_callback late;
    weft::wait_group all;
    all.go([&] { child.cancel(); });
    all.go([&] { parent.cancel(); });
    all.go([&] {
      late.emplace(token, [&] {
        weft::test::point();
        parent.cancel();
        EXPECT_EQ(child.ctx.err(), errc::canceled);
      });
    });
    all.wait();
    EXPECT_EQ(parent.ctx.err(), errc::canceled);
  });
}

// Likewise if it comes to that in the callbacks of yet another cancel, which are called in a
// goroutine of their own, because there are many.
TEST(context, a_stop_callback_of_a_wide_tree_may_cancel_the_parent_at_any_time) {
  explore({.runs = weft::test::runs(2'000)}, [] {
    auto parent = with_cancel(context::background());
    auto child = with_cancel(parent.ctx);
    auto other = with_cancel(context::background());
    std::vector<weft::cancellable> wide;
    std::vector<std::stop_token> tokens;
    for (int i = 0; i < 20; ++i) {
      wide.push_back(with_cancel(other.ctx));
      tokens.push_back(wide.back().ctx.stop_token());
    }
    const std::stop_callback inner(tokens[7], [&] { parent.cancel(); });
    const std::stop_token token = child.ctx.stop_token();
    late_callback late;
    weft::wait_group all;
    all.go([&] { child.cancel(); });
    all.go([&] { late.emplace(token, [&] { other.cancel(); }); });
    all.wait();
    EXPECT_EQ(parent.ctx.err(), errc::canceled);
    EXPECT_EQ(child.ctx.err(), errc::canceled);
  });
}

// The same between threads: one registers callbacks for as long as the other cancels.
TEST(context, on_real_threads_late_stop_callbacks_cancel_the_parent) {
  for (int round = 0; round < weft::test::scaled(1'000, 100); ++round) {
    auto parent = with_cancel(context::background());
    auto child = with_cancel(parent.ctx);
    const std::stop_token token = child.ctx.stop_token();
    std::array<late_callback, 500> late;
    std::atomic<bool> begun{false};
    std::thread registers([&] {
      for (late_callback& l : late) {
        l.emplace(token, [&] { parent.cancel(); });
        begun.store(true, std::memory_order_relaxed);
        if (child.ctx.err()) break;
      }
    });
    weft::wait_group all;
    if (round % 2 != 0) all.go([&] { parent.cancel(); });
    while (!begun.load(std::memory_order_relaxed)) std::this_thread::yield();
    child.cancel();
    registers.join();
    all.wait();
    EXPECT_EQ(parent.ctx.err(), errc::canceled);
    EXPECT_EQ(child.ctx.err(), errc::canceled);
  }
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

// What a test left behind does not disturb others.
TEST(context, of_a_bubble_cannot_end_a_wait_outside) {
  std::optional<context> inside;
  weft::test::bubble([&] { inside = with_cancel(context::background()).ctx; });
  struct two {
    long a, b;
  };
  const weft::chan<int> words;
  const weft::chan<two> pairs;
  const weft::chan<std::string> boxes;
  EXPECT_THROW((void)words.send(*inside, 1), std::logic_error);
  EXPECT_THROW((void)pairs.send(*inside, two{}), std::logic_error);
  EXPECT_THROW((void)boxes.send(*inside, "1"), std::logic_error);
  EXPECT_THROW((void)words.recv(*inside), std::logic_error);
  EXPECT_THROW((void)pairs.recv(*inside), std::logic_error);
  EXPECT_THROW((void)boxes.recv(*inside), std::logic_error);
}

TEST(context, a_child_made_in_a_bubble_does_not_stop_the_cancel_of_its_parent) {
  auto [parent, cancel] = with_cancel(context::background());
  std::optional<context> child;
  bubble([&] { child.emplace(with_cancel(parent).ctx); });
  auto [other, cancel_other] = with_cancel(parent);
  cancel();
  EXPECT_EQ(other.err(), errc::canceled);
  cancel();
}

// A value's destructor may cancel what is being cancelled.
TEST(context, what_goes_during_a_cancel_may_cancel_again) {
  struct canceller {
    std::function<void()> f;
    explicit canceller(std::function<void()> g) : f(std::move(g)) {}
    canceller(canceller&&) = default;
    ~canceller() {
      if (f) f();
    }
  };
  const weft::context_key<canceller> key{"canceller"};
  for (int i = 0; i < 200; ++i) {
    auto [root, cancel_root] = with_cancel(context::background());
    std::optional<weft::cancellable> leaf(
        with_cancel(with_value(root, key, canceller([cancel = cancel_root] { cancel(); }))));
    weft::wait_group all;
    all.go([&] {
      const auto cancel = leaf->cancel;
      leaf.reset();
      cancel();
    });
    all.go([cancel = cancel_root] { cancel(); });
    all.wait();
  }
}

// Nothing can end the background, so it keeps no functions.
TEST(context, functions_of_what_nothing_can_end_go_with_it) {
  auto alive = std::make_shared<int>(1);
  (void)weft::after_func(context::background(), [alive] {});
  (void)weft::after_func(with_cancel(context::background()).ctx, [alive] {});
  EXPECT_EQ(alive.use_count(), 1);
  const auto stop = weft::after_func(context::background(), [] {});
  EXPECT_TRUE(stop());
  EXPECT_FALSE(stop());
}

// A run that fails is abandoned, and the next run uses its stacks. What its goroutines waited with
// lies there, so a context from outside that still referred to it would go astray when it ends.
TEST(context, forgets_the_goroutines_of_a_run_that_failed) {
  const auto [ctx, cancel] = weft::with_cancel(weft::context::background());
  const auto fails = [&, c = ctx](auto wait) {
    const auto r = weft::test::try_explore({.runs = 20}, [&] {
      for (int i = 0; i < 3; ++i) weft::go([&wait, c] { wait(c); });
      weft::test::wait();
      weft::test::check(false, "fails");
    });
    EXPECT_FALSE(r.ok);
    bubble([] {  // on the same stacks, which it overwrites
      weft::wait_group all;
      for (int i = 0; i < 8; ++i) {
        all.go([] {
          std::array<char, 4000> room;
          room.fill(static_cast<char>(0x5a));
          weft::test::name(room.data(), "room");
        });
      }
      all.wait();
    });
  };
  std::atomic<bool> called{false};
  fails([](const weft::context& c) { (void)weft::chan<int>(0).recv(c); });
  fails([](const weft::context& c) { (void)weft::chan<std::string>(0).send(c, "x"); });
  fails([](const weft::context& c) { (void)weft::this_goroutine::sleep_for(c, 1h); });
  fails([](const weft::context& c) {
    weft::select(weft::recv(weft::chan<int>(0)), weft::recv(c.done()));
  });
  fails([](const weft::context& c) { (void)c.done().recv(); });
  fails([](const weft::context& c) {
    weft::mutex m;
    m.lock();
    (void)m.lock(c);
  });
  fails([&](const weft::context& c) { (void)weft::after_func(c, [&] { called.store(true); }); });
  bubble([&, c = ctx] {  // a run that ends well takes nothing out that it has not put in
    const auto undo = weft::after_func(c, [] {});
    EXPECT_TRUE(undo());
    (void)weft::this_goroutine::sleep_for(c, 1s);
  });
  std::atomic<bool> heard{false};
  const auto undo = weft::after_func(ctx, [&] { heard.store(true); });
  cancel();
  EXPECT_TRUE(weft::test::eventually([&] { return heard.load(); }));
  EXPECT_FALSE(called.load());
}

}  // namespace
