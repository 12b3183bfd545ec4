// seat.hpp: who may touch a processor, biased towards the machine that holds it.
//
// Everything a processor owns (its queues, its caches) is plain memory. The machine that holds the
// processor touches that memory a hundred million times a second; a thief, the monitor or a change
// of max_procs touches it now and then. So the memory is guarded by a lock that costs its holder
// two plain instructions on the way in and one on the way out, and costs all others a membarrier.
//
// Each machine has one seat. `inside` is set by the machine while it runs runtime code; `word` is
// written by others.
//
//     machine (owner)                        claimer (thief, monitor, resize)
//     enter: store inside = 1                compare-exchange word: free -> pending
//            light barrier                   heavy barrier
//            load word; free: go on          load inside; 0: the processor is the claimer's
//     leave: store inside = 0                release: store word = free, or taken
//
// [S1] Each column is a store followed by a load of what the other column stores. So either the
// owner sees pending and stands back until the claimer is done, or the claimer sees inside == 1 and
// waits or gives up. Never do both go on. tests/model/seat_test.cpp walks the interleavings, with
// store buffers, and fails when the heavy barrier is left out.
//
// Values of word, and who may change them:
//   free       the owner may enter. Claimers move it to asked or pending.
//   asked      a thief asks for work (its number is in the upper bits). The owner accepts at its
//              next entry, which makes the word free again, and hands over half of its queue. The
//              thief may turn its question into a claim. A question costs no barrier at all. It is
//              soon answered by an owner that starts goroutines or yields, because that owner
//              enters every few nanoseconds.
//   pending    one claimer, and no other thread, decides what comes next; an owner that finds this
//              on entry stands back.
//   yield_please  the goroutine has had its slice: the owner, at its next entry, makes the word
//              free again and lets others run. A claim that failed leaves this plea behind, because
//              an owner that enters often might never be caught outside.
//   taken      the processor has left this machine while its goroutine ran user code, or the
//              machine has given the processor up itself. At its next entry the owner has to get
//              another processor, or find that it has got its own back, before it may go on
//              (ownership.hpp).
//   stopped    the process is ending, or is the child of a fork: a thread that enters does not come
//              back.
//
// What each thread does with the word that it finds. Thieves, the monitor and resize come from
// outside. The handler (preempt.cpp) runs on the owner's thread, outside the runtime, and enters.
//
//   free          The owner goes on. A thief asks, and claims later. The monitor claims, or
//                 leaves a plea. Resize claims. The handler gives the processor up.
//   asked         The owner hands over half and goes on. A second thief does nothing. The monitor
//                 and resize tell the thief "nothing" in the owner's stead, then claim. The handler
//                 hands over half, then gives the processor up.
//   pending       The owner and the handler wait for the claimer. Others look again later.
//   yield_please  The owner yields. If it parks instead, that does as well. A thief, the monitor
//                 and resize claim; a claim that fails leaves the plea. The handler gives the
//                 processor up.
//   taken         The owner gets a processor, or its goroutine is queued. The owner may have been
//                 given one back and not have noticed. Then a thief robs that processor, and the
//                 monitor and resize retake it, under the scheduler's lock. The handler waits for a
//                 processor.
//   stopped       The owner stays where it enters; the handler returns. No other thread comes.
//
// Neither a goroutine that blocks nor time that passes changes the word. So what the threads from
// outside do has to be right for each value. A claim fails while the owner is inside; then the
// owner is about to see the word. Due timers, loans and resize all act by claims. A processor that
// was lent, or that waits for a thread which does not come, is on no seat: ownership.hpp.
//
// Invariants:
//   I1  What the processor owns is touched only by its machine while inside == 1 and word was free
//       or asked at entry, or by the one claimer that turned word to pending and then saw
//       inside == 0.
//   I2  Only the owner stores inside; only the owner turns taken back to free.
//   I3  A claimer that fails leaves word as free or yield_please, so no claim is ever left behind.
//
// Memory order:
//   [S2] owner's leave (release) -> claimer's load of inside (acquire): what the owner wrote.
//   [S3] claimer's release -> owner's load of word at entry, and the next claimer's exchange
//        (acquire): what the claimer wrote.
//   [S5] thief's question (release) -> owner's acceptance (acquire): the thief's mailbox is ready.
//   Between two stays of one owner no order is needed, because both are on one thread. (TSan treats
//   goroutines as threads of their own. So under TSan the way in is an exchange, [S4], which shows
//   TSan that one goroutine's leave precedes the next goroutine's entry.)
#pragma once

