// Every blocking operation with a context: it ends when the context does. It has then taken nothing
// and left nothing behind, and the next waiter gets what it would have got.
#include "runtime_fixture.hpp"

#include <weft/test.hpp>
#include <weft/weft.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string_view>
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
using weft::test::runs;
using weft::test::runtime_test;

class sync_context : public runtime_test {};

// Something to wait for, as all of them are seen here: what waits, what lets it go on, and what has
// to be true of it when nobody waits.
struct awaited {
  std::function<std::error_code(const context&)> wait;  // got: the caller has to call undo
  std::function<void()> undo;
  std::function<void()> let_go;
};

struct kind {
  const char* name;
  bool looks_first;  // with a predicate that holds the context does not matter
  // Makes one on which a wait has to wait. `use` is called with it while it exists.
  void (*with)(const std::function<void(const awaited&)>& use);
};

void nothing() {}
constexpr int waiters_max = 3;

const kind kinds[] = {
    {"mutex", false,
     [](const auto& use) {
       weft::mutex m;
       m.lock();
       use({[&](const context& c) { return m.lock(c); }, [&] { m.unlock(); }, [&] { m.unlock(); }});
     }},
    {"shared_mutex", false,
     [](const auto& use) {
       weft::shared_mutex m;
       m.lock_shared();
       use({[&](const context& c) { return m.lock(c); }, [&] { m.unlock(); },
            [&] { m.unlock_shared(); }});
     }},
    {"shared_mutex, shared", false,
     [](const auto& use) {
       weft::shared_mutex m;
       m.lock();
       use({[&](const context& c) { return m.lock_shared(c); }, [&] { m.unlock_shared(); },
            [&] { m.unlock(); }});
     }},
    {"semaphore", false,
     [](const auto& use) {
       weft::counting_semaphore<8> s(0);
       use({[&](const context& c) { return s.acquire(c); }, [&] { s.release(); },
            [&] { s.release(); }});
     }},
    {"condition_variable", true,
     [](const auto& use) {
       weft::mutex m;
       weft::condition_variable cv;
       bool holds = false;
       use({[&](const context& c) {
              std::unique_lock lock(m);
              return cv.wait(c, lock, [&] { return holds; }) ? std::error_code() : c.err();
            },
            &nothing,
            [&] {
              const std::lock_guard lock(m);
              holds = true;
              cv.notify_all();
            }});
     }},
    {"latch", false,
     [](const auto& use) {
       weft::latch l(1);
       use({[&](const context& c) { return l.wait(c); }, &nothing, [&] { l.count_down(); }});
     }},
    {"barrier", false,
     [](const auto& use) {
       weft::barrier b(waiters_max + 1);
       std::vector<weft::barrier<>::arrival_token> tokens;
       for (int i = 0; i < waiters_max; ++i) tokens.push_back(b.arrive());
       std::atomic<std::size_t> used{0};
       use({[&](const context& c) { return b.wait(c, std::move(tokens.at(used++))); }, &nothing,
            [&] { (void)b.arrive(); }});
     }},
    {"wait_group", false,
     [](const auto& use) {
       weft::wait_group g;
       g.add(1);
       use({[&](const context& c) { return g.wait(c); }, &nothing, [&] { g.done(); }});
     }},
    {"future", false,
     [](const auto& use) {
       weft::chan<int> go_on;
       const weft::future<void> f = weft::async([=] { (void)go_on.recv(); });
       use({[&](const context& c) { return f.wait(c); }, &nothing, [=] { go_on.close(); }});
       f.wait();
     }},
    {"call_once", false,
     [](const auto& use) {
       weft::once_flag flag;
       weft::chan<int> go_on;
       weft::chan<int> runs_now(1);
       weft::wait_group all;
       all.go([&] {
         weft::call_once(flag, [&] {
           runs_now.send(1);
           (void)go_on.recv();
         });
       });
       (void)runs_now.recv();
       use({[&](const context& c) {
              return weft::call_once(c, flag, [] { ADD_FAILURE() << "it runs already"; });
            },
            &nothing, [&] { go_on.close(); }});
       all.wait();
     }},
    {"chan, receive", false,
     [](const auto& use) {
       weft::chan<int> c;
       use({[=](const context& ctx) {
              const auto got = c.recv(ctx);
              return got || got.error() == errc::closed ? std::error_code() : got.error();
            },
            &nothing, [=] { c.close(); }});
     }},
};

void for_each_kind(void (*body)(const kind&)) {
  for (const kind& k : kinds) {
    SCOPED_TRACE(k.name);
    body(k);
  }
}

TEST_F(sync_context, an_ended_context_comes_first) {
  for_each_kind([](const kind& k) {
    bubble([&k] {
      k.with([looks_first = k.looks_first](const awaited& a) {
        auto [ctx, cancel] = with_cancel(context::background());
        cancel();
        EXPECT_EQ(a.wait(ctx), errc::canceled);
        a.let_go();
        if (!looks_first) {
          EXPECT_EQ(a.wait(ctx), errc::canceled) << "though it need not wait";
        }
        EXPECT_FALSE(a.wait(context::background()));
        a.undo();
      });
    });
  });
}

