// weft/test.hpp: tests that control time and chance. Link weft::test (pkg-config: weft_test). If
// weft::test was built where GoogleTest is, it needs GoogleTest's library also in programs that do
// not use it. By hand: -lweft_test -lweft -lgtest -luring -lcares -lbacktrace -pthread. Which of
// the last ones are needed depends on how weft was built: `pkg-config --libs weft_test` says it.
//
// bubble(f) runs f, and every goroutine started in it, on a virtual clock: when all of them wait,
// time jumps to the next timer. A test with a timeout of an hour takes no time.
//
//     weft::test::bubble([] {
//       auto reply = weft::async([] { weft::this_goroutine::sleep_for(1h); return 42; });
//       EXPECT_EQ(reply.wait_for(59min), std::future_status::timeout);
//       EXPECT_EQ(reply.get(), 42);
//     });
//
// explore(options, f) runs f many times, each time with another order of its goroutines' steps, and
// stops at the first run that fails: by an exception, a failed GoogleTest expectation or check(), a
// deadlock, a race on a var, the use of a destroyed atomic, "no end", or something left behind.
// explore() then looks for fewer switches between goroutines with which f still fails. It reports
// the run with the fewest as a table with one column per goroutine, and the line that replays it:
//
//     WEFT_SEED=41:0x3-1x5-0x2 ./my_test --gtest_filter=account.transfers_lose_nothing
//
// If a run ends the process (by a fault, abort(), or a sanitizer's report), the line is printed
// first; the table appears when the line is replayed.
//
// A step is a call into weft, a point(), a seq_cst atomic_thread_fence() of this header, or an
// access to an atomic<T> or var<T> of this header. Code between two steps runs without
// interruption, so plain data that goroutines share without protection should be a var. The
// goroutines of a test all run on the calling thread (or, if the caller is a goroutine, on one
// thread that is made for the test). Their code must not hold a std::mutex across a step, and must
// not depend on addresses or on clocks other than weft's. Each call of f must make its state anew.
//
// A run that fails is abandoned where it stands. The destructors of what its goroutines hold do not
// run, so its memory is not given back; a SCOPED_TRACE in it stays, too. Contexts and channels from
// outside forget the goroutines that waited with them, and functions of after_func. The same is
// true of the failing runs in the search for fewer switches, which ends after 3,000 runs or five
// seconds.
//
// Goroutines that refer to local variables of f have to end before f returns, as everywhere: use a
// wait_group or a group. Goroutines that own what they use may end later.
//
// In a bubble or an exploration, calls on sockets and pipes that would have to wait for the kernel
// return std::errc::operation_not_supported. So test the code above the connection: let channels
// take the connection's place.
//
// "Something left behind" is a goroutine that still waits, a timer that is still armed, or a file
// descriptor that is still open when f has returned and no goroutine can go on.
//
// "No end" means that a run has made more than options::steps steps. A loop that waits for other
// goroutines has to yield or sleep in each pass. Then every goroutine gets its turn in time. A loop
// that does neither may have no end; with strategy::random only if it waits for time, or makes no
// step.
//
// Objects that are made in a bubble or an exploration can be used only there. Outside of it,
// operations on a channel (also that of a timer or context) and reset() of a timer throw
// std::logic_error. So does reset() in there of a timer that was made outside. If a lock from
// outside wakes a goroutine of the bubble, the process ends with a message that says so. Deadlines
// of a context that was made outside are in real time. The race detector learns nothing from a
// std::stop_token: accesses that follow stop_requested() have to be ordered by other means.
// GoogleTest's death tests need death_test_style "threadsafe".
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
  random,      // picks among the goroutines that can run, each with the same probability
  priorities,  // picks the goroutine with the highest priority. Priorities are random and change a
               // few times in a run (PCT). Finds failures that need few but exact switches in a
               // long program
  exhaustive,  // tries every order within a bound on preemptions; for small programs. Also fails if
               // the program does not repeat what it did in the same order before
};

// When other goroutines see what is stored in an atomic. Either model finds races on vars.
enum class memory : std::uint8_t {
  sequential,  // every access takes effect at once
  buffered,    // like x86-64: a store that is not seq_cst may become visible to other goroutines
               // after the loads that follow it
};

// Options of an exploration.
struct options {
  strategy how = strategy::random;
  // How many runs are made at most. If an exhaustive search needs more, result::exhausted is false.
  std::uint64_t runs = 1'000;
  std::uint64_t seed = 0;  // 0: the seed is WEFT_SEED if that is a number, else a fixed number
  int switches = 2;        // exhaustive: the most preemptions in one run; -1: there is no limit
  int changes = 3;         // priorities: how often priorities change in one run
  int procs = 0;  // how many goroutines may have a processor at the same time; 0: all. With 1 a
                  // goroutine is never interrupted between two waits or yields.
  std::uint64_t steps = 100'000;  // a run that makes more steps fails: "no end"
  // How long a goroutine that can run may be delayed: timers that are due within this time may fire
  // before it runs.
  std::chrono::nanoseconds late = std::chrono::milliseconds(10);
  memory model = memory::sequential;
  bool shrink = true;  // after a failure, look for fewer switches
  std::source_location where = std::source_location::current();  // its line is a part of the seed
};

// The result of an exploration.
struct result {
  bool ok = true;
  bool exhausted = false;      // exhaustive: every order within the bound was tried
  std::uint64_t runs = 0;      // how many runs there were, up to the first that failed
  std::uint64_t steps = 0;     // how many steps these runs made
  std::uint64_t switches = 0;  // how many switches the reported run has
  std::string failure;         // what went wrong, in one line
  std::string seed;            // replays the reported run, as WEFT_SEED or in replay()
  std::string report;          // the whole result in words; after a failure, with the table
};

