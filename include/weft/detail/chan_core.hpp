// chan_core.hpp: the untyped channel; chan<T> and select are typed shells over it.
//
// A channel moves elements of a fixed number of 8-byte words. A T that is trivially copyable and
// small is its own element. Any other T travels in a box on the heap, and its element is the
// address of the box. So no code of the user runs under a channel's lock: a box is filled before
// its element is handed over and emptied afterwards, by the goroutine that owns it at that time,
// and may throw there.
//
// A channel has a ring of elements and two queues of waiters, one of which is always empty. A
// waiter lies on the stack of the goroutine (or thread) that waits. It has the element to send, or
// room for the element to receive.
//
//   send      to the first waiting receiver, into its room; else into the ring; else waits
//   receive   from the ring, and then the first waiting sender's element moves up into the ring;
//             else from the first waiting sender; else waits
//   close     all waiters go on, empty-handed
//
// The waiters of one select have a wait_set in common. A thread that takes one of them out of its
// queue tries to claim the set, by one compare-exchange of `fired`. If the claim fails, another
// thread was first, and the waiter is passed over. A wait that a context may end has a wait_set for
// its one waiter, which the context claims.
//
// Invariants:
//   I1  Receivers wait only if the ring is empty; senders only if it is full.
//   I2  A waiter is in its channel's queue exactly while `queued`; both are guarded by the lock.
//   I3  The thread that takes a waiter out (and claims its set) may use the waiter until ready().
//       The owner of the waiter goes on only after ready().
//
// Locks: a channel's lock is a spin lock. It is held inside the runtime only, for a few
// instructions. A select that has to wait takes the locks of all its channels, in the order of
// their addresses. After a few hundred uses in a row by one machine, the channel is biased to that
// machine: the machine no longer takes the lock, until another thread wants the channel
// (src/sched/bias.hpp). A channel that a select or a timer uses never has a bias again.
//   I4  bias_ names a machine only while no thread holds the lock. A thread that has taken the lock
//       looks at bias_ again.
//   I5  count_ is 0 only while the ring is empty. flags_ says that no sender waits only while none
//       does or count_ is not 0. Both hold in the middle of an operation, too, because hints read
//       them there.
// A channel that was made in a test's simulation is marked so in bias_, for ever. So no thread
// outside takes a fast path with it, and the slow paths check the mark.
//
// Memory order:
//   [N1] unlock's release -> lock's acquire: everything of the channel.
//   [N2] claim's acquire-release of fired: the thread that claims a set has seen what its owner
//        wrote.
//   [N3] close's release of flags_ -> acquire of a reader that sees it closed: what the closer did
//        before.
//   Operations that do not wait read count_ and flags_ as hints, without the lock. What makes them
//   fail was true at some instant of the call (I5). They read flags_ first, with acquire, so that
//   count_ is read later: while the channel has a value that was put back, no receiver takes one
//   from the ring. So if there was no such value then and the ring is empty now, the channel is
//   empty now, or was empty just before a value was put back in between.
//   [N4] a receiver's release of count_ -> acquire of the hint: if the ring is empty because values
//        were taken after a close, the hint sees the close when it reads flags_ once more.
//   [N5] release() of a handle -> the last release(): what all others did.
#pragma once

#include <weft/detail/config.hpp>
#include <weft/detail/context_watcher.hpp>
#include <weft/detail/linked_list.hpp>
#include <weft/detail/park.hpp>

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

  // [N2] 1 + the index of the case; or timeout, if something else ended the wait
  std::atomic<std::uint32_t> fired{none};

  bool claim(std::uint32_t value) noexcept {
    std::uint32_t expected = none;
    return fired.compare_exchange_strong(expected, value, std::memory_order_acq_rel,
                                         std::memory_order_relaxed);  // [N2]
  }
};

