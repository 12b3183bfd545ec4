// What the goroutines of each kind do, except those that read and write (group_io.cpp). ../table.md
// describes the kinds; ../go/groups.go has them in Go, in this order.
//
// The goroutine that ends a conversation closes the channels on which it sends; no other goroutine
// does. A goroutine that finds its channel closed does likewise. So the end of one ends all that
// talk to it.
#include "program.hpp"

#include <weft/chan.hpp>
#include <weft/go.hpp>
#include <weft/sync.hpp>
#include <weft/time.hpp>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <unistd.h>
#include <vector>

namespace torture {
namespace {

using std::chrono::microseconds;
// A token is the time at which it would be sent if its sender had never been kept from computing:
// so it makes no difference whether a chain of goroutines is stopped while one computes, when it
// sends, or before the next one goes on.
using tokens = weft::chan<std::int64_t>;

constexpr std::int64_t ns_per_us = 1000;

// Every goroutine of the group has one round after the other until the end.
template <class F>
void start_rounds(group& g, counted c, F round) {
  for (std::size_t i = 0; i < g.size(); ++i) {
    g.start(c, [&g, round, i] {
      std::int64_t turns = 0;
      for (; g.more(turns); ++turns) round();
      g.made_progress(i, turns);
    });
  }
}

void start_yielders(program& all, group& g) {
  const std::int64_t work = g.number("work_us");
  start_rounds(g, counted::yes, [&all, &g, work] {
    all.compute(work);
    const std::int64_t began = now_ns();
    weft::this_goroutine::yield();
    g.waited(wait::yield, began);
  });
}

// The half of a pair that answers.
void answer(program& all, group& g, std::int64_t work, const tokens& in, const tokens& out) {
  for (;;) {
    const std::int64_t began = now_ns();
    const auto sent = in.recv();
    if (!sent) break;
    g.received(wait::wake, *sent, began);
    const std::int64_t due = now_ns() + work * ns_per_us;
    all.compute(work);
    if (all.is_over(now_ns())) break;
    out.send(due);
  }
  out.close();
}

// The half that asks. Between two questions it sleeps, if `sleep` is not 0.
void ask(program& all, group& g, std::size_t i, std::int64_t work, std::int64_t sleep,
         const tokens& in, const tokens& out) {
  std::int64_t turns = 0;
  for (; g.more(turns); ++turns) {
    const std::int64_t due = now_ns() + work * ns_per_us;
    all.compute(work);
    const std::int64_t began = now_ns();
    out.send(due);
    const auto sent = in.recv();
    if (!sent) break;
    g.received(wait::wake, *sent, began);
    if (sleep != 0) g.sleep(sleep);
  }
  out.close();
  g.made_progress(i, turns);
}

void start_pairs(program& all, group& g) {
  const std::int64_t work = g.number("work_us");
  for (std::size_t i = 0; i < g.size(); ++i) {
    const tokens there;
    const tokens back;
    g.start(counted::no, [&all, &g, work, there, back] { answer(all, g, work, there, back); });
    g.start(counted::yes,
            [&all, &g, work, there, back, i] { ask(all, g, i, work, 0, back, there); });
  }
}

// A channel holds all tokens of its ring, so that no goroutine waits in order to send.
void start_rings(program& all, group& g) {
  const std::int64_t work = g.number("work_us");
  const auto size = static_cast<std::size_t>(g.number("size"));
  const auto token_count = static_cast<std::size_t>(g.number("tokens"));
  for (std::size_t ring = 0; ring < g.size(); ++ring) {
    std::vector<tokens> channels;
    for (std::size_t i = 0; i < size; ++i) channels.emplace_back(token_count);
    for (std::size_t i = 0; i < token_count; ++i) channels[i].send(0);
    for (std::size_t i = 0; i < size; ++i) {
      g.start(counted::no,
              [&all, &g, work, in = channels[i], out = channels[(i + 1) % size], ring, i] {
                std::int64_t turns = 0;
                for (;; ++turns) {
                  const std::int64_t began = now_ns();
                  const auto sent = in.recv();
                  if (!sent) break;
                  g.received(wait::wake, *sent, began);
                  const std::int64_t due = now_ns() + work * ns_per_us;
                  all.compute(work);
                  if (all.is_over(now_ns())) break;
                  out.send(due);
                }
                out.close();
                if (i == 0) g.made_progress(ring, turns);
              });
    }
  }
}

void start_sleepers(program& all, group& g) {
  const std::int64_t work = g.number("work_us");
  const std::int64_t sleep = g.number("sleep_us");
  start_rounds(g, counted::yes, [&all, &g, work, sleep] {
    g.sleep(sleep);
    all.compute(work);
  });
}

// Ticks are counted from the making of the ticker. If that took long, so that it is not known when
// the ticker began, another one is made.
void start_tickers(program& all, group& g) {
  const std::int64_t work = g.number("work_us");
  const std::int64_t every = g.number("every_us");
  for (std::size_t i = 0; i < g.size(); ++i) {
    g.start(counted::no, [&all, &g, work, every, i] {
      const std::int64_t period = every * ns_per_us;
      std::int64_t first = now_ns();
      auto t = std::make_unique<weft::ticker>(microseconds(every));
      for (int tries = 0; tries < 20 && now_ns() - first > 20 * ns_per_us; ++tries) {
        first = now_ns();
        t = std::make_unique<weft::ticker>(microseconds(every));
      }
      std::int64_t turns = 0;
      for (; g.more(turns); ++turns) {
        const std::int64_t began = now_ns();
        const std::int64_t due = first + ((began - first) / period + 1) * period;
        t->c().recv();
        // Else a tick that came while we computed lay there already.
        if (now_ns() >= due) g.waited(wait::timer, due);
        all.compute(work);
      }
      g.made_progress(i, turns);
    });
  }
}

// Blocks the thread for so long and meters how late it goes on.
void block(group& g, std::int64_t sleep_us) {
  const std::int64_t due = now_ns() + sleep_us * ns_per_us;
  ::usleep(static_cast<useconds_t>(sleep_us));
  g.was_due(wait::back, due);
}

void start_pollers(program&, group& g) {
  const std::int64_t sleep = g.number("sleep_us");
  start_rounds(g, counted::no, [&g, sleep] { block(g, sleep); });
}

// Each round starts a goroutine and waits for it as plain C++ does, with the thread.
void start_waiters(program& all, group& g) {
  struct bell {
    std::mutex mu;
    std::condition_variable rung;
    bool is_rung = false;   // guarded by mu
    std::int64_t when = 0;  // guarded by mu
  };
  const std::int64_t work = g.number("work_us");
  start_rounds(g, counted::no, [&all, &g, work] {
    const auto b = std::make_shared<bell>();
    g.start(counted::no, [&all, b, work] {
      all.compute(work);
      const std::lock_guard l(b->mu);
      b->is_rung = true;
      b->when = now_ns();
      b->rung.notify_one();
    });
    const std::int64_t began = now_ns();
    std::unique_lock l(b->mu);
    b->rung.wait(l, [&] { return b->is_rung; });
    g.received(wait::wake, b->when, began);
  });
}

// All lock one plain mutex in turns, and may be stopped with it in their hands.
void start_mutexes(program& all, group& g) {
  const std::int64_t work = g.number("work_us");
  const auto mu = std::make_shared<std::mutex>();
  start_rounds(g, counted::yes, [&all, &g, work, mu] {
    {
      const std::lock_guard l(*mu);
      all.compute(work);
    }
    const std::int64_t began = now_ns();
    weft::this_goroutine::yield();
    g.waited(wait::yield, began);
  });
}

enum class announced : std::uint8_t { no, yes };

void start_blockers(program& all, group& g, announced a) {
  const std::int64_t work = g.number("work_us");
  const std::int64_t sleep = g.number("sleep_us");
  start_rounds(g, counted::no, [&all, &g, work, sleep, a] {
    if (a == announced::no) {
      block(g, sleep);
    } else {
      const std::int64_t due = now_ns() + sleep * ns_per_us;
      weft::blocking([&] { ::usleep(static_cast<useconds_t>(sleep)); });
      g.was_due(wait::back, due);
    }
    all.compute(work);
  });
}

// Every second goroutine that answers ends without unlocking, and its thread with it.
void start_locked(program& all, group& g) {
  const std::int64_t work = g.number("work_us");
  const std::int64_t sleep = g.number("sleep_us");
  const bool both = g.number("both") != 0;
  for (std::size_t i = 0; i < g.size(); ++i) {
    const tokens there;
    const tokens back;
    g.start(counted::no, [&all, &g, work, there, back, both, i] {
      if (both) weft::this_goroutine::lock_thread();
      answer(all, g, work, there, back);
      if (both && i % 2 == 0) weft::this_goroutine::unlock_thread();
    });
    g.start(counted::no, [&all, &g, work, sleep, there, back, i] {
      weft::this_goroutine::lock_thread();
      ask(all, g, i, work, sleep, back, there);
      weft::this_goroutine::unlock_thread();
    });
  }
}

void start_storms(program& all, group& g) {
  const std::int64_t work = g.number("work_us");
  const std::int64_t every = g.number("every_us");
  const std::int64_t burst = g.number("burst");
  start_rounds(g, counted::yes, [&all, &g, work, every, burst] {
    g.sleep(every);
    weft::wait_group children;
    children.add(static_cast<int>(burst));
    for (std::int64_t child = 0; child < burst; ++child) {
      g.start(counted::no, [&all, &children, work] {
        all.compute(work);
        children.done();
      });
    }
    children.wait();
  });
}

void grow(program& all, group& g, weft::wait_group& nodes, std::int64_t depth, std::int64_t work) {
  if (depth > 0) {
    nodes.add(2);
    for (int child = 0; child < 2; ++child) {
      g.start(counted::no,
              [&all, &g, &nodes, depth, work] { grow(all, g, nodes, depth - 1, work); });
    }
  }
  all.compute(work);
  nodes.done();
}

void start_trees(program& all, group& g) {
  const std::int64_t work = g.number("work_us");
  const std::int64_t every = g.number("every_us");
  const std::int64_t depth = g.number("depth");
  start_rounds(g, counted::no, [&all, &g, work, every, depth] {
    g.sleep(every);
    weft::wait_group nodes;
    nodes.add(1);
    grow(all, g, nodes, depth, work);
    nodes.wait();
  });
}

void start_timers(program& all, group& g) {
  const std::int64_t work = g.number("work_us");
  const std::int64_t every = g.number("every_us");
  const std::int64_t burst = g.number("burst");
  const std::int64_t within = g.number("within_us");
  for (std::size_t i = 0; i < g.size(); ++i) {
    g.start(counted::no, [&all, &g, work, every, burst, within, i] {
      std::minstd_rand random(static_cast<unsigned>(i) + 1);
      std::int64_t turns = 0;
      for (; g.more(turns); ++turns) {
        weft::wait_group fired;
        fired.add(static_cast<int>(burst));
        for (std::int64_t one = 0; one < burst; ++one) {
          const std::int64_t delay = static_cast<std::int64_t>(random()) % within;
          const std::int64_t due = now_ns() + delay * ns_per_us;
          weft::after_func(microseconds(delay), [&all, &g, &fired, work, due] {
            g.was_due(wait::timer, due);
            all.compute(work);
            fired.done();
          });
        }
        fired.wait();
        g.sleep(every);
      }
      g.made_progress(i, turns);
    });
  }
}

// A hog never enters the runtime. It looks at the clock after every piece of work, and what is
// missing from its time is a wait.
void start_hogs(program& all, group& g) {
  constexpr std::int64_t piece_us = 20;
  constexpr std::int64_t gap_ns = 200 * ns_per_us;
  for (std::size_t i = 0; i < g.size(); ++i) {
    g.start(counted::no, [&all, &g, i] {
      std::int64_t turns = 0;
      for (std::int64_t last = now_ns(); !all.is_over(last); ++turns) {
        all.compute(piece_us);
        const std::int64_t now = now_ns();
        if (now - last > gap_ns) g.waited(wait::hog, last + piece_us * ns_per_us);
        last = now;
      }
      g.made_progress(i, turns);
    });
  }
}

void start_resizers(program&, group& g) {
  const std::int64_t every = g.number("every_us");
  for (std::size_t i = 0; i < g.size(); ++i) {
    g.start(counted::no, [&g, every, i, values = g.parameters().numbers("values")] {
      std::int64_t turns = 0;
      for (; g.more(turns); ++turns) {
        g.sleep(every);
        weft::max_procs(values[static_cast<std::size_t>(turns) % values.size()]);
      }
      g.made_progress(i, turns);
    });
  }
}

}  // namespace

void start_group(program& all, group& g) {
  const std::string& kind = g.parameters().word();
  if (kind == "yielders") return start_yielders(all, g);
  if (kind == "pairs") return start_pairs(all, g);
  if (kind == "rings") return start_rings(all, g);
  if (kind == "sleepers") return start_sleepers(all, g);
  if (kind == "tickers") return start_tickers(all, g);
  if (kind == "pollers") return start_pollers(all, g);
  if (kind == "waiters") return start_waiters(all, g);
  if (kind == "mutexes") return start_mutexes(all, g);
  if (kind == "blocking") return start_blockers(all, g, announced::yes);
  if (kind == "unannounced") return start_blockers(all, g, announced::no);
  if (kind == "locked") return start_locked(all, g);
  if (kind == "storm") return start_storms(all, g);
  if (kind == "tree") return start_trees(all, g);
  if (kind == "timers") return start_timers(all, g);
  if (kind == "hogs") return start_hogs(all, g);
  if (kind == "resize") return start_resizers(all, g);
  if (!start_io_group(all, g)) wrong_table("there is no kind " + kind);
}

}  // namespace torture
