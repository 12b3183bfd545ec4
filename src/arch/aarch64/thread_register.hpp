// thread_register.hpp: reads one thread_local pointer so that no compiler can remember its address.
#pragma once

// Reads the pointer-sized thread_local with C linkage named `symbol`, whose model is initial-exec.
// volatile: after a switch the same code may run on another thread, so each read is made anew.
#define WEFT_READ_THREAD_LOCAL(symbol, result)  \
  do {                                          \
    void* weft_offset_;                         \
    asm volatile(                               \
        "mrs %0, tpidr_el0\n\t"                 \
        "adrp %1, :gottprel:" #symbol           \
        "\n\t"                                  \
        "ldr %1, [%1, #:gottprel_lo12:" #symbol \
        "]\n\t"                                 \
        "ldr %0, [%0, %1]"                      \
        : "=&r"(result), "=&r"(weft_offset_));  \
  } while (false)
