// weft/test.hpp: tests that control time and chance. Link weft::test (pkg-config: weft_test).
//
// bubble(f) runs f, and every goroutine started in it, on a virtual clock: when all of them wait,
// time jumps to the next timer. A test of time-outs of an hour takes no time.
//
//     weft::test::bubble([] {
//       auto reply = weft::async([] { weft::this_goroutine::sleep_for(1h); return 42; });
//       EXPECT_EQ(reply.wait_for(59min), std::future_status::timeout);
//       EXPECT_EQ(reply.get(), 42);
//     });
//
// explore(options, f) runs f many times, each time with another order of its goroutines' steps, and
// stops at the first run that fails: by an exception, a failed GoogleTest expectation, a deadlock,
// a race on a var, "no end", or something left behind. explore() then looks for the fewest switches
// with which f still fails, shows the run with these switches as a table with one column per
// goroutine, and prints the line that replays this run:
//
//     WEFT_SEED=41:0x3-1x5-0x2 ./my_test --gtest_filter=account.transfers_lose_nothing
//
// If a run ends the process (a fault, abort(), a sanitizer's report), that line is printed, too;
// the table appears when the line is replayed.
//
// A step is a call into weft, a point(), or an access to an atomic<T> or var<T> of this header.
// Code between two steps runs without interruption, so plain data that goroutines share without
// protection should be a var. The goroutines of a test all run on the calling thread (or, if the
// caller is a goroutine itself, on a thread of its own). Their code must not hold a std::mutex
// across a step, and must not depend on addresses or on clocks other than weft's. It has to make
// its state anew each time f is called. A run that fails is abandoned where it stands. The
// destructors of what its goroutines held do not run, so its memory is not given back; a
// SCOPED_TRACE in it stays, too. This also holds for each of the (at most 3,000) runs that look for
// fewer switches.
//
// "Something left behind" is a goroutine that still waits, a timer that is still armed, or a file
// descriptor that is still open when f has returned.
//
// A loop that waits for other goroutines has to yield or sleep in each pass. Then every goroutine
// gets its turn in time. A loop that does neither may run for ever, which is "no end". The
// strategy random is not affected.
//
// Objects that are made in a bubble or an exploration can be used only there. A channel, timer or
// context that is used outside throws std::logic_error. If a lock from outside wakes a goroutine of
// the bubble, the process ends with a message that says so. Deadlines of a context that was made
// outside are in real time. The race detector learns nothing from a std::stop_token: accesses that
// follow stop_requested() have to be ordered by other means. GoogleTest's death tests need
// death_test_style "threadsafe".
#pragma once

#include <weft/detail/config.hpp>
#include <weft/detail/park.hpp>

#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace weft::test {

// How explore() picks the goroutine that makes the next step.
enum class strategy : std::uint8_t {
  random,      // each time any goroutine that can run
  priorities,  // the goroutine with the highest priority; priorities are random and change a few
               // times in a run (PCT): finds failures that need few but exact switches in a long
               // program
  exhaustive,  // every order within a bound on preemptions, for small programs
};

// When other goroutines see what is stored in an atomic. Either model finds races on vars.
enum class memory : std::uint8_t {
  sequential,  // every access takes effect at once
  buffered,    // like x86-64: other goroutines may see a store that is not seq_cst later than the
               // loads that follow it
};

// Options of an exploration.
struct options {
  strategy how = strategy::random;
  std::uint64_t runs = 1'000;  // at most; exhaustive: with more orders, `exhausted` stays false
  std::uint64_t seed = 0;      // 0: WEFT_SEED if that is a number, else a fixed seed
  int switches = 2;            // exhaustive: most preemptions in one run; -1: any number
  int changes = 3;             // priorities: how often they change in one run
  int procs = 0;  // how many goroutines may have a processor at the same time; 0: all. With 1 a
                  // goroutine is never interrupted between two waits or yields.
  std::uint64_t steps = 100'000;  // of one run; more is "no end"
  // How long a goroutine may be delayed: while it could run, timers up to this much later may fire.
  std::chrono::nanoseconds late = std::chrono::milliseconds(10);
  memory model = memory::sequential;
  bool shrink = true;  // look for the fewest switches
  std::source_location where = std::source_location::current();
};

// The result of an exploration.
struct result {
  bool ok = true;
  bool exhausted = false;      // exhaustive: every order within the bound was seen
  std::uint64_t runs = 0;      // up to the first run that failed
  std::uint64_t steps = 0;     // in all these runs
  std::uint64_t switches = 0;  // of the failure that is shown
  std::string failure;         // what went wrong, in one line
  std::string seed;            // replays it, as WEFT_SEED and in replay()
  std::string report;          // the whole result in words, with the table
};

