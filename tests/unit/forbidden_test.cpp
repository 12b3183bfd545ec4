// forbidden_test.cpp: that the watch over what is called inside the runtime (support/forbidden.cpp)
// can fail: every function it forbids is fatal inside and works outside.
#include "base/fatal.hpp"
#include "sched/enter.hpp"
#include "sched/scheduler.hpp"

#include <weft/go.hpp>

#include <gtest/gtest.h>

#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cxxabi.h>
#include <dlfcn.h>
#include <link.h>
#include <malloc.h>
#include <new>
#include <ostream>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <unwind.h>
#include <vector>

extern "C" {
int __printf_chk(int flag, const char* format, ...);
int __fprintf_chk(std::FILE* file, int flag, const char* format, ...);
int __vprintf_chk(int flag, const char* format, std::va_list arguments);
int __vfprintf_chk(std::FILE* file, int flag, const char* format, std::va_list arguments);
}

namespace {

// What a compiler must not see through: a malloc whose block is freed again may be left out.
template <class T>
void keep(T& value) {
  asm volatile("" : : "r"(&value) : "memory");
}

// Made before anything is entered.
struct things {
  void* block = std::malloc(100);
  std::FILE* null = std::fopen("/dev/null", "r+");
  void* library = ::dlopen("libm.so.6", RTLD_NOW);
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
  pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_t thread{};
  char line[16] = "";
};

struct forbidden_call {
  const char* name;  // as the message has it
  void (*call)(things&);
};
std::ostream& operator<<(std::ostream& out, const forbidden_call& c) { return out << c.name; }

void print_list(int (*print)(const char*, std::va_list), const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  print(format, arguments);
  va_end(arguments);
}

std::FILE* list_file = nullptr;

int answer() { return 42; }

const std::vector<forbidden_call> calls{
    {"malloc",
     [](things&) {
       void* p = std::malloc(10);
       keep(p);
       std::free(p);
     }},
    {"malloc",  // by operator new
     [](things&) {
       int* p = new int(1);
       keep(p);
       delete p;
     }},
    {"calloc",
     [](things&) {
       void* p = std::calloc(10, 10);
       keep(p);
       std::free(p);
     }},
    {"realloc",
     [](things& t) {
       t.block = std::realloc(t.block, 100'000);
       keep(t.block);
     }},
    {"free",
     [](things& t) {
       std::free(t.block);
       t.block = nullptr;
     }},
    {"memalign",
     [](things&) {
       void* p = ::memalign(64, 640);
       keep(p);
       std::free(p);
     }},
    {"aligned_alloc",
     [](things&) {
       void* p = std::aligned_alloc(64, 640);
       keep(p);
       std::free(p);
     }},
    {"posix_memalign",
     [](things&) {
       void* p = nullptr;
       if (::posix_memalign(&p, 64, 640) != 0 || p == nullptr) throw std::bad_alloc();
       keep(p);
       std::free(p);
     }},
    {"pthread_create",
     [](things& t) {
       ::pthread_create(&t.thread, nullptr, [](void*) -> void* { return nullptr; }, nullptr);
       ::pthread_join(t.thread, nullptr);
     }},
    {"pthread_once", [](things& t) { ::pthread_once(&t.once, [] {}); }},
    {"pthread_mutex_lock",
     [](things& t) {
       ::pthread_mutex_lock(&t.mutex);
       ::pthread_mutex_unlock(&t.mutex);
     }},
    {"pthread_mutex_trylock",
     [](things& t) {
       ::pthread_mutex_trylock(&t.mutex);
       ::pthread_mutex_unlock(&t.mutex);
     }},
    {"pthread_rwlock_rdlock",
     [](things& t) {
       ::pthread_rwlock_rdlock(&t.lock);
       ::pthread_rwlock_unlock(&t.lock);
     }},
    {"pthread_rwlock_wrlock",
     [](things& t) {
       ::pthread_rwlock_wrlock(&t.lock);
       ::pthread_rwlock_unlock(&t.lock);
     }},
    {"fopen", [](things&) { std::fclose(std::fopen("/dev/null", "r")); }},
    {"fclose",
     [](things& t) {
       std::fclose(t.null);
       t.null = nullptr;
     }},
    {"fread",
     [](things& t) {
       if (std::fread(t.line, 1, 10, t.null) != 0) std::abort();
     }},
    {"fwrite",
     [](things& t) {
       if (std::fwrite("text", 1, 4, t.null) != 4) std::abort();
     }},
    {"fgets",
     [](things& t) {
       if (std::fgets(t.line, 10, t.null) != nullptr) std::abort();
     }},
    {"fputs", [](things& t) { std::fputs(t.line, t.null); }},
    {"fputc", [](things& t) { std::fputc('a', t.null); }},
    {"putc", [](things& t) { (putc)('a', t.null); }},
    {"puts", [](things&) { std::puts("puts"); }},
    {"putchar",
     [](things&) {
       int (*volatile put)(int) = &std::putchar;  // the function, not the inline one
       put('\n');
     }},
    {"fflush", [](things& t) { std::fflush(t.null); }},
    {"vprintf", [](things&) { print_list(&std::vprintf, "%s\n", "vprintf"); }},
    {"vfprintf",
     [](things& t) {
       list_file = t.null;
       print_list(
           [](const char* format, std::va_list arguments) {
             return std::vfprintf(list_file, format, arguments);
           },
           "%d", 1);
     }},
    {"printf", [](things&) { std::printf("%s: %d\n", "printf", 1); }},
    {"fprintf", [](things& t) { std::fprintf(t.null, "%d", 1); }},
    {"__printf_chk", [](things&) { __printf_chk(1, "%s\n", "__printf_chk"); }},
    {"__fprintf_chk", [](things& t) { __fprintf_chk(t.null, 1, "%d", 1); }},
    {"__vprintf_chk",
     [](things&) {
       print_list([](const char* format,
                     std::va_list arguments) { return __vprintf_chk(1, format, arguments); },
                  "%s\n", "__vprintf_chk");
     }},
    {"__vfprintf_chk",
     [](things& t) {
       list_file = t.null;
       print_list(
           [](const char* format, std::va_list arguments) {
             return __vfprintf_chk(list_file, 1, format, arguments);
           },
           "%d", 1);
     }},
    {"dlopen", [](things&) { ::dlclose(::dlopen("libm.so.6", RTLD_NOW)); }},
    {"dlclose", [](things& t) { ::dlclose(t.library); }},
    {"dlsym",
     [](things& t) {
       if (::dlsym(t.library, "cos") == nullptr) std::abort();
     }},
    {"dl_iterate_phdr",
     [](things&) {
       ::dl_iterate_phdr([](dl_phdr_info*, std::size_t, void*) { return 1; }, nullptr);
     }},
    {"malloc",  // of the exception object, before it is thrown
     [](things&) {
       try {
         throw std::runtime_error("thrown");
       } catch (const std::runtime_error&) {
       }
     }},
    {"__cxa_guard_acquire",
     [](things&) {
       static const int value = answer();
       keep(value);
     }},
};

template <class F>
void in_goroutine(F f) {
  weft::run([&] { f(); });
}

class forbidden : public ::testing::TestWithParam<forbidden_call> {
 protected:
  // A child of fork has no machines: it is to be a program of its own.
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

// If one of them gets through, tests no longer tell that the runtime calls it, and programs hang.
TEST_P(forbidden, is_fatal_inside) {
  EXPECT_EXIT(in_goroutine([] {
                things t;
                (void)weft::sched::enter();
                GetParam().call(t);
              }),
              ::testing::KilledBySignal(SIGABRT),
              std::string("forbidden: ") + GetParam().name + " was called inside the runtime");
}

// And tests must be able to go on using it, in goroutines.
TEST_P(forbidden, is_allowed_outside) {
  in_goroutine([] {
    things t;
    weft::sched::leave(weft::sched::enter());
    GetParam().call(t);
  });
}

std::string name_of(const ::testing::TestParamInfo<forbidden_call>& info) {
  return std::to_string(info.index) + "_" + info.param.name;
}
INSTANTIATE_TEST_SUITE_P(calls, forbidden, ::testing::ValuesIn(calls), &name_of);

struct unwinding {
  // Made outside: only the throw itself is left to be done inside.
  unwinding() : object(abi::__cxa_allocate_exception(sizeof(int))) {
    *static_cast<int*>(object) = 1;
    foreign.exception_class = 0x7465737400000000;
    foreign.exception_cleanup = [](_Unwind_Reason_Code, _Unwind_Exception*) {};
  }
  void* object;
  _Unwind_Exception foreign{};
};

class forbidden_throw : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(forbidden_throw, of_an_object_that_was_made_before) {
  EXPECT_EXIT(in_goroutine([] {
                unwinding u;
                (void)weft::sched::enter();
                abi::__cxa_throw(u.object, const_cast<std::type_info*>(&typeid(int)), nullptr);
              }),
              ::testing::KilledBySignal(SIGABRT),
              "forbidden: __cxa_throw was called inside the runtime");
}

TEST_F(forbidden_throw, of_another_language) {
  EXPECT_EXIT(in_goroutine([] {
                unwinding u;
                (void)weft::sched::enter();
                _Unwind_RaiseException(&u.foreign);
              }),
              ::testing::KilledBySignal(SIGABRT),
              "forbidden: _Unwind_RaiseException was called inside the runtime");
}

TEST_F(forbidden_throw, that_only_unwinds) {
  EXPECT_EXIT(in_goroutine([] {
                unwinding u;
                (void)weft::sched::enter();
                _Unwind_ForcedUnwind(
                    &u.foreign,
                    [](int, _Unwind_Action, _Unwind_Exception_Class, _Unwind_Exception*,
                       _Unwind_Context*, void*) { return _URC_NO_REASON; },
                    nullptr);
              }),
              ::testing::KilledBySignal(SIGABRT),
              "forbidden: _Unwind_ForcedUnwind was called inside the runtime");
}

// A report that ends the process symbolizes and allocates, wherever its thread stood.
TEST_F(forbidden_throw, last_words_may_do_anything) {
  EXPECT_EXIT(in_goroutine([] {
                (void)weft::sched::enter();
                weft::base::begin_last_words();
                void* p = std::malloc(10);
                keep(p);
                weft::base::fatal("the end");
              }),
              ::testing::ExitedWithCode(2), "weft: fatal: the end");
}

// The message alone does not tell the caller.
TEST_F(forbidden_throw, the_report_has_a_backtrace) {
  EXPECT_EXIT(in_goroutine([] {
                (void)weft::sched::enter();
                void* p = std::malloc(10);
                keep(p);
              }),
              ::testing::KilledBySignal(SIGABRT), "forbidden_test\\.cpp:[0-9]+");
}

}  // namespace
