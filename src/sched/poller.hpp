// poller.hpp: the kernel's readiness events turned into runnable goroutines.
//
// There is one epoll instance for the process. A descriptor is registered once, edge-triggered, for
// both directions. It has a record (pollable) with two sides, in and out. On each side at most one
// goroutine waits (io/descriptor.hpp serialises them).
//
//   wait()     the caller has found the descriptor not ready:
//                closed, or past the deadline?  returns that
//                ready is set?                  clears it and returns: the caller tries again
//                else                           puts itself into `waiter` and parks
//   an event   is there a waiter?  takes it out and readies it
//              else                sets ready, which stays until the next wait() clears it
//   others     close(), set_deadline(): take the waiter out and ready it; the waiter looks again
//
// All of that happens under the side's lock, so no event is lost. Either the event comes before
// wait() has the lock, and wait() finds `ready`; or it comes after, and finds the waiter. A
// spurious `ready` costs one system call.
//
// Stale events. Records are never unmapped, so a late event may look at any record. The event
// carries the record's sequence number, which changes when the descriptor is closed, and which is
// compared under the lock.
//
// Who polls. At most one thread at a time (`attended_`), so that an interrupt reaches the thread
// that sleeps in the poller:
//   - a machine that goes to sleep with its processor, until the next timer. lie_down() in
//     sleep.cpp decides (`s.polls = ...`): a goroutine must wait for a descriptor, no other thread
//     may be polling (both in try_attend()), and polling must not be better left to another
//     processor (is_anothers()), unless this is the last processor to become idle (`is_last`). The
//     machine then sleeps in sleep_polling();
//   - machines in passing, without sleeping: each time they have nothing else to run, and every
//     50 us at a look (order.hpp);
//   - the monitor when all processors are busy with other things (sleep_in_poller() in
//     monitor_sleep.cpp).
// P1  If a goroutine waits for a descriptor and all machines sleep, one of them sleeps in the
//     poller. For the last machine to lie down with its processor found no other thread in the
//     poller, and so sleeps there; or it found a thread that polled in passing, which then lies
//     down later. A thread that begins to wait, or leaves the poller, without lying down like that
//     calls attend_poller(): a plain thread, the monitor, a machine whose processor goes to no
//     other machine.
//
// Locks: a side's lock is of the highest rank; the holder of a timer heap's lock may take it.
#pragma once

#include "base/clock.hpp"
#include "base/lock.hpp"
#include "sched/goroutine_list.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weft::sched {

struct processor;

enum class poll_side : std::uint8_t { in, out };
enum class poll_result : std::uint8_t { ready, timed_out, closed, unsupported };

// A server goes through thousands of these, one after the other, so each is one line of the cache.
struct alignas(64) pollable {
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  struct side {
    base::spin_lock lock;
    bool is_closing = false;               // guarded by lock
    std::atomic<bool> ready{false};        // written under lock; events look at it first
    std::atomic<bool> has_hung_up{false};  // side `in` only: no event will say that there is more
    goroutine* waiter = nullptr;           // guarded by lock
    std::atomic<std::int64_t> deadline{};  // written under lock; 0: none
  };
  side sides[2];
  std::uint32_t sequence = 0;  // written under both locks
  std::uint32_t index = 0;     // immutable
  int fd = -1;
  std::uint32_t next_free = none;  // an index; guarded by the poller's lock

  bool has_hung_up() const noexcept { return sides[0].has_hung_up.load(std::memory_order_relaxed); }
  side& operator[](poll_side s) noexcept { return sides[static_cast<std::size_t>(s)]; }
};

static_assert(sizeof(pollable) == 64);

class poller {
 public:
  // Outside the runtime. Returns: null, and errno, if the kernel refuses.
  pollable* open(int fd) noexcept;
  // Lets the waiters go on; after it no goroutine waits any more. Outside.
  void begin_close(pollable& r) noexcept;
  // Gives the record back. Requires: begin_close(), and no call on the descriptor is in progress.
  // To be called before the descriptor is closed.
  void end_close(pollable& r) noexcept;

