// thread_register.hpp: reads one thread_local pointer so that no compiler can remember its address.
#pragma once

// Reads the pointer-sized thread_local with C linkage named `symbol`, whose model is initial-exec.
// volatile: after a switch the same code may run on another thread, so each read is made anew.
#define WEFT_READ_THREAD_LOCAL(symbol, result) \
  asm volatile("movq " #symbol                 \
               "@gottpoff(%%rip), %0\n\t"      \
               "movq %%fs:(%0), %0"            \
               : "=r"(result))
