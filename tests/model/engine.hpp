// engine.hpp: one execution of a model after another. The inside of explore.hpp, whose essay says
// what is modelled; here is how.
//
// Each thread of the model is a fiber. Before an operation that others can notice it announces the
// operation and calls decide(), on its own stack, which picks the actor of the next step: a thread,
// the store buffer of a thread (its oldest entry goes to memory), or a timeout. Everything between
// two such points is one step.
//
// Search. path_ holds, for each point of the current execution where there was more than one actor
// to pick, the actors and which of them was picked. An execution follows path_ to its end, then
// picks the first actor everywhere and appends what it found; then the last point with an actor
// left is advanced and the rest dropped. Nothing but path_ survives from one execution to the next,
// except the table of states seen.
//
// States seen. Operations on different locations commute, so most orders lead to a state where the
// search has been. A state is named by its history: each thread's chain is a hash of its operations
// and, for each, of the write it read from; each buffer's chain of its flushes and the write each
// one replaced. Threads are deterministic, so equal chains mean equal states, also of plain memory,
// provided that what orders two conflicting plain accesses is an operation the engine sees; `var`
// checks just that. (Comparing values instead would merge more, and merge wrongly as soon as plain
// memory is involved.) An execution that reaches a state seen before with at least as many
// preemptions left runs to its end without branching: it must end, because its threads have
// destructors to run. 64-bit hashes may collide; ten million states do so once in 400,000 searches.
//
// Flushes are offered late. A flush commutes with everything but accesses to its location by other
// threads, so it is offered only when another thread is about to touch, waits for, or has buffered
// itself a location in that buffer. A store into the buffer is a point all the same: a heavy
// barrier before it does not drain it.
#pragma once

#include "base/sanitizer.hpp"
#include "model/fiber.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#if WEFT_ASAN
extern "C" {
void __lsan_disable();
void __lsan_enable();
}
#endif

namespace weft::model {

enum class strategy {
  exhaustive,  // every interleaving within the bounds
  random,      // each step picks any actor
  priorities,  // the actor of highest priority runs; priorities are random and change rarely (PCT)
};

struct options {
  strategy how = strategy::exhaustive;

  // Bounds of the exhaustive search. A preemption is a switch away from a thread that could go on;
  // flushes, and switches away from a thread that waits, are free. -1: no bound.
  int preemptions = 3;
  std::uint64_t max_executions = 1'000'000;  // then random walks instead

  std::uint64_t random_executions = 20'000;  // of the random strategies and of the walks
  std::uint64_t seed = 0;                    // 0: WEFT_SEED of the environment, else a constant
  int priority_changes = 3;                  // strategy::priorities, within one execution

  int buffer_entries = 6;    // per thread, at most 8; 0: stores go to memory at once
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
  std::string message;     // of the failure
  std::string schedule;    // of the failure, for replay()
  std::string report;      // for the reader of a failed test
};

inline constexpr int max_threads = 8;
using clock_vector = std::array<std::uint32_t, max_threads>;

// What one execution consists of.
class world {
 public:
  void thread(const char* name, std::function<void()> body) {
    threads_.emplace_back(name, std::move(body));
  }
  // Runs when all threads are done and all buffers are empty.
  void at_end(std::function<void()> f) { at_end_.push_back(std::move(f)); }

 private:
  friend class engine;
  std::vector<std::pair<const char*, std::function<void()>>> threads_;
  std::vector<std::function<void()>> at_end_;
};

class engine {
 public:
  using location_id = std::uint32_t;
  using make_function = std::function<void(world&)>;
  using formatter = std::string (*)(std::uint64_t);
  enum class operation { local, load, store, modify, fence, heavy_barrier, wait, wake, pause };

  explicit engine(const options& o) : options_(o) {
    if (options_.buffer_entries > buffer_capacity) options_.buffer_entries = buffer_capacity;
    if (options_.seed == 0) {
      const char* seed = std::getenv("WEFT_SEED");
      options_.seed = seed != nullptr ? std::strtoull(seed, nullptr, 0) : 0x5eed;
    }
    outer_ = std::exchange(current_, this);
  }
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;

  ~engine() {
    // A fiber that leaves for good takes what the sanitizers keep for it along.
    closing_ = true;
    for (int i = 0; i <= max_threads; ++i) {
      if (slots_[at(i)].usable) enter_fiber(i);
    }
    current_ = outer_;
  }

  static engine& current() {
    if (current_ == nullptr) die("an atomic is used outside of explore()");
    return *current_;
  }

  result explore(const make_function& make) {
    result r;
    if (options_.how == strategy::exhaustive) {
      mode_ = mode::search;
      do {
        if (r.executions == options_.max_executions) break;
        if (!run_counted(make, r)) return r;
      } while (backtrack());
      r.exhausted = path_.empty();
    }
    if (!r.exhausted) {
      r.seed = options_.seed;
      if (options_.how == strategy::exhaustive) {
        std::fprintf(
            stderr, "model: not exhausted after %llu executions; walks with WEFT_SEED=%llu\n",
            static_cast<unsigned long long>(r.executions), static_cast<unsigned long long>(r.seed));
      }
      mode_ = options_.how == strategy::priorities ? mode::priorities : mode::random;
      for (std::uint64_t i = 0; i < options_.random_executions; ++i) {
        random_ = mix(options_.seed, i + 1);
        if (!run_counted(make, r)) return r;
      }
    }
    r.report = "ok: " + std::to_string(r.executions) + " executions, " + std::to_string(r.pruned) +
               " of them pruned" + (r.exhausted ? ", exhausted" : "");
    return r;
  }

