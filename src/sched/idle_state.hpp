// idle_state.hpp: how many machines look for work, and how many processors have to be woken for
// work, in one word that each producer of work reads.
//
// `searching` machines hold a processor and look for work. `listening` processors lie in the idle
// list and rely on being woken. (A processor that dozes, sleep.hpp, is neither: its machine looks
// by itself when the doze is over.) A producer wakes a machine only if none searches and a
// processor listens. To know that takes one comparison of one word that hardly ever changes.
//
//     producer                               the last searcher, about to sleep
//     store the work (queue's tail)          listening + 1, then searching - 1
//     light barrier                          heavy barrier
//     load word: a processor listens and     look at every queue once more;
//       none searches: wake one                work: take it back, search on; none: sleep
//
// [W1] Both sides store first and load afterwards. So the producer sees that a processor listens,
// or the searcher's last look sees the work, or both. No work is left lying while a processor
// sleeps. tests/model/idle_state_test.cpp walks the interleavings, and fails when the barrier or
// the last look is left out.
//
// Every change of the word is a store of [W1], on one side or the other, and therefore at least
// acq_rel.
//
// A producer that sees a searcher wakes no machine. The searcher's last look is still to come (I2).
// If it finds work and is the last one to search, it wakes the next machine.
//
// Invariants:
//   I1  listening is the number of processors in the idle list that listen; it changes together
//       with the list, under the scheduler's lock.
//   I2  A thread that subtracts one from `searching` does one of two things. If it has found work,
//       it calls work_made() afterwards, so that another machine searches. Otherwise it looks at
//       every queue afterwards.
#pragma once

#include "base/check.hpp"
#include "base/platform.hpp"

#include <cstdint>

namespace weft::sched {

template <class Platform>
class basic_idle_state {
 public:
  // Producer, after its work is visible and a light barrier has passed.
  bool should_wake() const noexcept {
    // True exactly if 0 < word < one_searching: a processor listens, and no machine searches. The
    // subtraction makes it one unsigned comparison, because 0 - 1 is the largest number.
    return word_.load(Platform::hot_load) - 1 < one_searching - 1;  // [W1]
  }

  // Takes over the duty of waking a machine: counts one search, on behalf of the machine that is
  // going to be woken. Returns: false if no machine need be woken any more, because one searches,
  // or no processor listens.
  bool begin_wake() noexcept {
    std::uint64_t word = word_.load(std::memory_order_relaxed);  // re-checked by the exchange
    do {
      if (word - 1 >= one_searching - 1) return false;
    } while (!word_.compare_exchange_weak(word, word + one_searching,
                                          std::memory_order_acq_rel,  // [W1]
                                          std::memory_order_relaxed));
    return true;
  }

  // Counts a search of the caller's own, unless there are `most` already.
  bool try_search(std::uint32_t most) noexcept {
    std::uint64_t word = word_.load(std::memory_order_relaxed);  // re-checked by the exchange
    do {
      if (word / one_searching >= most) return false;
    } while (!word_.compare_exchange_weak(word, word + one_searching,
                                          std::memory_order_acq_rel,  // [W1]
                                          std::memory_order_relaxed));
    return true;
  }

  // Ends one search. The caller has to do next what I2 says. Returns: true if no search is left.
  bool end_search() noexcept {
    const std::uint64_t before = word_.fetch_sub(one_searching, std::memory_order_seq_cst);  // [W1]
    WEFT_ASSERT_ON(Platform, before >= one_searching);
    return before / one_searching == 1;
  }

  void start_listening() noexcept { word_.fetch_add(1, std::memory_order_seq_cst); }  // [W1]
  void stop_listening() noexcept {
    [[maybe_unused]] const std::uint64_t before =
        word_.fetch_sub(1, std::memory_order_seq_cst);      // [W1]
    WEFT_ASSERT_ON(Platform, before % one_searching != 0);  // I1
  }

  std::uint32_t searching_hint() const noexcept {
    return static_cast<std::uint32_t>(word_.load(std::memory_order_relaxed) / one_searching);
  }
  std::uint32_t listening_hint() const noexcept {
    return static_cast<std::uint32_t>(word_.load(std::memory_order_relaxed) % one_searching);
  }

 private:
  static constexpr std::uint64_t one_searching = std::uint64_t{1} << 32;

  typename Platform::template atomic<std::uint64_t> word_{0};  // searching * 2^32 + listening
};

using idle_state = basic_idle_state<base::platform>;

}  // namespace weft::sched
