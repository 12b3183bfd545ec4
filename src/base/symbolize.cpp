// symbolize.cpp: names for addresses, through libbacktrace if we have it.
//
// The runtime's frames are recognised by their mangled names. Demangled, a template's name starts
// with its return type, and the namespace may stand anywhere.
//
// libbacktrace maps its own memory. The only lock it waits for is the loader's, once, to list the
// loaded files. Several threads may use its state at once. If two threads make the state at the
// same time, one of the two states is left unused.
//
// Memory order:
//   [SY1] the maker's release of the state's pointer -> a user's acquire: the state is filled in.

#include "base/symbolize.hpp"

#include "base/backtrace.hpp"
#include "base/fatal.hpp"

#include <csignal>
#include <cxxabi.h>
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#if WEFT_HAVE_LIBBACKTRACE
#include <backtrace.h>
#endif

namespace weft::base {
namespace {

// The linker's name for the function that holds an address. `name` is null if unknown.
struct symbol_info {
  const char* name = nullptr;
  std::uintptr_t start = 0;
};

// A name made readable. Holds what the demangler allocated for as long as it lives.
class readable {
 public:
  readable(const char* name, symbolize_options options) noexcept : name_(name) {
    if (name == nullptr || options.in_signal || std::strncmp(name, "_Z", 2) != 0) return;
    int status = 0;
    demangled_ = abi::__cxa_demangle(name, nullptr, nullptr, &status);
    if (demangled_ == nullptr) return;
    // To the reader, a part or a special version that the compiler made is the function itself.
    if (char* const clone = std::strstr(demangled_, " [clone ")) *clone = '\0';
    name_ = demangled_;
  }
  ~readable() { std::free(demangled_); }
  readable(const readable&) = delete;
  readable& operator=(const readable&) = delete;

  const char* get() const noexcept { return name_; }

 private:
  const char* name_;
  char* demangled_ = nullptr;
};

// One look-up under way: collects libbacktrace's answers and passes them on.
struct look_up {
  std::uintptr_t pc;  // inside the instruction, not behind it
  frame_callback callback;
  void* arg;
  symbolize_options options;
  symbol_info symbol;  // of the function the code was compiled into

  // libbacktrace does not say which of its answers is the last, the one that was not inlined. So
  // each waits here for the next. Its strings are libbacktrace's own and stay.
  bool pending = false;
  const char* function = nullptr;
  const char* file = nullptr;
  int line = 0;

  void emit_pending(bool is_inlined) noexcept {
    if (!pending) return;
    pending = false;
    frame f;
    f.symbol = function;
    // Debug information has only the bare name of a function without linkage, while the symbol
    // table has it with its namespace. Inlined functions have no symbol.
    const bool bare = function == nullptr || std::strncmp(function, "_Z", 2) != 0;
    if (!is_inlined && bare && symbol.name != nullptr) f.symbol = symbol.name;
    const readable name(f.symbol, options);
    f.function = name.get();
    f.file = file;
    f.line = line;
    f.inlined = is_inlined;
    if (!is_inlined && symbol.start != 0) f.offset = pc + 1 - symbol.start;
    callback(arg, f);
  }