  result replay(const make_function& make, std::string_view schedule) {
    result r;
    mode_ = mode::replay;
    given_ = schedule;
    tracing_ = true;
    run(make);
    tracing_ = false;
    r.executions = 1;
    r.steps = steps_;
    r.ok = !failed_;
    r.message = message_;
    r.schedule = schedule_;
    r.report = listing();
    return r;
  }

  // ---- What the atomics call. ----

  location_id create(const void* address, std::uint64_t bits, formatter format) {
    location l;
    l.address = address;
    l.bits = bits;
    l.format = format;
    // The order of construction in setup() is the same each time; in a thread only that thread's
    // is.
    l.key =
        live() ? mix(self().chain_at_start, ++self().locations_created) : mix(1, locations_.size());
    locations_.push_back(l);
    return static_cast<location_id>(locations_.size() - 1);
  }

  void destroy(location_id id, const void* address) {
    if (id >= locations_.size() || locations_[id].address != address) return;  // a failed run's
    locations_[id].alive = false;
    if (!live()) return;
    for (int t = 0; t < count_; ++t) {
      if (t == running_) continue;
      for (const buffered& b : threads_[at(t)].buffer) {
        if (b.where == id) fail(name_of(id) + " is destroyed before a store to it has landed");
      }
    }
    if (tracing_) note("destroy " + name_of(id));
  }

  void name(location_id id, const void* address, const char* text) {
    if (location* l = find(id, address)) l->name = text;
  }

  std::uint64_t load(location_id id, const void* address, std::memory_order order) {
    if (!live()) return where(id, address).bits;
    point(operation::load, id, address);
    const location& l = where(id, address);
    thread_state& t = self();
    for (std::size_t i = t.buffer.size(); i-- > 0;) {
      if (t.buffer[i].where != id) continue;
      t.chain = mix(mix(t.chain, l.key), own_buffer);
      if (tracing_)
        note("load " + name_of(id) + "=" + l.format(t.buffer[i].bits) + " (own buffer)");
      return t.buffer[i].bits;
    }
    remember_read(t, id);
    t.chain = mix(mix(t.chain, l.key), l.write_hash);
    receive(t, l.sync, order);
    if (tracing_) note("load " + name_of(id) + "=" + l.format(l.bits));
    return l.bits;
  }

  void store(location_id id, const void* address, std::uint64_t bits, std::memory_order order) {
    if (!live()) {
      where(id, address).bits = bits;
      return;
    }
    point(operation::store, id, address);
    const bool direct = order == std::memory_order_seq_cst || options_.buffer_entries == 0;
    const bool full = static_cast<int>(self().buffer.size()) >= options_.buffer_entries;
    if (direct) {
      drain(running_);
    } else if (full) {
      flush_oldest(running_);
    }
    const location& l = where(id, address);
    thread_state& t = self();
    t.chain = mix(mix(t.chain, l.key), a_store);
    const clock_vector sync = releases(order) ? t.clock : t.fence;
    t.buffer.push_back({id, bits, t.chain, sync});
    ++t.clock[at(running_)];
    if (tracing_) {
      note("store " + name_of(id) + "=" + l.format(bits) + (direct ? "" : " (buffered)"));
    }
    if (direct) write_oldest(running_);
  }

  // Replaces the value x by replace(x), or leaves it if replace() says so. Returns: the value
  // found.
  template <class F>
  std::uint64_t modify(location_id id, const void* address, const char* what,
                       std::memory_order order, std::memory_order failure_order, F&& replace) {
    std::uint64_t wanted = 0;
    if (!live()) {
      location& l = where(id, address);
      const std::uint64_t found = l.bits;
      if (replace(found, wanted)) l.bits = wanted;
      return found;
    }
    point(operation::modify, id, address);
    drain(running_);
    location& l = where(id, address);
    thread_state& t = self();
    const std::uint64_t found = l.bits;
    const bool writes = replace(found, wanted);
    remember_read(t, id);
    t.chain = mix(mix(t.chain, l.key), l.write_hash);
    receive(t, l.sync, writes ? order : failure_order);
    if (tracing_) {
      note(std::string(what) + " " + name_of(id) + ": " + l.format(found) +
           (writes ? " -> " + l.format(wanted) : ", left"));
    }
    if (writes) {
      // A relaxed one continues the release sequence it stands in.
      if (releases(order)) {
        join(l.sync, t.clock);
      } else {
        join(l.sync, t.fence);
      }
      l.write_hash = t.chain;
      set(l, id, wanted, t);
      ++t.clock[at(running_)];
    }
    return found;
  }

  void fence(std::memory_order order) {
    if (!live() || order == std::memory_order_relaxed) return;
    thread_state& t = self();
    if (order == std::memory_order_seq_cst) {
      point(operation::fence);
      drain(running_);
      t.chain = mix(t.chain, a_fence);
      if (tracing_) note("fence");
    }
    if (acquires(order)) join(t.clock, t.seen);
    if (releases(order)) t.fence = t.clock;
    ++t.clock[at(running_)];
  }

