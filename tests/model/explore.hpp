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
// The memory model is TSO, that of x86-64:
//   - A relaxed or release store enters its thread's store buffer, first in, first out, of
//     options.buffer_entries; the thread's own loads see it, others do not until it is flushed.
//     When it is flushed is a choice like any other.
//   - seq_cst stores, read-modify-writes, seq_cst fences and futex calls drain the own buffer
//   first.
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
// Plain data is watched by model::var: two accesses, one of them a write, that no happens-before
// edge orders fail the execution, in whatever order they came. Edges are those of C++ (release to
// acquire through the value read, release sequences, fences), and two more: futex_wake() to the
// thread it wakes, and heavy_barrier() as a full fence in both directions between its caller and
// every thread, at that moment. The latter is what membarrier does to the cores; it hides races
// between plain accesses before and after it, which model::exclusive (nobody else is inside) finds.
//
// What it finds: lost wake-ups, deadlocks, ABA, missing heavy barriers and other store-then-load
// mistakes, use after destruction, missing acquire or release where they order plain data that is a
// `var`. What it cannot find: anything that needs loads to be reordered with loads, or stores with
// stores, as ARM does. On TSO every store is a release and every load an acquire, as far as the
// values of atomics go, so a missing release between two atomics goes unnoticed. Those are argued
// by their order tags and hunted by the stress tests, under TSan and on aarch64.
// compare_exchange_weak does not fail without reason.
//
// Thread bodies must be deterministic: no clocks, addresses, thread_locals or state that survives
// an execution. When an execution fails it is abandoned where it stands: destructors of the objects
// on its threads' stacks do not run. Threads must not reach an operation inside a catch block.
#pragma once

#include "model/engine.hpp"

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace weft::model {

// Explores the executions that make() describes; it is called once for each of them.
inline result explore(const options& o, const engine::make_function& make) {
  return engine(o).explore(make);
}

// Runs the one execution that result::schedule of a failure describes. The bounds of `o` on
// preemptions do not matter, the rest must be the same. The report lists the execution in any case.
inline result replay(const options& o, std::string_view schedule,
                     const engine::make_function& make) {
  return engine(o).replay(make, schedule);
}

// Fails the execution unless `condition` holds.
inline void check(bool condition, const char* text) {
  if (!condition) engine::current().fail(text);
}

// Sleeps until all other threads are done or asleep, with nothing able to wake them but a timeout.
// For the thread of a test that looks whether they sleep rightly, and then makes them end.
inline void await_rest() { engine::current().await_rest(); }

// std::atomic without defaults: the order is always written. Its value lives in the engine.
template <class T>
class atomic {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t));
  using difference = std::conditional_t<std::is_pointer_v<T>, std::ptrdiff_t, T>;

 public:
  using value_type = T;
  static constexpr bool is_always_lock_free = true;

  atomic() noexcept : atomic(T{}) {}
  atomic(T value) noexcept { id_ = engine::current().create(this, encode(value), &format); }
  atomic(const atomic&) = delete;
  atomic& operator=(const atomic&) = delete;
  ~atomic() { engine::current().destroy(id_, this); }

  // What listings call it.
  void name(const char* text) noexcept { engine::current().name(id_, this, text); }

  T load(std::memory_order order) const noexcept {
    return decode(engine::current().load(id_, this, order));
  }

  void store(T value, std::memory_order order) noexcept {
    engine::current().store(id_, this, encode(value), order);
  }

  T exchange(T value, std::memory_order order) noexcept {
    return modify("exchange", order, [value](T) { return value; });
  }

  bool compare_exchange_strong(T& expected, T desired, std::memory_order success,
                               std::memory_order failure) noexcept {
    const std::uint64_t wanted = encode(expected);
    const std::uint64_t found =
        engine::current().modify(id_, this, "compare_exchange", success, failure,
                                 [wanted, desired](std::uint64_t old, std::uint64_t& replacement) {
                                   replacement = encode(desired);
                                   return old == wanted;
                                 });
    if (found == wanted) return true;
    expected = decode(found);
    return false;
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order order) noexcept {
    return compare_exchange_strong(expected, desired, order, without_release(order));
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order success,
                             std::memory_order failure) noexcept {
    return compare_exchange_strong(expected, desired, success, failure);
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order order) noexcept {
    return compare_exchange_strong(expected, desired, order, without_release(order));
  }

  T fetch_add(difference n, std::memory_order order) noexcept {
    return modify("fetch_add", order, [n](T old) {
      if constexpr (std::is_pointer_v<T>) {
        return old + n;
      } else {
        return from_unsigned(to_unsigned(old) + to_unsigned(n));
      }
    });
  }
  T fetch_sub(difference n, std::memory_order order) noexcept {
    return modify("fetch_sub", order, [n](T old) {
      if constexpr (std::is_pointer_v<T>) {
        return old - n;
      } else {
        return from_unsigned(to_unsigned(old) - to_unsigned(n));
      }
    });
  }
  T fetch_or(T n, std::memory_order order) noexcept {
    return modify("fetch_or", order,
                  [n](T old) { return from_unsigned(to_unsigned(old) | to_unsigned(n)); });
  }
  T fetch_and(T n, std::memory_order order) noexcept {
    return modify("fetch_and", order,
                  [n](T old) { return from_unsigned(to_unsigned(old) & to_unsigned(n)); });
  }
  T fetch_xor(T n, std::memory_order order) noexcept {
    return modify("fetch_xor", order,
                  [n](T old) { return from_unsigned(to_unsigned(old) ^ to_unsigned(n)); });
  }

 private:
  friend struct platform;

  // Arithmetic wraps, as it does in std::atomic, signed or not.
  static std::uint64_t to_unsigned(T value) noexcept { return static_cast<std::uint64_t>(value); }
  static T from_unsigned(std::uint64_t value) noexcept { return static_cast<T>(value); }

  static std::uint64_t encode(T value) noexcept {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
  }
  static T decode(std::uint64_t bits) noexcept {
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }

  static std::string format(std::uint64_t bits) {
    if constexpr (std::is_same_v<T, bool>) {
      return bits != 0 ? "true" : "false";
    } else if constexpr (std::is_enum_v<T>) {
      return std::to_string(static_cast<std::underlying_type_t<T>>(decode(bits)));
    } else if constexpr (std::is_integral_v<T>) {
      return std::to_string(decode(bits));
    } else {
      std::string digits;
      do {
        digits.insert(digits.begin(), "0123456789abcdef"[bits % 16]);
        bits /= 16;
      } while (bits != 0);
      return "0x" + digits;
    }
  }

  static constexpr std::memory_order without_release(std::memory_order order) noexcept {
    if (order == std::memory_order_acq_rel) return std::memory_order_acquire;
    if (order == std::memory_order_release) return std::memory_order_relaxed;
    return order;
  }

  template <class F>
  T modify(const char* what, std::memory_order order, F&& replace) noexcept {
    return decode(engine::current().modify(
        id_, this, what, order, order, [&replace](std::uint64_t old, std::uint64_t& replacement) {
          replacement = encode(replace(decode(old)));
          return true;
        }));
  }

  engine::location_id id_ = 0;  // immutable after construction
};