// One goroutine's or thread's place in the queue of one channel.
struct chan_waiter {
  list_link<chan_waiter> link;  // guarded by the channel's lock
  goroutine* who = nullptr;
  void* element = nullptr;  // what it sends, or where to put what it receives
  wait_set* set = nullptr;  // null: the waiter waits for this channel alone
  std::uint32_t index = 0;  // of the case in its select; 0 without a select
  bool queued = false;      // I2
  bool done = false;  // written by the thread that takes it out: false if the channel was closed
};

// A waiter whose wait a context may end.
struct context_end : chan_waiter, context_watcher {
  wait_set claims;

  context_end(void* room, goroutine* self) noexcept : context_watcher(kind::end) {
    element = room;
    who = self;
    set = &claims;
  }
  // Called under the lock of the context. Returns: the goroutine to ready, or null if the wait has
  // ended otherwise.
  goroutine* claim() noexcept { return claims.claim(wait_set::timeout) ? who : nullptr; }
  bool was_claimed() const noexcept {
    return claims.fired.load(std::memory_order_acquire) == wait_set::timeout;  // [N2]
  }
};

using chan_queue = linked_list<chan_waiter, &chan_waiter::link>;

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

// The object that a channel is a part of: a timer, a context. The owner makes and destroys the
// channel, and learns when no handle on it is left.
class chan_owner {
 public:
  // Called outside the runtime when the last handle on the channel is gone. The owner may give out
  // another handle meanwhile: what counts is how often it gave out a first handle and how often the
  // last one went.
  virtual void channel_dropped() noexcept = 0;

 protected:
  ~chan_owner() = default;
};

// An owner whose end, which closes the channel, also ends waits for other channels: a context.
class wait_ender : public chan_owner {
 public:
  // From now on the owner may end the wait. Inside the runtime. Returns: false if the owner has
  // ended already.
  virtual bool watch(context_end& w) noexcept = 0;
  // Afterwards no thread uses `w` on behalf of the owner. Inside the runtime, or on a plain thread.
  virtual void unwatch(context_end& w) noexcept = 0;
  // Like these two, for a caller on a plain thread or in a simulation, which may abandon it.
  virtual bool watch_slowly(context_end& w) noexcept = 0;
  virtual void unwatch_slowly(context_end& w) noexcept = 0;

 protected:
  ~wait_ender() = default;
};

class WEFT_API chan_core {
 public:
  // Makes a channel with one handle. Throws: std::length_error, std::bad_alloc.
  static chan_core* make(std::size_t capacity, const chan_shape& shape);
  // Makes a channel without a handle, which its owner destroys. Every user takes its lock.
  // Requires: elements are no boxes. Throws: std::length_error, std::bad_alloc.
  static chan_core* make_owned(std::size_t capacity, const chan_shape& shape, chan_owner* owner);
  // Requires: no handle is left. Called for an owned channel by its owner.
  void destroy() noexcept;
  // Returns: whether the channel was made in a simulation.
  bool is_simulated() const noexcept {
    return reinterpret_cast<std::uintptr_t>(bias_.load(std::memory_order_relaxed)) == in_simulation;
  }
  // Returns: whether the channel was made in a simulation and the caller is in none.
  bool is_away() const noexcept;
  // Throws: std::logic_error if is_away().
  void require_home() const;
  // From now on every user takes the lock. Outside the runtime. Throws: std::logic_error if
  // is_away().
  void forgo_bias();
  bool has_forgone_bias() const noexcept {
    return bias_after_.load(std::memory_order_relaxed) == never_biased;
  }

