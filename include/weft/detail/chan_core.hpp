// chan_core.hpp: the untyped channel; chan<T> and select are typed shells over it.
//
// A channel moves elements of a fixed number of 8-byte words. A T that is trivially copyable and
// small is its own element; any other travels in a box on the heap, and the element is the box's
// address. So nothing of the user's runs under a channel's lock: boxes are filled before an element
// is handed over and emptied after, by whoever owns it at that time, and may throw there.
//
// A channel has a ring of elements and two queues of waiters, one of which is always empty. A
// waiter lies on the stack of the goroutine (or thread) that waits, with the element it sends or
// room for the one it receives.
//
//   send      to the first waiting receiver, into its room; else into the ring; else waits
//   receive   from the ring, and then the first waiting sender's element moves up into the ring;
//             else from the first waiting sender; else waits
//   close     all who wait go on, empty-handed
//
// Waiters of a select have a wait_set in common. Whoever takes one out of a queue claims the set,
// by one compare-exchange of `fired`, or passes it over: somebody else was first.
//
// Invariants:
//   I1  Receivers wait only if the ring is empty; senders only if it is full.
//   I2  A waiter is in its channel's queue exactly while `queued`; both are guarded by the lock.
//   I3  After a waiter has been taken out (and its set claimed) its owner goes on only after
//       ready(); until then whoever took it may use it.
//
// Locks: a channel's lock is a spin lock, held inside the runtime only, for a few instructions. A
// select that has to wait takes those of all its channels, in the order of their addresses. After a
// few hundred uses in a row by one machine that machine need not take the lock any more, until
// somebody else comes (src/sched/bias.hpp); a channel that a select or a timer uses stays without.
//   I4  bias_ names a machine only if nobody holds the lock; whoever has got the lock looks again.
//   I5  count_ is 0 only while the ring is empty, and flags_ says that no sender waits only while
//       that is so or count_ is not 0: also in the middle of an operation, for the hints.
//   I6  While a waiter is queued that a context may take out (give_up), bias_ names no machine:
//       whoever cancels is inside the runtime, and could not wait for a privileged machine. Such a
//       waiter takes the privilege away before it enters the queue, and no machine gets it while
//       the waiter is there. give_up looks at `queued` under the lock: if the waiter is still
//       queued, the lock excludes everybody; if not, it was taken out under the lock, before.
// A channel that was made in a test's simulation says so in bias_, too, for ever: so nobody outside
// takes a fast path, and the others look.
//
// Memory order:
//   [N1] unlock's release -> lock's acquire: everything of the channel.
//   [N2] claim's acquire-release of fired: whoever claims a set has seen what its owner wrote.
//   [N3] close's release of flags_ -> acquire of a reader that sees it closed: what its owner did
//        before.
//   count_ and flags_ are read as hints without the lock, by operations that do not wait: what they
//   fail on was so at some instant of the call (I5). flags_ comes first (acquire, so that it does):
//   while there is a value that was put back no receiver takes one from the ring, so if there was
//   none then and the ring is empty now, there was nothing just before one was put back.
//   [N4] a receiver's release of count_ -> acquire of the hint: if the ring is empty because values
//        were taken after a close, the hint sees the close when it looks at flags_ once more.
#pragma once

#include <weft/detail/config.hpp>
#include <weft/detail/park.hpp>
#include <weft/detail/patience.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

namespace weft::sched {
struct machine;
}

namespace weft::detail {

class chan_core;

// What the waiters of one select share.
struct wait_set {
  static constexpr std::uint32_t none = 0;
  static constexpr std::uint32_t timeout = ~std::uint32_t{0};

  std::atomic<std::uint32_t> fired{none};  // [N2] 1 + the index of the case, or timeout

  bool claim(std::uint32_t value) noexcept {
    std::uint32_t expected = none;
    return fired.compare_exchange_strong(expected, value, std::memory_order_acq_rel,
                                         std::memory_order_relaxed);  // [N2]
  }
};

// One goroutine's or thread's place in the queue of one channel.
struct chan_waiter {
  chan_waiter* next = nullptr;      // guarded by the channel's lock
  chan_waiter* previous = nullptr;  // guarded by the channel's lock
  goroutine* who = nullptr;
  void* element = nullptr;  // what it sends, or where to put what it receives
  wait_set* set = nullptr;  // null: it waits for this channel alone
  std::uint32_t index = 0;  // of the case in its select; without one: may_give_up, or 0
  bool queued = false;      // I2
  bool done = false;        // written by whoever takes it: false if the channel was closed

