// symbolize.hpp: program counters turned into functions, files and lines, and stacks into text.
//
// With libbacktrace (WEFT_HAVE_LIBBACKTRACE) names come from the debug information, inlined calls
// included, of the program and of every library that was loaded when the first address was looked
// up. Without libbacktrace, and for code without debug information, names come from the dynamic
// symbol tables. If those do not know the address either, it is shown as an offset into its file.
//
// None of this is for the scheduler's own paths: files are read, memory is mapped, and the loader's
// lock may be taken. It is for programs that are dying or being debugged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weft::base {

struct symbolize_options {
  // Set where malloc may be what was interrupted: names are then left mangled.
  bool in_signal = false;
};

// One function call, of which an address may stand for several: all but the last were inlined.
// The names live until the callback returns; the file, for ever.
struct frame {
  const char* function = nullptr;  // as written in the source; null if unknown
  const char* symbol = nullptr;    // the linker's name if it is known; else as `function`
  const char* file = nullptr;      // of the source if line > 0, else of the program or library
  int line = 0;                    // 0 if unknown
  std::uintptr_t offset = 0;       // into the function, or into `file` if that is unknown
  bool inlined = false;            // into the next frame; `offset` means nothing
};
using frame_callback = void (*)(void* arg, const frame& f);

// Does the set-up early, so that a dying process need not. Reads no files. Optional; may be called
// repeatedly.
void prepare_symbolizer() noexcept;

// Returns: whether debug information is read at all, that is, whether we have libbacktrace.
bool symbolizer_knows_lines() noexcept;

// Calls `callback` for each call that `pc` stands for, innermost first, and at least once. `pc` is
// as backtrace.hpp has it: a return address, or one behind an instruction.
void symbolize(const void* pc, frame_callback callback, void* arg,
               symbolize_options options = {}) noexcept;

// Receives the text of a stack, a few lines at a time.
using text_sink = void (*)(void* arg, std::string_view piece);

// Writes a stack, each call as "function\n\tfile:line +offset\n": the 50 innermost and the 50
// outermost frames and how many were left out between them. The runtime's own functions
// (weft::sched::, weft::arch::, weft::detail::, weft_*) at either end are not shown, unless there
// is nothing else.
void format_stack(void* const* pcs, std::size_t n, text_sink sink, void* arg,
                  symbolize_options options = {}) noexcept;

// Like the function above, but writes to stderr.
void print_stack(void* const* pcs, std::size_t n, symbolize_options options = {}) noexcept;

// Like the function above, for a stack of which only the two ends are known.
struct long_stack;
void print_stack(const long_stack& stack, symbolize_options options = {}) noexcept;

// Ends the process with status 2 in `seconds` seconds, whatever it is doing then. For a process
// about to print its last words: the thread that crashed may hold a lock that printing needs.
void arm_deadline(int seconds) noexcept;

}  // namespace weft::base