// Thrown by explore() and bubble() when a run fails; what() is the report. (But bubble() throws an
// exception of its goroutines as it is.)
class failed : public std::runtime_error {
 public:
  explicit failed(const result& r) : std::runtime_error(r.report), result_(r) {}
  const test::result& result() const noexcept { return result_; }

 private:
  test::result result_;
};

// Options of a bubble.
struct bubble_options {
  std::uint64_t steps = 10'000'000;  // a run that makes more steps fails: "no end"
};

// Runs f in a bubble. Returns when f and all goroutines started in it have ended. Throws: the
// exception that leaves f or another goroutine of the bubble; `failed` for a deadlock (all
// goroutines wait, and no timer lets one of them go on), for something left behind (also a file
// descriptor), a race on a var, a failed check(), the use of a destroyed atomic, or "no end";
// std::logic_error inside another bubble or exploration.
WEFT_API void bubble(const std::function<void()>& f, const bubble_options& o = {});

// Returns when every other goroutine of the bubble or exploration waits: for another goroutine, for
// time, or for the caller. Throws: std::logic_error outside of a bubble or an exploration, or if
// another goroutine is in wait() already.
WEFT_API void wait();

// Runs f in many orders, as described above. Throws: `failed` at the first failure;
// std::logic_error inside another bubble or exploration; std::invalid_argument if WEFT_SEED is
// neither a number nor a result::seed.
WEFT_API void explore(const options& o, const std::function<void()>& f);
// Like explore(), but returns a failure instead of throwing `failed`.
[[nodiscard]] WEFT_API result try_explore(const options& o, const std::function<void()>& f);
// Runs f once, in the order that `seed`, a result::seed, names. Throws: std::logic_error inside
// another bubble or exploration; std::invalid_argument if `seed` is no such seed.
[[nodiscard]] WEFT_API result replay(const options& o, const std::string& seed,
                                     const std::function<void()>& f);

// Fails the run, and does not return, unless `condition` holds. For tests without GoogleTest, whose
// expectations fail the run as well. `text` says in the report what failed. Throws:
// std::logic_error if the condition does not hold outside of a bubble or an exploration.
WEFT_API void check(bool condition, const char* text = "check() failed");

// A place where a goroutine may be interrupted. Does nothing outside of a bubble or an exploration.
inline void point() noexcept {
  weft::detail::observe(weft::detail::touch::arrive, nullptr, "point");
}

// Sets the name that tables show for a primitive or an atomic<T>: name(&m, "m"). Primitives without
// a name appear as #1, #2, atomics as @0, @1. Requires: `text` outlives the run.
WEFT_API void name(const void* object, const char* text);
template <class Handle>
  requires requires(const Handle& c) { c.core(); }
void name(const Handle* channel, const char* text) {
  name(static_cast<const void*>(channel->core()), text);
}

namespace detail {

// How the engine reads, writes and shows the value of an atomic.
struct cell {
  std::uint64_t (*read)(const void* place) noexcept;
  void (*write)(void* place, std::uint64_t bits) noexcept;
  std::string (*show)(std::uint64_t bits);
};

// What a read-modify-write does to the value `found`. Returns: whether `wanted` replaces `found`.
using modifier = bool (*)(void* argument, std::uint64_t found, std::uint64_t& wanted);

WEFT_API bool in_simulation() noexcept;
inline bool active() noexcept {
  return weft::detail::simulations.load(std::memory_order_relaxed) != 0 && in_simulation();
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
// A value for tables, and how to print it. If `show` is null, tables do not show the value.
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

// A std::atomic whose accesses are steps. Outside of bubbles and explorations it is a plain
// std::atomic. For values of up to 8 bytes. It has no wait() and notify functions, and no operators
// |=, &= and ^=.
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
  // Tables show `name`, which must outlive the atomic.
  atomic(T value, const char* name) noexcept : atomic(value) {
    if (detail::active()) detail::named(&value_, name);
  }
  atomic(const atomic&) = delete;
  atomic& operator=(const atomic&) = delete;
  ~atomic() {
    if (detail::active()) detail::destroyed(&value_);
  }

  // Sets the name that tables show; `text` must outlive the atomic.
  void name(const char* text) noexcept {
    if (detail::active()) detail::named(&value_, text);
  }
  // For futexes and other code that knows the atomic by its address.
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

// A std::atomic_thread_fence that bubbles and explorations see. With seq_cst it is a step.
inline void atomic_thread_fence(std::memory_order order) noexcept {
  if (detail::active()) {
    detail::fence(order);
  } else {
    std::atomic_thread_fence(order);
  }
}

// A plain variable whose accesses are steps. Two accesses of different goroutines, at least one of
// them a write, are a race if nothing orders them. A race fails the run, in whatever order the two
// accesses came; the report shows both.
template <class T>
class var {
 public:
  var() : value_() {}
  explicit(false) var(T value) : value_(std::move(value)) {}
  // Tables show `name`, which must outlive the var.
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

  // read() and write() are one step each. They return references, for values that cannot be copied.
  const T& read() const {
    touch(detail::access::read, &value_);
    return value_;
  }
  T& write() {
    touch(detail::access::write, nullptr);
    return value_;
  }

  // += and the operators below are two steps: a read and a write, as in hardware.
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
  // `value` is what is read or will be written; null if that is not known yet. Inlined, because
  // touch_var() takes the address from which it is called for the place of the access.
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
