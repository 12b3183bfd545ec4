// Bugs of the kinds that people write, each in a program of its own with a version that has it and
// one that has not: explore() finds it soon, says what it is, replays it, and shows it in few
// switches; and it leaves the fixed version alone. The table at the end says how soon and how few.
#include "eventually.hpp"
#include "mini_sync.hpp"

#include <weft/test.hpp>
#include <weft/weft.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <ostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using weft::test::atomic;
using weft::test::strategy;
using weft::test::var;
namespace mini = weft::mini;

enum class version : std::uint8_t { broken, fixed };
using enum version;

// A goroutine that tables call by its name and `all` waits for.
template <class F>
void start(weft::wait_group& all, const char* name, F f) {
  all.add(1);
  weft::go({.name = name}, [&all, f] {
    f();
    all.done();
  });
}

// ---- Locks and conditions ----

// Checks, then sleeps: a notification in between wakes no goroutine.
void lost_wake_up(version v) {
  mini::mutex m;
  mini::condition_variable changed;
  atomic<bool> ready{false, "ready"};
  weft::wait_group all;
  start(all, "waiter", [&] {
    if (v == broken) {
      if (ready) return;
      std::unique_lock lock(m);
      changed.wait(lock);
    } else {
      std::unique_lock lock(m);
      while (!ready) changed.wait(lock);
    }
  });
  start(all, "setter", [&] {
    if (v == broken) {
      ready = true;
    } else {
      const std::lock_guard hold(m);
      ready = true;
    }
    changed.notify_one();
  });
  all.wait();
}

// Two transfers in opposite directions, each with one account locked and in want of the other.
void lock_order(version v) {
  struct account {
    explicit account(int n) : number(n) {}
    int number;
    var<int> balance{100, "balance"};
    mini::mutex m;
  };
  account a{1};
  account b{2};
  weft::test::name(&a.m, "a");
  weft::test::name(&b.m, "b");
  const auto transfer = [v](account& from, account& to) {
    const bool turn = v == fixed && from.number > to.number;
    const std::lock_guard first(turn ? to.m : from.m);
    const std::lock_guard second(turn ? from.m : to.m);
    from.balance -= 10;
    to.balance += 10;
  };
  weft::wait_group all;
  start(all, "there", [&] { transfer(a, b); });
  start(all, "back", [&] { transfer(b, a); });
  all.wait();
}

// A consumer that was woken goes on as if what it was woken for were still there.
void if_instead_of_while(version v) {
  mini::mutex m;
  mini::condition_variable filled;
  std::deque<int> queue;
  weft::wait_group all;
  for (int i = 0; i < 2; ++i) {
    start(all, "consumer", [&] {
      std::unique_lock lock(m);
      if (v == broken) {
        if (queue.empty()) filled.wait(lock);
      } else {
        while (queue.empty()) filled.wait(lock);
      }
      if (queue.empty()) throw std::out_of_range("the queue is empty");
      queue.pop_front();
    });
  }
  start(all, "producer", [&] {
    for (int i = 0; i < 2; ++i) {
      const std::lock_guard hold(m);
      queue.push_back(i);
      filled.notify_one();
    }
  });
  all.wait();
}

class shared_lock {
 public:
  void lock_shared() {
    std::unique_lock lock(m_);
    while (writer_) changed_.wait(lock);
    ++readers_;
  }
  void unlock_shared() {
    const std::lock_guard hold(m_);
    --readers_;
    changed_.notify_all();
  }
  void lock() {
    std::unique_lock lock(m_);
    while (writer_ || readers_ > 0) changed_.wait(lock);
    writer_ = true;
  }
  void unlock() {
    const std::lock_guard hold(m_);
    writer_ = false;
    changed_.notify_all();
  }
  // Returns: false if there are other readers; then it is still shared.
  bool try_upgrade() {
    const std::lock_guard hold(m_);
    if (readers_ > 1) return false;
    readers_ = 0;
    writer_ = true;
    return true;
  }

 private:
  mini::mutex m_;
  mini::condition_variable changed_;
  int readers_ = 0;
  bool writer_ = false;
};

