// Pauses at every place where one could do harm. A goroutine that computes for longer than its
// slice is stopped in a signal handler, wherever it is, and goes on later as if nothing had
// happened. So here goroutines spend all their time where stopping is dangerous: with malloc's, the
// loader's or a FILE's lock held, in the middle of an unwind, in a signal handler of the program's
// own, with every vector register in use, at the end of their stack.
//
// A place that does not bear it shows as a hang (the watchdog), a crash or a wrong result.
//
// WEFT_PAUSE_TARGET=100000 has it go on until so many pauses have been seen, over all tests of this
// file; by default each has a fraction of a second.
#include "stress_hog.hpp"

#include <weft/go.hpp>
#include <weft/sync.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cfenv>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <exception>
#include <functional>
#include <iterator>
#include <link.h>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace weft {
namespace {

using namespace std::chrono_literals;
using test::churn;

constexpr std::uint64_t kinds = 12;  // tests in this file, which share the target
constexpr int procs = 4;
constexpr int hogs = 12;

// Some microseconds of computing, and what comes out.
struct sum {
  std::uint64_t steps;
  std::uint64_t result;

  explicit sum(std::uint64_t n) : steps(n), result(churn(n, n)) {}
  bool comes_out() const { return churn(steps, steps) == result; }
};

// ------------------------------------------------------------------------------ vector registers

// Eight values that stay in registers during the whole loop. Never passed by value, because how
// vectors are passed depends on the processor.
template <class Vector>
[[gnu::always_inline]] inline double churn_vectors(std::uint64_t n) {
  constexpr std::size_t lanes = sizeof(Vector) / sizeof(double);
  Vector a = {};
  for (std::size_t k = 0; k < lanes; ++k) a[k] = static_cast<double>(k);
  Vector b = a + 10;
  Vector c = a + 20;
  Vector d = a + 30;
  Vector e = a + 40;
  Vector f = a + 50;
  Vector g = a + 60;
  Vector h = a + 70;
  for (; n != 0; --n) {
    a = a * 0.999 + h * 0.0005;
    b = b * 0.998 + 0.1;
    c = c * 0.997 + 0.2;
    d = d * 0.996 + 0.3;
    e = e * 0.995 + 0.4;
    f = f * 0.994 + 0.5;
    g = g * 0.993 + 0.6;
    h = h * 0.992 + 0.7;
  }
  a += b + c + d + e + f + g + h;
  double total = 0;
  for (std::size_t k = 0; k < lanes; ++k) total += a[k];
  return total;
}

using vector_2 = double __attribute__((vector_size(16)));
[[gnu::noinline]] double churn_plain(std::uint64_t n) { return churn_vectors<vector_2>(n); }

#if defined(__x86_64__)
using vector_4 = double __attribute__((vector_size(32)));
using vector_8 = double __attribute__((vector_size(64)));
[[gnu::noinline, gnu::target("avx2,fma")]] double churn_avx2(std::uint64_t n) {
  return churn_vectors<vector_4>(n);
}
[[gnu::noinline, gnu::target("avx512f")]] double churn_avx512(std::uint64_t n) {
  return churn_vectors<vector_8>(n);
}
#endif

// The widest that this processor has.
double (*widest())(std::uint64_t) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return &churn_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &churn_avx2;
#endif
  return &churn_plain;
}

// ------------------------------------------------------------------------------ the fixture

// One goroutine that computes.
struct hog {
  int number;
  base::random random;
  std::uint64_t rounds = 0;
};

// What a hog does again and again, without entering the runtime. Returns: null, or what went wrong.
struct job {
  std::function<const char*(hog&)> round;
  go_options options = {};
};

class pause : public test::stress_test {
 protected:
  // Jitter would only take time from the pauses.
  pause() : stress_test(shaking::off, test::scaled(400, 600) * 1ms) {
    if (const std::uint64_t wanted = test::number_in_environment("WEFT_PAUSE_TARGET")) {
      target_ = wanted / kinds + 1;
      set_run_time(std::max<std::chrono::milliseconds>(run_time(), target_ * 20ms));
    }
  }