// Thrown by explore() and bubble() when a run fails; what() is the report.
class failed : public std::runtime_error {
 public:
  explicit failed(const result& r) : std::runtime_error(r.report), result_(r) {}
  const test::result& result() const noexcept { return result_; }

 private:
  test::result result_;
};

// Options of a bubble.
struct bubble_options {
  std::uint64_t steps = 10'000'000;  // more is "no end"
};

// Runs f in a bubble. Returns when f and all goroutines started in it have ended. Throws: the
// exception that leaves f or another goroutine of the bubble; `failed` if all goroutines wait and
// no timer would let one of them go on; `failed` if f has ended, and other goroutines wait or a
// timer is left behind; `failed` after too many steps; std::logic_error inside of another bubble or
// exploration.
WEFT_API void bubble(const std::function<void()>& f, const bubble_options& o = {});

// In a bubble or an exploration: returns when every other goroutine waits for another goroutine,
// for time, or for the caller. Throws: std::logic_error elsewhere, or if another goroutine is in
// wait() already.
WEFT_API void wait();

// Runs f in many orders, as described above. Throws: `failed` at the first failure;
// std::logic_error inside of another bubble or exploration.
WEFT_API void explore(const options& o, const std::function<void()>& f);
// Like explore(), but returns a failure instead of throwing it.
[[nodiscard]] WEFT_API result try_explore(const options& o, const std::function<void()>& f);
// Runs only the order that result::seed of a failure names.
[[nodiscard]] WEFT_API result replay(const options& o, const std::string& seed,
                                     const std::function<void()>& f);

// Fails the run unless `condition` holds. Outside of a run it throws std::logic_error instead.
WEFT_API void check(bool condition, const char* text);

// A place where a goroutine may be interrupted. Does nothing outside of a bubble or an exploration.
inline void point() noexcept {
  weft::detail::observe(weft::detail::touch::arrive, nullptr, "point");
}

// Sets the name that tables show for a mutex, channel or wait_group: name(&m, "m"). Objects without
// a name appear as #1, #2.
WEFT_API void name(const void* object, const char* text);
template <class Handle>
  requires requires(const Handle& c) { c.core(); }
void name(const Handle* channel, const char* text) {
  name(static_cast<const void*>(channel->core()), text);
}

namespace detail {

// A place in memory of at most 8 bytes, as the engine sees it.
struct cell {
  std::uint64_t (*read)(const void* place) noexcept;
  void (*write)(void* place, std::uint64_t bits) noexcept;
  std::string (*show)(std::uint64_t bits);
};

// What an access does to the value `found`. Returns: whether `wanted` replaces it.
using modifier = bool (*)(void* argument, std::uint64_t found, std::uint64_t& wanted);

WEFT_API bool in_simulation() noexcept;
inline bool active() noexcept {
  return weft::detail::simulating.load(std::memory_order_relaxed) && in_simulation();
}

WEFT_API void created(const void* place, const cell& c);
WEFT_API void destroyed(const void* place) noexcept;
WEFT_API void named(const void* place, const char* name);
WEFT_API std::uint64_t load(const void* place, const cell& c, std::memory_order order);
WEFT_API void store(void* place, const cell& c, std::uint64_t bits, std::memory_order order);
WEFT_API std::uint64_t modify(void* place, const cell& c, const char* what, std::memory_order order,
                              std::memory_order failure, modifier m, void* argument);
WEFT_API void fence(std::memory_order order);

enum class access : std::uint8_t { read, write };
// A value, for tables. Without a function nothing is shown.
struct shown {
  const void* place = nullptr;
  std::string (*show)(const void* place) = nullptr;
};
WEFT_API void touch_var(const void* place, access a, const char* name, shown value);
WEFT_API void forget_var(const void* place) noexcept;

WEFT_API std::string show_number(std::int64_t value);
WEFT_API std::string show_unsigned(std::uint64_t value);
WEFT_API std::string show_bits(std::uint64_t bits);

template <class T>
inline constexpr bool is_showable =
    std::is_integral_v<T> || std::is_enum_v<T> || std::is_pointer_v<T>;

template <class T>
  requires is_showable<T>
std::string show(T value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_enum_v<T>) {
    return show(static_cast<std::underlying_type_t<T>>(value));
  } else if constexpr (std::is_pointer_v<T>) {
    return show_bits(reinterpret_cast<std::uintptr_t>(value));
  } else if constexpr (std::is_signed_v<T>) {
    return show_number(value);
  } else {
    return show_unsigned(value);
  }
}

}  // namespace detail