#include "base/check.hpp"
#include "base/platform.hpp"
#include "base/sanitizer.hpp"

#include <cstdint>

namespace weft::sched {

template <class Platform>
class basic_seat {
 public:
  enum word_kind : std::uint32_t { free, asked, pending, yield_please, taken, stopped };
  static constexpr std::uint32_t kind_mask = 0xff;
  static constexpr int thief_shift = 8;

  basic_seat() = default;
  basic_seat(const basic_seat&) = delete;
  basic_seat& operator=(const basic_seat&) = delete;

  // Owner. Returns: true if the processor may be used at once; else settle() must follow.
  bool enter() noexcept {
#if WEFT_TSAN
    inside_.exchange(1, std::memory_order_seq_cst);  // [S4]
#else
    inside_.store(1, Platform::hot_store);  // [S1]
#endif
    Platform::light_barrier();
    return word_.load(Platform::hot_load) == free;  // [S1] [S3]
  }

  // Owner. Requires: inside.
  void leave() noexcept {
    WEFT_ASSERT_ON(Platform, is_owner_inside());
    inside_.store(0, std::memory_order_release);  // [S2] [S4]
  }

  // Owner, after an enter() that returned false. Waits for a claimer to finish.
  // Returns: free (go on), taken or stopped (the processor must not be touched), or the whole word
  // of a question or a plea (call accept()).
  std::uint32_t settle() noexcept {
    for (int turn = 0;; ++turn) {
      const std::uint32_t word = word_.load(std::memory_order_acquire);  // [S3]
      if (word != pending) return word;
      leave();
      if (turn < 100) {
        Platform::pause();
      } else {
        Platform::yield_thread();  // the claimer has lost its core
      }
      enter();
    }
  }

  // Owner. Returns: true if the word was still `question`. Then the thief that wrote it waits for
  // its share; or, if it is a plea, this owner has to yield.
  bool accept(std::uint32_t question) noexcept {
    WEFT_ASSERT_ON(Platform, kind_of(question) == asked || question == yield_please);
    return word_.compare_exchange_strong(question, free, std::memory_order_acquire,  // [S5]
                                         std::memory_order_relaxed);
  }

  // Owner, inside and holding a processor again. The word may still be `taken`.
  void reclaim() noexcept {
    WEFT_ASSERT_ON(Platform, is_owner_inside());
    std::uint32_t expected = taken;
    word_.compare_exchange_strong(expected, free, std::memory_order_relaxed);  // I2
  }

  // Owner, inside and about to run another goroutine: a plea was meant for the goroutine that ran
  // before.
  void forget_plea() noexcept {
    WEFT_ASSERT_ON(Platform, is_owner_inside());
    std::uint32_t expected = yield_please;
    word_.compare_exchange_strong(expected, free, std::memory_order_relaxed);
  }

  // Owner, inside and holding the processor, which it is about to give away.
  // Returns: false if another thread wrote the word meanwhile: settle() must follow.
  bool give_up() noexcept {
    WEFT_ASSERT_ON(Platform, is_owner_inside());
    std::uint32_t expected = free;
    return word_.compare_exchange_strong(expected, taken, std::memory_order_acq_rel,  // [S3]
                                         std::memory_order_relaxed);
  }

  // Monitor. Asks the owner to let others run at its next entry.
  bool ask_to_yield() noexcept {
    std::uint32_t expected = free;
    return word_.compare_exchange_strong(expected, yield_please, std::memory_order_relaxed);
  }

  // Claimer. Asks the owner for a share of its work.
  bool ask(std::uint32_t thief) noexcept {
    std::uint32_t expected = free;
    return word_.compare_exchange_strong(expected, question_of(thief),
                                         std::memory_order_release,  // [S5]
                                         std::memory_order_relaxed);
  }

