// timer.cpp: timers and tickers on the heaps of the scheduler.
//
// A timer is armed in one heap at most; `lock_` keeps stops and resets apart. It has a reference of
// its own while it is armed, because nobody may hold a handle any more. What fires runs under the
// heap's lock, inside the runtime, where nothing may be freed: if that reference was the last one,
// the timer is put aside, and whoever next makes or drops one frees it.
//
//   stop    disarm; then no value comes any more. Take back the one in the channel.
//   reset   the same, and arm again.
//   fire    offer the time to the channel, which has room for one value: a tick that finds it full
//           is dropped. Or start the goroutine that was prepared when the timer was armed: to make
//           one needs memory.
//
// Locks: lock_, then the heap's. What fires takes the channel's, never lock_.
#include <weft/time.hpp>

#include "base/clock.hpp"
#include "base/lock.hpp"
#include "sched/inside.hpp"
#include "sched/order.hpp"
#include "sched/simulation.hpp"
#include "sched/start.hpp"

#include <weft/detail/task.hpp>

#include <atomic>
#include <mutex>
#include <new>
#include <stdexcept>

namespace weft::detail {

class timer_core : public sched::timer {
 public:
  explicit timer_core(chan_core* channel, std::unique_ptr<timer_function> f) noexcept
      : channel_(channel), function_(std::move(f)) {
    fire = function_ != nullptr ? &fire_function : &fire_channel;
    wakes = function_ != nullptr ? nullptr : &is_waited_for;
  }
  timer_core(const timer_core&) = delete;
  timer_core& operator=(const timer_core&) = delete;
  ~timer_core() {
    if (prepared_ != nullptr) abort_start(prepared_);
    if (channel_ != nullptr) channel_->release();
  }

