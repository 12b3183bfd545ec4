// once_core.hpp: which call runs the function of a once_flag.
//
//   idle       no call has run the function, or the last one that did threw
//   running    one call runs it; the others queue
//   done       a call has run it; for ever
//
// If a call ends with an exception, the first waiter in the queue runs the function next. If it
// returns, all waiters go on. The flag `busy` guards the queue. While it is set only its holder
// changes the word, so the step that says `done` is the last one that touches the flag.
//
// Memory order:
//   [O1] finish's release -> begin's acquire: what the function did.
//   [O2] letting go of `busy` (release) -> taking it (acquire): the queue.
#pragma once

#include <weft/detail/config.hpp>
#include <weft/detail/wait_queue.hpp>

#include <atomic>
#include <cstdint>

namespace weft::detail {

class once_core {
 public:
  constexpr once_core() = default;
  once_core(const once_core&) = delete;
  once_core& operator=(const once_core&) = delete;

  bool is_done() const noexcept {
    return word_.load(std::memory_order_acquire) == was_run;  // [O1]
  }
  enum class turn : std::uint8_t {
    run,   // the caller has to run the function and then call finish() or fail()
    done,  // the function has been run
    gave_up,
  };
  // Blocks: the goroutine, while another one runs the function.
  WEFT_API turn begin(wait_limit limit);
  WEFT_API void finish() noexcept;
  WEFT_API void fail() noexcept;

 private:
  static constexpr std::uint32_t idle = 0;
  static constexpr std::uint32_t running = 1;
  static constexpr std::uint32_t was_run = 2;
  static constexpr std::uint32_t busy = 4;

  static bool give_up(void* argument) noexcept;

  std::atomic<std::uint32_t> word_{idle};
  wait_queue queue_;  // guarded by busy
};

}  // namespace weft::detail
