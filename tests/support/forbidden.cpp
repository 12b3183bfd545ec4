// forbidden.cpp: a machine that is inside the runtime does nothing that may wait for a thread.
//
// A goroutine can be paused, or lose its processor, anywhere in user code: in the middle of malloc,
// holding the loader's lock, under a FILE's. A machine that then called malloc while it is inside
// the runtime would wait for a thread that waits for a processor, perhaps this very one: the
// process hangs, once in a million runs. So inside nothing allocates, takes a lock of libc's,
// throws, or calls anything that does, and this file turns each breach into a death with a
// backtrace, at the first call and not only in the run that hangs.
//
// It is linked into the unit and stress tests of native builds without sanitizers (these have an
// allocator and wrappers of their own). It defines the functions that may wait under their own
// names; the program's definitions come before the libraries', for the libraries too. Each looks
// where its caller stands and goes on to the real one.
//
// Once the process is dying all is allowed: a report symbolizes, with the world frozen.
//
// What it cannot see: calls within libc that do not pass through the dynamic symbol table (the lock
// in a resolver, say), and threads that are no machines (the monitor, the starter, plain threads
// that hold the scheduler's lock).
// The functions are to be defined here, not the inline ones that headers put before them.
#undef _FORTIFY_SOURCE
#ifndef __NO_INLINE__
#define __NO_INLINE__ 1
#endif

#include "base/backtrace.hpp"
#include "base/fatal.hpp"
#include "base/symbolize.hpp"
#include "sched/scheduler.hpp"

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cxxabi.h>
#include <dlfcn.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <unistd.h>
#include <unwind.h>

extern "C" {
// glibc's own names of what is defined here again. No look-up, which would itself need them.
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);
}