// A reader that becomes a writer lets another in between, and writes what it had read before.
void upgrade_lets_a_writer_in(version v) {
  shared_lock l;
  var<int> value{0, "value"};
  weft::wait_group all;
  for (int i = 0; i < 2; ++i) {
    start(all, "increment", [&] {
      l.lock_shared();
      int seen = value;
      if (v == broken) {
        l.unlock_shared();
        l.lock();
      } else if (!l.try_upgrade()) {
        l.unlock_shared();
        l.lock();
        seen = value;
      }
      value = seen + 1;
      l.unlock();
    });
  }
  all.wait();
  EXPECT_EQ(value.get(), 2);
}

class semaphore {
 public:
  semaphore(int permits, version v) : permits_(permits), version_(v) {}
  bool acquire_for(std::chrono::nanoseconds d) {
    std::unique_lock lock(m_);
    if (permits_ > 0) {
      --permits_;
      return true;
    }
    bool granted = false;
    queue_.push_back(&granted);
    while (!granted) {
      if (changed_.wait_for(lock, d)) continue;
      if (version_ == fixed && granted) break;  // while it waited for the lock
      std::erase(queue_, &granted);
      return false;
    }
    return true;
  }
  void release() {
    const std::lock_guard hold(m_);
    if (queue_.empty()) {
      ++permits_;
    } else {
      *queue_.front() = true;
      queue_.pop_front();
      changed_.notify_all();
    }
  }
  int permits() const { return permits_; }

 private:
  mini::mutex m_;
  mini::condition_variable changed_;
  std::deque<bool*> queue_;
  int permits_;
  version version_;
};

// A permit is handed to a waiter that has timed out and does not look.
void permit_lost_on_timeout(version v) {
  semaphore s(1, v);
  weft::wait_group all;
  EXPECT_TRUE(s.acquire_for(0s));
  start(all, "other", [&] {
    if (s.acquire_for(5ms)) s.release();
  });
  weft::this_goroutine::sleep_for(5ms);
  s.release();
  all.wait();
  EXPECT_EQ(s.permits(), 1);
}

class barrier {
 public:
  barrier(int parties, version v) : parties_(parties), version_(v) {}
  void arrive_and_wait() {
    std::unique_lock lock(m_);
    const int round = round_;
    if (++arrived_ == parties_) {
      arrived_ = 0;
      ++round_;
      all_here_.notify_all();
    } else if (version_ == broken) {
      while (arrived_ != 0) all_here_.wait(lock);  // a goroutine may be here for the next round
    } else {
      while (round_ == round) all_here_.wait(lock);
    }
  }

 private:
  mini::mutex m_;
  mini::condition_variable all_here_;
  int arrived_ = 0;
  int round_ = 0;
  int parties_;
  version version_;
};

// One comes back before the other has left.
void barrier_used_again_too_early(version v) {
  barrier b(2, v);
  weft::wait_group all;
  for (int i = 0; i < 2; ++i) {
    start(all, "runner", [&] {
      b.arrive_and_wait();
      b.arrive_and_wait();
    });
  }
  all.wait();
}

class cache {
 public:
  explicit cache(version v) : version_(v) {}
  int get() {
    std::unique_lock lock(m_);
    if (version_ == fixed) {
      while (state_ == loading) loaded_.wait(lock);
    }
    if (state_ == present) return value_;
    state_ = loading;
    lock.unlock();
    const int value = load();
    lock.lock();
    value_ = value;
    state_ = present;
    loaded_.notify_all();
    return value;
  }
  int loads() const { return loads_; }

 private:
  int load() {
    ++loads_;
    return 42;
  }

  mini::mutex m_;
  mini::condition_variable loaded_;
  enum : std::uint8_t { absent, loading, present } state_ = absent;
  var<int> value_{0, "value"};
  atomic<int> loads_{0, "loads"};
  version version_;
};

// The lock is free while the value is loaded, and a goroutine that comes then loads it, too.
void loaded_twice(version v) {
  cache c(v);
  weft::wait_group all;
  for (int i = 0; i < 2; ++i) {
    start(all, "reader", [&] { EXPECT_EQ(c.get(), 42); });
  }
  all.wait();
  EXPECT_EQ(c.loads(), 1);
}

// ---- Channels, timers, cancellation ----

