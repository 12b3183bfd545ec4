// backtrace.hpp: the return addresses on a stack, one's own or another, parked one; and the name of
// the exception being handled.
//
// Every function here fills in a list of addresses, innermost frame first. Each address lies
// *behind* the instruction that it stands for, as a return address lies behind its call. A frame
// that stopped before an instruction (one that a signal interrupted, or a parked context) is
// entered as its program counter plus one. So code that looks an address up may always subtract
// one.
//
// Unwinding follows the compiler's unwind tables (.eh_frame), through libgcc. It allocates nothing
// and, where the C library has _dl_find_object (glibc 2.35), takes no lock; with an older glibc it
// takes the loader's lock for reading. prepare_backtrace() does the unwinder's first-use work
// early.
#pragma once

#include "base/fatal.hpp"

#include <cstddef>
#include <cstdint>
#include <ucontext.h>

namespace weft::base {

// Where a context that does not run will go on, and what it takes to walk its stack from there.
// The other callee-saved registers are not needed: no unwind table computes a frame from them.
struct saved_frame {
  void* pc = nullptr;  // the next instruction, not the one behind a call
  void* sp = nullptr;
  void* fp = nullptr;
  void* lr = nullptr;  // the link register of an interrupted leaf; nobody's on x86-64 and when
                       // parked by a switch that clobbers it
};

// The two ends of a stack too deep to keep: an endless recursion is understood from the frames that
// repeat and those that started it.
struct long_stack {
  static constexpr std::size_t end_size = 64;

  void* inner[end_size];       // the first min(total, end_size) frames
  void* outer[end_size];       // the last min(total - end_size, end_size) of those left, same order
  std::size_t total = 0;       // frames there were
  std::size_t outer_size = 0;  // entries of `outer`
};

// Makes later calls free of lazy binding and first-use initialisation, so that they are fit for
// signal handlers and for inside the scheduler.
void prepare_backtrace() noexcept;

// Writes the return addresses of the calling context, the caller's own frame first, leaving out the
// `skip` innermost ones.
// Returns: how many were written, at most `max`.
[[gnu::noinline]] std::size_t capture(void** pcs, std::size_t max, std::size_t skip) noexcept;

// Like capture(), for a stack on which nothing runs meanwhile. That stack is read and never
// written. Any thread may call this.
std::size_t capture_from(const saved_frame& at, void** pcs, std::size_t max) noexcept;

// Like capture(), for the code that a signal interrupted. The handler calls this, on any stack.
// `ucontext` is the handler's third argument. The frames of the handler and the signal trampoline
// are left out.
std::size_t capture_interrupted(const void* ucontext, void** pcs, std::size_t max) noexcept;
void capture_interrupted(const void* ucontext, long_stack& out) noexcept;

// Returns: where the code described by a ucontext_t stopped. Together with capture_from() this lets
// a thread look at another thread that is paused in a signal handler.
saved_frame frame_of(const void* ucontext) noexcept;

// Returns: only the program counter. Inlined, for handlers that may call nothing.
[[gnu::always_inline]] inline std::uintptr_t interrupted_pc(const void* ucontext) noexcept {
  const mcontext_t& m = static_cast<const ucontext_t*>(ucontext)->uc_mcontext;
#if defined(__x86_64__)
  return static_cast<std::uintptr_t>(m.gregs[REG_RIP]);
#else
  return static_cast<std::uintptr_t>(m.pc);
#endif
}

// Whether the code that was interrupted at `pc` was in a system call, or is about to repeat one.
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

// Appends the exception now being handled: "std::runtime_error: boom", or the bare type if it is no
// std::exception, or "an exception of another language". Allocates (names are demangled).
// Returns: false, having appended nothing, if no exception is being handled.
bool describe_exception(text& out) noexcept;

}  // namespace weft::base