  // Has `hogs` goroutines do these jobs until there were enough pauses or the time is up.
  void stop_in(std::string_view kind, const std::vector<job>& jobs) {
    max_procs(procs);
    const std::uint64_t hogs_paused = test::count_of({"pause.hog"});
    const std::uint64_t others_paused = test::count_of({"pause.unattached"});
    const std::uint64_t before = hogs_paused + others_paused;
    std::atomic<bool> stop{false};
    std::atomic<std::uint64_t> rounds{0};
    std::atomic<std::uint64_t> faults{0};
    std::atomic<const char*> fault{nullptr};
    wait_group all;
    for (int i = 0; i < hogs; ++i) {
      const job& what = jobs[static_cast<std::size_t>(i) % jobs.size()];
      all.add(1);
      go(what.options, [&, i] {
        hog self{i, chance(static_cast<std::uint64_t>(i))};
        do {
          if (const char* const wrong = what.round(self)) {
            fault.store(wrong, std::memory_order_relaxed);  // any of them will do
            faults.fetch_add(1, std::memory_order_relaxed);
          }
          ++self.rounds;
        } while (!stop.load(std::memory_order_relaxed));
        rounds.fetch_add(self.rounds, std::memory_order_relaxed);
        all.done();
      });
    }
    const auto began = test::steady::now();
    const auto patience = std::max<test::steady::duration>(5s, run_time());
    std::uint64_t seen = 0;
    for (;;) {
      std::this_thread::sleep_for(5ms);
      seen = test::pauses() - before;
      const auto passed = test::steady::now() - began;
      if (seen >= target_ || (seen != 0 && passed >= run_time()) || passed >= patience) break;
      if (!test::can_pause_in_libraries && passed >= run_time()) break;
    }
    stop.store(true, std::memory_order_relaxed);
    all.wait();
    const auto took =
        std::chrono::duration_cast<std::chrono::milliseconds>(test::steady::now() - began);
    std::printf("%-12.*s %7llu pauses (%llu hogs, %llu unattached), %llu rounds, %lld ms\n",
                static_cast<int>(kind.size()), kind.data(), number(seen),
                number(test::count_of({"pause.hog"}) - hogs_paused),
                number(test::count_of({"pause.unattached"}) - others_paused),
                number(rounds.load(std::memory_order_relaxed)),
                static_cast<long long>(took.count()));
    std::fflush(stdout);
    // relaxed, both: written before wait() returned.
    EXPECT_EQ(faults.load(std::memory_order_relaxed), 0u) << fault.load(std::memory_order_relaxed);
    EXPECT_TRUE(seen != 0 || !test::can_pause_in_libraries)
        << "nobody was paused: this proves nothing";
  }

 private:
  static unsigned long long number(std::uint64_t n) { return n; }

  std::uint64_t target_ = test::scaled(300, 100);
};

// ------------------------------------------------------------------------------ the jobs

// Blocks of every size, also such that come from mmap; no two may overlap.
const char* use_heap(hog& self) {
  constexpr std::size_t count = 48;
  struct block {
    unsigned char* begin = nullptr;
    std::size_t size = 0;
    unsigned char mark = 0;

    bool is_whole() const { return begin[0] == mark && begin[size - 1] == mark; }
  };
  std::array<block, count> blocks{};
  const char* wrong = nullptr;
  for (int step = 0; step < 400; ++step) {
    block& b = blocks[self.random.below(count)];
    if (b.begin != nullptr) {
      if (!b.is_whole()) wrong = "a block of the heap was overwritten";
      if (self.random.below(4) == 0) {
        b.size += 1 + self.random.below(4000);
        b.begin = static_cast<unsigned char*>(std::realloc(b.begin, b.size));
        b.begin[b.size - 1] = b.mark;
        if (!b.is_whole()) wrong = "realloc lost the contents of a block";
      } else {
        std::free(b.begin);
        b.begin = nullptr;
      }
      continue;
    }
    const std::uint32_t kind = self.random.below(64);
    const std::uint32_t limit = kind == 0 ? 1 << 20 : kind < 8 ? 64 << 10 : kind < 32 ? 2000 : 100;
    b.size = 1 + self.random.below(limit);
    b.mark = static_cast<unsigned char>(self.random.below(256));
    b.begin = static_cast<unsigned char*>(std::malloc(b.size));
    b.begin[0] = b.mark;
    b.begin[b.size - 1] = b.mark;
  }
  for (block& b : blocks) {
    if (b.begin != nullptr && !b.is_whole()) wrong = "a block of the heap was overwritten";
    std::free(b.begin);
  }
  return wrong;
}