// The last producer closes the channel, but each of them believes that another is the last.
void missed_close(version v) {
  mini::chan<int> values(2);
  atomic<int> producers{2, "producers"};
  weft::wait_group all;
  for (const int value : {1, 2}) {
    start(all, "producer", [&, value] {
      values.send(value);
      int left = 0;
      if (v == broken) {
        left = producers - 1;
        producers = left;
      } else {
        left = --producers;
      }
      if (left == 0) values.close();
    });
  }
  int sum = 0;
  while (const auto value = values.receive()) sum += *value;
  EXPECT_EQ(sum, 3);
  all.wait();
}

// Two servers are asked, the faster one answers; if both think that they are, one waits for ever.
void double_send(version v) {
  struct request {
    mini::chan<int> reply;
    atomic<bool> answered{false, "answered"};
  };
  const auto r = std::make_shared<request>();
  for (const int server : {1, 2}) {
    weft::go({.name = "server"}, [r, server, v] {
      if (v == broken) {
        if (r->answered) return;
        r->answered = true;
      } else if (r->answered.exchange(true)) {
        return;
      }
      r->reply.send(server);
    });
  }
  EXPECT_TRUE(r->reply.receive().has_value());
}

// A goroutine that stops a timer that has fired must wait for the timer's function.
void timer_fires_after_stop(version v) {
  struct request {
    var<int> status{0, "status"};
    weft::wait_group fired;
  };
  const auto r = std::make_shared<request>();
  r->fired.add(1);
  mini::timer deadline(5ms, [r] {
    r->status = 408;
    r->fired.done();
  });
  weft::this_goroutine::sleep_for(5ms);
  if (!deadline.stop() && v == fixed) r->fired.wait();
  r->status = 200;
}

// The way out in the middle does not stop what was started at the top.
void forgotten_cancel(version v) {
  atomic<bool> maintenance{false, "maintenance"};
  weft::wait_group all;
  start(all, "operator", [&] { maintenance = true; });
  const auto call = std::make_shared<mini::cancellation>();
  weft::go({.name = "heartbeat"}, [call] {
    while (!call->wait_for(10ms)) {
    }
  });
  if (maintenance) {
    if (v == fixed) call->cancel();
    all.wait();
    return;
  }
  call->cancel();
  all.wait();
}

// The first error ends the collection, and a goroutine that has not delivered yet never will.
void leak_on_the_error_path(version v) {
  const auto results = std::make_shared<mini::chan<int>>(v == fixed ? 2 : 0);
  for (const int part : {1, -1}) {
    weft::go({.name = "part"}, [results, part] { results->send(part); });
  }
  for (int i = 0; i < 2; ++i) {
    if (results->receive() == -1) return;
  }
}

// The caller stops waiting just as the limiter lets it pass, which then waits for the caller.
void limiter_replies_to_nobody(version v) {
  struct request {
    explicit request(std::size_t room) : reply(room) {}
    mini::chan<int> reply;
  };
  mini::chan<std::shared_ptr<request>> requests;
  weft::wait_group all;
  start(all, "limiter", [&] {
    while (const auto r = requests.receive()) {
      weft::this_goroutine::sleep_for(5ms);
      (*r)->reply.send(1);
    }
  });
  const auto r = std::make_shared<request>(v == fixed ? 1 : 0);
  requests.send(r);
  (void)r->reply.receive_for(5ms);
  requests.close();
  all.wait();
}

// ---- Goroutines, wait groups, futures ----

// The wait begins, and ends, before the goroutine has said that there is something to wait for.
void add_in_the_goroutine(version v) {
  struct job {
    weft::wait_group all;
    atomic<int> finished{0, "finished"};
  };
  const auto j = std::make_shared<job>();
  for (int i = 0; i < 2; ++i) {
    if (v == fixed) j->all.add(1);
    weft::go({.name = "worker"}, [j, v] {
      if (v == broken) j->all.add(1);
      ++j->finished;
      j->all.done();
    });
  }
  j->all.wait();
  EXPECT_EQ(j->finished.load(), 2);
}

