// ring_uring.cpp: one io_uring for the process, and the thread that serves it.
//
// A goroutine puts its request, which lives on its stack, into a list, rings a bell (an eventfd)
// and parks. The service takes the list, submits what is there in one system call together with its
// wait, and readies the goroutines whose operations are done. The bell itself is read through the
// ring, so the service sleeps in one place only.
//
//     goroutine                          service
//     arrived: push                      is_rung = false
//     is_rung.exchange(true) was false?  arrived: take all
//       write the bell                   sleeps until something completes
//
// If the exchange finds true, the service has not cleared is_rung yet, and will take the list after
// it clears is_rung. So under load the bell is rung once for many requests. [RI1] marks the
// accesses to these two words that have this effect; they are seq_cst.
//
//   [RI2] has_ring's release of `known` -> its acquire: the service has been started.
//
// Why the thread of the goroutine does not submit the request itself. The kernel ties requests to
// the thread that submits them. It cancels them when that thread ends. It keeps a pool of kernel
// threads for each submitting thread. When a page has arrived, the kernel finishes the request in
// the submitting thread, and interrupts the call in which that thread sleeps (epoll_wait returns
// EINTR). But the threads of machines end, and they sleep in the user's calls. The service costs
// two wake-ups of threads, 60 us (docs/decisions/007). That is little compared with a slow disk,
// and requests to a fast disk rarely get here (file_core.cpp).
//
// The memory of an operation stays valid until the operation is done, because its goroutine stays
// parked and nothing cancels it. If the process ends first, stacks stay mapped until the kernel has
// torn the ring down.
//
// The deadlock detector: service_waits counts the goroutines that wait here. It is decremented
// after ready().
#include "os/ring.hpp"

#include "base/bell.hpp"
#include "base/env.hpp"
#include "base/fatal.hpp"
#include "base/own_descriptor.hpp"
#include "base/valgrind.hpp"
#include "sched/machine_thread.hpp"
#include "sched/scheduler.hpp"
#include "sched/start.hpp"

#include <weft/detail/park.hpp>
#include <weft/sync.hpp>

#include <atomic>
#include <liburing.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace weft::os {
namespace {

constexpr unsigned submissions = 256;
constexpr unsigned completions = 4096;
constexpr unsigned in_flight_max = 2048;  // with room for all to complete, and for the bell
// How many kernel threads wait for operations that have no asynchronous form, such as fsync. The
// default is four per core; but a journal commits any number of fsyncs at once.
constexpr unsigned workers_max = 64;

// A request and the goroutine that waits for it.
struct pending {
  ring_request request;
  sched::goroutine* who = nullptr;
  pending* next = nullptr;
  std::int64_t result = 0;
};

class service {
 public:
  // Requires: the runtime has started. Returns: false if the kernel refuses.
  bool start() {
    if (!make_ring()) return false;
    if (bell_.make(EFD_CLOEXEC) >= 0 && sched::start_service("weft-ring", &main) == 0) {
      sched::the_scheduler.has_io_uring.store(true, std::memory_order_relaxed);
      is_there_.store(true, std::memory_order_relaxed);
      return true;
    }
    bell_.close();
    ::io_uring_queue_exit(&ring_);
    return false;
  }

  // relaxed: a request that comes too late is sent back.
  bool is_there() const noexcept { return is_there_.load(std::memory_order_relaxed); }

  std::int64_t run(const ring_request& r) {
    pending p{.request = r};
    p.who = detail::prepare_park(detail::wait_reason::io);
    // relaxed: the deadlock detector sees this thread asleep after it.
    sched::the_scheduler.service_waits.fetch_add(1, std::memory_order_relaxed);
    p.next = arrived_.load(std::memory_order_relaxed);  // re-checked by the exchange
    while (!arrived_.compare_exchange_weak(p.next, &p, std::memory_order_seq_cst,  // [RI1]
                                           std::memory_order_relaxed)) {
    }
    if (!is_rung_.exchange(true, std::memory_order_seq_cst)) bell_.ring();  // [RI1]
    detail::park();
    return p.result;
  }

 private:
  bool make_ring() {
    io_uring_params params{};
    params.flags = IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP;
    params.cq_entries = completions;
    // ENOSYS, EPERM: there is no io_uring here.
    if (::io_uring_queue_init_params(submissions, &ring_, &params) != 0) return false;
    // A kernel that has the first of these features also has read and write: Linux 5.6. A sandbox
    // may allow one of the two system calls and not the other.
    if ((params.features & IORING_FEAT_RW_CUR_POS) != 0 &&
        (params.features & IORING_FEAT_NODROP) != 0 &&
        ::syscall(SYS_io_uring_enter, ring_.ring_fd, 0, 0, 0, nullptr, 0) == 0) {
      return true;
    }
    ::io_uring_queue_exit(&ring_);
    return false;
  }

  static void* main(void*);

  [[noreturn]] void serve() {
    unsigned limits[2] = {workers_max, 0};  // kernels before 5.15 keep their own limits
    (void)::io_uring_register_iowq_max_workers(&ring_, limits);
    listen();
    while (!is_refused_) {
      take_arrived();
      submit_backlog();
      note(::io_uring_submit_and_wait(&ring_, 1));
      reap();
    }
    send_back_all();
  }

  // Asks the ring to read the bell, so that the bell wakes the service once more.
  void listen() {
    io_uring_sqe* const e = next_entry();
    if (e == nullptr) return;
    ::io_uring_prep_read(e, bell_.fd(), &rung_, sizeof rung_, 0);
    ::io_uring_sqe_set_data(e, nullptr);
  }