  void heavy_barrier() {
    if (!live()) return;
    point(operation::heavy_barrier);
    for (int t = 0; t < count_; ++t) drain(t);
    std::uint64_t hash = a_fence;
    clock_vector all{};
    for (int i = 0; i < count_; ++i) {
      thread_state& t = threads_[at(i)];
      hash = mix(mix(hash, t.chain), t.flush_chain);
      join(all, t.clock);
      join(all, t.seen);
    }
    for (int i = 0; i < count_; ++i) {
      thread_state& t = threads_[at(i)];
      t.chain = mix(t.chain, hash);
      t.clock = all;
      t.fence = all;
      ++t.clock[at(i)];
    }
    if (tracing_) note("heavy barrier");
  }

  enum class patience { endless, timed };

  // Returns: false if the wait ended by its timeout.
  bool futex_wait(location_id id, const void* address, std::uint64_t expected, patience p) {
    if (!live()) {
      if (where(id, address).bits == expected) fail_alone();
      return true;
    }
    point(operation::wait, id, address);
    drain(running_);
    location& l = where(id, address);
    thread_state& t = self();
    t.chain = mix(mix(mix(t.chain, l.key), l.write_hash), l.queue_hash);
    const bool sleeps = l.bits == expected;
    if (tracing_) {
      note("futex_wait " + name_of(id) + "=" + l.format(l.bits) + (sleeps ? ": sleeps" : ""));
    }
    if (!sleeps) {
      remember_read(t, id);
      return true;
    }
    l.queue_hash = t.chain;
    t.status = status::asleep;
    t.timed = p == patience::timed;
    t.timed_out = false;
    t.sleeps_on = address;
    t.read_count = 0;
    point(operation::local);
    return !t.timed_out;
  }

  // Looks at the address only: the word may be gone.
  void futex_wake(const void* address, int count) {
    if (!live()) return;
    point(operation::wake);
    drain(running_);
    thread_state& waker = self();
    location* l = nullptr;
    for (location& candidate : locations_) {
      if (candidate.alive && candidate.address == address) l = &candidate;
    }
    waker.chain = mix(waker.chain, l != nullptr ? mix(l->key, l->queue_hash) : a_wake);
    if (l != nullptr) l->queue_hash = waker.chain;
    if (tracing_) {
      note("futex_wake " + (l != nullptr ? name_of(static_cast<location_id>(l - locations_.data()))
                                         : std::string("of a word that is gone")));
    }
    while (count-- > 0) {
      choices c;
      for (int t = 0; t < count_; ++t) {
        if (threads_[at(t)].status == status::asleep && threads_[at(t)].sleeps_on == address) {
          c.add(t);
        }
      }
      if (c.count == 0) break;
      // Which sleeper wakes is the kernel's secret.
      const int woken = pick(c, prunable::no);
      thread_state& t = threads_[at(woken)];
      t.status = status::runnable;
      t.chain = mix(t.chain, waker.chain);
      join(t.clock, waker.clock);
      if (tracing_) note(woken, "woken");
    }
    ++waker.clock[at(running_)];
  }

  void pause() {
    if (!live()) return fail_alone();
    thread_state& t = self();
    if (t.spin_version != version_) t.fruitless = 0;
    t.spin_version = version_;
    t.chain = mix(t.chain, a_pause);
    t.status = status::spinning;
    t.released = false;
    if (tracing_) note("pause");
    point(operation::pause);
    t.status = status::runnable;
    t.read_count = 0;
    t.read_overflow = false;
    t.start_version = version_;
  }

  // Sleeps until nothing else can happen, short of timeouts.
  void await_rest() {
    if (!live()) return;
    drain(running_);
    thread_state& t = self();
    t.status = status::resting;
    if (tracing_) note("waits for rest");
    point(operation::local);
    t.status = status::runnable;
    // It has seen everything.
    for (int i = 0; i < count_; ++i) {
      const thread_state& other = threads_[at(i)];
      if (i != running_) t.chain = mix(mix(t.chain, other.chain), other.flush_chain);
      join(t.clock, other.clock);
    }
    if (tracing_) note("all is at rest");
  }

  // A point at which others may run, without an operation.
  void step() {
    if (live()) point(operation::local);
  }

  [[gnu::noinline]] void fail(const std::string& message) {
    if (!failed_) {
      failed_ = true;
      message_ = message;
    }
    if (running_ >= 0) {
      if (tracing_) note("FAILS");
      slots_[at(running_)].usable = false;
      const int who = std::exchange(running_, -1);
      slots_[at(who)].stack.switch_to(main_, fiber::leaving::for_good);
    }
  }

  // ---- For var and exclusive. ----

  // Whether threads take turns right now; not so in make() and at_end().
  bool live() const noexcept { return phase_ == phase::running || phase_ == phase::prologue; }
  int running() const noexcept { return running_; }
  const char* thread_name(int t) const { return threads_[at(t)].name; }
  const clock_vector& clock() const { return threads_[at(running_)].clock; }
  bool tracing() const noexcept { return tracing_; }
  void note(std::string text) { note(running_, std::move(text)); }