  // What there is to say without debug information.
  void emit_without_lines() noexcept {
    Dl_info module = {};
    const bool known = dladdr(reinterpret_cast<void*>(pc), &module) != 0;
    if (symbol.name == nullptr && known && module.dli_sname != nullptr) {
      symbol = {module.dli_sname, reinterpret_cast<std::uintptr_t>(module.dli_saddr)};
    }
    const readable name(symbol.name, options);
    frame f;
    f.function = name.get();
    f.symbol = symbol.name;
    if (known) f.file = module.dli_fname;
    if (symbol.name != nullptr) {
      f.offset = pc + 1 - symbol.start;
    } else if (known) {
      f.offset = pc + 1 - reinterpret_cast<std::uintptr_t>(module.dli_fbase);
    } else {
      f.offset = pc + 1;
    }
    callback(arg, f);
  }
};

#if WEFT_HAVE_LIBBACKTRACE

void ignore_error(void*, const char*, int) {}

backtrace_state* symbolizer_state() noexcept {
  static constinit std::atomic<backtrace_state*> shared{nullptr};
  backtrace_state* state = shared.load(std::memory_order_acquire);  // [SY1]
  if (state != nullptr) return state;
  constexpr int threaded = 1;
  backtrace_state* const made = backtrace_create_state(nullptr, threaded, &ignore_error, nullptr);
  if (made == nullptr) return nullptr;
  // [SY1] on both sides: the thread that loses the race uses the winner's state.
  if (shared.compare_exchange_strong(state, made, std::memory_order_acq_rel)) return made;
  return state;
}

// libbacktrace puts the folder of the compilation in front of every name in a DWARF 5 file table,
// of absolute ones too, which is how Clang names the file it compiles: "/build//source/file.cpp".
// Such a path hardly ever exists. A path in which the user wrote a double slash does exist.
const char* without_wrong_folder(const char* file) noexcept {
  const char* const absolute = file != nullptr ? std::strstr(file, "//") : nullptr;
  if (absolute == nullptr || access(file, F_OK) == 0) return file;
  return absolute + 1;
}

int on_line(void* data, std::uintptr_t, const char* file, int line, const char* function) {
  look_up& l = *static_cast<look_up*>(data);
  if (file == nullptr && function == nullptr) return 0;
  l.emit_pending(/*is_inlined=*/true);
  l.pending = true;
  l.function = function;
  l.file = without_wrong_folder(file);
  l.line = line;
  return 0;
}

void on_symbol(void* data, std::uintptr_t, const char* symbol, std::uintptr_t value,
               std::uintptr_t) {
  if (symbol != nullptr) static_cast<look_up*>(data)->symbol = {symbol, value};
}

// Returns: false if there was no answer to pass on.
bool look_up_lines(look_up& l) noexcept {
  backtrace_state* const state = symbolizer_state();
  if (state == nullptr) return false;
  backtrace_syminfo(state, l.pc, &on_symbol, &ignore_error, &l);
  backtrace_pcinfo(state, l.pc, &on_line, &ignore_error, &l);
  const bool found = l.pending;
  l.emit_pending(/*is_inlined=*/false);
  return found;
}

#else

bool look_up_lines(look_up&) noexcept { return false; }

#endif

bool starts_with(const char*& s, std::string_view prefix) noexcept {
  if (std::strncmp(s, prefix.data(), prefix.size()) != 0) return false;
  s += prefix.size();
  return true;
}

// Returns: whether a function is one of the runtime's own, by its linker's name.
bool is_internal(const char* symbol) noexcept {
  if (symbol == nullptr) return false;
  const char* s = symbol;
  if (starts_with(s, "weft_")) return true;
  if (!starts_with(s, "_Z")) return false;
  // _ZN <cv and ref qualifiers> 4weft <length and namespace>; another Z for each function around it
  // where the name is local to one.
  while (*s == 'Z') ++s;
  if (*s++ != 'N') return false;
  while (*s == 'K' || *s == 'V' || *s == 'r' || *s == 'R' || *s == 'O') ++s;
  if (!starts_with(s, "4weft")) return false;
  return starts_with(s, "5sched") || starts_with(s, "4arch") || starts_with(s, "6detail");
}

// Returns: whether a call is only the way from the runtime to the user's function, or from a throw
// into the unwinder: std::invoke and its kind, our own headers, the C++ runtime.
bool is_plumbing(const frame& f) noexcept {
  for (const char* const name :
       {"__cxa_throw", "__cxa_rethrow", "_Unwind_RaiseException", "_Unwind_Resume_or_Rethrow"}) {
    if (f.symbol != nullptr && std::strcmp(f.symbol, name) == 0) return true;
  }
  if (f.file == nullptr || f.line == 0) return false;
  const std::string_view file(f.file);
  if (file.find("/include/c++/") != file.npos) {
    return file.ends_with("/bits/invoke.h") || file.ends_with("/functional") ||
           file.ends_with("/tuple");
  }
  for (const char* const name :
       {"/weft/go.hpp", "/weft/barrier.hpp", "/weft/condition_variable.hpp", "/weft/group.hpp",
        "/weft/latch.hpp", "/weft/mutex.hpp", "/weft/once.hpp", "/weft/pool.hpp",
        "/weft/semaphore.hpp", "/weft/shared_mutex.hpp", "/weft/single_flight.hpp",
        "/weft/wait_group.hpp"}) {
    if (file.ends_with(name)) return true;
  }
  return file.find("/weft/detail/") != file.npos || file.find("/src/sched/") != file.npos;
}

// A stack in two pieces with a gap of `missing` frames between them; the gap may be empty.
struct pieces {
  void* const* inner;
  std::size_t inner_size;
  std::size_t missing;
  void* const* outer;
  std::size_t outer_size;

