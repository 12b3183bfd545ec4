// explore.hpp: walks the interleavings of a small lock-free protocol, systematically.
//
// A protocol written against `class Platform` (src/base/platform.hpp) is instantiated with
// model::platform. A test describes one execution: its shared state, a few threads, and what must
// hold; explore() runs it once for every interleaving within the bounds and stops at the first that
// fails, with a listing and a schedule that replays it.
//
//     const auto r = model::explore({}, [](model::world& w) {
//       auto s = std::make_shared<shared_state>();
//       w.thread("sleeper", [s] { s->parker.wait(); });
//       w.thread("waker", [s] { s->parker.wake(); });
//       w.at_end([s] { model::check(s->done, "..."); });
//     });
//     EXPECT_TRUE(r.ok) << r.report;
//     EXPECT_TRUE(r.exhausted);
//
// It is all done by the engine of weft::test (src/test/engine.hpp; its essay says how), driven at a
// lower level than by weft/test.hpp: threads are goroutines that know nothing of weft, there are
// futexes and barriers, and orders of steps that commute are explored once. make() and at_end() run
// on a goroutine of their own, number 0, while nobody else runs.
//
// The memory model is TSO, that of x86-64:
//   - Stores that are not seq_cst go through a store buffer; when they reach memory is a choice
//     like any other.
//   - heavy_barrier() drains the buffers of all threads; light_barrier() does nothing.
//   - futex_wait() compares and falls asleep in one step. futex_wake() wakes any of the sleepers,
//     needs nothing but the address, and so may name a word that is gone.
//   - pause() and yield_thread() deschedule the thread until another one has changed something it
//     has read since its last pause. If nothing at all can happen any more, it gets
//     options.fruitless_spins turns, for loops that count; then that is a livelock. A loop that
//     counts its turns therefore is explored less than fully: give protocols their number of turns
//     as a parameter and set it to 1, or allow options.whims.
//   - A timed wait may end by its timeout at any moment, options.timeouts times in one execution,
//     and whenever nothing else can happen.
//   - An atomic knows whether it is alive: an access after its destruction fails, and so does the
//     destruction under another thread's buffered store. Keep the object in model::storage, so that
//     its memory remains while the model looks.
//
// Plain data is a model::var: two accesses, one of them a write, that nothing orders fail the
// execution, in whatever order they came. heavy_barrier() orders its caller and every thread at
// that moment, as membarrier does with the cores; it hides races between plain accesses before and
// after it, which model::exclusive (nobody else is inside) finds.
//
// What it finds: lost wake-ups, deadlocks, ABA, missing heavy barriers and other store-then-load
// mistakes, use after destruction, missing acquire or release where they order plain data that is a
// `var`. What it cannot find: anything that needs loads to be reordered with loads, or stores with
// stores, as ARM does. On TSO every store is a release and every load an acquire, as far as the
// values of atomics go, so a missing release between two atomics goes unnoticed. Those are argued
// by their order tags and hunted by the stress tests, under TSan and on aarch64.
//
// Thread bodies must be deterministic: no clocks, addresses, thread_locals or state that survives
// an execution. When an execution fails it is abandoned where it stands: destructors of the objects
// on its threads' stacks do not run. Threads must not reach an operation inside a catch block.
#pragma once

#include "test/chooser.hpp"
#include "test/engine.hpp"
#include "test/schedule.hpp"

#include <weft/test.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::model {

using test::check;
using test::engine;
using test::strategy;
template <class T>
using atomic = test::atomic<T>;

struct options {
  strategy how = strategy::exhaustive;

  // Bounds of the exhaustive search. A preemption is a switch away from a thread that could go on;
  // flushes, and switches away from a thread that waits, are free. -1: no bound.
  int preemptions = 3;
  std::uint64_t max_executions = 1'000'000;  // then random walks instead

  std::uint64_t random_executions = 20'000;  // of the random strategies and of the walks
  std::uint64_t seed = 0;                    // 0: WEFT_SEED of the environment, else a constant
  int priority_changes = 3;                  // strategy::priorities, within one execution

  std::size_t buffer_entries = 6;  // per thread; 0: stores go to memory at once
  int timeouts = 1;          // of timed waits, in one execution, while something else could happen
  int whims = 0;             // futex_wait and pause returning without any reason, in one execution
  int fruitless_spins = 20;  // turns of a waiting loop, nothing else being able to happen
  std::uint64_t max_steps = 5'000;  // of one execution; more is a livelock

  bool prune = true;  // skip what commutes; false costs much and finds nothing more
};

struct result {
  bool ok = true;
  bool exhausted = false;        // every execution within the bounds was seen
  std::uint64_t executions = 0;  // whole ones and pruned ones
  std::uint64_t pruned = 0;
  std::uint64_t steps = 0;
  std::uint64_t seed = 0;  // of the random walks
  test::fault what = test::fault::none;
  std::string message;   // of the failure
  std::string schedule;  // of the failure, for replay()
  std::string report;    // for the reader of a failed test
};

