// bare_fiber.hpp: a stack of its own that starts in weft_goroutine_entry, and nothing more, for
// tests of what lies below the scheduler: unwinding, backtraces, the entry itself.
#pragma once

#include "arch/entry.hpp"
#include "base/backtrace.hpp"
#include "base/check.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#define WEFT_TEST_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define WEFT_TEST_TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WEFT_TEST_ASAN 1
#elif __has_feature(thread_sanitizer)
#define WEFT_TEST_TSAN 1
#endif
#endif
#if WEFT_TEST_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#elif WEFT_TEST_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace weft::test {

// The thread that made it resumes it; it suspends itself, and finally leaves.
class bare_fiber {
 public:
  using function = void (*)(void* arg);

  // Nothing runs before the first resume(). `f` must call started() first, and leave() instead of
  // returning.
  bare_fiber(function f, void* arg, std::size_t stack_bytes = 256 * 1024)
      : size_(stack_bytes), guard_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))) {
    void* const at =
        ::mmap(nullptr, guard_ + size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    WEFT_CHECK(at != MAP_FAILED);
    base_ = static_cast<std::byte*>(at);
    WEFT_CHECK(::mprotect(base_, guard_, PROT_NONE) == 0);
    self_.frame.pc = reinterpret_cast<void*>(&weft_goroutine_entry);
    self_.frame.sp = stack_end();
    self_.function = reinterpret_cast<void*>(f);
    self_.argument = arg;
#if WEFT_TEST_TSAN
    tsan_self_ = __tsan_create_fiber(0);
#endif
  }
  ~bare_fiber() {
    forget_red_zones();  // the address may be used again
#if WEFT_TEST_TSAN
    __tsan_destroy_fiber(tsan_self_);
#endif
    ::munmap(base_, guard_ + size_);
  }
  bare_fiber(const bare_fiber&) = delete;
  bare_fiber& operator=(const bare_fiber&) = delete;

  // Runs it until it suspends itself or leaves.
  void resume() {
    bare_fiber* const outer = current_;
    current_ = this;
#if WEFT_TEST_ASAN
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, stack_begin(), size_);
#elif WEFT_TEST_TSAN
    tsan_owner_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(tsan_self_, 0);
#endif
    switch_context(&owner_, &self_);
#if WEFT_TEST_ASAN
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
    current_ = outer;
  }

  // From inside.
  static void started() {
#if WEFT_TEST_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &current_->owner_bottom_, &current_->owner_size_);
#endif
  }

  // From inside: goes back to the thread that resumed this fiber.
  static void suspend() {
    bare_fiber& f = *current_;
#if WEFT_TEST_ASAN
    __sanitizer_start_switch_fiber(&f.fake_, f.owner_bottom_, f.owner_size_);
#elif WEFT_TEST_TSAN
    __tsan_switch_to_fiber(f.tsan_owner_, 0);
#endif
    switch_context(&f.self_, &f.owner_);
#if WEFT_TEST_ASAN
    __sanitizer_finish_switch_fiber(f.fake_, &f.owner_bottom_, &f.owner_size_);
#endif
  }

  // From inside: goes back for ever.
  [[noreturn]] static void leave() {
    bare_fiber& f = *current_;
#if WEFT_TEST_ASAN
    __sanitizer_start_switch_fiber(nullptr, f.owner_bottom_, f.owner_size_);
#elif WEFT_TEST_TSAN
    __tsan_switch_to_fiber(f.tsan_owner_, 0);
#endif
    switch_context(&f.self_, &f.owner_);
    __builtin_trap();
  }

  // From a signal handler that is about to jump back to the fiber: the frames in between are not
  // going to clean up after themselves.
  static void before_jump_back() {
    if (current_ != nullptr) current_->forget_red_zones();
  }

  // Where it goes on when resumed.
  const base::saved_frame& parked_at() const { return self_.frame; }
  std::byte* stack_begin() const { return base_ + guard_; }
  std::byte* stack_end() const { return base_ + guard_ + size_; }

 private:
  struct context {
    base::saved_frame frame;
    void* function = nullptr;  // only the entry reads it
    void* argument = nullptr;
  };
  static_assert(offsetof(context, function) == 32 && offsetof(context, argument) == 40);

  void forget_red_zones() {
#if WEFT_TEST_ASAN
    __asan_unpoison_memory_region(stack_begin(), size_);
#endif
  }

  // Everything a function may expect to keep is clobbered, so the compiler saves it in the frame.
  [[gnu::noinline]] static void switch_context(context* from, const context* to) {
#if defined(__x86_64__)
    asm volatile(
        "leaq 1f(%%rip), %%rax\n\t"
        "movq %%rax, 0(%0)\n\t"
        "movq %%rsp, 8(%0)\n\t"
        "movq %%rbp, 16(%0)\n\t"
        "movq 8(%1), %%rsp\n\t"
        "movq 16(%1), %%rbp\n\t"
        "movq 32(%1), %%r12\n\t"
        "movq 40(%1), %%r13\n\t"
        "jmpq *0(%1)\n"
        "1: endbr64"
        : "+D"(from), "+S"(to)
        :
        : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
          "memory", "cc");
#elif defined(__aarch64__)
    register context* x0 asm("x0") = from;
    register const context* x1 asm("x1") = to;
    asm volatile(
        "adr x9, 1f\n\t"
        "mov x10, sp\n\t"
        "stp x9, x10, [%0]\n\t"
        "str x29, [%0, #16]\n\t"
        "ldp x9, x10, [%1]\n\t"
        "ldr x29, [%1, #16]\n\t"
        "ldp x19, x20, [%1, #32]\n\t"
        "mov sp, x10\n\t"
        "br x9\n"
        "1: hint #36"
        : "+r"(x0), "+r"(x1)
        :
        : "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15",
          "x16", "x17", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x30",
          "d8", "d9", "d10", "d11", "d12", "d13", "d14", "d15", "memory", "cc");
#else
#error "unknown architecture"
#endif
  }

  std::size_t size_;
  std::size_t guard_;
  std::byte* base_ = nullptr;
  context self_;
  context owner_;
#if WEFT_TEST_ASAN
  void* fake_ = nullptr;
  const void* owner_bottom_ = nullptr;
  std::size_t owner_size_ = 0;
#elif WEFT_TEST_TSAN
  void* tsan_self_ = nullptr;
  void* tsan_owner_ = nullptr;
#endif
  static inline thread_local bare_fiber* current_ = nullptr;
};

}  // namespace weft::test