  std::size_t size() const noexcept { return inner_size + missing + outer_size; }
  // Returns: null for a missing frame.
  const void* at(std::size_t i) const noexcept {
    if (i < inner_size) return inner[i];
    if (i < inner_size + missing) return nullptr;
    return outer[i - inner_size - missing];
  }
};

// Counts an address's calls and finds the first and the last one that is not the runtime's.
//
// An inlined function without linkage has a bare name that tells nothing. It is the runtime's if it
// was inlined into one of the runtime's functions in the same file: a helper beside it. A program's
// lambda that was inlined into a template of ours comes from the program's file. So such functions
// wait, in `unclear`, for the one around them.
struct call_count {
  std::size_t total = 0;
  std::size_t first_shown = 0;
  std::size_t shown_end = 0;  // 0: all of them are the runtime's
  std::size_t unclear = 0;    // the last so many calls
  const char* unclear_file = nullptr;

  static void on_frame(void* self, const frame& f) {
    call_count& c = *static_cast<call_count*>(self);
    if (!same_file(c.unclear_file, f.file)) c.settle_unclear(/*are_shown=*/true);
    if (is_plumbing(f)) {
      c.settle_unclear(/*are_shown=*/false);
      ++c.total;
      return;
    }
    const bool bare = f.symbol == nullptr || std::strncmp(f.symbol, "_Z", 2) != 0;
    if (f.inlined && bare && !is_internal(f.symbol)) {
      ++c.unclear;
      c.unclear_file = f.file;
    } else {
      const bool shown = !is_internal(f.symbol);
      c.settle_unclear(shown);
      if (shown) c.show(c.total, c.total + 1);
    }
    ++c.total;
  }

 private:
  static bool same_file(const char* a, const char* b) noexcept {
    return a != nullptr && b != nullptr && std::strcmp(a, b) == 0;
  }
  void show(std::size_t begin, std::size_t end) noexcept {
    if (shown_end == 0) first_shown = begin;
    shown_end = end;
  }
  void settle_unclear(bool are_shown) noexcept {
    if (unclear != 0 && are_shown) show(total - unclear, total);
    unclear = 0;
    unclear_file = nullptr;
  }
};

call_count count_calls(const void* pc) noexcept {
  call_count c;
  symbolize(pc, &call_count::on_frame, &c, {.in_signal = true});  // mangled names will do
  return c;
}

// Prints the calls number [first, end) of one address.
struct call_printer {
  text_sink sink;
  void* sink_arg;
  std::size_t first;
  std::size_t end;
  std::size_t next = 0;

  static void on_frame(void* self, const frame& f) {
    call_printer& p = *static_cast<call_printer*>(self);
    const std::size_t i = p.next++;
    if (i >= p.first && i < p.end) p.print(f);
  }

  void print(const frame& f) const noexcept {
    // Both fit the text together, so that the line end does, too.
    text line;
    append_cut(line, f.function != nullptr ? f.function : "?", 640);
    line << "\n\t";
    append_cut(line, f.file != nullptr ? f.file : "?", 320);
    if (f.line > 0) line << ":" << f.line;
    if (!f.inlined && f.offset != 0) (line << " +").hex(f.offset);
    line << "\n";
    sink(sink_arg, line.view());
  }