const char* use_map(hog& self) {
  std::map<std::uint32_t, std::string> all;
  std::uint64_t expected = 0;
  for (int i = 0; i < 300; ++i) {
    const std::uint32_t key = self.random.below(200);
    if (const auto found = all.find(key); found != all.end()) {
      expected -= key;
      all.erase(found);
    } else {
      expected += key;
      all.emplace(key, std::string(key % 60, static_cast<char>('a' + key % 26)));
    }
  }
  std::uint64_t total = 0;
  for (const auto& [key, text] : all) {
    if (text.size() != key % 60) return "a map has another value than was put in";
    total += key;
  }
  return total == expected ? nullptr : "a map has other keys than were put in";
}

constexpr bool can_use_loader = !WEFT_TSAN;

// Parts of glibc that nobody else here uses, and several of them, so that they are really loaded
// and unloaded unless another hog has the same one open. Lazy: what the first needs of a debugger
// is not there.
const char* use_loader(hog& self) {
  constexpr const char* names[] = {"libthread_db.so.1", "libresolv.so.2", "libanl.so.1",
                                   "libutil.so.1", "libBrokenLocale.so.1"};
  const char* const name = names[static_cast<std::size_t>(self.number) % std::size(names)];
  void* const library = ::dlopen(name, RTLD_LAZY);
  if (library == nullptr) return "dlopen failed";
  link_map* map = nullptr;
  const bool found = ::dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 &&
                     std::string_view(map->l_name).ends_with(name);
  if (::dlsym(library, "no such symbol") != nullptr || ::dlerror() == nullptr) {
    return "dlsym found what is not there";
  }
  if (::dlclose(library) != 0) return "dlclose failed";
  return found ? nullptr : "dlopen opened something else";
}

struct thrown {
  std::uint64_t what;
};
struct counts_in_destructor {
  int* n;
  ~counts_in_destructor() { ++*n; }
};

[[gnu::noinline]] void throw_through(int frames, std::uint64_t what, int* unwound) {
  const counts_in_destructor here{unwound};
  if (frames == 0) throw thrown{what};
  throw_through(frames - 1, what, unwound);
  asm volatile("");  // no tail call
}

const char* use_exceptions(hog& self) {
  for (int i = 0; i < 20; ++i) {
    int unwound = 0;
    const std::uint64_t what = self.random.next();
    try {
      try {
        throw_through(10, what, &unwound);
      } catch (const thrown& first) {
        if (first.what != what) return "another exception was caught";
        try {
          throw std::runtime_error("inner");
        } catch (const std::runtime_error& second) {
          if (std::strcmp(second.what(), "inner") != 0) return "another exception was caught";
        }
        throw;  // the first one again
      }
    } catch (const thrown& again) {
      if (again.what != what) return "another exception was thrown again";
    }
    if (unwound != 11) return "a destructor did not run";
    if (std::uncaught_exceptions() != 0) return "an exception was left over";
  }
  return nullptr;
}

// Formatting, and a FILE that all share.
class use_stdio {
 public:
  use_stdio() : null_(std::fopen("/dev/null", "w")) {}
  use_stdio(const use_stdio&) = delete;
  use_stdio& operator=(const use_stdio&) = delete;
  ~use_stdio() { std::fclose(null_); }

