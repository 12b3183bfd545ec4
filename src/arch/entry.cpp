// entry.cpp: the personality routine of weft_goroutine_entry, and the unwinding that aims for it.

#include "arch/entry.hpp"

#include "base/fatal.hpp"
#include "base/sanitizer.hpp"

#include <cxxabi.h>
#include <unwind.h>

#include <new>

// The instruction in weft_goroutine_entry at which a goroutine continues after it has been unwound.
extern "C" [[gnu::visibility("hidden")]] const char weft_goroutine_exited[];

namespace weft::arch {
namespace {

static_assert(sizeof(_Unwind_Exception) <= sizeof(unwind_storage));
static_assert(alignof(_Unwind_Exception) <= alignof(unwind_storage));

// Written once before the first goroutine runs, and read by goroutines only.
constinit entry_hooks hooks;

// The class of an exception says who made it: eight characters for vendor and language. Ours is of
// no language.
constexpr _Unwind_Exception_Class exit_class = 0x57454654'45584954;     // "WEFTEXIT"
constexpr _Unwind_Exception_Class gnu_cxx_class = 0x474e5543'432b2b00;  // "GNUCC++\0"

// The last byte tells an exception from a reference to one (std::rethrow_exception).
constexpr bool is_cxx(_Unwind_Exception_Class c) noexcept {
  return (c & ~_Unwind_Exception_Class{0xff}) == gnu_cxx_class;
}

// What is behind abi::__cxa_get_globals(), as the C++ ABI lays it down.
struct exception_state {
  void* handled;  // a list, linked through the exceptions
  unsigned uncaught;
};
exception_state& this_exception_state() noexcept {
  return *reinterpret_cast<exception_state*>(abi::__cxa_get_globals());
}

[[noreturn]] void exception_escaped(_Unwind_Exception_Class thrower, _Unwind_Exception* exception) {
  // Makes this exception the current one. An exception of another language cannot be put on top of
  // others: the C++ library would call std::terminate.
  if (is_cxx(thrower) || this_exception_state().handled == nullptr)
    abi::__cxa_begin_catch(exception);
  if (hooks.on_escaped_exception != nullptr) hooks.on_escaped_exception();
  base::fatal("an exception left a goroutine");
}

_Unwind_Reason_Code never_stop(int, _Unwind_Action, _Unwind_Exception_Class, _Unwind_Exception*,
                               _Unwind_Context*, void*) {
  return _URC_NO_REASON;
}

// The C++ library calls this when a handler that caught the unwinding ends.
void swallowed(_Unwind_Reason_Code, _Unwind_Exception*) {
  base::fatal("this_goroutine::exit was swallowed by a catch (...) that did not rethrow");
}

}  // namespace

void set_entry_hooks(const entry_hooks& h) noexcept { hooks = h; }

void unwind_goroutine(unwind_storage& storage) {
  base::sanitizer::handle_no_return();
  auto* const exception = ::new (static_cast<void*>(&storage)) _Unwind_Exception{};
  exception->exception_class = exit_class;
  exception->exception_cleanup = &swallowed;
  _Unwind_ForcedUnwind(exception, &never_stop, nullptr);
  // The unwinder returns only if it could not walk the stack.
  base::fatal("this_goroutine::exit met a function without unwind tables");
}

}  // namespace weft::arch

// The unwinder asks this in weft_goroutine_entry's frame; entry.S names it.
extern "C" [[gnu::visibility("hidden")]] _Unwind_Reason_Code weft_goroutine_personality(
    int version, _Unwind_Action actions, _Unwind_Exception_Class thrower,
    _Unwind_Exception* exception, _Unwind_Context* context) {
  if (version != 1) return _URC_FATAL_PHASE1_ERROR;
  if ((actions & _UA_SEARCH_PHASE) != 0) weft::arch::exception_escaped(thrower, exception);
  if ((actions & _UA_FORCE_UNWIND) == 0) {
    weft::base::fatal("a goroutine was unwound by an exception nobody handles");
  }
  if (thrower != weft::arch::exit_class) {
    weft::base::fatal("pthread_exit called in a goroutine");
  }
  _Unwind_SetIP(context, reinterpret_cast<_Unwind_Ptr>(&weft_goroutine_exited));
  return _URC_INSTALL_CONTEXT;
}

// weft_goroutine_exited calls this, on a stack that is empty again.
extern "C" [[noreturn, gnu::visibility("hidden")]] void weft_goroutine_unwound() {
  // Each `throw;` on the way here has added one to the count of uncaught exceptions, and a forced
  // unwinding never subtracts it. No frame is left that could still have such an exception.
  weft::arch::this_exception_state() = {};
  if (weft::arch::hooks.on_goroutine_exit != nullptr) weft::arch::hooks.on_goroutine_exit();
  weft::base::fatal("a goroutine was unwound, and no exit hook is set");
}