  static constexpr std::uint32_t may_give_up = 1;  // I6
};

struct chan_queue {
  chan_waiter* head = nullptr;
  chan_waiter* tail = nullptr;
};

// A value in its box. The base links boxes that were put back.
struct chan_box_base {
  chan_box_base* next = nullptr;
};
template <class T>
struct chan_box : chan_box_base {
  template <class... A>
  explicit chan_box(A&&... args) : value(std::forward<A>(args)...) {}
  T value;
};

enum class chan_outcome : std::uint8_t { done, closed, would_wait };

inline constexpr std::size_t chan_word = 8;  // bytes; elements consist of whole words

struct chan_shape {
  std::uint32_t words;                      // of an element
  void (*destroy)(void* element) noexcept;  // null: nothing to do
};

struct chan_word_received {
  std::uint64_t word;
  chan_outcome outcome;
};

// What a channel is a part of: a timer, a context. The owner makes and destroys the channel, and
// learns when no handle on it is left.
class chan_owner {
 public:
  // The last handle on the channel is gone. Another one may come from the owner meanwhile: what
  // counts is how often it gave out a first one and how often the last one went. Outside the
  // runtime.
  virtual void channel_dropped() noexcept = 0;

 protected:
  ~chan_owner() = default;
};

class WEFT_API chan_core {
 public:
  // A channel with one handle. Throws: std::length_error, std::bad_alloc.
  static chan_core* make(std::size_t capacity, const chan_shape& shape);
  // One without a handle, for the owner to destroy. Every user takes the lock. Requires: elements
  // are no boxes. Throws: std::length_error, std::bad_alloc.
  static chan_core* make_owned(std::size_t capacity, const chan_shape& shape, chan_owner* owner);
  // Requires: no handle is left, and it is the owner's.
  void destroy() noexcept;
  // Whether it was made in a simulation and this is none.
  bool is_away() const noexcept;
  // Throws: std::logic_error then.
  void require_home() const;
  // From now on every user takes the lock. Outside the runtime. Throws: std::logic_error if it was
  // made in a simulation and this is none.
  void forgo_bias();
  bool has_forgone_bias() const noexcept {
    return bias_after_.load(std::memory_order_relaxed) == never_biased;
  }

  // Returns: whether there was no handle before, which only the owner need ask.
  bool retain() noexcept { return references_.fetch_add(1, std::memory_order_relaxed) == 0; }
  void release() noexcept {
    // acq_rel: the last one sees what all others did.
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) dropped();
  }

  // Blocks: the goroutine. Returns: done or closed; the element is taken over only if done.
  chan_outcome send(void* element);
  // Fills `element`. Returns: done or closed.
  chan_outcome receive(void* element);
  // The same for elements of one word, which most are. Requires: those of this channel are.
  chan_outcome send_word(std::uint64_t word);
  chan_word_received receive_word();
  // Like send and receive, until the limit: would_wait then, and the element has not been touched.
  chan_outcome send_within(void* element, patience limit);
  chan_outcome receive_within(void* element, patience limit);
  chan_outcome try_send(void* element);
  chan_outcome try_receive(void* element);
  // For elements of one word.
  chan_outcome try_send_word(std::uint64_t word);
  chan_word_received try_receive_word();
  // try_send for a caller that is inside the runtime: a timer.
  chan_outcome offer_inside(void* element) noexcept;
  // Drops an element, for the same. Returns: false if there was none.
  bool take_back_inside() noexcept;
  // Returns: false if it was closed already.
  bool close();
  // Puts a box back in front of all others: its value could not be moved out.
  void put_back(chan_box_base* box);