  const char* operator()(hog& self) const {
    for (int i = 0; i < 50; ++i) {
      const auto whole = static_cast<unsigned>(self.random.below(1'000'000));
      const double half = whole + 0.5;
      char text[64];
      std::snprintf(text, sizeof text, "%u %.1f %s", whole, half, "end");
      char* end = nullptr;
      if (std::strtoul(text, &end, 10) != whole) return "snprintf wrote another number";
      if (std::strtod(end, &end) != half) return "snprintf wrote another fraction";
      if (std::strcmp(end, " end") != 0) return "snprintf wrote another text";
      if (std::fprintf(null_, "%s %d\n", text, i) < 0) return "fprintf failed";
    }
    return nullptr;
  }

 private:
  std::FILE* null_;
};

// What a std::mutex protects. A goroutine that is paused with the mutex keeps all others waiting.
class use_mutex {
 public:
  const char* operator()(hog& self) {
    const char* wrong = nullptr;
    for (int i = 0; i < 10; ++i) {
      const std::lock_guard hold(mutex_);
      if (first_ != second_) wrong = "two were in a section that a mutex protects";
      ++first_;
      if (!work_.comes_out()) wrong = "a sum came out wrong under a mutex";
      ++second_;
    }
    if (!work_.comes_out() || self.number < 0) wrong = "a sum came out wrong";
    return wrong;
  }

 private:
  const sum work_{20'000};
  std::mutex mutex_;
  std::uint64_t first_ = 0;   // guarded by mutex_
  std::uint64_t second_ = 0;  // guarded by mutex_
};

constinit thread_local std::uint64_t of_this_thread = 0;
[[gnu::noinline]] std::uint64_t* address_of_thread_local() {
  std::uint64_t* address = &of_this_thread;
  asm volatile("" : "+r"(address));
  return address;
}

// A goroutine that does not enter the runtime stays on its thread, and no other runs there.
class use_thread_local {
 public:
  const char* operator()(hog& self) const {
    const auto mine = static_cast<std::uint64_t>(self.number) + 1;
    std::uint64_t* const here = address_of_thread_local();
    *here = mine;
    if (!work_.comes_out()) return "a sum came out wrong";
    if (address_of_thread_local() != here) return "a goroutine changed its thread";
    return *here == mine ? nullptr : "somebody else used this goroutine's thread";
  }

 private:
  const sum work_{1'000'000};
};

// With no call but computing between the two.
class use_errno {
 public:
  const char* operator()(hog& self) const {
    errno = 1000 + self.number;
    if (!work_.comes_out()) return "a sum came out wrong";
    return errno == 1000 + self.number ? nullptr : "errno changed";
  }

 private:
  const sum work_{1'000'000};
};

class use_vectors {
 public:
  const char* operator()(hog& self) const {
    // The rounding mode is a register, too.
    const int mode = self.number % 2 == 0 ? FE_TONEAREST : FE_UPWARD;
    std::fesetround(mode);
    const double result = compute_(steps);
    const bool kept = std::fegetround() == mode;
    std::fesetround(FE_TONEAREST);
    if (!kept) return "the rounding mode changed";
    const double expected = mode == FE_TONEAREST ? nearest_ : upward_;
    return result == expected ? nullptr : "vectors came out wrong";
  }

 private:
  static constexpr std::uint64_t steps = 100'000;

  static double compute_with(double (*compute)(std::uint64_t), int mode) {
    std::fesetround(mode);
    const double result = compute(steps);
    std::fesetround(FE_TONEAREST);
    return result;
  }

  double (*compute_)(std::uint64_t) = widest();
  double nearest_ = compute_with(compute_, FE_TONEAREST);
  double upward_ = compute_with(compute_, FE_UPWARD);
};

// Computes with hardly any stack left: there is no room for a signal's frame there.
class use_last_bytes {
 public:
  static constexpr go_options options{.stack_size = std::size_t{64} << 10};

