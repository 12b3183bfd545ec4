// sanitizer.hpp: which sanitizer the process runs under, and what the runtime must tell it.
//
// AddressSanitizer and ThreadSanitizer believe that a thread has one stack. A runtime that moves
// between stacks must announce every switch, give back what it poisoned, and show the leak checker
// where pointers may lie.
//
// A program may be built with AddressSanitizer or LeakSanitizer while this library is not. So the
// sanitizers' functions are weak symbols here. They are null in a process without a sanitizer, and
// an ordinary library tests them before each announcement. ThreadSanitizer has to see every access
// to an atomic, so it needs a library that was built with it: WEFT_TSAN is 1 in such a build.
// WEFT_ASAN is 1 in a build with AddressSanitizer. Both are always defined.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define WEFT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WEFT_ASAN 1
#endif
#endif
#ifndef WEFT_ASAN
#define WEFT_ASAN 0
#endif

#if defined(__SANITIZE_THREAD__)
#define WEFT_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WEFT_TSAN 1
#endif
#endif
#ifndef WEFT_TSAN
#define WEFT_TSAN 0
#endif

// For a function that may interrupt the sanitizer's own code.
#if WEFT_TSAN
#define WEFT_NO_TSAN __attribute__((no_sanitize("thread")))
#else
#define WEFT_NO_TSAN
#endif

// Declared here and not included: the headers belong to the compiler's sanitizer package, which may
// be missing where only the sources are checked.
extern "C" {
#if WEFT_ASAN || WEFT_TSAN
void __sanitizer_set_death_callback(void (*callback)(void));
#endif
[[gnu::weak]] void __sanitizer_start_switch_fiber(void** fake_stack_save, const void* bottom,
                                                  std::size_t size);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void* fake_stack_save, const void** bottom_old,
                                                   std::size_t* size_old);
[[gnu::weak]] void __asan_unpoison_memory_region(void const volatile* address, std::size_t size);
[[gnu::weak]] void __asan_handle_no_return(void);
[[gnu::weak]] void __lsan_register_root_region(const void* address, std::size_t size);
[[gnu::weak]] void __lsan_unregister_root_region(const void* address, std::size_t size);
#if WEFT_TSAN
void* __tsan_get_current_fiber(void);
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
#endif
}

namespace weft::base::sanitizer {

// Whether this library was built with a sanitizer.
inline constexpr bool active = WEFT_ASAN != 0 || WEFT_TSAN != 0;
inline constexpr bool is_thread = WEFT_TSAN != 0;
// Whether the sanitizer is a shared library, so that an address tells whether code belongs to it.
#if defined(__clang__)
inline constexpr bool is_shared = false;
#else
inline constexpr bool is_shared = true;
#endif

// Whether a switch lets the goroutine switched to see what the one before it wrote. In a real
// program only the scheduler's own synchronisation orders two goroutines, so a switch must not.
enum class fiber_sync { none, happens_before };

// Whether AddressSanitizer is active, in this build or in the program.
[[gnu::always_inline]] inline bool has_address() noexcept {
  if constexpr (active) return WEFT_ASAN != 0;
  return &__sanitizer_start_switch_fiber != nullptr;
}

// Whether a sanitizer that reads memory is active: AddressSanitizer, which includes the leak
// checker, the leak checker alone, or the sanitizer that this library was built with.
inline bool is_watched() noexcept {
  if constexpr (active) return true;
  return &__lsan_register_root_region != nullptr;
}

// Before a switch to the stack [bottom, bottom + bytes). `*fake_stack` keeps what finish_switch of
// the goroutine left needs; a null `fake_stack` says that this goroutine never comes back.
[[gnu::always_inline]] inline void start_switch(void** fake_stack, const void* bottom,
                                                std::size_t bytes) noexcept {
  if (has_address()) [[unlikely]]
    __sanitizer_start_switch_fiber(fake_stack, bottom, bytes);
}

// First thing after a switch, on the stack switched to. `fake_stack` is what start_switch kept for
// it, null on its first run. The outputs describe the stack that was left; they may be null, and
// stay as they are without ASan.
[[gnu::always_inline]] inline void finish_switch(void* fake_stack, const void** bottom_left,
                                                 std::size_t* bytes_left) noexcept {
  if (has_address()) [[unlikely]]
    __sanitizer_finish_switch_fiber(fake_stack, bottom_left, bytes_left);
}

// Makes [address, address + bytes) fit for use again, whatever red zones dead frames left in it.
inline void unpoison(const void* address, std::size_t bytes) noexcept {
  if (has_address()) [[unlikely]]
    __asan_unpoison_memory_region(address, bytes);
}

// Before the caller's frames are left without returning, which would leave their red zones behind.
inline void handle_no_return() noexcept {
  if (has_address()) __asan_handle_no_return();
}

// Tells the leak checker to look for pointers in [address, address + bytes). Every page of it must
// be readable or PROT_NONE in the eyes of /proc/self/maps: the checker faults on other guards.
inline void register_root(const void* address, std::size_t bytes) noexcept {
  if (&__lsan_register_root_region != nullptr) __lsan_register_root_region(address, bytes);
}

inline void unregister_root(const void* address, std::size_t bytes) noexcept {
  if (&__lsan_unregister_root_region != nullptr) __lsan_unregister_root_region(address, bytes);
}

// Sets the function that is called when a report ends the process; null: none.
inline void set_death_callback([[maybe_unused]] void (*callback)()) noexcept {
#if WEFT_ASAN || WEFT_TSAN
  __sanitizer_set_death_callback(callback);
#endif
}

// TSan's idea of a goroutine; null in other builds. Creating one allocates inside TSan.
inline void* create_fiber() noexcept {
#if WEFT_TSAN
  return __tsan_create_fiber(0);
#else
  return nullptr;
#endif
}

inline void destroy_fiber([[maybe_unused]] void* fiber) noexcept {
#if WEFT_TSAN
  __tsan_destroy_fiber(fiber);
#endif
}

inline void* current_fiber() noexcept {
#if WEFT_TSAN
  return __tsan_get_current_fiber();
#else
  return nullptr;
#endif
}

// Right before the switch itself, from the stack that is left. The caller and everything between
// here and the switch must not be instrumented as a function whose exit runs on the other stack.
[[gnu::always_inline]] inline void switch_to_fiber([[maybe_unused]] void* fiber,
                                                   [[maybe_unused]] fiber_sync sync) noexcept {
#if WEFT_TSAN
  constexpr unsigned no_sync = 1;  // the flag's value in TSan's interface
  __tsan_switch_to_fiber(fiber, sync == fiber_sync::none ? no_sync : 0u);
#endif
}

}  // namespace weft::base::sanitizer