// The way out by an exception does not tell the group.
void done_missed_by_an_exception(version v) {
  atomic<bool> configured{false, "configured"};
  weft::wait_group all;
  start(all, "configure", [&] { configured = true; });
  const auto work = [&] {
    if (!configured) throw std::runtime_error("not configured");
  };
  all.add(1);
  weft::go({.name = "worker"}, [&] {
    try {
      work();
      if (v == broken) all.done();
    } catch (const std::runtime_error&) {  // it is as good as done
    }
    if (v == fixed) all.done();
  });
  all.wait();
}

// wait_for() returns also when the time is up.
void result_read_before_it_is_ready(version v) {
  const auto result = std::make_shared<var<int>>(0, "result");
  const auto ready = weft::async([result] { *result = 42; });
  if (v == broken) {
    (void)ready.wait_for(5ms);
  } else {
    ready.wait();
  }
  (void)result->get();
}

// A stop that comes before the start is overwritten by it.
void stop_before_start(version v) {
  atomic<bool> running{v == fixed, "running"};
  weft::wait_group all;
  start(all, "server", [&] {
    if (v == broken) running = true;
    while (running) weft::this_goroutine::yield();
  });
  running = false;
  all.wait();
}

// ---- Atomics ----

// What was checked is no longer so when it is acted upon.
void check_then_act(version v) {
  atomic<int> balance{100, "balance"};
  weft::wait_group all;
  for (int i = 0; i < 2; ++i) {
    start(all, "withdraw", [&] {
      int seen = balance;
      if (v == broken) {
        if (seen >= 70) balance -= 70;
      } else {
        while (seen >= 70 && !balance.compare_exchange_weak(seen, seen - 70)) {
        }
      }
    });
  }
  all.wait();
  EXPECT_GE(balance.load(), 0);
}

// A stack of numbered nodes, 1 on 2 on 3. Node 0 is none.
class lock_free_stack {
 public:
  explicit lock_free_stack(version v) : version_(v) {}
  std::uint64_t pop() {
    std::uint64_t top = top_;
    for (;;) {
      const std::uint64_t node = top % 16;
      if (node == 0) return 0;
      const std::uint64_t below = next_[node];
      if (top_.compare_exchange_weak(top, changed(top, below))) return node;
    }
  }
  void push(std::uint64_t node) {
    std::uint64_t top = top_;
    do {
      next_[node] = top % 16;
    } while (!top_.compare_exchange_weak(top, changed(top, node)));
  }

 private:
  // Another value each time, if it is fixed, also when the same node comes back to the top.
  std::uint64_t changed(std::uint64_t top, std::uint64_t node) const {
    return version_ == fixed ? (top / 16 + 1) * 16 + node : node;
  }

  atomic<std::uint64_t> top_{1, "top"};
  std::array<atomic<std::uint64_t>, 4> next_{0u, 2u, 3u, 0u};
  version version_;
};

// The top is the same as before, but what lies under it is not.
void aba_in_a_stack(version v) {
  lock_free_stack s(v);
  std::uint64_t kept = 0;
  weft::wait_group all;
  start(all, "slow", [&] { (void)s.pop(); });
  start(all, "fast", [&] {
    const std::uint64_t first = s.pop();
    kept = s.pop();
    s.push(first);
  });
  all.wait();
  EXPECT_NE(s.pop(), kept);
}

// A queue whose owner takes at the tail, and others at the head.
class run_queue {
 public:
  explicit run_queue(version v) : version_(v) {}
  int take() {
    const int last = tail_ - 1;
    tail_ = last;
    int first = head_;
    if (first < last) return item(last);
    bool mine = first == last;
    if (mine && version_ == fixed) mine = head_.compare_exchange_strong(first, last + 1);
    tail_ = last + 1;
    if (mine && version_ == broken) head_ = last + 1;
    return mine ? item(last) : 0;
  }
  int steal() {
    int first = head_;
    if (first >= tail_) return 0;
    return head_.compare_exchange_strong(first, first + 1) ? item(first) : 0;
  }

 private:
  static int item(int slot) { return slot + 1; }

  atomic<int> head_{0, "head"};
  atomic<int> tail_{2, "tail"};
  version version_;
};

// Owner and thief both take the last one.
void last_one_taken_twice(version v) {
  run_queue q(v);
  std::array<int, 2> mine{};
  int stolen = 0;
  weft::wait_group all;
  start(all, "thief", [&] { stolen = q.steal(); });
  for (int& item : mine) item = q.take();
  all.wait();
  EXPECT_TRUE(stolen == 0 || (stolen != mine[0] && stolen != mine[1]));
}