TEST_F(sync_context, a_cancel_ends_the_wait) {
  for_each_kind([](const kind& k) {
    bubble([&k] {
      k.with([](const awaited& a) {
        auto [ctx, cancel] = with_cancel(context::background());
        weft::wait_group all;
        all.go([&, ctx = ctx] { EXPECT_EQ(a.wait(ctx), errc::canceled); });
        weft::test::wait();
        cancel();
        all.wait();
        a.let_go();
        EXPECT_FALSE(a.wait(context::background()));
        a.undo();
      });
    });
  });
}

TEST_F(sync_context, a_deadline_ends_the_wait_at_its_time) {
  for_each_kind([](const kind& k) {
    bubble([&k] {
      k.with([](const awaited& a) {
        const auto begin = weft::clock::now();
        auto [ctx, cancel] = with_timeout(context::background(), 7ms);
        EXPECT_EQ(a.wait(ctx), errc::deadline_exceeded);
        EXPECT_EQ(weft::clock::now() - begin, 7ms);
        a.let_go();
      });
    });
  });
}

TEST_F(sync_context, a_live_context_changes_nothing) {
  for_each_kind([](const kind& k) {
    bubble([&k] {
      k.with([](const awaited& a) {
        auto [ctx, cancel] = with_timeout(context::background(), 7ms);
        weft::wait_group all;
        all.go([&, ctx = ctx] {
          EXPECT_FALSE(a.wait(ctx));
          a.undo();
        });
        weft::this_goroutine::sleep_for(5ms);
        a.let_go();
        all.wait();
        cancel();
      });
    });
  });
}

// A waiter behind a cancelled one gets what there is.
TEST_F(sync_context, a_waiter_that_gives_up_keeps_no_other_waiting) {
  for_each_kind([](const kind& k) {
    bubble([&k] {
      k.with([](const awaited& a) {
        auto [ctx, cancel] = with_cancel(context::background());
        weft::wait_group all;
        all.go([&, ctx = ctx] { EXPECT_TRUE(a.wait(ctx)); });
        weft::test::wait();
        all.go([&] {
          EXPECT_FALSE(a.wait(context::background()));
          a.undo();
        });
        weft::test::wait();
        cancel();
        weft::test::wait();
        a.let_go();
        all.wait();
      });
    });
  });
}

// A cancel and what is waited for come at once: one of them counts, and nothing is lost.
TEST_F(sync_context, a_cancel_races_with_what_is_waited_for) {
  for_each_kind([](const kind& k) {
    explore({.runs = runs(1'000)}, [&k] {
      k.with([](const awaited& a) {
        auto [ctx, cancel] = with_cancel(context::background());
        weft::wait_group all;
        for (int i = 0; i < 2; ++i) {
          all.go([&, ctx = ctx] {
            if (const std::error_code e = a.wait(ctx)) {
              EXPECT_EQ(e, errc::canceled);
            } else {
              a.undo();
            }
          });
        }
        all.go([&, cancel = cancel] { cancel(); });
        a.let_go();
        all.wait();
        EXPECT_FALSE(a.wait(context::background()));
        a.undo();
      });
    });
  });
}

TEST_F(sync_context, plain_threads_wait_and_cancel_too) {
  for_each_kind([](const kind& k) {
    if (std::string_view(k.name) == "condition_variable") return;  // its wait is a mutex's, too
    k.with([](const awaited& a) {
      auto [ctx, cancel] = with_timeout(context::background(), 2ms);
      std::thread waits([&a, ctx = ctx] { EXPECT_EQ(a.wait(ctx), errc::deadline_exceeded); });
      waits.join();
      auto [other, cancel_other] = with_cancel(context::background());
      weft::wait_group all;
      all.go([&a, ctx = other] { EXPECT_EQ(a.wait(ctx), errc::canceled); });
      std::this_thread::sleep_for(1ms);
      std::thread cancels([cancel = cancel_other] { cancel(); });
      all.wait();
      cancels.join();
      a.let_go();
    });
  });
}

// On real processors: locks with deadlines that mostly come too early.
TEST_F(sync_context, impatient_crowds_lose_no_permit) {
  for (const int procs : {1, 2, 8}) {
    const weft::test::procs_scope p(procs);
    weft::mutex m;
    weft::counting_semaphore<4> s(2);
    int held = 0;
    std::atomic<int> got{0};
    weft::wait_group all;
    for (int i = 0; i < 16; ++i) {
      all.go([&, i] {
        for (int k = 0; k < weft::test::scaled(200, 30); ++k) {
          auto [ctx, cancel] = with_timeout(context::background(), (i * 7 + k) % 20 * 5us);
          if (s.acquire(ctx)) continue;
          if (!m.lock(ctx)) {
            ++held;
            weft::this_goroutine::yield();
            m.unlock();
            ++got;
          }
          s.release();
        }
      });
    }
    all.wait();
    EXPECT_EQ(held, got);
    EXPECT_TRUE(m.try_lock());
    EXPECT_TRUE(s.try_acquire());
    EXPECT_TRUE(s.try_acquire());
    EXPECT_FALSE(s.try_acquire());
    m.unlock();
  }
}

}  // namespace
