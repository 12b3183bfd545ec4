// poller.cpp: poller.hpp on epoll.
//
// Memory order:
//   [PO1] making of a chunk of records -> an event for one of them.
//   [PO2] leave() -> try_attend(): only that the thread which leaves is out of the kernel.
//   [PO3] prepare() -> a thread that polls: the epoll instance is made, with its bell.
//   [PO4] the count of a wake -> is_waited_for(): the count of the wait that it has ended. If a
//         wake were seen without its wait, another goroutine's wait would not be seen.
#include "sched/poller.hpp"

#include "base/check.hpp"
#include "base/clock.hpp"
#include "base/fatal.hpp"
#include "base/interrupt.hpp"
#include "base/own_descriptor.hpp"
#include "base/valgrind.hpp"
#include "sched/inside.hpp"
#include "sched/keeper.hpp"
#include "sched/order.hpp"
#include "sched/plain_thread.hpp"
#include "sched/scheduler.hpp"
#include "sched/simulation.hpp"
#include "sched/start.hpp"
#include "sched/wake.hpp"

#include <weft/detail/park.hpp>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <fcntl.h>
#include <mutex>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

namespace weft::sched {

constinit poller the_poller;

namespace {

constexpr std::uint64_t interrupt_tag = ~std::uint64_t{0};
constexpr int events_max = 256;
constexpr std::int64_t owner_stays_ns = 300'000;
constexpr std::int64_t check_interval_ns = 1'000'000;
constexpr int events_in_passing = 64;  // the array may be on a goroutine's stack
constexpr std::uint32_t in_events = EPOLLIN | EPOLLPRI | EPOLLRDHUP | EPOLLHUP | EPOLLERR;
constexpr std::uint32_t out_events = EPOLLOUT | EPOLLHUP | EPOLLERR;
// After one of these events a read may return less than there is, although no further event will
// say that there is more. That happens at the end of the stream. It also happens at urgent data,
// where the kernel interrupts a read.
constexpr std::uint32_t last_events = EPOLLRDHUP | EPOLLHUP | EPOLLERR | EPOLLPRI;

std::uint64_t tag_of(std::uint32_t index, std::uint32_t sequence) noexcept {
  return std::uint64_t{index} << 32 | sequence;
}

// Whether the error comes from a sandbox that does not allow the call. Errors of the epoll instance
// itself do not count: check_own_descriptor() looks at those.
bool is_refused(int error) noexcept {
  return error != EINTR && error != EBADF && error != EINVAL && error != EFAULT;
}

// Waits after a sandbox has refused epoll_wait. The sandbox may allow epoll_pwait or epoll_pwait2.
[[gnu::cold, gnu::noinline]] int wait_otherwise(int epoll, epoll_event* events, int most,
                                                int ms) noexcept {
  const int n = ::epoll_pwait(epoll, events, most, ms, nullptr);
  if (n >= 0 || !is_refused(errno)) return n;
  const timespec time{ms / 1'000, ms % 1'000 * 1'000'000};
  const timespec* const limit = ms < 0 ? nullptr : &time;
  const long m = ::syscall(SYS_epoll_pwait2, epoll, events, most, limit, nullptr, 0);
  if (m < 0 && is_refused(errno)) {
    base::fatal("the kernel refuses epoll_wait: a sandbox must allow it, or epoll_pwait");
  }
  return static_cast<int>(m);
}

int wait_in_ms(int epoll, epoll_event* events, int most, int ms) noexcept {
  const int n = ::epoll_wait(epoll, events, most, ms);
  if (n < 0 && is_refused(errno)) [[unlikely]]
    return wait_otherwise(epoll, events, most, ms);
  return n;
}

// Waits with a resolution of nanoseconds where the kernel can.
int wait_for_events(int epoll, epoll_event* events, int most, std::int64_t until_ns) noexcept {
  if (until_ns == 0) return wait_in_ms(epoll, events, most, 0);
  if (until_ns == base::never) return wait_in_ms(epoll, events, most, -1);
  const std::int64_t left = std::max<std::int64_t>(until_ns - base::now_ns(), 0);
  static constinit std::atomic<bool> coarse{false};
  // valgrind complains about system calls that it does not know.
  if (!coarse.load(std::memory_order_relaxed) && !base::valgrind::is_here()) {
    const timespec time{left / 1'000'000'000, left % 1'000'000'000};
    const long n = ::syscall(SYS_epoll_pwait2, epoll, events, most, &time, nullptr, 0);
    if (n >= 0 || errno == EINTR) return static_cast<int>(n);
    coarse.store(true, std::memory_order_relaxed);  // Linux before 5.11, or a sandbox
  }
  const std::int64_t ms = std::min<std::int64_t>((left + 999'999) / 1'000'000, 1 << 30);
  return wait_in_ms(epoll, events, most, static_cast<int>(ms));
}

// relaxed: written under the lock.
std::int64_t deadline_of(const pollable::side& s) noexcept {
  const std::int64_t deadline = s.deadline.load(std::memory_order_relaxed);
  return deadline == 0 ? base::never : deadline;
}

// Not inlined: the caller may have moved to another thread since it last took the address of errno.
[[gnu::noinline]] pollable* fail_with(int error) noexcept {
  errno = error;
  return nullptr;
}

}  // namespace

// Counts the wake here, not when the goroutine goes on: if the process exits first, the goroutine
// never goes on.
bool poller::give_up(void* argument) {
  pollable::side& s = *static_cast<pollable::side*>(argument);
  const std::lock_guard hold(s.lock);
  if (std::exchange(s.waiter, nullptr) == nullptr) return false;
  the_poller.wakes_.fetch_add(1, std::memory_order_release);  // [PO4]
  return true;
}

bool poller::prepare() noexcept {
  if (epoll_.load(std::memory_order_acquire) != -1) return true;  // [PO3]
  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  if (epoll == -1) return false;
  const int bell = base::make_interrupt_descriptor();
  epoll_event e{};
  e.events = EPOLLIN | EPOLLET;
  e.data.u64 = interrupt_tag;
  if (bell == -1 || ::epoll_ctl(epoll, EPOLL_CTL_ADD, bell, &e) != 0) {
    const int error = errno;
    base::close_interrupt_descriptor();
    ::close(epoll);
    errno = error;
    return false;
  }
  base::mark_own_descriptor(epoll);
  epoll_.store(epoll, std::memory_order_release);  // [PO3]
  return true;
}

pollable* poller::record(std::uint32_t index) const noexcept {
  return chunks_[index / chunk_records].load(std::memory_order_acquire) +  // [PO1]
         index % chunk_records;
}

pollable* poller::take_record() noexcept {
  inside in;
  lock_.lock();
  pollable* r = free_ != pollable::none ? record(free_) : nullptr;
  if (r != nullptr) {
    free_ = r->next_free;
  } else if (made_ < chunks_max * chunk_records) {
    std::atomic<pollable*>& chunk = chunks_[made_ / chunk_records];
    if (made_ % chunk_records == 0) {
      void* const memory = ::mmap(nullptr, chunk_records * sizeof(pollable), PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory != MAP_FAILED) {
        // All records are made before any thread can see the chunk.
        auto* const records = static_cast<pollable*>(memory);
        for (std::uint32_t k = 0; k < chunk_records; ++k) {
          (::new (records + k) pollable)->index = made_ + k;
        }
        chunk.store(records, std::memory_order_release);  // [PO1]
      }
    }
    if (pollable* const first = chunk.load(std::memory_order_relaxed)) {
      r = first + made_++ % chunk_records;
    }
  }
  lock_.unlock();
  in.leave();
  return r != nullptr ? r : fail_with(ENOMEM);
}

pollable* poller::open(int fd) noexcept {
  {
    static constinit base::spin_lock once;
    const lock_outside mark;
    const std::lock_guard hold(once);
    if (!prepare()) return nullptr;
  }
  pollable* const r = take_record();
  if (r == nullptr) return nullptr;
  r->fd = fd;
  inside in;
  for (pollable::side& s : r->sides) {
    const std::lock_guard hold(s.lock);  // late events for the previous descriptor look here, too
    s.is_closing = false;
    s.ready.store(false, std::memory_order_relaxed);
    s.deadline.store(0, std::memory_order_relaxed);
    s.has_hung_up.store(false, std::memory_order_relaxed);
  }
  in.leave();
  const int epoll = epoll_.load(std::memory_order_relaxed);
  if (!base::is_own_descriptor(epoll)) base::check_own_descriptor(EBADF);
  epoll_event e{};
  e.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI | EPOLLET;
  e.data.u64 = tag_of(r->index, r->sequence);
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) == 0) return r;
  const int error = errno;
  // EBADF may be about `fd` or about the epoll descriptor. EINVAL means that the number of the
  // epoll descriptor now belongs to another file.
  if (error == EINVAL || (error == EBADF && ::fcntl(fd, F_GETFD) != -1)) {
    base::check_own_descriptor(error);
  }
  begin_close(*r);
  end_close(*r);
  return fail_with(error);
}

void poller::wake_waiter(pollable::side& s) noexcept {
  s.lock.lock();
  goroutine* const g = std::exchange(s.waiter, nullptr);
  s.lock.unlock();
  if (g == nullptr) return;
  wakes_.fetch_add(1, std::memory_order_release);  // [PO4]
  detail::ready_inside(g);
}

void poller::begin_close(pollable& r) noexcept {
  for (pollable::side& s : r.sides) {
    inside in;
    s.lock.lock();
    s.is_closing = true;
    s.lock.unlock();
    wake_waiter(s);
    in.leave();
  }
}

void poller::end_close(pollable& r) noexcept {
  // The descriptor may have been duplicated, perhaps for a child process. Then closing it does not
  // remove it from the epoll instance, so it is removed here. But the child of a fork shares the
  // epoll instance with its parent, and the parent still uses this descriptor. So the child removes
  // nothing.
  if (!is_forked_child()) {
    ::epoll_ctl(epoll_.load(std::memory_order_relaxed), EPOLL_CTL_DEL, r.fd, nullptr);
  }
  inside in;
  {
    const std::lock_guard hold_in(r.sides[0].lock);
    const std::lock_guard hold_out(r.sides[1].lock);
    for ([[maybe_unused]] const pollable::side& s : r.sides) {
      WEFT_ASSERT(s.is_closing && s.waiter == nullptr);
    }
    ++r.sequence;
  }
  lock_.lock();
  r.next_free = free_;
  free_ = r.index;
  lock_.unlock();
  in.leave();
}

void poller::count_wait() noexcept {
  if (machine* const m = this_machine()) {
    std::atomic<std::uint64_t>& waits = m->p->io_waits;
    waits.store(waits.load(std::memory_order_relaxed) + 1, base::hot_store_order);  // our processor
  } else {
    outside_waits_.fetch_add(1, std::memory_order_relaxed);
  }
}

bool poller::is_waited_for() const noexcept {
  // The wakes are read before the waits. So a goroutine that begins to wait meanwhile is counted.
  const std::uint64_t wakes = wakes_.load(std::memory_order_acquire);  // [PO4]
  std::uint64_t waits = outside_waits_.load(std::memory_order_relaxed);
  const std::uint32_t procs = the_scheduler.procs_made.load(std::memory_order_acquire);  // [P1]
  for (std::uint32_t i = 0; i < procs; ++i) {
    waits += the_scheduler.processors[i]
                 .load(std::memory_order_relaxed)
                 ->io_waits.load(base::hot_load_order);
  }
  return static_cast<std::int64_t>(waits - wakes) > 0;
}

void poller::forget_stopped() noexcept {
  lock_.lock();
  const std::uint32_t made = made_;
  lock_.unlock();
  for (std::uint32_t i = 0; i < made; ++i) {
    for (pollable::side& s : record(i)->sides) {
      const std::lock_guard hold(s.lock);
      if (s.waiter == nullptr || s.waiter->how != mode::stopped) continue;
      s.waiter = nullptr;
      wakes_.fetch_add(1, std::memory_order_release);  // [PO4]
    }
  }
}

bool poller::has_passed(const pollable::side& s) noexcept {
  const std::int64_t deadline = deadline_of(s);
  return deadline != base::never && base::now_ns() >= deadline;
}

[[gnu::always_inline]] inline bool poller::park_locked(pollable::side& s, goroutine* self,
                                                       std::int64_t until_ns) noexcept {
  WEFT_ASSERT(s.lock.is_locked() && s.waiter == nullptr && !s.is_closing);
  s.waiter = self;
  count_wait();
  s.lock.unlock();
  if (self->how == mode::thread) attend_poller();
  if (until_ns == base::never) {
    detail::park();
    return true;
  }
  return detail::park_until(until_ns, &give_up, &s);
}

poll_result poller::wait(pollable& r, poll_side which, std::int64_t until_ns) noexcept {
  if (this_simulation() != nullptr) return poll_result::unsupported;
  pollable::side& s = r[which];
  goroutine* const self = detail::prepare_park(detail::wait_reason::io);
  s.lock.lock();
  const bool late = has_passed(s);
  const bool is_ready = s.ready.load(std::memory_order_relaxed);
  if (!s.is_closing && !late && !is_ready) {
    const std::int64_t limit = std::min(deadline_of(s), until_ns);
    return park_locked(s, self, limit) ? poll_result::ready : poll_result::timed_out;
  }
  const poll_result result = s.is_closing ? poll_result::closed
                             : late       ? poll_result::timed_out
                                          : poll_result::ready;
  if (result == poll_result::ready) s.ready.store(false, std::memory_order_relaxed);
  s.lock.unlock();
  detail::cancel_park();
  return result;
}

poll_result poller::pause(pollable& r, poll_side which, std::int64_t until_ns) noexcept {
  if (this_simulation() != nullptr) return poll_result::unsupported;
  pollable::side& s = r[which];
  for (bool was_woken = false;;) {
    goroutine* const self = detail::prepare_park(detail::wait_reason::io);
    s.lock.lock();
    if (was_woken) s.ready.store(true, std::memory_order_relaxed);  // left for wait() to clear
    const std::int64_t deadline = deadline_of(s);
    const std::int64_t now = base::now_ns();
    if (s.is_closing || now >= std::min(deadline, until_ns)) {
      const poll_result result = s.is_closing      ? poll_result::closed
                                 : now >= deadline ? poll_result::timed_out
                                                   : poll_result::ready;
      s.lock.unlock();
      detail::cancel_park();
      return result;
    }
    was_woken = park_locked(s, self, std::min(deadline, until_ns));
  }
}

void poller::set_deadline(pollable& r, poll_side which, std::int64_t when_ns) noexcept {
  pollable::side& s = r[which];
  inside in;
  s.lock.lock();
  s.deadline.store(when_ns, std::memory_order_relaxed);
  s.lock.unlock();
  wake_waiter(s);
  in.leave();
}

goroutine* poller::note_event(pollable& r, pollable::side& s, std::uint32_t sequence,
                              std::uint32_t events) noexcept {
  // relaxed: if `ready` was set when the event was collected, the goroutine that clears `ready`
  // tries again after that. But if this may be the last event, the lock is taken in any case: then
  // the goroutine that clears `ready` sees has_hung_up.
  if ((events & last_events) == 0 && s.ready.load(std::memory_order_relaxed)) return nullptr;
  const std::lock_guard hold(s.lock);
  if (r.sequence != sequence) return nullptr;
  goroutine* const g = std::exchange(s.waiter, nullptr);
  if (g == nullptr) s.ready.store(true, std::memory_order_relaxed);
  return g;
}

void poller::on_event(std::uint64_t tag, std::uint32_t events, goroutine_list& out) noexcept {
  if (tag == interrupt_tag) return;
  // No tag of ours: the number leads to an epoll instance of the program.
  if (tag >> 32 >= chunks_max * chunk_records ||
      chunks_[(tag >> 32) / chunk_records].load(std::memory_order_relaxed) == nullptr) [[unlikely]]
    base::check_own_descriptor(EBADF);
  pollable& r = *record(static_cast<std::uint32_t>(tag >> 32));
  const auto sequence = static_cast<std::uint32_t>(tag);
  // A stale event may set the flag for the descriptor that has the record now. Then reads of that
  // descriptor do without a short cut.
  if ((events & last_events) != 0) {
    r[poll_side::in].has_hung_up.store(true, std::memory_order_relaxed);
  }
  for (const poll_side side : {poll_side::in, poll_side::out}) {
    if ((events & (side == poll_side::in ? in_events : out_events)) == 0) continue;
    goroutine* const g = note_event(r, r[side], sequence, events);
    if (g == nullptr) continue;
    if (g->how >= mode::thread) {
      wakes_.fetch_add(1, std::memory_order_release);  // [PO4]
      wake_thread(g);
    } else {
      g->set_status(state::runnable);
      out.push_back(g);
    }
  }
}

bool poller::try_attend() noexcept {
  if (attended_.load(std::memory_order_relaxed) || !is_waited_for()) return false;
  return !attended_.exchange(true, std::memory_order_acquire);  // [PO2]
}

void poller::leave() noexcept {
  WEFT_ASSERT(is_attended());
  attended_.store(false, std::memory_order_release);  // [PO2]
}

template <int most>
[[gnu::noinline]] void poller::collect(std::int64_t until_ns, goroutine_list& out) noexcept {
  epoll_event events[most];
  const int epoll = epoll_.load(std::memory_order_acquire);  // [PO3]
  const int n = wait_for_events(epoll, events, most, until_ns);
  if (n < 0) [[unlikely]]
    base::check_own_descriptor(errno);
  last_poll_ns_.store(base::now_ns(), std::memory_order_relaxed);
  for (int i = 0; i < n; ++i) on_event(events[i].data.u64, events[i].events, out);
}

// Ends the process if the number leads to another epoll instance, where a sleep would last for
// ever. Called before each sleep; but one system call in a millisecond is enough.
void poller::check_instance() noexcept {
  const std::int64_t now = base::now_ns();
  if (now - last_check_ns_ < check_interval_ns) return;
  last_check_ns_ = now;
  if (!base::is_own_descriptor(epoll_.load(std::memory_order_acquire))) {  // [PO3]
    base::check_own_descriptor(EBADF);
  }
}

void poller::poll(std::int64_t until_ns, goroutine_list& out) noexcept {
  WEFT_ASSERT(is_attended());
  const int saved = errno;
  if (until_ns == 0) {
    collect<events_in_passing>(0, out);
  } else {
    check_instance();
    collect<events_max>(until_ns, out);
  }
  if (!out.empty()) wakes_.fetch_add(out.size(), std::memory_order_release);  // [PO4]
  errno = saved;
}

bool poller::is_anothers(const processor& p, std::int64_t now_ns) const noexcept {
  // relaxed, both: hints.
  const processor* const owner = owner_.load(std::memory_order_relaxed);
  return owner != nullptr && owner != &p && now_ns - last_poll_ns() < owner_stays_ns;
}

void poller::note_owner(const processor& p) noexcept {
  if (owner_.load(std::memory_order_relaxed) != &p) owner_.store(&p, std::memory_order_relaxed);
}

std::size_t poller::poll_for(processor& p) noexcept {
  if (!try_attend()) return 0;
  note_owner(p);
  goroutine_list found;
  poll(0, found);
  leave();
  const std::size_t n = found.size();
  while (goroutine* const g = found.pop_front()) push_woken(p, g);
  return n;
}

}  // namespace weft::sched