  static void append_cut(text& to, std::string_view s, std::size_t max) noexcept {
    if (s.size() <= max) {
      to << s;
    } else {
      to << s.substr(0, max) << "...";
    }
  }
};

constexpr std::size_t shown_per_end = 50;

void format_pieces(const pieces& stack, text_sink sink, void* arg,
                   symbolize_options options) noexcept {
  // [begin, end) leaves out the addresses at both ends that stand for nothing but the runtime's
  // calls. The first and the last that remain may still start and end with some.
  std::size_t begin = 0;
  std::size_t end = stack.size();
  call_count first;
  call_count last;
  while (begin < end && stack.at(begin) != nullptr) {
    first = count_calls(stack.at(begin));
    if (first.shown_end != 0) break;
    ++begin;
  }
  while (end > begin && stack.at(end - 1) != nullptr) {
    last = count_calls(stack.at(end - 1));
    if (last.shown_end != 0) break;
    --end;
  }
  const bool show_all = begin == end;
  if (show_all) {
    begin = 0;
    end = stack.size();
  }

  std::size_t elided = 0;
  const auto mention_elided = [&] {
    if (elided == 0) return;
    text line;
    line << "..." << std::uint64_t{elided} << " frames elided...\n";
    sink(arg, line.view());
    elided = 0;
  };
  for (std::size_t i = begin; i < end; ++i) {
    const bool in_the_middle = i - begin >= shown_per_end && end - i > shown_per_end;
    if (in_the_middle || stack.at(i) == nullptr) {
      ++elided;
      continue;
    }
    mention_elided();
    call_printer printer{.sink = sink, .sink_arg = arg, .first = 0, .end = SIZE_MAX};
    if (!show_all && i == begin) printer.first = first.first_shown;
    if (!show_all && i + 1 == end) printer.end = last.shown_end;
    symbolize(stack.at(i), &call_printer::on_frame, &printer, options);
  }
  mention_elided();
}

void to_stderr(void*, std::string_view piece) { write_stderr(piece); }

void deadline_passed(int) { _exit(2); }

}  // namespace

#if WEFT_HAVE_LIBBACKTRACE
void prepare_symbolizer() noexcept { symbolizer_state(); }
bool symbolizer_knows_lines() noexcept { return true; }
#else
void prepare_symbolizer() noexcept {}
bool symbolizer_knows_lines() noexcept { return false; }
#endif

void symbolize(const void* pc, frame_callback callback, void* arg,
               symbolize_options options) noexcept {
  look_up l{.pc = reinterpret_cast<std::uintptr_t>(pc) - 1,
            .callback = callback,
            .arg = arg,
            .options = options,
            .symbol = {}};
  if (!look_up_lines(l)) l.emit_without_lines();
}

void format_stack(void* const* pcs, std::size_t n, text_sink sink, void* arg,
                  symbolize_options options) noexcept {
  format_pieces({.inner = pcs, .inner_size = n, .missing = 0, .outer = nullptr, .outer_size = 0},
                sink, arg, options);
}

void print_stack(void* const* pcs, std::size_t n, symbolize_options options) noexcept {
  format_stack(pcs, n, &to_stderr, nullptr, options);
}

void print_stack(const long_stack& stack, symbolize_options options) noexcept {
  const std::size_t inner_size = stack.total - stack.outer_size < long_stack::end_size
                                     ? stack.total - stack.outer_size
                                     : long_stack::end_size;
  format_pieces({.inner = stack.inner,
                 .inner_size = inner_size,
                 .missing = stack.total - inner_size - stack.outer_size,
                 .outer = stack.outer,
                 .outer_size = stack.outer_size},
                &to_stderr, nullptr, options);
}

void arm_deadline(int seconds) noexcept {
  struct sigaction action = {};
  action.sa_handler = &deadline_passed;
  action.sa_flags = SA_ONSTACK;
  sigfillset(&action.sa_mask);
  sigaction(SIGALRM, &action, nullptr);

  // The handler we may be in blocks every signal. This thread is there to take it, even if all
  // others refuse.
  sigset_t alarm_only;
  sigemptyset(&alarm_only);
  sigaddset(&alarm_only, SIGALRM);
  pthread_sigmask(SIG_UNBLOCK, &alarm_only, nullptr);
  alarm(static_cast<unsigned>(seconds));
}

}  // namespace weft::base