  // Returns: whether there was no handle before. Only an owner needs to know.
  bool retain() noexcept { return references_.fetch_add(1, std::memory_order_relaxed) == 0; }
  void release() noexcept {
    // [N5]
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) dropped();
  }

  // Returns: done or closed; the channel takes the element over only if done. Blocks: the
  // goroutine.
  chan_outcome send(void* element);
  // Fills `element`. Returns: done or closed. Blocks: the goroutine.
  chan_outcome receive(void* element);
  // send and receive for elements of one word, which are the most common. Requires: the elements of
  // this channel have one word.
  chan_outcome send_word(std::uint64_t word);
  chan_word_received receive_word();
  // Like send and receive, but end when `done` is closed, which belongs to a wait_ender. Returns:
  // would_wait then, with the element untouched.
  chan_outcome send_until(void* element, const chan_core* done);
  chan_outcome receive_until(void* element, const chan_core* done);
  // The same for elements of one word. Requires: as send_word. If `done` is closed already, or was
  // made in a simulation, they do nothing and return would_wait.
  chan_outcome send_word_until(std::uint64_t word, const chan_core* done);
  chan_word_received receive_word_until(const chan_core* done);
  chan_outcome try_send(void* element);
  chan_outcome try_receive(void* element);
  // try_send for a caller that is inside the runtime: a timer.
  chan_outcome offer_inside(void* element) noexcept;
  // Receives and drops an element, for a caller that is inside the runtime. Returns: false if there
  // was none.
  bool take_back_inside() noexcept;
  // Returns: false if the channel was closed already.
  bool close();
  // Puts a box back in front of all other values, because its value could not be moved out.
  void put_back(chan_box_base* box);

  std::size_t size_hint() const noexcept {
    return count() + returned_count_.load(std::memory_order_relaxed);
  }
  std::size_t capacity() const noexcept { return capacity_; }
  // Returns: whether a send would not have had to wait at some instant of the call.
  bool could_send() const noexcept {
    return count() < capacity_ || (flags() & (is_closed | has_receivers)) != 0;
  }
  bool could_receive() const noexcept {
    const std::uint32_t f = flags_.load(std::memory_order_acquire);  // [N3], and before count_
    // is_closed is read once more afterwards: the channel may have been closed and then emptied in
    // between.
    return (f & (is_closed | has_senders | has_returned)) != 0 ||
           count_.load(std::memory_order_acquire) != 0 || is_closed_now();  // [N4]
  }
  bool is_received_from_hint() const noexcept { return (flags() & has_receivers) != 0; }
  // Returns: whether a receiver waits that the end of the process has not stopped. Inside the
  // runtime. Requires: forgo_bias().
  bool is_received_from_inside() noexcept;
  bool is_closed_now() const noexcept {
    return (flags_.load(std::memory_order_acquire) & is_closed) != 0;  // [N3]
  }
  // Returns: whether a machine cannot wait for the end of a context with this done channel, or need
  // not.
  bool cannot_end() const noexcept {
    return (flags_.load(std::memory_order_acquire) & (is_closed | is_of_simulation)) != 0;  // [N3]
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
  // Takes the lock, or uses the bias of `m`, which is inside the runtime. Returns: false, with
  // neither, if that would take longer.
  bool lock_here(sched::machine* m) noexcept;
  // Enters the runtime and gets the lock or the bias, however long that takes. Returns: the
  // machine, or null on a plain thread. Throws: std::logic_error, outside the runtime, if
  // is_away().
  sched::machine* enter_and_lock();
  // Returns: whether a machine has the bias, or is losing it.
  bool is_biased() const noexcept {
    return (reinterpret_cast<std::uintptr_t>(bias_.load(std::memory_order_relaxed)) &
            ~in_simulation) != 0;
  }
  void note_use_locked(sched::machine* m) noexcept;
  void consider_bias_locked(sched::machine* m) noexcept;
  // A machine that has the bias does not hold the lock, and must not free it for the thread that
  // does.
  void unlock() noexcept {
    if (!is_biased()) lock_.store(0, std::memory_order_release);  // [N1]
  }

  // Each flag says why an operation cannot just use the ring. Changed under the lock; otherwise
  // read as hints.
  enum : std::uint32_t {
    is_closed = 1,
    has_receivers = 2,      // receivers wait
    has_senders = 4,        // senders wait
    has_returned = 8,       // values were put back
    has_owner = 16,         // never changes
    is_of_simulation = 32,  // never changes
  };
  std::uint32_t flags() const noexcept { return flags_.load(std::memory_order_relaxed); }
  std::size_t count() const noexcept { return count_.load(std::memory_order_relaxed); }
  void set_flag(std::uint32_t f) noexcept { flags_.store(flags() | f, std::memory_order_relaxed); }
  void clear_flag(std::uint32_t f) noexcept {
    flags_.store(flags() & ~f, std::memory_order_relaxed);
  }

  // `one_word`: the elements are known to have one word.
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

  // Under the lock. If a waiter was served, the caller has to ready it after the unlock.
  template <bool one_word>
  chan_outcome send_locked(void* element, chan_waiter*& served) noexcept;
  template <bool one_word>
  chan_outcome receive_locked(void* element, chan_waiter*& served) noexcept;
  enum class side : std::uint8_t { receivers, senders };
  // Acts as a member of that side: senders send, receivers receive.
  chan_outcome perform_locked(side as, void* element, chan_waiter*& served) noexcept;
  template <side as>
  chan_outcome perform_or_wait(void* element);
  template <side as, bool one_word>
  chan_outcome perform_or_wait_here(sched::machine* m, void* element);
  template <side as>
  chan_outcome perform_until(void* element, const chan_core* done);
  template <side as, bool one_word>
  chan_outcome perform_until_here(sched::machine* m, void* element, const chan_core* done);
  chan_outcome take_out(side as, chan_waiter* w);
  chan_outcome send_word_until_slow(std::uint64_t word, const chan_core* done);
  chan_word_received receive_word_until_slow(const chan_core* done);
  // Requires: this is the done channel of a wait_ender.
  wait_ender& ender() const noexcept { return static_cast<wait_ender&>(*owner_); }
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
  // For a caller without a machine that waits in a queue. If it is a goroutine of a simulation, and
  // this channel was made outside: takes `w` out should the run be abandoned before drop_note().
  void note_waiter(side s, chan_waiter& w);
  void drop_note(const chan_waiter& w) noexcept;
  chan_queue& queue(side s) noexcept { return s == side::senders ? senders_ : receivers_; }
  static constexpr std::uint32_t flag_of(side s) noexcept {
    return s == side::senders ? has_senders : has_receivers;
  }

  static constexpr std::uint32_t first_bias = 200;
  static constexpr std::uint32_t last_bias = 1u << 24;
  static constexpr std::uint32_t never_biased = ~std::uint32_t{0};
  static constexpr std::uintptr_t in_simulation = 2;  // bias_ of a channel made in a simulation

  std::atomic<sched::machine*> bias_{nullptr};  // I4
  std::atomic<std::uint32_t> lock_{0};
  std::atomic<std::uint32_t> flags_{0};
  std::atomic<std::size_t> count_{0};  // of the ring; guarded by the lock; otherwise a hint
  std::size_t head_ = 0;               // of the ring; guarded by the lock
  std::size_t tail_ = 0;               // of the ring; guarded by the lock
  const std::size_t capacity_;
  const chan_shape shape_;
  std::atomic<std::uint32_t> references_{0};      // handles
  std::atomic<std::uint32_t> returned_count_{0};  // guarded by the lock; otherwise a hint
  chan_queue receivers_;
  chan_queue senders_;
  union {
    chan_box_base* returned_ = nullptr;  // guarded by the lock
    chan_owner* owner_;                  // has_owner: immutable; there are no boxes
  };
  sched::machine* last_user_ = nullptr;  // guarded by the lock; null: a plain thread, or none yet
  std::uint32_t uses_in_a_row_ = 0;      // of last_user_; guarded by the lock
  // After so many uses in a row by one machine the channel is biased to it. Written under the lock.
  std::atomic<std::uint32_t> bias_after_{first_bias};
};

// How a T travels through a channel.
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