// Double-checked locking: a goroutine that sees the flag does not see what it stands for.
void unpublished_initialisation(version v) {
  using enum std::memory_order;
  mini::mutex m;
  atomic<bool> ready{false, "ready"};
  var<int> value{0, "value"};
  const auto get = [&] {
    if (!ready.load(v == fixed ? acquire : relaxed)) {
      const std::lock_guard hold(m);
      if (!ready.load(relaxed)) {
        value = 42;
        ready.store(true, v == fixed ? release : relaxed);
      }
    }
    return value.get();
  };
  weft::wait_group all;
  for (int i = 0; i < 2; ++i) {
    start(all, "user", [&] { EXPECT_EQ(get(), 42); });
  }
  all.wait();
}

// Each announces itself and looks for the other; with weaker orders than seq_cst it looks first.
void dekker_with_weak_orders(version v) {
  using enum std::memory_order;
  std::array<atomic<bool>, 2> wants{false, false};
  wants[0].name("wants 0");
  wants[1].name("wants 1");
  var<int> inside{0, "inside"};
  weft::wait_group all;
  for (std::size_t i = 0; i < 2; ++i) {
    start(all, "entrant", [&, i] {
      wants[i].store(true, v == fixed ? seq_cst : release);
      if (!wants[1 - i].load(v == fixed ? seq_cst : acquire)) ++inside;
      wants[i].store(false, release);
    });
  }
  all.wait();
}

// The consumer learns of a slot before it is written.
void slot_read_before_it_is_written(version v) {
  using enum std::memory_order;
  atomic<std::size_t> head{0, "head"};
  atomic<std::size_t> tail{0, "tail"};
  var<int> slots[] = {{0, "slot 0"}, {0, "slot 1"}};
  weft::wait_group all;
  start(all, "producer", [&] {
    for (std::size_t i = 0; i < 3; ++i) {
      while (i - head.load(acquire) == std::size(slots)) weft::this_goroutine::yield();
      if (v == broken) tail.store(i + 1, release);
      slots[i % 2] = static_cast<int>(i);
      if (v == fixed) tail.store(i + 1, release);
    }
  });
  start(all, "consumer", [&] {
    for (std::size_t i = 0; i < 3; ++i) {
      while (tail.load(acquire) == i) weft::this_goroutine::yield();
      EXPECT_EQ(slots[i % 2].get(), static_cast<int>(i));
      head.store(i + 1, release);
    }
  });
  all.wait();
}

// ---- The table ----

struct planted {
  const char* name;
  void (*program)(version);
  const char* failure;  // what result::failure says
  // In how many runs each strategy finds it: four times what it takes on average, and more than it
  // took with any of 20 seeds.
  struct {
    std::uint64_t random, priorities, exhaustive;
  } runs;
  std::uint64_t switches;  // at most, once it is shrunk
  weft::test::options how = {};
};

