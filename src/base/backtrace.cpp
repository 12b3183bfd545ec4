// backtrace.cpp: walking stacks with libgcc's unwinder.
//
// The unwinder starts from the frame of its caller. To make it start from another stack, it is
// called by weft_unwind_from (arch/*/unwind_from.S), whose unwind table says that its caller is the
// saved frame. The unwinder itself runs on the stack of the thread that asks. Nothing is ever
// executed on the parked stack.
//
// In a signal handler, the unwinder goes from the handler through the signal trampoline, which C
// libraries and the unwinder know, to the interrupted frames. That way recovers every register, so
// it is tried first. If the walk ends before it reaches the interrupted instruction (because the
// handler was installed with an unknown trampoline), a second walk starts from the saved registers.
//
// Dropped: following the frame pointers. Many distributions compile C++ without them, so one
// library function in the middle would end the walk.

#include "base/backtrace.hpp"

#include <cxxabi.h>
#include <ucontext.h>
#include <unwind.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <typeinfo>

static_assert(offsetof(weft::base::saved_frame, pc) == 0);   // unwind_from.S
static_assert(offsetof(weft::base::saved_frame, sp) == 8);   // unwind_from.S
static_assert(offsetof(weft::base::saved_frame, fp) == 16);  // unwind_from.S
static_assert(offsetof(weft::base::saved_frame, lr) == 24);  // unwind_from.S

// Calls _Unwind_Backtrace(step, arg). The unwinder then visits the frame of weft_unwind_from, then
// the frame `at` and its callers.
extern "C" [[gnu::visibility("hidden")]] int weft_unwind_from(const weft::base::saved_frame* at,
                                                              _Unwind_Trace_Fn step, void* arg);

namespace weft::base {
namespace {

// No goroutine's stack has more frames: the largest reserve is 1 GiB, and a frame takes 16 bytes. A
// longer walk runs in circles on a damaged stack.
constexpr std::size_t depth_max = std::size_t{1} << 26;

// One walk along a stack. The unwinder calls step() for each frame; the walk keeps what is wanted,
// and says whether to go on.
class walk {
 public:
  walk(void** pcs, std::size_t max, std::size_t skip) noexcept
      : pcs_(pcs), max_(max), skip_(skip) {}
  explicit walk(long_stack& both_ends) noexcept : both_ends_(&both_ends) { both_ends.total = 0; }

  // Leaves out all frames that come before the one that stopped at `pc`.
  walk& starting_at(const void* pc) noexcept {
    start_ = reinterpret_cast<std::uintptr_t>(pc);
    seeking_ = true;
    return *this;
  }

  static _Unwind_Reason_Code step(_Unwind_Context* context, void* self) {
    return static_cast<walk*>(self)->take(context) ? _URC_NO_REASON : _URC_NORMAL_STOP;
  }

  std::size_t found() const noexcept { return found_; }

  // Puts `outer` in order, which keep() has filled as a ring.
  void finish() noexcept {
    if (both_ends_ == nullptr) return;
    constexpr std::size_t size = long_stack::end_size;
    long_stack& out = *both_ends_;
    out.total = found_;
    const std::size_t beyond = found_ > size ? found_ - size : 0;
    out.outer_size = beyond < size ? beyond : size;
    if (beyond <= size) return;
    void* sorted[size];
    for (std::size_t i = 0; i < size; ++i) sorted[i] = out.outer[(beyond + i) % size];
    for (std::size_t i = 0; i < size; ++i) out.outer[i] = sorted[i];
  }

 private:
  bool take(_Unwind_Context* context) noexcept {
    int stopped_before = 0;
    const std::uintptr_t pc = _Unwind_GetIPInfo(context, &stopped_before);
    const std::uintptr_t cfa = _Unwind_GetCFA(context);
    // After the outermost frame the unwinder reports a frame at zero. A frame that equals the one
    // before it is its own caller: the walk would never end.
    if (pc == 0 || (pc == last_pc_ && cfa == last_cfa_)) return false;
    last_pc_ = pc;
    last_cfa_ = cfa;

    if (seeking_) {
      if (pc != start_ || stopped_before == 0) return ++sought_ < depth_max;
      seeking_ = false;
    }
    if (skip_ > 0) {
      --skip_;
      return true;
    }
    return keep(reinterpret_cast<void*>(stopped_before != 0 ? pc + 1 : pc));
  }

