// shared_mutex_core.hpp: the lock under weft::shared_mutex.
//
// One word, the center: how many readers are in, whether a writer is in (`held`), and whether a
// goroutine waits (`barred`). Two queues, one of readers and one of writers, are guarded by the bit
// `busy` of the word.
//
// Readers on many processors would pass the cache line of the center around needlessly. Once they
// have got in each other's way a few times, they spread: each reader counts itself in the slot of
// its thread, one of eight on cache lines of their own. An open slot takes readers in and lets them
// out with one compare-exchange, and nothing else is touched. A writer first closes all slots,
// which moves their counts to the center; the slots stay closed until readers collide again. So a
// shared_mutex that is mostly written, or used on one processor, never pays for slots, nor for
// their memory.
//
//   lock_shared or unlock_shared, slot open     one compare-exchange in the slot
//   lock_shared or unlock_shared, not barred    one compare-exchange in the center
//   lock, the word is 0                         one compare-exchange
//   unlock, the word is `held`                  one compare-exchange
//   otherwise                                   under `busy`
//
// Who is next. While a writer waits, new readers queue (`barred`), so readers cannot starve it: the
// last reader that leaves hands the lock to the first writer. A writer that unlocks lets in all
// readers that wait at that moment, so writers cannot starve readers. If no reader waits, the next
// writer is woken and competes with newcomers, as with a mutex; after 1 ms it is handed the lock.
//
// Invariants:
//   I1  While `busy` is set only its holder changes the center. Slots are opened and closed under
//       `busy` only, and all at once (`spread`: they are open). Readers use open slots at any time.
//   I2  The counts of the center and of the open slots add up to the number of readers that are in.
//       A single count may be negative, because a reader may leave by another slot than it came by.
//       While the slots are not `spread`, the count of the center is exact.
//   I3  The slots are not spread while `held` is set, or while a writer queues.
//   I4  `barred` is set exactly if a waiter queues or a writer is on the way (woken_).
//   I5  If a writer queues and no goroutine is in, a writer is on the way. A reader queues only if
//       a writer is in, queues, or is on the way.
//   I6  The step by which a goroutine leaves is its last one that touches the shared_mutex.
//
// Memory order:
//   [X1] unlock's release of the center -> the acquire of the goroutine that gets in next: what the
//        writer did. Opening a slot passes it on.
//   [X2] unlock_shared's release of a slot or the center -> the acquire of the writer that closes
//        the slot or takes the center: what readers did.
//   [X3] letting go of `busy` (release) -> taking it (acquire): queues and flags.
//   [X4] making of the slots (release) -> a goroutine that looks for its slot (acquire): the slots
//        are initialised.
//
// The slow paths are in src/sync/shared_mutex_slow.hpp; tests/model/shared_mutex_test.cpp explores
// them.
#pragma once

#include <weft/detail/config.hpp>
#include <weft/detail/wait_queue.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weft::detail {

template <class Scheduler>
class basic_shared_mutex {
 public:
  static constexpr const char* name = "shared_mutex";

  constexpr basic_shared_mutex() = default;
  basic_shared_mutex(const basic_shared_mutex&) = delete;
  basic_shared_mutex& operator=(const basic_shared_mutex&) = delete;
  WEFT_API ~basic_shared_mutex();

  bool try_lock() noexcept {
    std::uint64_t word = 0;
    return lock_fast(word) || ((word & held) == 0 && try_lock_slow());
  }
  // Returns: false if the limit came first.
  bool lock_until(wait_limit limit) {
    std::uint64_t word = 0;
    return lock_fast(word) || lock_slow(limit);
  }
  void unlock() noexcept {
    std::uint64_t word = held;
    if (!word_.compare_exchange_strong(word, 0, std::memory_order_release,  // [X1]
                                       std::memory_order_relaxed)) {
      unlock_slow();
    }
  }

  WEFT_API bool try_lock_shared() noexcept;
  WEFT_API bool lock_shared_until(wait_limit limit);
  WEFT_API void unlock_shared() noexcept;

  // Lets readers use the slots from now on, until the next writer. Allocates.
  WEFT_API void spread() noexcept;

  // Hints, for assertions and tests.
  bool is_waited_for() const noexcept { return !readers_.empty() || !writers_.empty(); }
  bool is_spread() const noexcept { return (word_.load(std::memory_order_relaxed) & spread_) != 0; }

 private:
  using waiter = basic_waiter<Scheduler>;
  using wait_chain = basic_wait_chain<Scheduler>;
  template <class T>
  using atomic = typename Scheduler::template atomic<T>;

  struct slots;
  struct center;

  static constexpr std::uint64_t busy = 1;     // I1
  static constexpr std::uint64_t held = 2;     // a writer is in
  static constexpr std::uint64_t barred = 4;   // I4
  static constexpr std::uint64_t spread_ = 8;  // I2
  static constexpr int reader_shift = 4;
  static constexpr std::uint64_t one_reader = 1u << reader_shift;

  atomic<std::uint64_t>* my_slot() const noexcept;
  bool lock_fast(std::uint64_t& word) noexcept {
    return word_.compare_exchange_strong(word, held, std::memory_order_acquire,  // [X1] [X2]
                                         std::memory_order_relaxed);
  }
  WEFT_API bool try_lock_slow() noexcept;
  WEFT_API bool lock_slow(wait_limit limit);
  WEFT_API void unlock_slow() noexcept;

  // Under busy.
  center take() noexcept;
  void let_go(const center& c) noexcept;
  void close_slots(center& c) noexcept;
  bool nobody_in(center& c) noexcept;
  void admit_readers(center& c, wait_chain& admitted) noexcept;
  waiter* hand_over(center& c) noexcept;

  static bool give_up_lock(void* argument) noexcept;
  static bool give_up_lock_shared(void* argument) noexcept;

  atomic<std::uint64_t> word_{0};
  atomic<slots*> slots_{nullptr};        // [X4] null until the first spread; then constant
  atomic<std::uint32_t> collisions_{0};  // a statistic: readers that met in the center
  bool woken_ = false;                   // guarded by busy: a writer is on the way to compete
  bool starving_ = false;                // guarded by busy: the lock is handed to writers
  basic_wait_queue<Scheduler> readers_;  // guarded by busy
  basic_wait_queue<Scheduler> writers_;  // guarded by busy
};

using shared_mutex_core = basic_shared_mutex<seam>;

}  // namespace weft::detail