 private:
  static constexpr int buffer_capacity = 8;
  static constexpr int reads_remembered = 12;
  static constexpr location_id nowhere = ~location_id{0};

  // Kinds of links in a chain.
  static constexpr std::uint64_t own_buffer = 0x11, a_store = 0x12, a_fence = 0x13, a_wake = 0x14,
                                 a_pause = 0x15, a_whim = 0x16;

  enum class status { runnable, spinning, asleep, resting, done };
  enum class phase { setup, prologue, running, ending };
  enum class mode { search, random, priorities, replay };
  enum class prunable { yes, no };

  struct location {
    const void* address = nullptr;
    std::uint64_t bits = 0;
    std::uint64_t key = 0;         // the same in every execution
    std::uint64_t write_hash = 0;  // names the write that bits come from
    std::uint64_t queue_hash = 0;  // names the last change of the futex's queue
    clock_vector sync{};           // what an acquire of bits sees
    std::uint32_t version = 0;     // changes of bits
    bool alive = true;
    const char* name = nullptr;
    formatter format = nullptr;
  };

  struct buffered {
    location_id where;
    std::uint64_t bits;
    std::uint64_t hash;
    clock_vector sync;
  };

  struct store_buffer {
    std::array<buffered, buffer_capacity + 1> entries;
    std::size_t count = 0;

    bool empty() const { return count == 0; }
    std::size_t size() const { return count; }
    const buffered& operator[](std::size_t i) const { return entries[i]; }
    const buffered* begin() const { return entries.data(); }
    const buffered* end() const { return entries.data() + count; }
    void push_back(const buffered& b) { entries[count++] = b; }
    void pop_front() {
      for (std::size_t i = 1; i < count; ++i) entries[i - 1] = entries[i];
      --count;
    }
  };

  struct thread_state {
    const char* name = "";
    model::engine::status status = model::engine::status::runnable;
    operation pending = operation::local;
    location_id pending_location = nowhere;
    store_buffer buffer;

    std::uint64_t chain = 0;        // hash of its history
    std::uint64_t flush_chain = 0;  // hash of its buffer's history
    std::uint64_t chain_at_start = 0;
    std::uint64_t locations_created = 0;

    clock_vector clock{};  // what happened before its next operation
    clock_vector seen{};   // what an acquire fence would add
    clock_vector fence{};  // what a relaxed store releases

    // What it read since its last pause, to know whether another turn of its loop makes sense.
    std::array<std::pair<location_id, std::uint32_t>, reads_remembered> reads;
    int read_count = 0;
    bool read_overflow = false;
    std::uint64_t start_version = 0;  // of memory, when the turn began

    bool released = false;  // out of its pause without a reason
    int fruitless = 0;
    std::uint64_t spin_version = 0;

    const void* sleeps_on = nullptr;
    bool timed = false;
    bool timed_out = false;
  };

  struct slot {
    fiber stack;
    bool usable = false;  // its context may be switched to; not so after a failure
    engine* owner = nullptr;
    int index = 0;
  };

  // Actors: a thread; its buffer; its timeout or whim.
  static constexpr int flush_of = max_threads;
  static constexpr int whim_of = 2 * max_threads;
  static constexpr int actors_max = 3 * max_threads;

  struct choices {
    std::array<std::uint8_t, actors_max> actor;
    int count = 0;
    void add(int a) { actor[at(count++)] = static_cast<std::uint8_t>(a); }
    bool has(int a) const {
      for (int i = 0; i < count; ++i) {
        if (actor[at(i)] == a) return true;
      }
      return false;
    }
  };

  struct node {
    choices among;
    int index = 0;
  };

  struct event {
    int thread;
    std::string text;
  };

  static constexpr std::size_t at(int i) { return static_cast<std::size_t>(i); }

  static std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    std::uint64_t x = (a ^ 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9 + b;
    x = (x ^ (x >> 30)) * 0x94d049bb133111eb;
    x = (x ^ (x >> 27)) * 0xff51afd7ed558ccd;
    return x ^ (x >> 32);
  }

  std::uint64_t random() {
    random_ += 0x9e3779b97f4a7c15;
    return mix(random_, 0);
  }

  static void join(clock_vector& into, const clock_vector& from) {
    for (std::size_t i = 0; i < into.size(); ++i) {
      if (into[i] < from[i]) into[i] = from[i];
    }
  }

  static bool acquires(std::memory_order o) {
    return o == std::memory_order_acquire || o == std::memory_order_acq_rel ||
           o == std::memory_order_seq_cst;
  }
  static bool releases(std::memory_order o) {
    return o == std::memory_order_release || o == std::memory_order_acq_rel ||
           o == std::memory_order_seq_cst;
  }
  static void receive(thread_state& t, const clock_vector& sync, std::memory_order order) {
    join(t.seen, sync);
    if (acquires(order)) join(t.clock, sync);
  }

  [[noreturn]] static void die(const char* message) {
    std::fprintf(stderr, "model: %s\n", message);
    std::abort();
  }

  thread_state& self() { return threads_[at(running_)]; }

  // ---- Memory. ----

