// entry.hpp: where a goroutine's stack begins, and the two ways in which unwinding may arrive
// there.
//
// weft_goroutine_entry is the outermost function of every goroutine. No call leads to it: the first
// switch into a new context jumps there, with the stack pointer at the top of the stack (16-byte
// aligned), the function to run and its argument in two callee-saved registers:
//
//     x86-64   r12 = function   r13 = argument
//     aarch64  x19 = function   x20 = argument
//
// The entry clears the frame pointer and calls function(argument). That function must not return,
// and must not be noexcept: a noexcept function ends the process itself, after the stack has been
// unwound.
//
// The entry's unwind table says that it has no caller, so debuggers and backtraces end there,
// and names a personality routine. The unwinder calls that routine when it reaches the entry:
//
//   - While it searches for a handler of an exception: there is none. This is the first of two
//     phases, and nothing has been unwound yet. So the hook for escaped exceptions runs on top of
//     the function that threw, with the exception as the current one, and can print the whole
//     stack.
//   - In a forced unwinding: every destructor has run. If unwind_goroutine() started the unwinding,
//     the exit hook runs next, in the frame of the entry. If pthread_exit or a cancellation started
//     it, the process dies with a message, because the program must not end a machine's thread.
#pragma once

#include <cstddef>

// Never called by this name: its address is where a new context starts.
extern "C" [[gnu::visibility("hidden")]] void weft_goroutine_entry();

namespace weft::arch {

// What happens at the end of a goroutine that does not end by itself. Neither hook may return.
struct entry_hooks {
  // An exception is about to leave the goroutine; std::current_exception() is that exception.
  void (*on_escaped_exception)() = nullptr;
  // unwind_goroutine() has run every destructor.
  void (*on_goroutine_exit)() = nullptr;
};

// Set once, before the first goroutine runs. Without hooks either event is fatal.
void set_entry_hooks(const entry_hooks& hooks) noexcept;

// What the unwinder keeps during unwind_goroutine(). Only the unwinder reads its contents.
struct alignas(16) unwind_storage {
  std::byte bytes[64];
};

// Runs the destructors of every frame on the goroutine's stack and then the exit hook. The
// unwinding passes through `catch (...)` blocks as pthread_exit does: they run and must rethrow. A
// block that does not rethrow, and a frame compiled without unwind tables, are fatal. Requires: the
// caller runs on a goroutine's stack; `storage` lies outside that stack, or at least outlives its
// frames.
[[noreturn]] void unwind_goroutine(unwind_storage& storage);

}  // namespace weft::arch