  // Waits until side `s` may be ready, or until `until_ns`. In the latter case returns timed_out,
  // though the deadline has not passed. Outside. Parks.
  poll_result wait(pollable& r, poll_side s, std::int64_t until_ns = base::never) noexcept;
  // Waits until `until_ns`, even if the side is ready. Returns: ready, unless the descriptor was
  // closed or its deadline came first. Outside. Parks.
  poll_result pause(pollable& r, poll_side s, std::int64_t until_ns) noexcept;
  // Whether the deadline has passed; wait() would then return at once.
  static bool is_late(pollable& r, poll_side s) noexcept {
    return r[s].deadline.load(std::memory_order_relaxed) != 0 && has_passed(r[s]);
  }
  // 0: no deadline. A waiter looks again.
  void set_deadline(pollable& r, poll_side s, std::int64_t when_ns) noexcept;

  // Ends the waits of goroutines that have stopped for good (mode::stopped), without waking them.
  void forget_stopped() noexcept;

  // Whether a goroutine waits for a descriptor: a hint.
  bool is_waited_for() const noexcept;
  bool is_attended() const noexcept { return attended_.load(std::memory_order_relaxed); }
  std::int64_t last_poll_ns() const noexcept {
    return last_poll_ns_.load(std::memory_order_relaxed);
  }

  // Makes the caller the one thread that polls, if a goroutine waits and no other thread polls.
  bool try_attend() noexcept;
  // Collects goroutines that can go on. Sleeps until `until_ns` at the latest, or until an
  // interrupt; with 0 it does not sleep. Requires: try_attend() has returned true.
  void poll(std::int64_t until_ns, goroutine_list& out) noexcept;
  void leave() noexcept;

  // Polls in passing, with all three calls above, and queues the goroutines that it finds on `p`,
  // which is the caller's. Returns: how many.
  std::size_t poll_for(processor& p) noexcept;

  // Whether polling is better left to the processor that has polled last. That processor finds
  // several events at once when it is through with those it has. Two processors that take events
  // from each other one by one are slower than one.
  bool is_anothers(const processor& p, std::int64_t now_ns) const noexcept;
  bool is_owner(const processor& p) const noexcept {
    return owner_.load(std::memory_order_relaxed) == &p;
  }
  // Makes `p` the processor that has polled last.
  void note_owner(const processor& p) noexcept;

 private:
  static constexpr std::size_t chunk_records = 512;
  static constexpr std::size_t chunks_max = 8192;

  bool prepare() noexcept;
  void check_instance() noexcept;
  static bool give_up(void* side);
  static bool has_passed(const pollable::side& s) noexcept;
  pollable* take_record() noexcept;
  pollable* record(std::uint32_t index) const noexcept;
  void on_event(std::uint64_t tag, std::uint32_t events, goroutine_list& out) noexcept;
  // Returns: the goroutine that waited there, or null.
  static goroutine* note_event(pollable& r, pollable::side& s, std::uint32_t sequence,
                               std::uint32_t events) noexcept;
  template <int most>
  void collect(std::int64_t until_ns, goroutine_list& out) noexcept;
  void wake_waiter(pollable::side& s) noexcept;
  void count_wait() noexcept;
  // Requires: prepare_park(), the side's lock. Returns: false if `until_ns` came first.
  bool park_locked(pollable::side& s, goroutine* self, std::int64_t until_ns) noexcept;

  base::spin_lock lock_;
  std::atomic<int> epoll_{-1};
  std::uint32_t free_ = pollable::none;          // an index; guarded by lock_
  std::uint32_t made_ = 0;                       // guarded by lock_
  std::atomic<pollable*> chunks_[chunks_max]{};  // [PO1]
  std::atomic<bool> attended_{false};            // [PO2]
  std::atomic<std::int64_t> last_poll_ns_{0};
  std::int64_t last_check_ns_ = 0;                   // of the thread that polls [PO2]
  std::atomic<const processor*> owner_{nullptr};     // the one that has polled last; a hint
  std::atomic<std::uint64_t> outside_waits_{0};      // of plain threads; processors count their own
  alignas(64) std::atomic<std::uint64_t> wakes_{0};  // of all waiters
};

extern constinit poller the_poller;

}  // namespace weft::sched