  std::size_t size_hint() const noexcept {
    return count() + returned_count_.load(std::memory_order_relaxed);
  }
  std::size_t capacity() const noexcept { return capacity_; }
  // Whether a send would not have to wait, at some instant of the call.
  bool could_send() const noexcept {
    return count() < capacity_ || (flags() & (is_closed | has_receivers)) != 0;
  }
  bool could_receive() const noexcept {
    const std::uint32_t f = flags_.load(std::memory_order_acquire);
    // is_closed once more, afterwards: it may have been closed, and then emptied, in between.
    return (f & (is_closed | has_senders | has_returned)) != 0 ||
           count_.load(std::memory_order_acquire) != 0 || is_closed_now();  // [N4]
  }
  // Whether a receive seems to be worth a try.
  bool has_values_hint() const noexcept { return count() != 0 || (flags() & has_senders) != 0; }
  bool is_received_from_hint() const noexcept { return (flags() & has_receivers) != 0; }
  // Whether a receiver waits that the end of the process has not stopped. Inside the runtime.
  // Requires: forgo_bias().
  bool is_received_from_inside() noexcept;
  bool is_closed_now() const noexcept {
    return (flags_.load(std::memory_order_acquire) & is_closed) != 0;  // [N3]
  }

 private:
  friend class chan_select;

  chan_core(std::size_t capacity, const chan_shape& shape) noexcept
      : capacity_(capacity), shape_(shape) {}
  ~chan_core() = default;
  static chan_core* allocate(std::size_t capacity, const chan_shape& shape);
  void dropped() noexcept;

  bool try_lock() noexcept { return lock_.exchange(1, std::memory_order_acquire) == 0; }  // [N1]
  void lock() noexcept {
    if (!try_lock()) [[unlikely]]
      lock_slow();
  }
  void lock_slow() noexcept;
  // The lock, or the privilege not to need it; for a machine that is inside. Returns: false, with
  // neither, if that takes longer.
  bool lock_here(sched::machine* m) noexcept;
  // Enters and gets either, whatever it takes. Returns: the machine, or null on a plain thread.
  // Throws: std::logic_error, outside, if it was made in a simulation and this is none.
  sched::machine* enter_and_lock();
  // Whether some machine is privileged, or being deprived.
  bool is_biased() const noexcept {
    return (reinterpret_cast<std::uintptr_t>(bias_.load(std::memory_order_relaxed)) &
            ~in_simulation) != 0;
  }
  bool is_simulated() const noexcept {
    return reinterpret_cast<std::uintptr_t>(bias_.load(std::memory_order_relaxed)) == in_simulation;
  }
  void note_use_locked(sched::machine* m) noexcept;
  void make_privileged_locked(sched::machine* m) noexcept;
  // Whoever is privileged has not got the lock, and must not free another one's.
  void unlock() noexcept {
    if (!is_biased()) lock_.store(0, std::memory_order_release);  // [N1]
  }

  // What keeps an operation from the ring alone. Changed under the lock; hints else.
  enum : std::uint32_t {
    is_closed = 1,
    has_receivers = 2,  // that wait
    has_senders = 4,    // that wait
    has_returned = 8,
    has_owner = 16,  // for ever
  };
  std::uint32_t flags() const noexcept { return flags_.load(std::memory_order_relaxed); }
  std::size_t count() const noexcept { return count_.load(std::memory_order_relaxed); }
  void set_flag(std::uint32_t f) noexcept { flags_.store(flags() | f, std::memory_order_relaxed); }
  void clear_flag(std::uint32_t f) noexcept {
    flags_.store(flags() & ~f, std::memory_order_relaxed);
  }

  // `one_word`: it is known that elements have one.
  template <bool one_word>
  std::byte* slot(std::size_t i) noexcept {
    return reinterpret_cast<std::byte*>(this + 1) + i * (one_word ? 1 : shape_.words) * chan_word;
  }
  template <bool one_word>
  void copy(void* to, const void* from) const noexcept;
  template <bool one_word>
  void push_ring_locked(const void* element) noexcept;
  template <bool one_word>
  void pop_ring_locked(void* element) noexcept;
  template <bool one_word>
  void exchange_ring_locked(void* element, const void* with) noexcept;