namespace {

namespace base = weft::base;
namespace sched = weft::sched;

std::atomic<bool> dying{false};

[[noreturn, gnu::noinline, gnu::cold]] void die(const char* function) {
  // relaxed: what follows needs itself to be let through, and nothing else.
  if (dying.exchange(true, std::memory_order_relaxed)) {
    for (;;) ::pause();  // another thread's report comes first
  }
  base::text line;
  line << "forbidden: " << function << " was called inside the runtime\n";
  base::write_stderr(line.view());
  // A paused thread may hold a lock that the symbolizer needs; the line above says the most.
  base::arm_deadline(10);
  void* pcs[64];
  base::print_stack(pcs, base::capture(pcs, 64, 1));
  std::abort();
}

// Called first by everything below.
inline void check(const char* function) {
  const sched::machine* const m = sched::this_machine();
  if (m == nullptr || !m->seat.inside_hint()) [[likely]]
    return;
  // relaxed: a thread that dies sets them before it does what is forbidden. What other threads do
  // meanwhile does not matter any more.
  if (dying.load(std::memory_order_relaxed) || base::last_words_begun() ||
      sched::the_scheduler.stopping.load(std::memory_order_relaxed)) {
    return;
  }
  die(function);
}

using any_function = void (*)();

// The definition that would have been found without ours.
any_function look_up(const char* name) {
  using look = void* (*)(void*, const char*);
  static std::atomic<look> real{nullptr};
  look f = real.load(std::memory_order_relaxed);  // everybody finds the same one
  if (f == nullptr) {
    // dlsym itself is defined here, and would find itself.
    void* found = nullptr;
    for (const char* const version : {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"}) {
      if (found == nullptr) found = ::dlvsym(RTLD_NEXT, "dlsym", version);
    }
    f = reinterpret_cast<look>(found);
    if (f == nullptr) std::abort();
    real.store(f, std::memory_order_relaxed);
  }
  void* const found = f(RTLD_NEXT, name);
  if (found == nullptr) std::abort();
  return reinterpret_cast<any_function>(found);
}

// A function of a library, looked up at the start of the program, or at its first use by an
// initializer that runs before ours. The second argument, the one of that name here, only gives the
// type.
template <class F>
class original {
 public:
  constexpr explicit original(const char* name, F* = nullptr) : name_(name) {}
  F* get() {
    any_function f = found_.load(std::memory_order_relaxed);  // everybody finds the same one
    if (f == nullptr) {
      f = look_up(name_);
      found_.store(f, std::memory_order_relaxed);
    }
    return reinterpret_cast<F*>(f);
  }

 private:
  const char* const name_;
  std::atomic<any_function> found_{nullptr};
};

#define WEFT_ORIGINAL(name) constinit original real_##name(#name, &::name)

WEFT_ORIGINAL(pthread_create);
WEFT_ORIGINAL(pthread_join);
WEFT_ORIGINAL(pthread_once);
WEFT_ORIGINAL(pthread_mutex_lock);
WEFT_ORIGINAL(pthread_mutex_trylock);
WEFT_ORIGINAL(pthread_rwlock_rdlock);
WEFT_ORIGINAL(pthread_rwlock_wrlock);
WEFT_ORIGINAL(fopen);
WEFT_ORIGINAL(fclose);
WEFT_ORIGINAL(fread);
WEFT_ORIGINAL(fwrite);
WEFT_ORIGINAL(fgets);
WEFT_ORIGINAL(fputs);
WEFT_ORIGINAL(fputc);
WEFT_ORIGINAL(puts);
WEFT_ORIGINAL(putchar);
WEFT_ORIGINAL(fflush);
WEFT_ORIGINAL(vprintf);
WEFT_ORIGINAL(vfprintf);
WEFT_ORIGINAL(dlopen);
WEFT_ORIGINAL(dlclose);
WEFT_ORIGINAL(dlsym);
WEFT_ORIGINAL(dl_iterate_phdr);
WEFT_ORIGINAL(_Unwind_RaiseException);
WEFT_ORIGINAL(_Unwind_ForcedUnwind);
#undef WEFT_ORIGINAL
// The headers do not declare these, or not so that their types can be had.
constinit original<int(int, const char*, std::va_list)> real_vprintf_chk("__vprintf_chk");
constinit original<int(std::FILE*, int, const char*, std::va_list)> real_vfprintf_chk(
    "__vfprintf_chk");
constinit original<void(void*, std::type_info*, void (*)(void*))> real_cxa_throw("__cxa_throw");
constinit original<int(abi::__guard*)> real_cxa_guard_acquire("__cxa_guard_acquire");

template <class... Original>
void look_up_all(Original&... all) {
  (static_cast<void>(all.get()), ...);
}

// Threads may run as soon as main does, and a look-up takes the loader's lock.
[[gnu::constructor]] void find_originals() {
  look_up_all(real_pthread_create, real_pthread_join, real_pthread_once, real_pthread_mutex_lock,
              real_pthread_mutex_trylock, real_pthread_rwlock_rdlock, real_pthread_rwlock_wrlock,
              real_fopen, real_fclose, real_fread, real_fwrite, real_fgets, real_fputs, real_fputc,
              real_puts, real_putchar, real_fflush, real_vprintf, real_vfprintf, real_dlopen,
              real_dlclose, real_dlsym, real_dl_iterate_phdr, real__Unwind_RaiseException,
              real__Unwind_ForcedUnwind, real_vprintf_chk, real_vfprintf_chk, real_cxa_throw,
              real_cxa_guard_acquire);
}

}  // namespace

extern "C" {

// ------------------------------------------------------------------------------------- the heap

void* malloc(std::size_t n) noexcept {
  check("malloc");
  return __libc_malloc(n);
}

void* calloc(std::size_t n, std::size_t size) noexcept {
  check("calloc");
  return __libc_calloc(n, size);
}

void* realloc(void* old, std::size_t n) noexcept {
  check("realloc");
  return __libc_realloc(old, n);
}

void free(void* block) noexcept {
  check("free");
  __libc_free(block);
}

void* memalign(std::size_t alignment, std::size_t n) noexcept {
  check("memalign");
  return __libc_memalign(alignment, n);
}

void* aligned_alloc(std::size_t alignment, std::size_t n) noexcept {
  check("aligned_alloc");
  return __libc_memalign(alignment, n);
}

int posix_memalign(void** out, std::size_t alignment, std::size_t n) noexcept {
  check("posix_memalign");
  if (alignment % sizeof(void*) != 0 || (alignment & (alignment - 1)) != 0 || alignment == 0) {
    return EINVAL;
  }
  const int saved = errno;
  void* const block = __libc_memalign(alignment, n);
  errno = saved;
  if (block == nullptr) return ENOMEM;
  *out = block;
  return 0;
}

// ---------------------------------------------------------------------------- threads and locks

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*main)(void*),
                   void* argument) noexcept {
  check("pthread_create");
  return real_pthread_create.get()(thread, attributes, main, argument);
}

int pthread_join(pthread_t thread, void** result) {
  check("pthread_join");
  return real_pthread_join.get()(thread, result);
}

int pthread_once(pthread_once_t* once, void (*call)()) {
  check("pthread_once");
  return real_pthread_once.get()(once, call);
}

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  check("pthread_mutex_lock");
  return real_pthread_mutex_lock.get()(mutex);
}

int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  check("pthread_mutex_trylock");
  return real_pthread_mutex_trylock.get()(mutex);
}

int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept {
  check("pthread_rwlock_rdlock");
  return real_pthread_rwlock_rdlock.get()(lock);
}

int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept {
  check("pthread_rwlock_wrlock");
  return real_pthread_rwlock_wrlock.get()(lock);
}

// ---------------------------------------------------------------------------------------- stdio

std::FILE* fopen(const char* path, const char* mode) {
  check("fopen");
  return real_fopen.get()(path, mode);
}