  location* find(location_id id, const void* address) {
    if (id >= locations_.size()) return nullptr;
    location& l = locations_[id];
    return l.alive && l.address == address ? &l : nullptr;
  }

  location& where(location_id id, const void* address) {
    if (location* l = find(id, address)) return *l;
    if (running_ < 0) die("an atomic is used that is gone or belongs to another execution");
    fail("an atomic is used after its destruction" +
         (id < locations_.size() ? " (" + name_of(id) + ")" : std::string()));
    die("a failed thread went on");
  }

  std::string name_of(location_id id) const {
    const location& l = locations_[id];
    return l.name != nullptr ? std::string(l.name) : "@" + std::to_string(id);
  }

  void set(location& l, location_id id, std::uint64_t bits, thread_state& writer) {
    if (l.bits == bits) return;
    l.bits = bits;
    // What a thread writes itself is no reason for it to look again.
    for (int i = 0; i < writer.read_count; ++i) {
      auto& [where, version] = writer.reads[at(i)];
      if (where == id && version == l.version) ++version;
    }
    ++l.version;
    ++version_;
  }

  void remember_read(thread_state& t, location_id id) {
    for (int i = 0; i < t.read_count; ++i) {
      if (t.reads[at(i)].first == id) return;  // the earlier read decides
    }
    if (t.read_count == reads_remembered) {
      t.read_overflow = true;
      return;
    }
    t.reads[at(t.read_count++)] = {id, locations_[id].version};
  }

  void write_oldest(int thread) {
    thread_state& t = threads_[at(thread)];
    const buffered b = t.buffer[0];
    t.buffer.pop_front();
    location& l = locations_[b.where];
    // Its own thread has destroyed it since; whoever got the memory got it from there.
    if (!l.alive) return;
    t.flush_chain = mix(mix(t.flush_chain, b.hash), l.write_hash);
    l.write_hash = t.flush_chain;
    l.sync = b.sync;
    set(l, b.where, b.bits, t);
  }

  void flush_oldest(int thread) {
    const buffered& b = threads_[at(thread)].buffer[0];
    if (tracing_) {
      note(thread, "~ flush " + name_of(b.where) + "=" + locations_[b.where].format(b.bits));
    }
    write_oldest(thread);
  }

  void drain(int thread) {
    while (!threads_[at(thread)].buffer.empty()) flush_oldest(thread);
  }

  // ---- Scheduling. ----

  // Announces the next operation of the running thread and lets others go first.
  void point(operation op, location_id id = nowhere, const void* address = nullptr) {
    if (id != nowhere) where(id, address);
    thread_state& t = self();
    t.pending = op;
    t.pending_location = id;
    const int me = running_;
    const int next = phase_ == phase::prologue ? next_in_prologue() : decide();
    if (next != me) go_to(next);
  }

  // Everything up to the first operation of each thread runs before anything else, in order.
  int next_in_prologue() {
    if (started_ < count_) return started_++;
    phase_ = phase::running;
    return decide();
  }

  bool changed(const thread_state& t) const {
    for (int i = 0; i < t.read_count; ++i) {
      const auto& [id, version] = t.reads[at(i)];
      if (locations_[id].version != version) return true;
    }
    return t.read_overflow && version_ != t.start_version;
  }

  bool enabled(const thread_state& t) const {
    return t.status == status::runnable ||
           (t.status == status::spinning && (t.released || changed(t)));
  }

  static std::uint64_t bit(location_id id) { return std::uint64_t{1} << (id & 63); }

  std::uint64_t buffer_mask(const thread_state& t) const {
    std::uint64_t mask = 0;
    for (const buffered& b : t.buffer) mask |= bit(b.where);
    return mask;
  }

  // Whom a flush could matter to. Bits may collide, which offers a flush too many.
  std::uint64_t interest_mask(const thread_state& t) const {
    std::uint64_t mask = buffer_mask(t);
    if (t.status == status::runnable && t.pending_location != nowhere) {
      mask |= bit(t.pending_location);
    }
    if (t.status == status::spinning) {
      if (t.read_overflow) return ~std::uint64_t{0};
      for (int i = 0; i < t.read_count; ++i) mask |= bit(t.reads[at(i)].first);
    }
    return mask;
  }

  bool is_preemption(int next) const {
    return current_thread_ >= 0 && next != current_thread_ &&
           threads_[at(current_thread_)].status == status::runnable;
  }