  // Returns: null if the kernel accepts no more requests.
  io_uring_sqe* next_entry() {
    while (!is_refused_) {
      if (io_uring_sqe* const e = ::io_uring_get_sqe(&ring_)) return e;
      if (!note(::io_uring_submit(&ring_))) reap();
    }
    return nullptr;
  }

  // Handles an error of a submission. After an interruption or a shortage of memory, the caller
  // goes on, and completed requests make room. But the process may have entered a sandbox. If that
  // sandbox refuses the call, it always will.
  bool note(int result) noexcept {
    if (result >= 0) return true;
    if (result == -EPERM || result == -EACCES || result == -ENOSYS) {
      is_refused_ = true;
    } else {
      base::check_own_descriptor(-result);
    }
    return false;
  }

  // The ring can no longer be used. Requests that the kernel has not begun are sent back at once.
  // The kernel completes the others by itself, without a further system call for io_uring.
  [[noreturn]] void send_back_all() {
    is_there_.store(false, std::memory_order_relaxed);
    base::warn("io_uring is no longer allowed; files are read and written with system calls");
    io_uring_sq& queue = ring_.sq;
    for (unsigned at = __atomic_load_n(queue.khead, __ATOMIC_ACQUIRE); at != queue.sqe_tail; ++at) {
      const unsigned mask = *queue.kring_mask;
      answer(reinterpret_cast<pending*>(queue.sqes[at & mask].user_data), -ECANCELED);
    }
    for (;;) {
      reap();
      take_arrived();
      while (pending* const p = take_first()) complete(p, -ECANCELED);
      // A request may still come from a goroutine that saw the ring just before. The kernel may
      // still read the bell.
      const timespec nap{0, in_flight_ != 0 ? 1'000'000 : 100'000'000};
      (void)::nanosleep(&nap, nullptr);
    }
  }

  // Takes the requests, in the order in which they came.
  void take_arrived() {
    is_rung_.store(false, std::memory_order_seq_cst);                         // [RI1]
    pending* newest = arrived_.exchange(nullptr, std::memory_order_seq_cst);  // [RI1]
    pending* list = nullptr;
    while (newest != nullptr) {
      pending* const p = newest;
      newest = p->next;
      p->next = list;
      list = p;
    }
    (last_ != nullptr ? last_->next : first_) = list;
    while (list != nullptr) {
      last_ = list;
      list = list->next;
    }
  }

  pending* take_first() {
    pending* const p = first_;
    if (p != nullptr) first_ = p->next;
    if (first_ == nullptr) last_ = nullptr;
    return p;
  }

  void submit_backlog() {
    while (first_ != nullptr && in_flight_ < in_flight_max) {
      io_uring_sqe* const e = next_entry();
      if (e == nullptr) return;
      pending* const p = take_first();
      prepare(e, p->request);
      ::io_uring_sqe_set_data(e, p);
      ++in_flight_;
    }
  }

  static void prepare(io_uring_sqe* e, const ring_request& r) {
    const auto size = static_cast<unsigned>(r.size);
    const auto offset = static_cast<std::uint64_t>(r.offset);
    switch (r.what) {
      case operation::read:
        ::io_uring_prep_read(e, r.fd, r.data, size, offset);
        break;
      case operation::write:
        ::io_uring_prep_write(e, r.fd, r.data, size, offset);
        break;
      case operation::sync:
        ::io_uring_prep_fsync(e, r.fd, 0);
        break;
      case operation::sync_data:
        ::io_uring_prep_fsync(e, r.fd, IORING_FSYNC_DATASYNC);
        break;
    }
  }

  void reap() {
    io_uring_cqe* c = nullptr;
    while (::io_uring_peek_cqe(&ring_, &c) == 0) {
      auto* const p = static_cast<pending*>(::io_uring_cqe_get_data(c));
      const int result = c->res;
      ::io_uring_cqe_seen(&ring_, c);
      answer(p, result);
    }
  }

  // Handles a request that the kernel has completed.
  void answer(pending* p, int result) {
    if (p == nullptr) return listen();
    --in_flight_;
    complete(p, result);
  }

  static void complete(pending* p, int result) {
    p->result = result;
    detail::ready(p->who);  // *p is gone
    sched::the_scheduler.service_waits.fetch_sub(1, std::memory_order_relaxed);
  }

  io_uring ring_{};
  base::bell bell_;
  std::atomic<pending*> arrived_{nullptr};  // [RI1] the newest first
  std::atomic<bool> is_rung_{false};        // [RI1]
  std::atomic<bool> is_there_{false};
  // Used by the service alone:
  std::uint64_t rung_ = 0;
  pending* first_ = nullptr;  // taken and not submitted
  pending* last_ = nullptr;
  unsigned in_flight_ = 0;
  bool is_refused_ = false;  // the kernel accepts no more requests
};

// Never destroyed: its thread runs until the process has ended.
service& the_service() {
  static service* const s = new service;
  return *s;
}

void* service::main(void*) { the_service().serve(); }

}  // namespace

bool has_ring() {
  static constinit std::atomic<int> known{0};  // 0: not yet; 1: yes; 2: no
  static constinit mutex finding_out;
  int k = known.load(std::memory_order_acquire);  // [RI2]
  if (k == 0) {
    const std::lock_guard one(finding_out);
    k = known.load(std::memory_order_relaxed);
    if (k == 0) {
      sched::ensure_started();  // which reads the environment
      // valgrind does not see what the kernel writes through a ring.
      const bool wanted = base::env().io_uring && !base::valgrind::is_here();
      k = wanted && the_service().start() ? 1 : 2;
      known.store(k, std::memory_order_release);  // [RI2]
    }
  }
  return k == 1 && the_service().is_there();
}

std::int64_t run_on_ring(const ring_request& r) { return the_service().run(r); }

}  // namespace weft::os