// A std::atomic of which every access is a step. Outside of bubbles and explorations it is a plain
// std::atomic. For values of up to 8 bytes.
template <class T>
class atomic {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t),
                "test::atomic holds trivially copyable values of at most 8 bytes");
  using difference = std::conditional_t<std::is_pointer_v<T>, std::ptrdiff_t, T>;
  using order_type = std::memory_order;
  static constexpr order_type seq_cst = std::memory_order_seq_cst;

 public:
  using value_type = T;
  static constexpr bool is_always_lock_free = std::atomic<T>::is_always_lock_free;

  constexpr atomic() noexcept : atomic(T{}) {}
  constexpr explicit(false) atomic(T value) noexcept : value_(value) {
    if (!std::is_constant_evaluated() && detail::active()) detail::created(&value_, as_cell);
  }
  // `name` is shown in tables.
  atomic(T value, const char* name) noexcept : atomic(value) {
    if (detail::active()) detail::named(&value_, name);
  }
  atomic(const atomic&) = delete;
  atomic& operator=(const atomic&) = delete;
  ~atomic() {
    if (detail::active()) detail::destroyed(&value_);
  }

  void name(const char* text) noexcept {
    if (detail::active()) detail::named(&value_, text);
  }
  // For futexes and other code that knows the value by its address.
  const void* address() const noexcept { return &value_; }

  T load(order_type order = seq_cst) const noexcept {
    if (!detail::active()) return value_.load(order);
    return decode(detail::load(&value_, as_cell, order));
  }
  void store(T value, order_type order = seq_cst) noexcept {
    if (!detail::active()) return value_.store(value, order);
    detail::store(&value_, as_cell, encode(value), order);
  }
  explicit(false) operator T() const noexcept { return load(); }
  T operator=(T value) noexcept {
    store(value);
    return value;
  }

  T exchange(T value, order_type order = seq_cst) noexcept {
    if (!detail::active()) return value_.exchange(value, order);
    return modify("exchange", order, [value](T) { return value; });
  }

  bool compare_exchange_strong(T& expected, T desired, order_type success,
                               order_type failure) noexcept {
    if (!detail::active()) {
      return value_.compare_exchange_strong(expected, desired, success, failure);
    }
    struct exchange {
      std::uint64_t expected, desired;
    } e{encode(expected), encode(desired)};
    const std::uint64_t found = detail::modify(
        &value_, as_cell, "compare_exchange", success, failure,
        [](void* argument, std::uint64_t bits, std::uint64_t& wanted) {
          const auto* const self = static_cast<const exchange*>(argument);
          wanted = self->desired;
          return bits == self->expected;
        },
        &e);
    if (found == e.expected) return true;
    expected = decode(found);
    return false;
  }
  bool compare_exchange_strong(T& expected, T desired, order_type order = seq_cst) noexcept {
    return compare_exchange_strong(expected, desired, order, without_release(order));
  }
  // Never fails spuriously in a simulation.
  bool compare_exchange_weak(T& expected, T desired, order_type success,
                             order_type failure) noexcept {
    return compare_exchange_strong(expected, desired, success, failure);
  }
  bool compare_exchange_weak(T& expected, T desired, order_type order = seq_cst) noexcept {
    return compare_exchange_strong(expected, desired, order, without_release(order));
  }

  T fetch_add(difference n, order_type order = seq_cst) noexcept {
    if (!detail::active()) return value_.fetch_add(n, order);
    return modify("fetch_add", order, [n](T old) { return plus(old, n); });
  }
  T fetch_sub(difference n, order_type order = seq_cst) noexcept {
    if (!detail::active()) return value_.fetch_sub(n, order);
    return modify("fetch_sub", order, [n](T old) { return minus(old, n); });
  }
  T fetch_or(T n, order_type order = seq_cst) noexcept
    requires std::is_integral_v<T>
  {
    if (!detail::active()) return value_.fetch_or(n, order);
    return modify("fetch_or", order, [n](T old) { return static_cast<T>(old | n); });
  }
  T fetch_and(T n, order_type order = seq_cst) noexcept
    requires std::is_integral_v<T>
  {
    if (!detail::active()) return value_.fetch_and(n, order);
    return modify("fetch_and", order, [n](T old) { return static_cast<T>(old & n); });
  }
  T fetch_xor(T n, order_type order = seq_cst) noexcept
    requires std::is_integral_v<T>
  {
    if (!detail::active()) return value_.fetch_xor(n, order);
    return modify("fetch_xor", order, [n](T old) { return static_cast<T>(old ^ n); });
  }

  T operator++() noexcept { return plus(fetch_add(1), 1); }
  T operator++(int) noexcept { return fetch_add(1); }
  T operator--() noexcept { return minus(fetch_sub(1), 1); }
  T operator--(int) noexcept { return fetch_sub(1); }
  T operator+=(difference n) noexcept { return plus(fetch_add(n), n); }
  T operator-=(difference n) noexcept { return minus(fetch_sub(n), n); }

 private:
  // Arithmetic wraps, as it does in std::atomic, signed or not.
  static T plus(T a, difference n) noexcept {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(n));
    } else {
      return a + n;
    }
  }
  static T minus(T a, difference n) noexcept {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(n));
    } else {
      return a - n;
    }
  }

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
  static std::string show(std::uint64_t bits) {
    if constexpr (detail::is_showable<T>) {
      return detail::show(decode(bits));
    } else {
      return detail::show_bits(bits);
    }
  }
  static std::uint64_t read(const void* place) noexcept {
    return encode(static_cast<const std::atomic<T>*>(place)->load(std::memory_order_relaxed));
  }
  static void write(void* place, std::uint64_t bits) noexcept {
    static_cast<std::atomic<T>*>(place)->store(decode(bits), std::memory_order_relaxed);
  }
  static constexpr detail::cell as_cell{&read, &write, &show};

  static constexpr order_type without_release(order_type order) noexcept {
    if (order == std::memory_order_acq_rel) return std::memory_order_acquire;
    if (order == std::memory_order_release) return std::memory_order_relaxed;
    return order;
  }

  template <class F>
  T modify(const char* what, order_type order, F replace) noexcept {
    return decode(detail::modify(
        &value_, as_cell, what, order, order,
        [](void* argument, std::uint64_t found, std::uint64_t& wanted) {
          wanted = encode((*static_cast<F*>(argument))(decode(found)));
          return true;
        },
        &replace));
  }

  std::atomic<T> value_;
};