const planted table[] = {
    {"lost_wake_up", lost_wake_up, "deadlock: ", {40, 40, 60}, 3},
    {"lock_order", lock_order, "deadlock: ", {20, 80, 170}, 3},
    {"if_instead_of_while",
     if_instead_of_while,
     "threw std::out_of_range: the queue is empty",
     {120, 300, 1200},
     6},
    {"upgrade_lets_a_writer_in", upgrade_lets_a_writer_in, "Which is: 1 2", {10, 15, 200}, 5},
    {"permit_lost_on_timeout", permit_lost_on_timeout, "Which is: 0 1", {10, 50, 45}, 4},
    {"barrier_used_again_too_early", barrier_used_again_too_early, "deadlock: ", {10, 10, 4}, 3},
    {"loaded_twice", loaded_twice, "Which is: 2 1", {10, 20, 80}, 4},
    {"missed_close", missed_close, "deadlock: ", {20, 100, 500}, 4},
    {"double_send", double_send, "left behind: server", {25, 50, 90}, 5},
    {"timer_fires_after_stop", timer_fires_after_stop, "race on status", {15, 20, 4}, 2},
    {"forgotten_cancel", forgotten_cancel, "left behind: heartbeat", {10, 15, 1300}, 3},
    {"leak_on_the_error_path", leak_on_the_error_path, "left behind: part", {12, 20, 500}, 4},
    {"limiter_replies_to_nobody", limiter_replies_to_nobody, "deadlock: ", {15, 15, 4}, 3},
    {"add_in_the_goroutine", add_in_the_goroutine, "Which is: 0 2", {10, 10, 4}, 0},
    {"done_missed_by_an_exception", done_missed_by_an_exception, "deadlock: ", {20, 20, 20}, 2},
    {"result_read_before_it_is_ready",
     result_read_before_it_is_ready,
     "race on result",
     {10, 12, 16},
     1},
    {"stop_before_start", stop_before_start, "no end", {8, 20, 4}, 1, {.steps = 500}},
    {"check_then_act", check_then_act, "actual: -40 vs 0", {15, 40, 20}, 4},
    {"aba_in_a_stack", aba_in_a_stack, "actual: 2 vs 2", {2000, 200, 60}, 4},
    {"last_one_taken_twice", last_one_taken_twice, "Actual: false", {60, 200, 40}, 2},
    {"unpublished_initialisation", unpublished_initialisation, "race on value", {20, 10, 4}, 2},
    {"dekker_with_weak_orders",
     dekker_with_weak_orders,
     "race on inside",
     {25, 50, 8},
     2,
     {.model = weft::test::memory::buffered}},
    {"slot_read_before_it_is_written",
     slot_read_before_it_is_written,
     "race on slot",
     {4, 4, 4},
     2},
};

void PrintTo(const planted& p, std::ostream* out) { *out << p.name; }

class planted_bug : public ::testing::TestWithParam<planted> {
 protected:
  // Always the same seed, because the table holds for most of them only.
  static weft::test::options options(strategy how, std::uint64_t runs) {
    weft::test::options o = GetParam().how;
    o.how = how;
    o.runs = runs;
    o.seed = 1;
    return o;
  }
  static std::function<void()> program(version v) {
    return [v] { GetParam().program(v); };
  }
};

TEST_P(planted_bug, is_found_by_every_strategy_and_shown_in_few_switches) {
  const planted& p = GetParam();
  for (const auto& [how, runs] : {std::pair{strategy::random, p.runs.random},
                                  std::pair{strategy::priorities, p.runs.priorities},
                                  std::pair{strategy::exhaustive, p.runs.exhaustive}}) {
    const auto r = weft::test::try_explore(options(how, runs), program(broken));
    ASSERT_FALSE(r.ok) << "not by strategy " << static_cast<int>(how) << ": " << r.report;
    EXPECT_NE(r.failure.find(p.failure), std::string::npos) << r.report;
    EXPECT_LE(r.switches, p.switches) << r.report;
  }
}

TEST_P(planted_bug, replays_from_its_seed_every_time) {
  const auto o = options(strategy::random, GetParam().runs.random);
  const auto r = weft::test::try_explore(o, program(broken));
  ASSERT_FALSE(r.ok);
  for (int i = 0; i < weft::test::scaled(100, 10); ++i) {
    const auto again = weft::test::replay(o, r.seed, program(broken));
    ASSERT_FALSE(again.ok) << "the " << i + 1 << "th time\n" << r.report;
    ASSERT_EQ(again.failure, r.failure) << "the " << i + 1 << "th time";
  }
}

TEST_P(planted_bug, is_not_found_once_it_is_fixed) {
  constexpr std::uint64_t runs{weft::test::scaled(10'000, 300)};
  for (const strategy how : {strategy::random, strategy::priorities}) {
    const auto r = weft::test::try_explore(options(how, runs), program(fixed));
    EXPECT_TRUE(r.ok) << r.report;
  }
  // Every order with two preemptions.
  const auto r = weft::test::try_explore(options(strategy::exhaustive, 2 * runs), program(fixed));
  EXPECT_TRUE(r.ok) << r.report;
  EXPECT_TRUE(r.exhausted || weft::test::slow_build) << r.report;
}

INSTANTIATE_TEST_SUITE_P(all, planted_bug, ::testing::ValuesIn(table),
                         [](const auto& bug) { return std::string(bug.param.name); });

}  // namespace