  // What could happen next. The first one is what happens if nobody has a reason to choose.
  void collect(choices& c) const {
    const bool bounded = mode_ == mode::search && options_.preemptions >= 0;
    const bool may_preempt = !bounded || preemptions_ < options_.preemptions;
    bool somebody = false;
    // First the thread that runs; it comes last if it pauses.
    const bool stay =
        current_thread_ >= 0 && threads_[at(current_thread_)].status == status::runnable;
    for (int i = 0; i < count_; ++i) {
      const int t = (current_thread_ + count_ + (stay ? 0 : 1) + i) % count_;
      if (!enabled(threads_[at(t)])) continue;
      somebody = true;
      if (may_preempt || !is_preemption(t)) c.add(t);
    }

    std::uint64_t buffers[max_threads];
    std::uint64_t interests[max_threads];
    for (int t = 0; t < count_; ++t) {
      buffers[t] = buffer_mask(threads_[at(t)]);
      interests[t] = buffers[t] == 0 && threads_[at(t)].status == status::done
                         ? 0
                         : interest_mask(threads_[at(t)]);
    }
    bool first_buffer = true;
    for (int t = 0; t < count_; ++t) {
      if (buffers[t] == 0) continue;
      std::uint64_t others = 0;
      for (int u = 0; u < count_; ++u) {
        if (u != t) others |= interests[u];
      }
      const bool matters = (buffers[t] & others) != 0 || mode_ == mode::replay || !options_.prune;
      if (matters || (!somebody && first_buffer)) c.add(flush_of + t);
      first_buffer = false;
    }
    if (!somebody && c.count > 0) somebody = true;

    for (int i = 0; i < count_; ++i) {
      const thread_state& t = threads_[at(i)];
      const bool waits =
          t.status == status::asleep || (t.status == status::spinning && !enabled(t));
      if (!waits) continue;
      const bool timed = t.status == status::asleep && t.timed;
      if (timed ? timeouts_ < options_.timeouts : whims_ < options_.whims) c.add(whim_of + i);
    }
    if (!somebody) collect_last_resort(c);
  }

  // Nothing moves by itself. A loop that counts its turns goes on; then who waits for rest has it;
  // then timeouts come true.
  void collect_last_resort(choices& c) const {
    int best = -1;
    for (int i = 0; i < count_; ++i) {
      const thread_state& t = threads_[at(i)];
      if (t.status != status::spinning || t.fruitless >= options_.fruitless_spins) continue;
      if (best < 0 || t.fruitless < threads_[at(best)].fruitless) best = i;
    }
    if (best >= 0) {
      c.add(best);
      return;
    }
    for (int i = 0; i < count_; ++i) {
      if (threads_[at(i)].status != status::resting) continue;
      c.add(i);
      return;
    }
    for (int i = 0; i < count_; ++i) {
      const thread_state& t = threads_[at(i)];
      if (t.status == status::asleep && t.timed && !c.has(whim_of + i)) c.add(whim_of + i);
    }
  }

  // Runs flushes and timeouts until it is a thread's turn. Returns: that thread; -1 if all is over.
  int decide() {
    for (;;) {
      if (++steps_ > options_.max_steps) fail("no end after max_steps steps: a livelock");
      choices c;
      collect(c);
      if (c.count == 0) {
        if (all_done()) return -1;
        fail_stuck();
      }
      const int actor = pick(c, prunable::yes);
      if (actor < flush_of) {
        thread_state& t = threads_[at(actor)];
        if (t.status == status::spinning && !enabled(t)) ++t.fruitless;
        if (is_preemption(actor)) ++preemptions_;
        current_thread_ = actor;
        return actor;
      }
      if (actor < whim_of) {
        flush_oldest(actor - flush_of);
      } else {
        stir(actor - whim_of);
      }
    }
  }

  // A timeout, or a return without a reason.
  void stir(int thread) {
    thread_state& t = threads_[at(thread)];
    t.chain = mix(t.chain, a_whim);
    if (t.status == status::asleep && t.timed) {
      ++timeouts_;
      t.timed_out = true;
      t.status = status::runnable;
      if (tracing_) note(thread, "timeout");
      return;
    }
    ++whims_;
    if (t.status == status::asleep) {
      t.status = status::runnable;
    } else {
      t.released = true;
    }
    if (tracing_) note(thread, "goes on for no reason");
  }

  bool all_done() const {
    for (int t = 0; t < count_; ++t) {
      if (threads_[at(t)].status != status::done) return false;
    }
    return true;
  }

  void fail_alone() { fail("make() or at_end() waits, and nobody else runs"); }

  void fail_stuck() {
    bool spins = false;
    std::string who;
    for (int i = 0; i < count_; ++i) {
      const thread_state& t = threads_[at(i)];
      if (t.status == status::done) continue;
      spins = spins || t.status == status::spinning;
      who += std::string(who.empty() ? "" : ", ") + t.name +
             (t.status == status::spinning ? " spins" : " sleeps");
    }
    fail((spins ? "livelock: " : "deadlock: ") + who);
  }

  static char letter(int actor) {
    if (actor < flush_of) return static_cast<char>('0' + actor);
    if (actor < whim_of) return static_cast<char>('a' + actor - flush_of);
    return static_cast<char>('A' + actor - whim_of);
  }

  int pick(choices& c, prunable p) {
    int actor = c.actor[0];
    switch (mode_) {
      case mode::replay:
        if (schedule_.size() < given_.size()) {
          const char wanted = given_[schedule_.size()];
          bool found = false;
          for (int i = 0; i < c.count; ++i) {
            if (letter(c.actor[at(i)]) != wanted) continue;
            actor = c.actor[at(i)];
            found = true;
          }
          if (!found) fail("the schedule does not fit this model");
        }
        break;
      case mode::search:
        if (c.count > 1) actor = pick_in_search(c, p);
        break;
      case mode::random:
        actor = c.actor[random() % static_cast<unsigned>(c.count)];
        break;
      case mode::priorities:
        actor = pick_by_priority(c);
        break;
    }
    schedule_ += letter(actor);
    return actor;
  }

