// switch.hpp: the context switch for aarch64. The contract is arch/context.hpp.
#pragma once

#include "arch/context.hpp"

#include <cstdint>

namespace weft::arch {

// The registers that both functions below change. Each function names x0 to x2, x19 and x20 itself,
// and saves sp and x29 by hand. x18 is in the list because compilers for Linux use it like any
// other register. (On some other systems it is reserved for the platform.)
#define WEFT_CLOBBER_REGISTERS                                                                     \
  "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16",       \
      "x17", "x18", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x30", "cc", "memory", \
      "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13",      \
      "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26",   \
      "v27", "v28", "v29", "v30", "v31"

// Parks. The caller goes on when somebody switches to `from`, perhaps on another thread.
[[gnu::always_inline]] inline void switch_context(context* from, context* to) noexcept {
  register context* from_register asm("x0") = from;
  register context* to_register asm("x1") = to;
  asm volatile(
      "adr x2, 1f\n\t"
      "mov x3, sp\n\t"
      "stp x2, x3, [x0]\n\t"
      "str x29, [x0, #16]\n\t"
      "ldp x2, x3, [x1]\n\t"
      "ldr x29, [x1, #16]\n\t"
      "mov sp, x3\n\t"
      "add x0, x0, #24\n\t"
      "stlr wzr, [x0]\n\t"  // [C1]
      "br x2\n"
      "1:"
      : "+r"(from_register), "+r"(to_register)
      :
      : "x2", "x19", "x20", WEFT_CLOBBER_REGISTERS);
}

// Parks. Begins `function(argument)`, which must not return, on the empty stack below `top`.
[[gnu::always_inline]] inline void start_context(context* from, void* top, void (*function)(void*),
                                                 void* argument) noexcept {
  register context* from_register asm("x0") = from;
  register void* top_register asm("x1") = top;
  register void (*function_register)(void*) asm("x19") = function;
  register void* argument_register asm("x20") = argument;
  asm volatile(
      "adr x2, 1f\n\t"
      "mov x3, sp\n\t"
      "stp x2, x3, [x0]\n\t"
      "str x29, [x0, #16]\n\t"
      "mov sp, x1\n\t"
      "mov x29, xzr\n\t"
      "add x0, x0, #24\n\t"
      "stlr wzr, [x0]\n\t"  // [C1]
      "b weft_goroutine_entry\n"
      "1:"
      : "+r"(from_register), "+r"(top_register), "+r"(function_register), "+r"(argument_register)
      :
      : "x2", WEFT_CLOBBER_REGISTERS);
}

#undef WEFT_CLOBBER_REGISTERS

// The floating-point control register (rounding, flush-to-zero, traps) and the sticky flags.
struct fp_control {
  std::uint64_t fpcr;
  std::uint64_t fpsr;

  void capture() noexcept { asm volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(fpcr), "=r"(fpsr)); }
  void install() const noexcept {
    asm volatile("msr fpcr, %0\n\tmsr fpsr, %1" : : "r"(fpcr), "r"(fpsr));
  }
  bool operator==(const fp_control& o) const noexcept { return fpcr == o.fpcr && fpsr == o.fpsr; }
};

}  // namespace weft::arch