// A std::atomic_thread_fence that an exploration sees.
inline void atomic_thread_fence(std::memory_order order) noexcept {
  if (detail::active()) {
    detail::fence(order);
  } else {
    std::atomic_thread_fence(order);
  }
}

// A plain variable of which every access is a step. Two accesses of different goroutines, at least
// one of them a write, are a race if nothing orders them. A race fails the run, which shows both
// accesses, in whatever order they came.
template <class T>
class var {
 public:
  var() : value_() {}
  explicit(false) var(T value) : value_(std::move(value)) {}
  // `name` is shown in tables.
  var(T value, const char* name) : value_(std::move(value)), name_(name) {}
  var(const var&) = delete;
  var& operator=(const var&) = delete;
  ~var() {
    if (detail::active()) detail::forget_var(this);
  }

  T get() const { return read(); }
  void set(T value) {
    touch(detail::access::write, &value);
    value_ = std::move(value);
  }
  explicit(false) operator T() const { return read(); }
  var& operator=(T value) {
    set(std::move(value));
    return *this;
  }

  // read() and write() are one step each. They return references, for values that are not copied.
  const T& read() const {
    touch(detail::access::read, &value_);
    return value_;
  }
  T& write() {
    touch(detail::access::write, nullptr);
    return value_;
  }

  // Two steps, a read and a write, as the hardware does them.
  template <class U>
  var& operator+=(const U& n) {
    T value = read();
    value += n;
    return *this = std::move(value);
  }
  template <class U>
  var& operator-=(const U& n) {
    T value = read();
    value -= n;
    return *this = std::move(value);
  }
  var& operator++() { return *this += 1; }
  var& operator--() { return *this -= 1; }

 private:
  // `value` is what is read or will be written; null if that is not known yet. Inlined, because the
  // place of the call is the place of the access.
  [[gnu::always_inline]] void touch(detail::access a, const T* value) const {
    if (!detail::active()) return;
    detail::shown as{};
    if constexpr (detail::is_showable<T>) {
      if (value != nullptr) {
        as = {value, [](const void* place) { return detail::show(*static_cast<const T*>(place)); }};
      }
    }
    detail::touch_var(this, a, name_, as);
  }

  T value_;
  const char* name_ = "a var";
};

}  // namespace weft::test