// What one execution consists of.
class world {
 public:
  void thread(const char* name, std::function<void()> body) {
    threads_.emplace_back(name, std::move(body));
  }
  // Runs when all threads are done and all buffers are empty.
  void at_end(std::function<void()> f) { at_end_.push_back(std::move(f)); }

 private:
  friend class explorer;
  std::vector<std::pair<const char*, std::function<void()>>> threads_;
  std::vector<std::function<void()>> at_end_;
};
using make_function = std::function<void(world&)>;

class explorer {
 public:
  explorer(const options& o, const make_function& make)
      : options_(o), make_(make), engine_(engine_options_of(o)) {
    if (options_.seed != 0) return;
    const char* const seed = std::getenv("WEFT_SEED");
    options_.seed = seed != nullptr ? std::strtoull(seed, nullptr, 0) : 0x5eed;
  }

  result explore() {
    result r;
    if (options_.how == strategy::exhaustive) {
      const auto search =
          test::make_exhaustive({.preemptions = options_.preemptions, .prune = options_.prune});
      const bool ok = run_all(*search, options_.max_executions, r);
      r.pruned = search->pruned();
      r.exhausted = search->exhausted();
      if (!ok) return r;
    }
    if (!r.exhausted) {
      r.seed = options_.seed;
      if (options_.how == strategy::exhaustive) {
        std::fprintf(
            stderr, "model: not exhausted after %llu executions; walks with WEFT_SEED=%llu\n",
            static_cast<unsigned long long>(r.executions), static_cast<unsigned long long>(r.seed));
      }
      const auto walk = options_.how == strategy::priorities
                            ? test::make_priorities(r.seed, options_.priority_changes)
                            : test::make_random(r.seed);
      if (!run_all(*walk, options_.random_executions, r)) return r;
    }
    r.report = "ok: " + std::to_string(r.executions) + " executions, " + std::to_string(r.pruned) +
               " of them pruned" + (r.exhausted ? ", exhausted" : "");
    return r;
  }

  result replay(const test::schedule& s) {
    const auto follower = test::make_follower(s);
    follower->begin();
    const test::outcome o = run(*follower, engine::trace::yes);
    result r;
    r.executions = 1;
    r.steps = o.steps;
    r.ok = o.ok() && o.schedule == s;
    r.what = o.what;
    r.message = o.schedule == s ? o.message : "the schedule does not fit this model";
    r.schedule = o.schedule.print();
    r.report = r.message + "\nschedule: " + r.schedule + "\n\n" + o.table;
    return r;
  }

 private:
  // Whether a file belongs to a protocol or its test.
  static bool is_protocols(std::string_view file) {
    for (const std::string_view not_it :
         {"src/test/engine.hpp", "weft/test.hpp", "model/explore.hpp", "model/mutants.hpp",
          "model/seam.hpp"}) {
      if (file.ends_with(not_it)) return false;
    }
    return file.ends_with(".hpp") || file.ends_with("_test.cpp");
  }

  static test::engine_options engine_options_of(const options& o) {
    test::engine_options e;
    e.steps = o.max_steps;
    e.buffer_entries = o.buffer_entries;
    e.descriptors = false;
    e.shows = &is_protocols;
    e.timeouts = o.timeouts;
    e.whims = o.whims;
    e.fruitless_spins = o.fruitless_spins;
    e.late_flushes = o.prune;
    return e;
  }

  // Returns: false if an execution failed.
  bool run_all(test::chooser& c, std::uint64_t most, result& r) {
    for (std::uint64_t n = 0; c.begin() && n < most; ++n) {
      const test::outcome o = run(c, engine::trace::no);
      ++r.executions;
      r.steps += o.steps;
      if (o.ok()) continue;
      const result again = replay(o.schedule);
      r.ok = false;
      r.seed = options_.seed;
      r.what = o.what;
      r.message = again.message;  // a table helps to say more
      r.schedule = o.schedule.print();
      r.report = again.report;
      if (again.what != o.what) {
        r.message = o.message;
        r.report = "found: " + o.message +
                   "\nbut the replay differs; threads must be deterministic\n" + again.report;
      }
      return false;
    }
    return true;
  }

  test::outcome run(test::chooser& c, engine::trace t) {
    test::outcome o = engine_.run([this] { run_world(); }, c, t);
    world_ = world();  // of an execution that failed
    return o;
  }

  void run_world() {
    make_(world_);
    for (const auto& [name, body] : world_.threads_) engine_.thread(name, body);
    engine_.join();
    for (const auto& f : world_.at_end_) f();
    world_ = world();  // the shared state dies while the engine still knows it
  }

  options options_;
  const make_function& make_;
  engine engine_;
  world world_;
};

// Explores the executions that make() describes; it is called once for each of them.
inline result explore(const options& o, const make_function& make) {
  return explorer(o, make).explore();
}

