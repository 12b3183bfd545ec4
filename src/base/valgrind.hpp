// valgrind.hpp: whether valgrind runs the program, and what the runtime must tell valgrind.
//
// valgrind takes a large step of the stack pointer for a change of stacks and a small step for a
// new frame. The next goroutine's stack may be close: so unless valgrind knows the stacks, it takes
// the frames on one stack for remains of another. Programs talk to valgrind by sequences of
// instructions that do nothing outside of valgrind, so this file needs neither valgrind's headers
// nor a flag.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::base::valgrind {

namespace requests {
inline constexpr std::uintptr_t running_on_valgrind = 0x1001;
inline constexpr std::uintptr_t stack_register = 0x1501;
inline constexpr std::uintptr_t stack_deregister = 0x1502;
}  // namespace requests

// Returns: valgrind's answer, or 0 without valgrind. The rotations add up to whole turns.
inline std::uintptr_t ask(std::uintptr_t request, std::uintptr_t first = 0,
                          std::uintptr_t second = 0) noexcept {
  const volatile std::uintptr_t words[6] = {request, first, second};
#if defined(__x86_64__)
  std::uintptr_t answer = 0;
  asm volatile(
      "rolq $3, %%rdi\n\t"
      "rolq $13, %%rdi\n\t"
      "rolq $61, %%rdi\n\t"
      "rolq $51, %%rdi\n\t"
      "xchgq %%rbx, %%rbx"
      : "+d"(answer)
      : "a"(&words[0])
      : "cc", "memory");
  return answer;
#elif defined(__aarch64__)
  register std::uintptr_t answer asm("x3") = 0;
  register const volatile std::uintptr_t* question asm("x4") = words;
  asm volatile(
      "ror x12, x12, #3\n\t"
      "ror x12, x12, #13\n\t"
      "ror x12, x12, #51\n\t"
      "ror x12, x12, #61\n\t"
      "orr x10, x10, x10"
      : "+r"(answer)
      : "r"(question)
      : "cc", "memory");
  return answer;
#endif
}

inline bool is_here() noexcept { return ask(requests::running_on_valgrind) != 0; }

// Says that [low, low + bytes) is a stack. Returns: its name for unregister_stack.
inline std::uintptr_t register_stack(const void* low, std::size_t bytes) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(low);
  return ask(requests::stack_register, begin, begin + bytes - 1);
}

inline void unregister_stack(std::uintptr_t name) noexcept {
  ask(requests::stack_deregister, name);
}

}  // namespace weft::base::valgrind