  void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  // In user mode only.
  void release() noexcept {
    // acq_rel: the last one sees what all others did.
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  chan_core* channel() const noexcept { return channel_; }

  // Both at one instant, also beside each other. Return: whether it had not fired, or nobody had
  // received what it sent.
  bool stop() { return change(false, 0, 0); }
  bool reset(std::int64_t delay_ns, std::int64_t period) { return change(true, delay_ns, period); }
  void start(std::int64_t delay_ns, std::int64_t period) { (void)change(true, delay_ns, period); }

  static void free_put_aside() noexcept {
    timer_core* t = put_aside_.exchange(nullptr, std::memory_order_acquire);  // [T1]
    while (t != nullptr) delete std::exchange(t, t->next_put_aside_);
  }

 private:
  using time_point = clock::time_point;

  static bool is_waited_for(const sched::timer* t) noexcept {
    return static_cast<const timer_core*>(t)->channel_->is_received_from_hint();
  }

  // Runs under the heap's lock, inside.
  static void fire_channel(sched::timer* t) noexcept {
    auto* const self = static_cast<timer_core*>(t);
    time_point now = time_point(std::chrono::nanoseconds(clock_now_ns()));
    {
      const sched::firing mark;
      self->channel_->offer_inside(&now);
    }
    if (self->period_ns == 0) self->release_inside();
  }

  // The same. The timer's own reference goes to the goroutine.
  static void fire_function(sched::timer* t) noexcept {
    auto* const self = static_cast<timer_core*>(t);
    commit_start_inside(std::exchange(self->prepared_, nullptr), &invoke_in_place<call_task>);
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

  goroutine* prepare() {
    goroutine* const g = begin_start(start_as::child);
    ::new (task_storage(g)) call_task(caller{this});  // nothing to destroy
    return g;
  }

  bool change(bool starts, std::int64_t delay_ns, std::int64_t period) {
    const void* const ordered_by = channel_ != nullptr ? static_cast<void*>(channel_) : this;
    if (simulated_ && sched::this_simulation() == nullptr) {
      if (!starts) return false;  // its simulation has ended, and so has it
      throw std::logic_error(
          "weft::timer: one that was made in bubble() or explore() (weft/test.hpp) is used outside "
          "of it");
    }
    free_put_aside();
    goroutine* spare = starts && function_ != nullptr ? prepare() : nullptr;
    if (starts) {
      // What was done before is seen by whoever it wakes.
      observe(touch::release, ordered_by, "start timer");
      retain();
    } else {
      observe(touch::arrive, ordered_by, "stop timer");
    }
    const std::int64_t when = starts ? deadline_after(delay_ns) : 0;
    bool was_armed = false;
    bool had_value = false;
    bool armed = true;
    sched::inside in;
    {
      const std::lock_guard hold(lock_);
      was_armed = sched::timer_heap::disarm(*this);
      had_value = channel_ != nullptr && channel_->take_back_inside();
      period_ns = period;
      if (!starts) {
        spare = std::exchange(prepared_, nullptr);  // null if it has fired
      } else {
        if (prepared_ == nullptr) prepared_ = std::exchange(spare, nullptr);
        armed = sched::arm_timer(*this, when);
      }
    }
    in.leave();
    if (starts && sched::this_machine() == nullptr) sched::keep_time();  // everybody may be asleep
    if (spare != nullptr) abort_start(spare);
    if (was_armed) release();
    if (!armed) {
      release();
      throw std::bad_alloc();
    }
    return was_armed || had_value;
  }

  void release_inside() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    next_put_aside_ = put_aside_.load(std::memory_order_relaxed);  // re-checked by the exchange
    while (!put_aside_.compare_exchange_weak(next_put_aside_, this, std::memory_order_release,
                                             std::memory_order_relaxed)) {  // [T1]
    }
  }

  // [T1] whoever puts a timer aside -> whoever frees it: all that was done with it.
  static constinit std::atomic<timer_core*> put_aside_;

  const bool simulated_ = sched::this_simulation() != nullptr;  // its heap is of one
  base::spin_lock lock_;
  std::atomic<std::uint32_t> references_{1};
  chan_core* const channel_;                        // null: it calls a function
  const std::unique_ptr<timer_function> function_;  // null: it has a channel
  goroutine* prepared_ = nullptr;                   // guarded by lock_; while armed, by the heap's
  timer_core* next_put_aside_ = nullptr;
};

constinit std::atomic<timer_core*> timer_core::put_aside_{nullptr};

void throw_bad_period() { throw std::invalid_argument("weft::ticker: the period is not positive"); }

timer_ref timer_ref::make(std::int64_t delay_ns, std::int64_t period_ns) {
  chan_core* const channel = chan_core::make(1, chan_element<clock::time_point>::shape);
  channel->forgo_bias();  // timers offer from inside the runtime
  timer_core* core = nullptr;
  try {
    core = new timer_core(channel, nullptr);
  } catch (...) {
    channel->release();
    throw;
  }
  timer_ref ref(core);
  core->start(delay_ns, period_ns);
  return ref;
}

timer_ref timer_ref::make(std::int64_t delay_ns, std::unique_ptr<timer_function> f) {
  timer_ref ref(new timer_core(nullptr, std::move(f)));
  ref.core_->start(delay_ns, 0);
  return ref;
}

timer_ref::timer_ref(const timer_ref& other) noexcept : core_(other.core_) {
  if (core_ != nullptr) core_->retain();
}

timer_ref::~timer_ref() {
  if (core_ == nullptr) return;
  core_->release();
  timer_core::free_put_aside();
}

chan_ref timer_ref::channel() const noexcept {
  chan_core* const c = core_ != nullptr ? core_->channel() : nullptr;
  if (c != nullptr) c->retain();
  return chan_ref(c);
}

bool timer_ref::stop() const { return core_ != nullptr && core_->stop(); }

bool timer_ref::reset(std::int64_t delay_ns, std::int64_t period_ns) const {
  return core_->reset(delay_ns, period_ns);
}

}  // namespace weft::detail
