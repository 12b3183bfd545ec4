// Replaces pthread_create for the whole process: the linker takes the definition in the executable
// before the library's. Until it is told to be late it only forwards, so that the runtime's first
// threads and this program's own are not affected.
#include "late_threads.hpp"

#include <atomic>
#include <cerrno>
#include <dlfcn.h>
#include <memory>
#include <pthread.h>
#include <unistd.h>

#if defined(__has_feature)
#define TORTURE_HAS_FEATURE(x) __has_feature(x)
#else
#define TORTURE_HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || \
    TORTURE_HAS_FEATURE(thread_sanitizer) || TORTURE_HAS_FEATURE(address_sanitizer)

namespace torture {
void make_threads_late(std::int64_t, std::int64_t, std::uint64_t) {}
}  // namespace torture

#else

namespace torture {
namespace {

// Set before a thread can be made late, read by threads that make threads.
std::atomic<std::int64_t> late_us_max{0};
std::atomic<std::int64_t> fail_permille_now{0};
std::atomic<std::uint64_t> state{0};

// A small generator that any number of threads may share (splitmix64: a counter and a hash of it).
std::uint64_t random_number() {
  std::uint64_t x = state.fetch_add(0x9e3779b97f4a7c15u, std::memory_order_relaxed);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

struct late_start {
  void* (*body)(void*);
  void* argument;
  useconds_t late_us;
};

void* begin_late(void* argument) {
  const late_start s = *std::unique_ptr<late_start>(static_cast<late_start*>(argument));
  ::usleep(s.late_us);
  return s.body(s.argument);
}

}  // namespace

void make_threads_late(std::int64_t late_us, std::int64_t fail_permille, std::uint64_t seed) {
  state.store(seed, std::memory_order_relaxed);
  fail_permille_now.store(fail_permille, std::memory_order_relaxed);
  late_us_max.store(late_us, std::memory_order_relaxed);
}

}  // namespace torture

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*body)(void*), void* argument) noexcept {
  using function = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto real = reinterpret_cast<function>(::dlsym(RTLD_NEXT, "pthread_create"));
  const std::int64_t late_max = torture::late_us_max.load(std::memory_order_relaxed);
  if (late_max == 0) return real(thread, attributes, body, argument);
  const auto permille =
      static_cast<std::uint64_t>(torture::fail_permille_now.load(std::memory_order_relaxed));
  if (torture::random_number() % 1000 < permille) return EAGAIN;
  const auto late_us =
      static_cast<useconds_t>(torture::random_number() % static_cast<std::uint64_t>(late_max));
  auto start = std::make_unique<torture::late_start>(body, argument, late_us);
  const int status = real(thread, attributes, torture::begin_late, start.get());
  if (status == 0) (void)start.release();  // the new thread's
  return status;
}

#endif