// Stands for weft::base::platform.
struct platform {
  template <class T>
  using atomic = model::atomic<T>;

  static void light_barrier() noexcept {}
  static void heavy_barrier() noexcept { engine::current().heavy_barrier(); }

  static constexpr std::memory_order hot_store = std::memory_order_relaxed;
  static constexpr std::memory_order hot_load = std::memory_order_acquire;

  static void fence(std::memory_order order) noexcept { engine::current().fence(order); }

  static void pause() noexcept { engine::current().pause(); }
  static void yield_thread() noexcept { engine::current().pause(); }

  static void futex_wait(const atomic<std::uint32_t>& word, std::uint32_t expected) noexcept {
    engine::current().futex_wait(word.id_, &word, expected, engine::patience::endless);
  }
  // Returns: false if the time was up.
  static bool futex_wait_timed(const atomic<std::uint32_t>& word, std::uint32_t expected) noexcept {
    return engine::current().futex_wait(word.id_, &word, expected, engine::patience::timed);
  }
  // There is no time in a model; every deadline may pass at any moment.
  static bool futex_wait_until(const atomic<std::uint32_t>& word, std::uint32_t expected,
                               std::int64_t) noexcept {
    return futex_wait_timed(word, expected);
  }
  static void futex_wake(const atomic<std::uint32_t>& word, int count) noexcept {
    engine::current().futex_wake(&word, count);
  }
};

// A plain variable. Its accesses are no points: a race is found in whatever order they come.
template <class T>
class var {
 public:
  var() : var(T{}) {}
  explicit var(T value, const char* name = "a var") : value_(std::move(value)), name_(name) {}
  var(const var&) = delete;
  var& operator=(const var&) = delete;

  T get() const {
    engine& e = engine::current();
    if (e.live()) {
      const auto me = static_cast<std::size_t>(e.running());
      if (e.clock()[writer_] < written_) race(e, "reads", writer_, "wrote");
      read_[me] = e.clock()[me];
      if (e.tracing()) e.note(std::string("read ") + name_);
    }
    return value_;
  }

  void set(T value) {
    engine& e = engine::current();
    if (e.live()) {
      const auto me = static_cast<std::size_t>(e.running());
      if (e.clock()[writer_] < written_) race(e, "writes", writer_, "wrote");
      for (std::size_t t = 0; t < read_.size(); ++t) {
        if (e.clock()[t] < read_[t]) race(e, "writes", t, "read");
      }
      writer_ = me;
      written_ = e.clock()[me];
      if (e.tracing()) e.note(std::string("write ") + name_);
    }
    value_ = std::move(value);
  }

 private:
  void race(engine& e, const char* does, std::size_t other, const char* did) const {
    e.fail(std::string("race: ") + e.thread_name(e.running()) + " " + does + " " + name_ +
           " and nothing orders that after what " + e.thread_name(static_cast<int>(other)) + " " +
           did);
  }

  T value_;
  const char* name_;
  std::size_t writer_ = 0;
  std::uint32_t written_ = 0;    // the writer's clock then; 0: nobody
  mutable clock_vector read_{};  // each reader's clock at its last read
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
    engine& e = engine::current();
    if (!e.live()) return;
    if (inside_ >= 0) {
      e.fail(std::string(e.thread_name(e.running())) + " enters " + name_ + " while " +
             e.thread_name(inside_) + " is inside");
    }
    inside_ = e.running();
    if (e.tracing()) e.note(std::string("enter ") + name_);
  }

  void leave() {
    engine& e = engine::current();
    if (!e.live()) return;
    e.step();  // others get a chance to come in
    inside_ = -1;
    if (e.tracing()) e.note(std::string("leave ") + name_);
  }

 private:
  const char* name_;
  int inside_ = -1;
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
