// timer.cpp: timers and tickers on the heaps of the scheduler.
//
// A timer is armed in one heap at most; `lock_` keeps stops and resets apart.
//
//   stop    disarms the timer, so that no further value comes, and removes a value that is in the
//           channel.
//   reset   stops the timer and arms it again.
//   fire    sends the time to the channel, which has room for one value; a tick that finds the
//           channel full is dropped. Or starts a goroutine that calls the function.
//
// Lifetime. A timer with a channel has a reference for each handle on the timer, and one for all
// handles on its channel together. When the last of them goes, the timer is disarmed and freed,
// because its channel cannot be read any more. A timer with a function also has a reference of its
// own while it is armed; firing passes this reference to the goroutine that calls the function. So
// firing never frees anything: it runs under the heap's lock, inside the runtime.
//
// Starting a goroutine takes memory, and when a timer fires there may be none. Then the timer is
// put into the list overdue_ for the attendant. The attendant is a goroutine that was prepared
// earlier, one for all timers. It starts the goroutines of overdue timers as soon as there is
// memory.
//
//     fire                              the attendant, when it has started all
//     push the timer to overdue_        attendant_ = the next one
//     take attendant_, if it is there   look at overdue_; if a timer is there, go on unless
//     and start it                      attendant_ has been taken
//
// Meanwhile the timer may be reset, and fire again. So it counts in owed_ how many calls it still
// has to make, each with the reference of its own firing.
//
//     fire                              the attendant, with a timer of the list that it has taken
//     ++owed_                           read next_overdue_
//     push the timer if it was 0        n = owed_, owed_ = 0
//                                       start n calls
//
// A timer whose function must not be called any more, because the process exits, stays: its list,
// uncalled_, is for leak checkers, and is not read.
//
// Invariants:
//   I1  A timer is in overdue_, or in the list that the attendant has taken from there, exactly if
//       its owed_ is not 0 (apart from the instant between the count and the push). So it is linked
//       once at most.
//   I2  While owed_ is not 0, the timer has as many references for it.
//
// Locks: lock_, then the heap's. What fires takes the channel's, never lock_.
//
// Memory order:
//   [T1] store-then-load between fire and the attendant, as drawn above. Both are seq_cst, so that
//        at least one side sees the other. An attendant that takes a timer from overdue_ also sees
//        what was written to the timer before.
//   [T2] fire's count in owed_ -> the attendant's exchange: what was written to the timer before,
//        also if it had been pushed before. The attendant's exchange -> the next count: the
//        attendant has read next_overdue_, which may now be written again.
//   [T3] the end of a reference -> the end of the last one: what the other owners did.
#include <weft/time.hpp>

#include "base/check.hpp"
#include "base/clock.hpp"
#include "base/lock.hpp"
#include "sched/all_timers.hpp"
#include "sched/exit.hpp"
#include "sched/inside.hpp"
#include "sched/keeper.hpp"
#include "sched/order.hpp"
#include "sched/simulation.hpp"
#include "sched/start.hpp"

#include <weft/detail/task.hpp>

#include <atomic>
#include <new>
#include <stdexcept>

namespace weft::detail {

class timer_core final : public sched::timer, public chan_owner {
 public:
  timer_core() : channel_(chan_core::make_owned(1, chan_element<time_point>::shape, this)) {
    fire = &fire_channel;
    wakes = &is_waited_for;
  }
  explicit timer_core(std::unique_ptr<timer_function> f) noexcept : function_(std::move(f)) {
    fire = &fire_function;
    wakes = &could_wake;
  }
  timer_core(const timer_core&) = delete;
  timer_core& operator=(const timer_core&) = delete;

