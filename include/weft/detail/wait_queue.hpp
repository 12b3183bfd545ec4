// wait_queue.hpp: the waiters of one primitive, first come first served.
//
// A waiter lies on the stack of the goroutine (or thread) that waits. The primitive guards its
// queue by a bit of its own word (take_bit), held inside the runtime only, for a few instructions.
// Because that bit is in the word, one step can both change the state and let go of the queue. It
// is the last step that touches the primitive: a goroutine that the new state lets through may
// destroy it. (condition_core.hpp says why a condition_variable guards its queue otherwise.)
//
// Invariants:
//   I1  A waiter is in its queue exactly while `queued`.
//   I2  The thread that takes a waiter out readies it, exactly once, after letting go of the queue.
//       Between these two steps it may use the waiter, but not the primitive. A waiter that gives
//       up (wait_limit.hpp) takes itself out.
#pragma once

#include <weft/detail/linked_list.hpp>
#include <weft/detail/park.hpp>
#include <weft/detail/wait_limit.hpp>

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace weft::detail {

template <class Scheduler>
struct basic_waiter {
  list_link<basic_waiter> link;  // guarded like the queue; once taken out, the taker's
  typename Scheduler::waiter who{};
  void* primitive = nullptr;  // for give_up
  std::int64_t since_ns = 0;
  bool queued = false;   // I1
  bool granted = false;  // set by the taker: the waiter has what it waited for
};

template <class Scheduler>
class basic_wait_queue {
 public:
  using waiter = basic_waiter<Scheduler>;

  constexpr basic_wait_queue() = default;
  basic_wait_queue(const basic_wait_queue&) = delete;
  basic_wait_queue& operator=(const basic_wait_queue&) = delete;

  bool empty() const noexcept { return list_.empty(); }

  void push_back(waiter& w) noexcept {
    list_.push_back(&w);
    w.queued = true;
  }
  void push_front(waiter& w) noexcept {
    list_.push_front(&w);
    w.queued = true;
  }
  void remove(waiter& w) noexcept {
    list_.remove(&w);
    w.queued = false;
  }
  // Returns: the first waiter, or null if there is none.
  waiter* pop_front() noexcept {
    waiter* const w = list_.pop_front();
    if (w != nullptr) w->queued = false;
    return w;
  }

 private:
  linked_list<waiter, &waiter::link> list_;
};

// Waiters that were taken out together, to be readied in their order.
template <class Scheduler>
class basic_wait_chain {
 public:
  using waiter = basic_waiter<Scheduler>;

  void add(waiter& w) noexcept { list_.push_back(&w); }
  // Readies the waiters in their order. Inside the runtime.
  void ready_all() noexcept {
    // A waiter is gone once its owner runs.
    while (waiter* const w = list_.pop_front()) Scheduler::ready_inside(w->who);
  }

 private:
  linked_list<waiter, &waiter::link> list_;
};

// Waits until `bit` is clear in `word`, and sets it, acquiring. Returns: the word, with the bit.
// Requires: inside the runtime, or a plain thread.
template <class Scheduler, class Word>
Word take_bit(typename Scheduler::template atomic<Word>& word, Word bit) noexcept {
  for (int turn = 0;;) {
    const Word before = word.fetch_or(bit, std::memory_order_acquire);  // [O2] [U2] [V2] [X3] [Y3]
    if ((before & bit) == 0) return static_cast<Word>(before | bit);
    // relaxed: waits without disturbing the thread that has the bit.
    do Scheduler::relax(turn++);
    while ((word.load(std::memory_order_relaxed) & bit) != 0);
  }
}

using waiter = basic_waiter<seam>;
using wait_queue = basic_wait_queue<seam>;
using wait_chain = basic_wait_chain<seam>;

// Ends the program, because it has destroyed an object while a goroutine waited for it. Called only
// in builds with WEFT_ASSERTIONS.
WEFT_API void die_of_destruction(const char* what) noexcept;

template <class Core>
class checked : public Core {
 public:
  using Core::Core;
  ~checked() {
    if (this->is_waited_for()) die_of_destruction(Core::name);
  }
};
// The type of the member in which a primitive's public class holds the core.
template <class Core>
using guarded = std::conditional_t<assertions, checked<Core>, Core>;

}  // namespace weft::detail