  int pick_in_search(const choices& c, prunable p) {
    if (depth_ < path_.size()) {
      const node& n = path_[depth_++];
      if (n.among.count != c.count) fail("the model behaves differently when it is run again");
      return n.among.actor[at(n.index)];
    }
    if (!drain_only_ && p == prunable::yes && options_.prune && seen()) {
      drain_only_ = true;
      ++pruned_;
    }
    if (!drain_only_) {
      path_.push_back({c, 0});
      ++depth_;
    }
    return c.actor[0];
  }

  int pick_by_priority(const choices& c) {
    for (std::uint64_t& when : change_at_) {
      if (when == steps_) {
        // Whoever is on top goes to the bottom.
        priority_[at(highest(c))] = --lowest_priority_;
      }
    }
    return highest(c);
  }

  int highest(const choices& c) const {
    int best = c.actor[0];
    for (int i = 1; i < c.count; ++i) {
      if (priority_[c.actor[at(i)]] > priority_[at(best)]) best = c.actor[at(i)];
    }
    return best;
  }

  bool backtrack() {
    while (!path_.empty() && path_.back().index + 1 == path_.back().among.count) path_.pop_back();
    if (path_.empty()) return false;
    ++path_.back().index;
    return true;
  }

  // ---- States seen. ----

  bool seen() {
    std::uint64_t key = mix(static_cast<std::uint64_t>(timeouts_), at(whims_));
    for (int i = 0; i < count_; ++i) {
      key = mix(mix(key, threads_[at(i)].chain), threads_[at(i)].flush_chain);
    }
    const bool bounded = options_.preemptions >= 0;
    if (bounded && is_preemption(-1)) key = mix(key, at(current_thread_));
    if (key == 0) key = 1;
    const auto used = static_cast<std::uint8_t>(bounded ? preemptions_ : 0);

    if (table_.empty() || table_used_ * 2 > table_.size()) grow_table();
    entry& e = find_entry(key);
    if (e.key == key && e.preemptions <= used) return true;
    if (e.key == 0) ++table_used_;
    e = {key, used};
    return false;
  }

  struct entry {
    std::uint64_t key = 0;
    std::uint8_t preemptions = 0;
  };

  entry& find_entry(std::uint64_t key) {
    std::size_t i = key & (table_.size() - 1);
    while (table_[i].key != 0 && table_[i].key != key) i = (i + 1) & (table_.size() - 1);
    return table_[i];
  }

  void grow_table() {
    std::vector<entry> old(table_.empty() ? 1024 : table_.size() * 2);
    old.swap(table_);
    for (const entry& e : old) {
      if (e.key != 0) find_entry(e.key) = e;
    }
  }

  // ---- Executions. ----

  bool run_counted(const make_function& make, result& r) {
    run(make);
    ++r.executions;
    r.steps += steps_;
    r.pruned = pruned_;
    if (!failed_) return true;
    const std::string message = message_;
    const std::string schedule = schedule_;
    const result again = replay(make, schedule);
    r.ok = false;
    r.seed = options_.seed;
    r.message = message;
    r.schedule = schedule;
    r.report = again.report;
    if (again.message != message) {
      r.report = "found: " + message + "\nbut the replay differs; threads must be deterministic\n" +
                 again.report;
    }
    return false;
  }

  void run(const make_function& make) {
    if (running_ >= 0) die("explore() inside of explore()");
    world w;
    reset();
    make(w);
    count_ = static_cast<int>(w.threads_.size());
    if (count_ < 1 || count_ > max_threads) die("a model has one to eight threads");
    world_ = &w;
    for (int i = 0; i < count_; ++i) {
      thread_state& t = threads_[at(i)];
      t.name = w.threads_[at(i)].first;
      t.chain = t.chain_at_start = mix(2, at(i));
      t.flush_chain = mix(3, at(i));
      t.clock[at(i)] = 1;
    }
    if (mode_ == mode::priorities) deal_priorities();
    if (!failed_) {
      phase_ = phase::prologue;
      started_ = 1;
      enter_fiber(0);
      length_ = steps_;
    }
    phase_ = phase::ending;
    if (!failed_ && !w.at_end_.empty()) enter_fiber(max_threads);
    running_ = -1;
    phase_ = phase::ending;
    w = world();  // the shared state dies while this engine still knows it
    world_ = nullptr;
  }

  void reset() {
    phase_ = phase::setup;
    failed_ = false;
    message_.clear();
    schedule_.clear();
    events_.clear();
    locations_.clear();
    for (thread_state& t : threads_) t = thread_state();
    running_ = -1;
    current_thread_ = -1;
    steps_ = 0;
    version_ = 0;
    preemptions_ = timeouts_ = whims_ = 0;
    depth_ = 0;
    drain_only_ = false;
  }

  void deal_priorities() {
    for (auto& p : priority_) p = static_cast<std::int64_t>(random() >> 2);
    lowest_priority_ = 0;
    change_at_.assign(at(options_.priority_changes), 0);
    for (auto& when : change_at_) when = 1 + random() % (length_ + 1);
  }

