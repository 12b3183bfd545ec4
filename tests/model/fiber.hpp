// fiber.hpp: the stacks on which the explorer (explore.hpp) runs the threads of a model.
//
// All of them belong to one OS thread, so switching is the only way in which they take turns and
// an execution is repeatable. ucontext does the work: it is portable, and at 0.2 us a switch it is
// not what an exploration waits for. ASan and TSan are told of every switch.
//
// Under ASan swapcontext is avoided, because its interceptor unpoisons the whole stack it goes to
// and warns that it may report nonsense; getcontext and setcontext are not intercepted.
#pragma once

#include "base/sanitizer.hpp"

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <ucontext.h>

namespace weft::model {

class fiber {
 public:
  enum class leaving { for_now, for_good };

  // The stack the caller is on. start() gives a fiber one of its own.
  fiber() noexcept = default;
  fiber(const fiber&) = delete;
  fiber& operator=(const fiber&) = delete;

  ~fiber() {
    if (stack_ == nullptr) return;
    base::sanitizer::destroy_fiber(tsan_);
    ::munmap(stack_ - guard_bytes, guard_bytes + stack_bytes);
  }

  // Makes the next switch to this fiber call entry(argument), which must not return. Whatever was
  // on its stack before is forgotten; no destructor runs.
  void start(void (*entry)(void*), void* argument) {
    if (stack_ == nullptr) {
      void* memory = ::mmap(nullptr, guard_bytes + stack_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (memory == MAP_FAILED || ::mprotect(memory, guard_bytes, PROT_NONE) != 0) {
        std::perror("model: no memory for a stack");
        std::abort();
      }
      stack_ = static_cast<char*>(memory) + guard_bytes;
    }
    entry_ = entry;
    argument_ = argument;
    ::getcontext(&context_);
    context_.uc_stack.ss_sp = stack_;
    context_.uc_stack.ss_size = stack_bytes;
    context_.uc_link = nullptr;
    ::makecontext(&context_, &fiber::begin, 0);
    base::sanitizer::unpoison(stack_, stack_bytes);
    bottom_ = stack_;
    size_ = stack_bytes;
    fake_stack_ = nullptr;
    if (tsan_ != nullptr) base::sanitizer::destroy_fiber(tsan_);
    tsan_ = base::sanitizer::create_fiber();
  }

  // Goes on with `next`. *this must be the fiber that runs. Returns when something switches back,
  // which must not happen after leaving::for_good.
  void switch_to(fiber& next, leaving how = leaving::for_now) {
    from_ = this;
    to_ = &next;
    base::sanitizer::start_switch(how == leaving::for_good ? nullptr : &fake_stack_, next.bottom_,
                                  next.size_);
    if (tsan_ == nullptr) tsan_ = base::sanitizer::current_fiber();
    base::sanitizer::switch_to_fiber(next.tsan_, base::sanitizer::fiber_sync::happens_before);
#if WEFT_ASAN
    volatile bool left = false;  // getcontext returns twice
    ::getcontext(&context_);
    if (!left) {
      left = true;
      ::setcontext(&next.context_);
    }
#else
    ::swapcontext(&context_, &next.context_);
#endif
    arrive();
  }

 private:
  static constexpr std::size_t guard_bytes = 64 * 1024;  // a whole page everywhere
  static constexpr std::size_t stack_bytes = 512 * 1024;

  static void begin() {
    fiber& self = *to_;
    self.arrive();
    self.entry_(self.argument_);
    std::abort();
  }

  void arrive() {
    // The bounds of the stack we come from are news only if it is the caller's.
    base::sanitizer::finish_switch(fake_stack_, &from_->bottom_, &from_->size_);
  }

  // The last switch: from where and to where. makecontext hands over integers only.
  static inline thread_local fiber* from_ = nullptr;
  static inline thread_local fiber* to_ = nullptr;

  ucontext_t context_{};
  char* stack_ = nullptr;  // null: the caller's stack
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  const void* bottom_ = nullptr;
  std::size_t size_ = 0;
  void* fake_stack_ = nullptr;
  void* tsan_ = nullptr;
};

}  // namespace weft::model