  const char* operator()(hog&) const {
    const std::byte* const low = sched::this_machine()->g->stack->low;
    return descend(low, work_.steps) == work_.result ? nullptr : "a sum came out wrong";
  }

 private:
  // Sanitizers call functions of theirs everywhere.
  static constexpr std::ptrdiff_t left = base::sanitizer::active ? 16 << 10 : 600;

  [[gnu::noinline]] static std::uint64_t descend(const std::byte* low, std::uint64_t n) {
    const auto* const here = static_cast<const std::byte*>(__builtin_frame_address(0));
    if (here - low < left) return churn(n, n);
    std::uint64_t result = descend(low, n);
    asm volatile("" : "+r"(result));  // no tail call
    return result;
  }

  const sum work_{1'000'000};
};

// New threads, which take the same locks for their stacks.
class use_threads {
 public:
  const char* operator()(hog&) const {
    bool good = false;
    std::thread([&] { good = work_.comes_out(); }).join();
    return good && work_.comes_out() ? nullptr : "a sum came out wrong";
  }

 private:
  const sum work_{50'000};
};

// ------------------------------------------------------------------------------ the user's signals

// Sends machines signals whose handlers compute, some of them for longer than a slice.
class signal_sender {
 public:
  enum class stack : std::uint8_t { goroutines, alternate };  // where handlers run

  signal_sender(base::random chance, stack where) {
    struct sigaction action{};
    action.sa_handler = &on_signal;
    action.sa_flags = SA_RESTART | (where == stack::alternate ? SA_ONSTACK : 0);
    ::sigaction(signal_number, &action, nullptr);
    thread_ = std::thread([this, chance] { send(chance); });
  }
  signal_sender(const signal_sender&) = delete;
  signal_sender& operator=(const signal_sender&) = delete;
  ~signal_sender() {
    over_.store(true, std::memory_order_relaxed);
    thread_.join();
    // The handler stays: signals may still be on their way.
  }

  // relaxed, all: counts.
  static std::uint64_t handled() { return handled_.load(std::memory_order_relaxed); }
  static std::uint64_t faults() { return faults_.load(std::memory_order_relaxed); }