  // Called on the main stack; returns when a fiber comes back to it.
  void enter_fiber(int index) {
    slot& s = slots_[at(index)];
    if (!closing_) prepare(index);
    running_ = index;
#if WEFT_ASAN
    // A failed execution is abandoned: what its threads held on the heap is lost.
    __lsan_disable();
#endif
    main_.switch_to(s.stack);
#if WEFT_ASAN
    __lsan_enable();
#endif
    if (failed_) {
      // Fibers that stopped in the middle are begun anew, not resumed.
      for (int i = 0; i < count_; ++i) {
        if (threads_[at(i)].status != status::done) slots_[at(i)].usable = false;
      }
    }
  }

  void prepare(int index) {
    slot& s = slots_[at(index)];
    if (s.usable) return;
    s.owner = this;
    s.index = index;
    s.stack.start(&engine::run_jobs, &s);
    s.usable = true;
  }

  // Called on a fiber's stack. -1: back to the main one.
  void go_to(int next) {
    const int me = std::exchange(running_, next);
    if (next >= 0) prepare(next);
    slots_[at(me)].stack.switch_to(next >= 0 ? slots_[at(next)].stack : main_);
  }

  static void run_jobs(void* argument) {
    slot& s = *static_cast<slot*>(argument);
    for (;;) s.owner->run_job(s.index);
  }

  void run_job(int index) {
    if (closing_) {
      slots_[at(index)].stack.switch_to(main_, fiber::leaving::for_good);
    }
    if (index == max_threads) {
      for (auto& f : world_->at_end_) call(f);
      go_to(-1);
      return;
    }
    call(world_->threads_[at(index)].second);
    thread_state& t = self();
    t.status = status::done;
    t.pending = operation::local;
    t.pending_location = nowhere;
    if (tracing_) note("ends");
    const int next = phase_ == phase::prologue ? next_in_prologue() : decide();
    go_to(next);
  }

  void call(const std::function<void()>& f) {
    std::string message;
    try {
      f();
      return;
    } catch (const std::exception& e) {
      message = std::string("an exception left the thread: ") + e.what();
    } catch (...) {
      message = "an exception left the thread";
    }
    fail(message);
  }

  // ---- Reports. ----

  void note(int thread, std::string text) { events_.push_back({thread, std::move(text)}); }

  std::string listing() const {
    constexpr std::size_t width_min = 16;
    std::array<std::size_t, max_threads> width{};
    for (int t = 0; t < count_; ++t) {
      width[at(t)] = std::max(width_min, std::string_view(threads_[at(t)].name).size() + 2);
    }
    for (const event& e : events_) {
      if (e.thread < count_) width[at(e.thread)] = std::max(width[at(e.thread)], e.text.size() + 2);
    }
    std::string out = failed_ ? message_ + "\nschedule: " + schedule_ + "\n\n" : "";
    constexpr std::size_t lines_shown = 300;  // of a livelock, the beginning and the end
    std::string line = "      ";
    for (int t = 0; t < count_; ++t) {
      line += threads_[at(t)].name;
      line.append(width[at(t)] - std::string_view(threads_[at(t)].name).size(), ' ');
    }
    out += trimmed(line);
    std::size_t number = 0;
    for (const event& e : events_) {
      if (++number > lines_shown / 2 && number + lines_shown / 2 <= events_.size()) {
        if (number == lines_shown / 2 + 1) out += " ...\n";
        continue;
      }
      line = std::to_string(number);
      line.insert(0, line.size() < 4 ? 4 - line.size() : 0, ' ');
      line += "  ";
      for (int t = 0; t < e.thread && t < count_; ++t) line.append(width[at(t)], ' ');
      line += e.text;
      out += trimmed(line);
    }
    return out;
  }

  static std::string trimmed(const std::string& line) {
    return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }

  static inline thread_local engine* current_ = nullptr;

  options options_;
  engine* outer_ = nullptr;
  bool closing_ = false;
  fiber main_;
  std::array<slot, max_threads + 1> slots_;  // the last one runs at_end()

  // Over many executions.
  mode mode_ = mode::search;
  std::vector<node> path_;
  std::vector<entry> table_;
  std::size_t table_used_ = 0;
  std::uint64_t pruned_ = 0;
  std::uint64_t random_ = 0;
  std::uint64_t length_ = 20;  // of the last execution
  std::string_view given_;     // the schedule to replay
  bool tracing_ = false;

  // Of this execution.
  world* world_ = nullptr;
  phase phase_ = phase::ending;
  int count_ = 0;
  int started_ = 0;
  int running_ = -1;         // whose stack we are on
  int current_thread_ = -1;  // whose step was the last one
  std::array<thread_state, max_threads> threads_;
  std::vector<location> locations_;
  std::uint64_t version_ = 0;  // changes of memory
  std::uint64_t steps_ = 0;
  std::size_t depth_ = 0;
  bool drain_only_ = false;
  int preemptions_ = 0;
  int timeouts_ = 0;
  int whims_ = 0;
  std::array<std::int64_t, actors_max> priority_{};
  std::int64_t lowest_priority_ = 0;
  std::vector<std::uint64_t> change_at_;
  bool failed_ = false;
  std::string message_;
  std::string schedule_;
  std::vector<event> events_;
};

}  // namespace weft::model