  void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  // In user mode only.
  void release() noexcept {
    // [T3]
    if (references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    if (channel_ == nullptr || silence()) delete this;
  }

  // Returns: null if it has none.
  chan_core* take_channel() noexcept {
    if (channel_ != nullptr && channel_->retain()) retain();
    return channel_;
  }
  void channel_dropped() noexcept override { release(); }

  // Each of the two takes effect at one instant, also when several threads call them. Return:
  // whether the timer had not fired, or its value had not been received.
  bool stop() { return change(false, 0, 0); }
  bool reset(std::int64_t delay_ns, std::int64_t period) { return change(true, delay_ns, period); }
  void start(std::int64_t delay_ns, std::int64_t period) { (void)change(true, delay_ns, period); }

 private:
  using time_point = clock::time_point;

  ~timer_core() {
    if (channel_ != nullptr) channel_->destroy();
  }

  static bool is_waited_for(const sched::timer* t) noexcept {
    chan_core* const c = static_cast<const timer_core*>(t)->channel_;
    return c->is_received_from_hint() && (!process_exits() || c->is_received_from_inside());
  }

  static bool could_wake(const sched::timer* t) noexcept {
    return may_call(t) &&
           (!process_exits() || static_cast<const timer_core*>(t)->function_->is_heard());
  }

  // Whether the function is still to be called. If the timer was set before the process began to
  // exit, it is not, because the objects that the function uses may have been destroyed.
  static bool may_call(const sched::timer* t) noexcept {
    const auto* const self = static_cast<const timer_core*>(t);
    return !process_exits() || self->exits_ || self->function_->may_outlive_statics();
  }
  static bool process_exits() noexcept {
    return sched::the_scheduler.stopping.load(std::memory_order_relaxed);
  }

  // Runs under the heap's lock, inside.
  static void fire_channel(sched::timer* t) noexcept {
    time_point now = time_point(std::chrono::nanoseconds(clock_now_ns()));
    const sched::firing mark;
    static_cast<timer_core*>(t)->channel_->offer_inside(&now);
  }

  // Runs under the heap's lock, too. Passes the timer's own reference to the goroutine.
  static void fire_function(sched::timer* t) noexcept {
    auto* const self = static_cast<timer_core*>(t);
    if (!may_call(self)) {
      self->keep_uncalled();
    } else if (!self->function_->claim()) {
      // The owner of the timer, a context, is being destroyed and about to stop the timer.
      [[maybe_unused]] const std::uint32_t before =
          self->references_.fetch_sub(1, std::memory_order_acq_rel);  // [T3]
      WEFT_ASSERT(before > 1);
    } else if (goroutine* const g = begin_start_inside()) {
      ::new (task_storage(g)) call_task(caller{self});  // nothing to destroy
      commit_start_inside(g, &invoke_in_place<call_task>);
    } else {
      self->wait_for_attendant();
    }
  }

  struct caller {
    timer_core* self;
    void operator()() const {
      struct releaser {
        timer_core* self;
        ~releaser() { self->release(); }
      };
      const releaser last{self};
      observe(touch::acquire, self);
      self->function_->call();
    }
  };
  using call_task = task<caller>;

  // ---- When there is no memory for a goroutine ----

  void keep_uncalled() noexcept {
    if (is_uncalled_.exchange(true, std::memory_order_relaxed)) return;  // the list is never read
    next_uncalled_ = uncalled_.exchange(this, std::memory_order_relaxed);
  }
  void push_overdue() noexcept {
    next_overdue_ = overdue_.load(std::memory_order_relaxed);  // re-checked by the exchange
    while (!overdue_.compare_exchange_weak(next_overdue_, this, std::memory_order_seq_cst,  // [T1]
                                           std::memory_order_relaxed)) {
    }
  }
  void wait_for_attendant() noexcept {
    // acq_rel, both ways. If calls are owed already, the timer is where the attendant finds it: I1.
    if (owed_.fetch_add(1, std::memory_order_acq_rel) != 0) return;  // [T2]
    push_overdue();
    if (goroutine* const g = attendant_.exchange(nullptr, std::memory_order_seq_cst)) {  // [T1]
      commit_start_inside(g, &invoke_in_place<attend_task>);
    }
  }
  // may_call() in user mode, where the timer may be set anew at the same time.
  bool may_call_now() noexcept {
    sched::inside in;
    lock_.lock();
    const bool may = may_call(this);
    lock_.unlock();
    in.leave();
    return may;
  }
  // Starts the calls of a timer that has been taken from the list of overdue ones.
  void settle() {
    std::uint32_t owed = owed_.exchange(0, std::memory_order_acq_rel);  // [T2]
    WEFT_ASSERT(owed != 0);                                             // I1
    if (!may_call_now()) return keep_uncalled();
    // The last call that has been started may end at any time, and the timer with it.
    for (; owed != 0; --owed) start_when_possible(caller{this});
  }

  // What the attendant does. Waits until there is memory.
  struct attendance {
    void operator()() const {
      for (;;) {
        timer_core* t = overdue_.exchange(nullptr, std::memory_order_seq_cst);  // [T1]
        while (t != nullptr) {
          timer_core* const first = std::exchange(t, t->next_overdue_);
          first->settle();
        }
        goroutine* const next = begin_when_possible();
        ::new (task_storage(next)) attend_task(attendance{});
        attendant_.store(next, std::memory_order_seq_cst);                                // [T1]
        if (overdue_.load(std::memory_order_seq_cst) == nullptr) return;                  // [T1]
        goroutine* const same = attendant_.exchange(nullptr, std::memory_order_seq_cst);  // [T1]
        if (same == nullptr) return;
        abort_start(same);
      }
    }
  };
  using attend_task = task<attendance>;

  static goroutine* begin_when_possible() {
    for (;;) {
      try {
        return begin_start(start_as::child);
      } catch (...) {
        this_goroutine::sleep_for(std::chrono::milliseconds(1));
      }
    }
  }
  static void start_when_possible(caller c) {
    goroutine* const g = begin_when_possible();
    ::new (task_storage(g)) call_task(c);
    commit_start(g, &invoke_in_place<call_task>);
  }

  // Throws: std::system_error if there is no memory for the attendant.
  static void prepare_attendant() {
    if (has_attendant_.load(std::memory_order_relaxed)) return;
    goroutine* const g = begin_start(start_as::child);
    ::new (task_storage(g)) attend_task(attendance{});
    // relaxed: attendant_ orders what this flag announces.
    if (has_attendant_.exchange(true, std::memory_order_relaxed)) return abort_start(g);
    attendant_.store(g, std::memory_order_seq_cst);                   // [T1]
    if (overdue_.load(std::memory_order_seq_cst) == nullptr) return;  // [T1]
    // Another thread's timer has fired meanwhile, and found no attendant.
    if (goroutine* const same = attendant_.exchange(nullptr, std::memory_order_seq_cst)) {  // [T1]
      commit_start(same, &invoke_in_place<attend_task>);
    }
  }

  // ---- Changes ----

  // Whether the caller is where the timer was made: in its simulation, or in none. Elsewhere it
  // must not be armed, because its heap would be that of a simulation, and go with it.
  bool is_home() const noexcept {
    sched::simulation* const here = sched::this_simulation();
    if (!simulated_ || here == nullptr) return !simulated_ && here == nullptr;
    return heap == nullptr || heap == &here->timers();
  }
  void require_home() const {
    if (is_home()) return;
    throw std::logic_error(
        simulated_ ? "weft::timer: a timer that was made in bubble() or explore() (weft/test.hpp) "
                     "is used outside of it"
                   : "weft::timer: a timer that was made outside of bubble() or explore() "
                     "(weft/test.hpp) is started in it");
  }

  static bool is_plain_thread() noexcept {
    return sched::this_machine() == nullptr && sched::this_simulation() == nullptr;
  }
  // Throws: std::logic_error if the timer is to start and the caller is not home; std::system_error
  // if the runtime is to start, and no thread can be made, or if there is no memory.
  bool change(bool starts, std::int64_t delay_ns, std::int64_t period) {
    const void* const ordered_by = channel_ != nullptr ? static_cast<void*>(channel_) : this;
    if (starts) {
      require_home();
    } else if (simulated_ && !is_home()) {
      return false;  // its simulation has ended, and so has it
    }
    const bool calls = function_ != nullptr;
    // Not under the lock, and where it may throw.
    if (starts && is_plain_thread()) sched::ensure_started();
    if (starts && calls && !simulated_) prepare_attendant();
    if (starts) {
      // The goroutine that the timer wakes sees what was done before this.
      observe(touch::release, ordered_by, "start timer");
      if (calls) retain();
    } else {
      observe(touch::arrive, ordered_by, "stop timer");
    }
    const std::int64_t when = starts ? deadline_after(delay_ns) : 0;
    bool was_armed = false;
    bool had_value = false;
    {
      const sched::locked_inside hold(lock_);
      was_armed = sched::timer_heap::disarm(*this);
      had_value = channel_ != nullptr && channel_->take_back_inside();
      period_ns = period;
      exits_ = process_exits() && sched::runs_at_exit();
      if (starts) sched::arm_timer(*this, when);
    }
    if (starts && is_plain_thread()) sched::keep_time();  // everybody may be asleep
    if (was_armed && calls) release();
    return was_armed || had_value;
  }

  // No handle is left on the timer or its channel. Returns: whether the timer may be freed.
  bool silence() noexcept {
    if (sched::is_forked_child()) return false;  // there is no runtime, and nothing fires
    if (simulated_) {
      // The heap may be gone, together with its simulation, which has emptied the heap before.
      if (place == 0) return true;
      if (sched::this_simulation() == nullptr) return false;  // the simulation goes on elsewhere
    }
    sched::inside in;
    sched::timer_heap::disarm(*this);
    in.leave();
    return true;
  }

  static constinit std::atomic<timer_core*> overdue_;   // [T1] linked by next_overdue_
  static constinit std::atomic<timer_core*> uncalled_;  // linked by next_uncalled_
  static constinit std::atomic<goroutine*> attendant_;  // [T1] null: it runs or there is none
  static constinit std::atomic<bool> has_attendant_;

  const bool simulated_ = sched::this_simulation() != nullptr;  // its heap is of one
  base::spin_lock lock_;
  std::atomic<std::uint32_t> references_{1};
  chan_core* const channel_ = nullptr;              // null: it calls a function
  const std::unique_ptr<timer_function> function_;  // null: it has a channel
  bool exits_ = false;  // runs_at_exit() when it was set; guarded by lock_, and by the heap's
  std::atomic<std::uint32_t> owed_{0};    // [T2] calls that wait for the attendant
  std::atomic<bool> is_uncalled_{false};  // in the list uncalled_
  timer_core* next_overdue_ = nullptr;
  timer_core* next_uncalled_ = nullptr;  // written once
};

constinit std::atomic<timer_core*> timer_core::overdue_{nullptr};
constinit std::atomic<timer_core*> timer_core::uncalled_{nullptr};
constinit std::atomic<goroutine*> timer_core::attendant_{nullptr};
constinit std::atomic<bool> timer_core::has_attendant_{false};

void throw_bad_period() { throw std::invalid_argument("weft::ticker: the period is not positive"); }

timer_ref timer_ref::make(std::int64_t delay_ns, std::int64_t period_ns) {
  timer_ref ref(new timer_core);
  ref.core_->start(delay_ns, period_ns);
  return ref;
}

timer_ref timer_ref::make(std::int64_t delay_ns, std::unique_ptr<timer_function> f) {
  timer_ref ref(new timer_core(std::move(f)));
  ref.core_->start(delay_ns, 0);
  return ref;
}

timer_ref::timer_ref(const timer_ref& other) noexcept : core_(other.core_) {
  if (core_ != nullptr) core_->retain();
}

timer_ref::~timer_ref() {
  if (core_ != nullptr) core_->release();
}

chan_ref timer_ref::channel() const noexcept {
  return chan_ref(core_ != nullptr ? core_->take_channel() : nullptr);
}

bool timer_ref::stop() const { return core_ != nullptr && core_->stop(); }

bool timer_ref::reset(std::int64_t delay_ns, std::int64_t period_ns) const {
  if (core_ == nullptr) {
    throw std::logic_error("weft::timer, ticker: reset() of a moved-from timer");
  }
  return core_->reset(delay_ns, period_ns);
}

}  // namespace weft::detail
