// switch.hpp: the context switch for x86-64. The contract is arch/context.hpp.
#pragma once

#include "arch/context.hpp"

#include <cstdint>

namespace weft::arch {

#ifdef __AVX512F__
#define WEFT_CLOBBER_VECTORS                                                                    \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",      \
      "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", \
      "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", \
      "xmm31", "k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"
#else
#define WEFT_CLOBBER_VECTORS                                                               \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
      "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
#endif

// Parks. The caller continues when a thread, perhaps another one, switches to `from`.
[[gnu::always_inline]] inline void switch_context(context* from, context* to) noexcept {
  // A plain store is a release on x86-64, and it comes after the last use of the old stack. [C1]
  asm volatile(
      "leaq 1f(%%rip), %%rax\n\t"
      "movq %%rax, 0(%0)\n\t"
      "movq %%rsp, 8(%0)\n\t"
      "movq %%rbp, 16(%0)\n\t"
      "movq 0(%1), %%rax\n\t"
      "movq 8(%1), %%rsp\n\t"
      "movq 16(%1), %%rbp\n\t"
      "movl $0, 24(%0)\n\t"
      "jmp *%%rax\n"
      "1:"
      : "+D"(from), "+S"(to)
      :
      : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "cc",
        "memory", WEFT_CLOBBER_VECTORS);
}

// Parks. Begins `function(argument)`, which must not return, on the empty stack below `top`.
[[gnu::always_inline]] inline void start_context(context* from, void* top, void (*function)(void*),
                                                 void* argument) noexcept {
  register void (*function_register)(void*) asm("r12") = function;
  register void* argument_register asm("r13") = argument;
  asm volatile(
      "leaq 1f(%%rip), %%rax\n\t"
      "movq %%rax, 0(%0)\n\t"
      "movq %%rsp, 8(%0)\n\t"
      "movq %%rbp, 16(%0)\n\t"
      "movq %1, %%rsp\n\t"
      "xorl %%ebp, %%ebp\n\t"
      "movl $0, 24(%0)\n\t"
      "jmp weft_goroutine_entry\n"
      "1:"
      : "+D"(from), "+S"(top), "+r"(function_register), "+r"(argument_register)
      :
      : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r14", "r15", "cc", "memory",
        WEFT_CLOBBER_VECTORS);
}

#undef WEFT_CLOBBER_VECTORS

// The control state of both floating-point units: rounding, masks, precision, FTZ and DAZ, and the
// sticky exception flags of SSE. Reading both takes 1.3 ns; installing happens only when they
// differ. Reading only the x87 word, as a detector, would save 0.8 ns and miss FTZ/DAZ set by
// intrinsics.
struct fp_control {
  std::uint32_t mxcsr;
  std::uint16_t x87;
  std::uint16_t unused = 0;

  // Into memory, field by field: a copy made right after would read 8 bytes across two stores,
  // which the store buffer cannot forward (4 ns).
  void capture() noexcept { asm volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(mxcsr), "=m"(x87)); }
  void install() const noexcept { asm volatile("ldmxcsr %0\n\tfldcw %1" : : "m"(mxcsr), "m"(x87)); }
  // Also field by field, and volatile so that the compiler does not merge the loads.
  bool operator==(const fp_control& o) const noexcept {
    const volatile fp_control& mine = *this;
    return mine.mxcsr == o.mxcsr && mine.x87 == o.x87;
  }
};

}  // namespace weft::arch