// Runs the one execution that result::schedule of a failure describes. The bounds of `o` on
// preemptions do not matter, the rest must be the same. The report lists the execution in any case.
inline result replay(const options& o, std::string_view schedule, const make_function& make) {
  test::schedule s;
  test::schedule::parse(schedule, s);
  return explorer(o, make).replay(s);
}

// Sleeps until all other threads are done or asleep, with nothing able to wake them but a timeout.
// For the thread of a test that looks whether they sleep rightly, and then makes them end.
inline void await_rest() { engine::current()->rest(); }

// Stands for weft::base::platform.
struct platform {
  template <class T>
  using atomic = model::atomic<T>;

  static void light_barrier() noexcept {}
  static void heavy_barrier() noexcept { engine::current()->heavy_barrier(); }

  static constexpr std::memory_order hot_store = std::memory_order_relaxed;
  static constexpr std::memory_order hot_load = std::memory_order_acquire;

  static void fence(std::memory_order order) noexcept { engine::current()->fence(order); }

  static void pause() noexcept { engine::current()->pause(); }
  static void yield_thread() noexcept { engine::current()->pause(); }

  static void futex_wait(const atomic<std::uint32_t>& word, std::uint32_t expected) noexcept {
    engine::current()->futex_wait(word.address(), expected, engine::wait_kind::endless);
  }
  // Returns: false if the time was up.
  static bool futex_wait_timed(const atomic<std::uint32_t>& word, std::uint32_t expected) noexcept {
    return engine::current()->futex_wait(word.address(), expected, engine::wait_kind::timed);
  }
  // There is no time in a model; every deadline may pass at any moment.
  static bool futex_wait_until(const atomic<std::uint32_t>& word, std::uint32_t expected,
                               std::int64_t) noexcept {
    return futex_wait_timed(word, expected);
  }
  static void futex_wake(const atomic<std::uint32_t>& word, int count) noexcept {
    engine::current()->futex_wake(word.address(), count);
  }
  // An assertion of the protocol.
  static void check(bool condition, const char* text) noexcept { model::check(condition, text); }

  // What a test puts in the poller's place.
  static inline std::function<void()> on_interrupt;
  static void interrupt() noexcept { on_interrupt(); }
};

// A plain variable. Its accesses are no points: a race is found in whatever order they come.
template <class T>
class var {
 public:
  var() : var(T{}) {}
  explicit var(T value, const char* name = "a var") : value_(std::move(value)), name_(name) {}
  var(const var&) = delete;
  var& operator=(const var&) = delete;
  ~var() {
    if (engine* const e = engine::current()) e->forget_var(this);
  }

  T get() const {
    touch(test::detail::access::read, value_);
    return value_;
  }
  void set(T value) {
    touch(test::detail::access::write, value);
    value_ = std::move(value);
  }

 private:
  void touch(test::detail::access a, const T& value) const {
    test::detail::shown as{};
    if constexpr (test::detail::is_showable<T>) {
      as = {&value,
            [](const void* place) { return test::detail::show(*static_cast<const T*>(place)); }};
    }
    engine::current()->check_var(this, a, name_, nullptr, as);
  }

  T value_;
  const char* name_;
};

// A place for one thread at a time.
class exclusive {
 public:
  explicit exclusive(const char* name = "the exclusive section") : name_(name) {}
  exclusive(const exclusive&) = delete;
  exclusive& operator=(const exclusive&) = delete;

  class [[nodiscard]] stay {
   public:
    explicit stay(exclusive& e) : e_(e) { e_.enter(); }
    stay(const stay&) = delete;
    stay& operator=(const stay&) = delete;
    ~stay() { e_.leave(); }

   private:
    exclusive& e_;
  };

  void enter() {
    engine& e = *engine::current();
    if (inside_ != nullptr) {
      e.fail(test::fault::check, e.name_of(e.running()) + " enters " + name_ + " while " +
                                     e.name_of(*inside_) + " is inside");
    }
    inside_ = &e.running();
    if (e.tracing()) e.note(std::string("enter ") + name_);
  }

  void leave() {
    engine& e = *engine::current();
    e.step();  // others get a chance to come in
    inside_ = nullptr;
    if (e.tracing()) e.note(std::string("leave ") + name_);
  }

 private:
  const char* name_;
  const test::strand* inside_ = nullptr;
};

// Memory for one object that outlives the object.
template <class T>
class storage {
 public:
  storage() = default;
  storage(const storage&) = delete;
  storage& operator=(const storage&) = delete;
  ~storage() {
    if (alive_) get().~T();
  }

  template <class... Args>
  T& emplace(Args&&... args) {
    T* object = new (static_cast<void*>(bytes_)) T(std::forward<Args>(args)...);
    alive_ = true;
    return *object;
  }

  void destroy() {
    get().~T();
    alive_ = false;
  }

  // Also of an object that is gone: finding that is what it is for.
  T& get() noexcept { return *std::launder(reinterpret_cast<T*>(bytes_)); }
  T* operator->() noexcept { return &get(); }

 private:
  alignas(T) std::byte bytes_[sizeof(T)];
  bool alive_ = false;
};

}  // namespace weft::model