// libstdc++ calls it by this name.
std::FILE* fopen64(const char* path, const char* mode) {
  check("fopen64");
  return real_fopen.get()(path, mode);
}

int fclose(std::FILE* file) {
  check("fclose");
  return real_fclose.get()(file);
}

std::size_t fread(void* data, std::size_t size, std::size_t n, std::FILE* file) {
  check("fread");
  return real_fread.get()(data, size, n, file);
}

std::size_t fwrite(const void* data, std::size_t size, std::size_t n, std::FILE* file) {
  check("fwrite");
  return real_fwrite.get()(data, size, n, file);
}

char* fgets(char* line, int n, std::FILE* file) {
  check("fgets");
  return real_fgets.get()(line, n, file);
}

int fputs(const char* text, std::FILE* file) {
  check("fputs");
  return real_fputs.get()(text, file);
}

int fputc(int c, std::FILE* file) {
  check("fputc");
  return real_fputc.get()(c, file);
}

// What putc is, a function of its own.
int putc(int c, std::FILE* file) {
  check("putc");
  return real_fputc.get()(c, file);
}

int puts(const char* text) {
  check("puts");
  return real_puts.get()(text);
}

int putchar(int c) {
  check("putchar");
  return real_putchar.get()(c);
}

int fflush(std::FILE* file) {
  check("fflush");
  return real_fflush.get()(file);
}

int vprintf(const char* format, std::va_list arguments) {
  check("vprintf");
  return real_vprintf.get()(format, arguments);
}

int vfprintf(std::FILE* file, const char* format, std::va_list arguments) {
  check("vfprintf");
  return real_vfprintf.get()(file, format, arguments);
}

int printf(const char* format, ...) {
  check("printf");
  std::va_list arguments;
  va_start(arguments, format);
  const int n = real_vprintf.get()(format, arguments);
  va_end(arguments);
  return n;
}

int fprintf(std::FILE* file, const char* format, ...) {
  check("fprintf");
  std::va_list arguments;
  va_start(arguments, format);
  const int n = real_vfprintf.get()(file, format, arguments);
  va_end(arguments);
  return n;
}

// What the four are called where _FORTIFY_SOURCE is on.
int __vprintf_chk(int flag, const char* format, std::va_list arguments) {
  check("__vprintf_chk");
  return real_vprintf_chk.get()(flag, format, arguments);
}

int __vfprintf_chk(std::FILE* file, int flag, const char* format, std::va_list arguments) {
  check("__vfprintf_chk");
  return real_vfprintf_chk.get()(file, flag, format, arguments);
}

int __printf_chk(int flag, const char* format, ...) {
  check("__printf_chk");
  std::va_list arguments;
  va_start(arguments, format);
  const int n = real_vprintf_chk.get()(flag, format, arguments);
  va_end(arguments);
  return n;
}

int __fprintf_chk(std::FILE* file, int flag, const char* format, ...) {
  check("__fprintf_chk");
  std::va_list arguments;
  va_start(arguments, format);
  const int n = real_vfprintf_chk.get()(file, flag, format, arguments);
  va_end(arguments);
  return n;
}

// ----------------------------------------------------------------------------------- the loader

void* dlopen(const char* file, int mode) noexcept {
  check("dlopen");
  return real_dlopen.get()(file, mode);
}

int dlclose(void* library) noexcept {
  check("dlclose");
  return real_dlclose.get()(library);
}

void* dlsym(void* library, const char* name) noexcept {
  check("dlsym");
  return real_dlsym.get()(library, name);
}

int dl_iterate_phdr(int (*callback)(dl_phdr_info*, std::size_t, void*), void* data) {
  check("dl_iterate_phdr");
  return real_dl_iterate_phdr.get()(callback, data);
}

// ----------------------------------------------------------------------- exceptions and statics

_Unwind_Reason_Code _Unwind_RaiseException(_Unwind_Exception* thrown) {
  check("_Unwind_RaiseException");
  return real__Unwind_RaiseException.get()(thrown);
}

_Unwind_Reason_Code _Unwind_ForcedUnwind(_Unwind_Exception* thrown, _Unwind_Stop_Fn stop,
                                         void* argument) {
  check("_Unwind_ForcedUnwind");
  return real__Unwind_ForcedUnwind.get()(thrown, stop, argument);
}
}

// As libstdc++ declares them.
namespace __cxxabiv1 {
extern "C" {

void __cxa_throw(void* thrown, std::type_info* type, void (*destroy)(void*)) {
  check("__cxa_throw");
  real_cxa_throw.get()(thrown, type, destroy);
  __builtin_unreachable();
}

// The first use of a static variable in a function: the second thread to come waits.
int __cxa_guard_acquire(__guard* guard) {
  check("__cxa_guard_acquire");
  return real_cxa_guard_acquire.get()(guard);
}
}
}  // namespace __cxxabiv1