 private:
  static constexpr int signal_number = SIGALRM;
  static inline const sum brief{20'000};
  static inline const sum lengthy{3'000'000};
  static inline std::atomic<std::uint64_t> handled_{0};
  static inline std::atomic<std::uint64_t> faults_{0};

  static void on_signal(int) {
    const int saved = errno;
    const std::uint64_t n = handled_.fetch_add(1, std::memory_order_relaxed);
    errno = 77;
    const bool good = n % 8 == 0 ? lengthy.comes_out() : brief.comes_out();
    if (!good || errno != 77) faults_.fetch_add(1, std::memory_order_relaxed);
    errno = saved;
  }

  void send(base::random chance) const {
    while (!over_.load(std::memory_order_relaxed)) {
      // On the stack: a hog may have been stopped with malloc's lock, and waits for the
      // scheduler's.
      std::array<pid_t, 64> threads{};
      std::uint32_t n = 0;
      {
        const std::lock_guard hold(sched::the_scheduler.lock);
        for (const auto& slot : sched::the_scheduler.machine_table) {
          const sched::machine* const m = slot.load(std::memory_order_relaxed);
          if (m == nullptr || n == threads.size()) break;
          if (m->is_live) threads[n++] = m->thread_id.load(std::memory_order_relaxed);
        }
      }
      for (int i = 0; i < 16 && n != 0; ++i) {
        // A thread that has ended does not get the signal; a machine without a thread has 0.
        const pid_t to = threads[chance.below(n)];
        if (to != 0) ::syscall(SYS_tgkill, ::getpid(), to, signal_number);
        std::this_thread::sleep_for(std::chrono::microseconds(200 + chance.below(600)));
      }
    }
  }

  std::atomic<bool> over_{false};  // relaxed: nothing else is passed along
  std::thread thread_;
};

// ------------------------------------------------------------------------------ the tests

// Paused with malloc's lock held: other allocating threads wait for a thread without a processor.
TEST_F(pause, in_malloc_and_free) { stop_in("malloc", {{&use_heap}}); }

TEST_F(pause, in_containers) { stop_in("std::map", {{&use_map}}); }

// Stopped with the loader's lock held, which exceptions on old systems and new threads take too.
TEST_F(pause, in_dlopen_and_dlclose) {
  if (!can_use_loader) {
    GTEST_SKIP()
        << "TSan does not know the loader's lock, and goroutines are not paused in the loader "
           "under it";
  }
  stop_in("dlopen", {{&use_loader}});
}

// Stopped in the middle of an unwind: the exception state belongs to the thread.
TEST_F(pause, in_exceptions) { stop_in("exceptions", {{&use_exceptions}}); }

TEST_F(pause, in_stdio) {
  const use_stdio stdio;
  stop_in("stdio", {{std::ref(stdio)}});
}

// Stopped with a std::mutex that the other hogs wait for: its owner must get its turn.
TEST_F(pause, under_a_mutex) {
  use_mutex mutex;
  stop_in("std::mutex", {{std::ref(mutex)}});
}

// No other goroutine may run on the thread of a paused one.
TEST_F(pause, between_two_uses_of_a_thread_local) {
  const use_thread_local local;
  stop_in("thread_local", {{std::ref(local)}});
}

// The handler makes system calls, and they set errno.
TEST_F(pause, between_two_uses_of_errno) {
  const use_errno number;
  stop_in("errno", {{std::ref(number)}});
}

// Every register comes back, also those that a switch need not save.
TEST_F(pause, with_vectors_in_registers) {
  const use_vectors vectors;
  stop_in("vectors", {{std::ref(vectors)}});
}

// The handler must not use the goroutine's stack.
TEST_F(pause, at_the_end_of_a_stack) {
  const use_last_bytes last;
  stop_in("stack", {{std::ref(last), use_last_bytes::options}});
}

// A handler of the program's own may be stopped as other code may: on a goroutine's stack, and on
// the alternate stack, where ours then runs too.
TEST_F(pause, in_signal_handlers_of_the_program) {
  const use_errno number;
  const use_vectors vectors;
  const std::vector<job> jobs{{std::ref(number)}, {std::ref(vectors)}, {&use_heap}};
  const std::uint64_t before = signal_sender::handled();
  {
    const signal_sender sender(chance(1000), signal_sender::stack::goroutines);
    stop_in("signals", jobs);
  }
  {
    const signal_sender sender(chance(1001), signal_sender::stack::alternate);
    stop_in("signals, alt", jobs);
  }
  std::printf("%llu signals handled\n",
              static_cast<unsigned long long>(signal_sender::handled() - before));
  EXPECT_GT(signal_sender::handled(), before);
  EXPECT_EQ(signal_sender::faults(), 0u);
}

// What one of them holds, another may need.
TEST_F(pause, everywhere_at_once) {
  const use_stdio stdio;
  use_mutex mutex;
  const use_thread_local local;
  const use_errno number;
  const use_vectors vectors;
  const use_last_bytes last;
  const use_threads threads;
  const signal_sender sender(chance(1000), signal_sender::stack::alternate);
  stop_in("all", {{&use_heap},
                  {&use_map},
                  {can_use_loader ? &use_loader : &use_map},
                  {&use_exceptions},
                  {std::ref(stdio)},
                  {std::ref(mutex)},
                  {std::ref(local)},
                  {std::ref(number)},
                  {std::ref(vectors)},
                  {std::ref(last), use_last_bytes::options},
                  {std::ref(threads)}});
  EXPECT_EQ(signal_sender::faults(), 0u);
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::test::run_tests_with_short_slice(argc, argv); }
