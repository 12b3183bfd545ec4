// backtrace.hpp: the return addresses on the caller's stack, on a parked stack, or on one that a
// signal interrupted; and the name of the exception that is being handled.
//
// The functions called capture... make a list of addresses, innermost frame first. Each address
// lies *behind* the instruction that it stands for, as a return address lies behind its call. If a
// frame stopped before an instruction (because a signal interrupted it, or its context is parked),
// the list has its program counter plus one. So code that looks an address up may always subtract
// one.
//
// libgcc walks the stack by the compiler's unwind tables (.eh_frame). If it uses _dl_find_object
// (GCC 12 with glibc 2.35), and the program registers no unwind tables at run time (as JIT
// compilers do), it neither allocates nor takes a lock. Otherwise it takes the loader's lock or
// its own, and with registered tables it may allocate. prepare_backtrace() makes the unwinder do
// its first-use work early.
#pragma once

#include "base/fatal.hpp"

#include <cstddef>
#include <cstdint>
#include <ucontext.h>

namespace weft::base {

// Where a context that does not run will go on, and the registers from which its stack is walked.
// The other callee-saved registers are left out: compilers compute no frame from them.
struct saved_frame {
  void* pc = nullptr;  // the instruction that runs next; no call need lie before it
  void* sp = nullptr;
  void* fp = nullptr;
  void* lr = nullptr;  // aarch64: the link register of code that a signal interrupted; else null
};

// The two ends of a stack that is too deep to keep as a whole. An endless recursion shows in the
// frames that repeat and in those that began it.
struct long_stack {
  static constexpr std::size_t end_size = 64;

  void* inner[end_size];       // the innermost frames: min(total, end_size) of them
  void* outer[end_size];       // the outermost of the other frames, in the order of the stack
  std::size_t total = 0;       // how many frames the stack has
  std::size_t outer_size = 0;  // how many entries `outer` has
};

// Does the lazy binding and the first-use initialisation that captures need. After it, signal
// handlers and code inside the runtime may capture stacks.
void prepare_backtrace() noexcept;

// Writes the addresses of the stack on which it is called, without the `skip` innermost frames.
// With skip 0 the caller's own frame comes first.
// Returns: how many addresses were written, at most `max`.
[[gnu::noinline]] std::size_t capture(void** pcs, std::size_t max, std::size_t skip) noexcept;

// Like capture(), for the frame `at` and its callers. Their stack is only read. Any thread may call
// this. Requires: none of these frames runs meanwhile.
std::size_t capture_from(const saved_frame& at, void** pcs, std::size_t max) noexcept;

// Like capture(), for the code that a signal interrupted. To be called by the signal's handler,
// which may run on any stack; `ucontext` is the handler's third argument. The frames of the handler
// and of the signal trampoline are left out.
std::size_t capture_interrupted(const void* ucontext, void** pcs, std::size_t max) noexcept;
void capture_interrupted(const void* ucontext, long_stack& out) noexcept;

// Returns: where the interrupted code stopped that `ucontext` describes. With that, capture_from()
// can look at another thread, which is paused in a signal handler.
saved_frame frame_of(const void* ucontext) noexcept;

// Returns: where the interrupted code stopped, only the program counter. Always inlined, for
// handlers that must call nothing.
[[gnu::always_inline]] inline std::uintptr_t interrupted_pc(const void* ucontext) noexcept {
  const mcontext_t& m = static_cast<const ucontext_t*>(ucontext)->uc_mcontext;
#if defined(__x86_64__)
  return static_cast<std::uintptr_t>(m.gregs[REG_RIP]);
#else
  return static_cast<std::uintptr_t>(m.pc);
#endif
}

// Whether the instruction at `pc`, or the one before it, is a system call. So the code that was
// interrupted at `pc` was in a system call, has just left one, or is about to make or repeat one.
// Inlined like interrupted_pc().
[[gnu::always_inline]] inline bool is_at_system_call(std::uintptr_t pc) noexcept {
#if defined(__x86_64__)
  constexpr std::uintptr_t length = 2;
  const auto is_call = [](std::uintptr_t at) {
    const auto* const code = reinterpret_cast<const unsigned char*>(at);
    return code[0] == 0x0f && code[1] == 0x05;
  };
#else
  constexpr std::uintptr_t length = 4;
  const auto is_call = [](std::uintptr_t at) {
    return *reinterpret_cast<const std::uint32_t*>(at) == 0xd4000001;
  };
#endif
  return is_call(pc) || is_call(pc - length);
}

// Appends a description of the exception that is being handled: "std::runtime_error: boom", or only
// the type if the exception is no std::exception or says nothing, or "an exception of another
// language". Allocates, to demangle the type's name.
// Returns: false, and appends nothing, if no exception is being handled.
bool describe_exception(text& out) noexcept;

}  // namespace weft::base