  // Under the lock. The waiter that was served, if any, has to be readied after the unlock.
  template <bool one_word>
  chan_outcome send_locked(void* element, chan_waiter*& served) noexcept;
  template <bool one_word>
  chan_outcome receive_locked(void* element, chan_waiter*& served) noexcept;
  enum class side : std::uint8_t { receivers, senders };
  // As one of that side: senders send, receivers receive.
  chan_outcome perform_locked(side as, void* element, chan_waiter*& served) noexcept;
  template <side as>
  chan_outcome perform_or_wait(void* element);
  template <side as, bool one_word>
  chan_outcome perform_or_wait_here(sched::machine* m, void* element);
  template <side as>
  chan_outcome perform_within(void* element, patience limit);
  static bool give_up(void* argument) noexcept;
  bool may_somebody_give_up_locked() const noexcept;
  chan_outcome try_send_word_here(sched::machine* m, std::uint64_t word);
  chan_word_received try_receive_word_here(sched::machine* m);
  chan_outcome try_send_word_slow(std::uint64_t word);
  chan_word_received try_receive_word_slow();
  chan_outcome send_word_here(sched::machine* m, std::uint64_t word);
  chan_word_received receive_word_here(sched::machine* m);
  chan_outcome send_word_slow(std::uint64_t word);
  chan_word_received receive_word_slow();
  chan_outcome perform_now(side as, void* element);
  chan_outcome perform_entered(side as, void* element);
  chan_outcome perform_and_unlock(side as, void* element) noexcept;
  chan_waiter* take_locked(side s) noexcept;
  void push_locked(side s, chan_waiter* w) noexcept;
  void remove_locked(side s, chan_waiter* w) noexcept;
  chan_queue& queue(side s) noexcept { return s == side::senders ? senders_ : receivers_; }
  static constexpr std::uint32_t flag_of(side s) noexcept {
    return s == side::senders ? has_senders : has_receivers;
  }

  static constexpr std::uint32_t first_bias = 200;
  static constexpr std::uint32_t last_bias = 1u << 24;
  static constexpr std::uint32_t never_biased = ~std::uint32_t{0};
  static constexpr std::uintptr_t in_simulation = 2;  // bias_ of one that was made in a simulation

  std::atomic<sched::machine*> bias_{nullptr};  // I4
  std::atomic<std::uint32_t> lock_{0};
  std::atomic<std::uint32_t> flags_{0};
  std::atomic<std::size_t> count_{0};  // of the ring; guarded by the lock; a hint else
  std::size_t head_ = 0;               // of the ring; guarded by the lock
  std::size_t tail_ = 0;               // of the ring; guarded by the lock
  const std::size_t capacity_;
  const chan_shape shape_;
  std::atomic<std::uint32_t> references_{0};      // handles
  std::atomic<std::uint32_t> returned_count_{0};  // guarded by the lock; a hint else
  chan_queue receivers_;
  chan_queue senders_;
  union {
    chan_box_base* returned_ = nullptr;  // guarded by the lock
    chan_owner* owner_;                  // has_owner: immutable; there are no boxes
  };
  sched::machine* last_user_ = nullptr;  // guarded by the lock; null: a thread, or nobody
  std::uint32_t uses_in_a_row_ = 0;      // of it; guarded by the lock
  // Uses in a row that make a machine privileged. Written under the lock.
  std::atomic<std::uint32_t> bias_after_{first_bias};
};

// How a T travels.
template <class T>
struct chan_element {
  static constexpr std::size_t inline_bytes_max = 64;
  static constexpr bool is_inline = std::is_trivially_copyable_v<T> &&
                                    std::is_trivially_destructible_v<T> &&
                                    sizeof(T) <= inline_bytes_max && alignof(T) <= chan_word;
  static constexpr std::size_t words = is_inline ? (sizeof(T) + chan_word - 1) / chan_word : 1;
  using box = chan_box<T>;

  // The box whose address an element is.
  static box* box_in(const void* element) noexcept {
    chan_box_base* base = nullptr;
    std::memcpy(&base, element, sizeof base);
    return static_cast<box*>(base);
  }
  static void put_box(void* element, chan_box_base* b) noexcept {
    std::memcpy(element, &b, sizeof b);
  }
  static void destroy(void* element) noexcept { delete box_in(element); }
  static constexpr chan_shape shape{static_cast<std::uint32_t>(words),
                                    is_inline ? nullptr : &destroy};
};

}  // namespace weft::detail