  // Claimer that has asked: turns the question into a claim.
  // Returns: accepted if the owner has answered after all, else as claim() does.
  enum class claimed : std::uint8_t { yes, no, accepted };
  claimed claim_after_asking(std::uint32_t thief, int turns) noexcept {
    std::uint32_t expected = question_of(thief);
    if (!word_.compare_exchange_strong(expected, pending, std::memory_order_acquire,  // [S3]
                                       std::memory_order_relaxed)) {
      return claimed::accepted;
    }
    return finish_claim(turns, free) ? claimed::yes : claimed::no;
  }

  // Claimer. Tries to get the processor from its machine. Looks `turns` times whether the machine
  // is outside the runtime. If the claim fails, the word becomes `otherwise` (free or
  // yield_please), but a plea that was there before stays. Returns: true if it succeeded; then
  // release() or take() must follow, soon.
  bool claim(int turns, word_kind otherwise = free) noexcept {
    WEFT_ASSERT_ON(Platform, otherwise == free || otherwise == yield_please);  // I3
    std::uint32_t expected = free;
    while (!word_.compare_exchange_strong(expected, pending, std::memory_order_acquire,  // [S3]
                                          std::memory_order_relaxed)) {
      if (expected != yield_please) return false;
      otherwise = yield_please;
    }
    return finish_claim(turns, otherwise);
  }

  // Claimer, if its claim has failed: accepts a thief's question in the owner's stead, because the
  // thief may have lost its core. Returns: the question, for the caller to answer, or free if there
  // was none. The claim may be tried again.
  std::uint32_t accept_for_owner() noexcept {
    std::uint32_t word = word_.load(std::memory_order_relaxed);  // re-checked by the exchange
    return kind_of(word) == asked && accept(word) ? word : static_cast<std::uint32_t>(free);
  }

  // Claimer. The owner may go on as if nothing had happened.
  void release() noexcept { decide(free); }

  // Claimer. The owner no longer has a processor.
  void take() noexcept { decide(taken); }

  // Any thread, at the end of the process. After this call no thread enters any more.
  void stop() noexcept { word_.store(stopped, std::memory_order_seq_cst); }  // [ST1]

  // Owner, if its machine is the one that goes on when the process ends. No claimer comes any more.
  void stay_open() noexcept { word_.store(free, std::memory_order_relaxed); }

  // Returns: whether the owner was inside at some instant of this call.
  bool inside_hint() const noexcept {
    return inside_.load(std::memory_order_seq_cst) != 0;  // [S2] [E1] [E2] [ST1]
  }

  static std::uint32_t thief_of(std::uint32_t word) noexcept {
    WEFT_ASSERT_ON(Platform, kind_of(word) == asked);
    return word >> thief_shift;
  }
  static word_kind kind_of(std::uint32_t word) noexcept {
    return static_cast<word_kind>(word & kind_mask);
  }

 private:
  static std::uint32_t question_of(std::uint32_t thief) noexcept {
    return asked | thief << thief_shift;
  }

  bool finish_claim(int turns, word_kind otherwise) noexcept {
    Platform::heavy_barrier();  // [S1]
    for (; turns > 0; --turns) {
      if (inside_.load(std::memory_order_seq_cst) == 0) return true;  // [S1] [S2]
      Platform::pause();
    }
    decide(otherwise);  // I3
    return false;
  }

  // Claimer: only a claim that was made can be decided. An exchange, not a store: if the process
  // has begun to end meanwhile, the word stays `stopped`.
  void decide(word_kind outcome) noexcept {
    std::uint32_t expected = pending;
    word_.compare_exchange_strong(expected, outcome, std::memory_order_release,  // [S3]
                                  std::memory_order_relaxed);
    WEFT_ASSERT_ON(Platform, expected == pending || expected == stopped);
  }

  // For assertions.
  bool is_owner_inside() const noexcept { return inside_.load(std::memory_order_relaxed) == 1; }

  typename Platform::template atomic<std::uint32_t> inside_{0};
  typename Platform::template atomic<std::uint32_t> word_{free};
};

using seat = basic_seat<base::platform>;

}  // namespace weft::sched
