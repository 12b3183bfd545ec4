// context.hpp: a suspended flow of control, and how a thread goes from one to another.
//
// A switch is inline assembly, not a call: it notes where to go on, exchanges stack and frame
// pointer, and jumps. It declares that it changes all other general and vector registers. So the
// compiler saves only those whose values are needed after the switch, and its unwind tables say
// where. A debugger or unwinder that is given pc, sp and fp of a parked context
// (base/backtrace.hpp) finds every caller. The switch does not touch the floating-point control
// state (fp_control below). It leaves by a jump and not by `ret`, because the return predictor
// would be wrong each time.
//
// `busy` is set to 1 before other threads can find a goroutine that is about to wait. It stays 1
// until the goroutine's registers are saved: the last thing that a switch does for the old context
// is to clear `busy`. So a goroutine may drop its locks before it has switched away. A thread that
// resumes the goroutine first waits until `busy` is 0 [C1]; the wait is seldom necessary and takes
// a few nanoseconds.
//
// Memory order:
//   [C1] the switch's release of `busy` (in assembly) -> the acquire of the thread that resumes the
//        goroutine: pc, sp, fp and the stack.
//
// The file switch.hpp of the architecture (src/arch/<architecture>/) provides
//   switch_context(from, to)         saves the caller in `from` and resumes `to`;
//   start_context(from, top, f, a)   saves the caller in `from` and begins f(a) on the empty stack
//                                    below `top`;
//   fp_control                       the floating-point control state: capture() and install().
#pragma once

#include "arch/entry.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weft::arch {

struct context {
  void* pc = nullptr;
  void* sp = nullptr;
  void* fp = nullptr;
  std::atomic<std::uint32_t> busy{0};  // [C1]
};

// The assembly in switch.hpp uses these offsets.
static_assert(offsetof(context, pc) == 0);
static_assert(offsetof(context, sp) == 8);
static_assert(offsetof(context, fp) == 16);
static_assert(offsetof(context, busy) == 24);

}  // namespace weft::arch

#include "switch.hpp"  // IWYU pragma: export