  bool keep(void* address) noexcept {
    if (both_ends_ == nullptr) {
      if (found_ < max_) pcs_[found_++] = address;
      return found_ < max_;
    }
    constexpr std::size_t size = long_stack::end_size;
    if (found_ < size) {
      both_ends_->inner[found_] = address;
    } else {
      both_ends_->outer[(found_ - size) % size] = address;
    }
    return ++found_ < depth_max;
  }

  void** pcs_ = nullptr;
  std::size_t max_ = 0;
  std::size_t skip_ = 0;
  long_stack* both_ends_ = nullptr;
  std::size_t found_ = 0;
  std::uintptr_t start_ = 0;
  bool seeking_ = false;
  std::size_t sought_ = 0;
  std::uintptr_t last_pc_ = 0;
  std::uintptr_t last_cfa_ = 0;
};

// The frame of weft_unwind_from itself is left out.
constexpr std::size_t skip_unwind_from = 1;

}  // namespace

void prepare_backtrace() noexcept {
  void* pcs[4];
  capture(pcs, 4, 0);
  const saved_frame nowhere;
  capture_from(nowhere, pcs, 4);
}

std::size_t capture(void** pcs, std::size_t max, std::size_t skip) noexcept {
  if (max == 0) return 0;
  walk w(pcs, max, skip + 1);  // one more, for the frame of this function
  _Unwind_Backtrace(&walk::step, &w);
  return w.found();
}

std::size_t capture_from(const saved_frame& at, void** pcs, std::size_t max) noexcept {
  if (max == 0) return 0;
  walk w(pcs, max, skip_unwind_from);
  weft_unwind_from(&at, &walk::step, &w);
  return w.found();
}

std::size_t capture_interrupted(const void* ucontext, void** pcs, std::size_t max) noexcept {
  if (max == 0) return 0;
  const saved_frame at = frame_of(ucontext);
  walk w(pcs, max, 0);
  w.starting_at(at.pc);
  _Unwind_Backtrace(&walk::step, &w);
  return w.found() > 0 ? w.found() : capture_from(at, pcs, max);
}

void capture_interrupted(const void* ucontext, long_stack& out) noexcept {
  const saved_frame at = frame_of(ucontext);
  walk w(out);
  w.starting_at(at.pc);
  _Unwind_Backtrace(&walk::step, &w);
  w.finish();
  if (w.found() > 0) return;

  // Here, too, the frame of weft_unwind_from comes first; starting_at() leaves it out.
  walk again(out);
  again.starting_at(at.pc);
  weft_unwind_from(&at, &walk::step, &again);
  again.finish();
}

saved_frame frame_of(const void* ucontext) noexcept {
  const mcontext_t& m = static_cast<const ucontext_t*>(ucontext)->uc_mcontext;
  saved_frame at;
#if defined(__x86_64__)
  at.pc = reinterpret_cast<void*>(m.gregs[REG_RIP]);
  at.sp = reinterpret_cast<void*>(m.gregs[REG_RSP]);
  at.fp = reinterpret_cast<void*>(m.gregs[REG_RBP]);
#elif defined(__aarch64__)
  at.pc = reinterpret_cast<void*>(m.pc);
  at.sp = reinterpret_cast<void*>(m.sp);
  at.fp = reinterpret_cast<void*>(m.regs[29]);
  at.lr = reinterpret_cast<void*>(m.regs[30]);
#else
#error "unknown architecture"
#endif
  return at;
}

bool describe_exception(text& out) noexcept {
  // The first field of this record is the list of the exceptions that are being handled (C++ ABI).
  // If std::current_exception() does not know the first of them, no C++ code threw it.
  void* const handled = *reinterpret_cast<void* const*>(abi::__cxa_get_globals());
  if (handled == nullptr) return false;
  if (std::current_exception() == nullptr) {
    out << "an exception of another language";
    return true;
  }

  const std::type_info* const type = abi::__cxa_current_exception_type();
  if (type == nullptr) {
    out << "an exception of unknown type";
    return true;
  }
  int status = 0;
  char* const name = abi::__cxa_demangle(type->name(), nullptr, nullptr, &status);
  out << (name != nullptr ? name : type->name());
  std::free(name);

  // Only a handler can look at the exception by its type. So the exception is thrown again and
  // caught here; the callers' frames stay as they are.
  try {
    throw;
  } catch (const std::exception& e) {
    const char* const what = e.what();
    if (what != nullptr && *what != '\0') (out << ": ").printable(what);
  } catch (...) {
    return true;  // any other type has nothing more to say
  }
  return true;
}

}  // namespace weft::base
