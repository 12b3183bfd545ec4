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
// If the exchange finds true the service has not cleared it since, and takes the list after it
// does. So under load one bell is rung for many requests. [RI1] is that pair; seq_cst on both
// words.
//
// Why a thread, and not whoever has a request. The kernel ties requests to the thread that submits
// them: a thread that ends cancels its own; each has its own pool of kernel threads; and what is
// left to do when a page has arrived is done in that thread, which is woken for it out of whatever
// call it sleeps in (epoll_wait returns EINTR). Machines end, and sleep in calls of the user's. The
// two wake-ups of threads, 60 us (docs/decisions/007), are little beside a slow disk, and what a
// fast one has to do hardly ever gets here (file_core.cpp).
//
// What an operation uses stays valid until it is done, because its goroutine stays parked: nothing
// cancels it. If the process ends first, stacks stay mapped until the kernel has torn the ring
// down.
//
// The deadlock detector: service_waits counts those who wait here. It is decremented after ready().
#include "os/ring.hpp"
#include "base/check.hpp"
#include "base/env.hpp"
#include "base/fatal.hpp"
#include "sched/scheduler.hpp"

#include <weft/detail/park.hpp>
#include <weft/sync.hpp>

#include <atomic>
#include <cerrno>
#include <liburing.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace weft::os {
namespace {

constexpr unsigned submissions = 256;
constexpr unsigned completions = 4096;
constexpr unsigned in_flight_max = 2048;  // with room for all to complete, and for the bell
// Kernel threads for what cannot be waited for otherwise: fsync. By default four per core, and a
// journal commits as many at once as ask.
constexpr unsigned workers_max = 64;

// A request and who waits for it.
struct pending {
  ring_request request;
  sched::goroutine* who = nullptr;
  pending* next = nullptr;
  std::int64_t result = 0;
};

class service {
 public:
  // Requires: the runtime has started. Returns: whether the kernel lets us.
  bool start() {
    if (!make_ring()) return false;
    bell_ = ::eventfd(0, EFD_CLOEXEC);
    if (bell_ >= 0 && sched::start_service("weft-ring", &main) == 0) {
      sched::the_scheduler.has_ring.store(true, std::memory_order_relaxed);
      return true;
    }
    if (bell_ >= 0) ::close(bell_);
    ::io_uring_queue_exit(&ring_);
    return false;
  }

  std::int64_t run(const ring_request& r) {
    pending p{.request = r};
    p.who = detail::prepare_park(detail::wait_reason::io);
    // relaxed: whoever looks for a deadlock sees this thread asleep after it.
    sched::the_scheduler.service_waits.fetch_add(1, std::memory_order_relaxed);
    p.next = arrived_.load(std::memory_order_relaxed);  // re-checked by the exchange
    while (!arrived_.compare_exchange_weak(p.next, &p, std::memory_order_seq_cst,  // [RI1]
                                           std::memory_order_relaxed)) {
    }
    if (!is_rung_.exchange(true, std::memory_order_seq_cst)) {  // [RI1]
      const int saved = errno;
      const std::uint64_t one = 1;
      while (::write(bell_, &one, sizeof one) < 0 && errno == EINTR) {
      }
      errno = saved;
    }
    detail::park();
    return p.result;
  }

 private:
  bool make_ring() {
    // Work that the kernel has left for this thread is done when it waits, not in between; the
    // thread that enables the ring is the only one to submit. Since Linux 6.1.
    io_uring_params params{};
    params.flags = IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP | IORING_SETUP_R_DISABLED |
                   IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
    params.cq_entries = completions;
    int error = ::io_uring_queue_init_params(submissions, &ring_, &params);
    is_disabled_ = error == 0;
    if (error == -EINVAL) {
      params = {};
      params.flags = IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP;
      params.cq_entries = completions;
      error = ::io_uring_queue_init_params(submissions, &ring_, &params);
    }
    if (error != 0) return false;  // ENOSYS, EPERM: no such thing here
    // The kernel that has the one has read and write, too: 5.6.
    if ((params.features & IORING_FEAT_RW_CUR_POS) != 0 &&
        (params.features & IORING_FEAT_NODROP) != 0) {
      return true;
    }
    ::io_uring_queue_exit(&ring_);
    return false;
  }

  static void* main(void*);

  [[noreturn]] void serve() {
    if (is_disabled_) {
      // By hand: some versions of the shared liburing forgot to export the function for it.
      WEFT_CHECK(::syscall(SYS_io_uring_register, ring_.ring_fd, IORING_REGISTER_ENABLE_RINGS,
                           nullptr, 0) == 0);
    }
    unsigned limits[2] = {workers_max, 0};  // a kernel before 5.15 keeps its own
    (void)::io_uring_register_iowq_max_workers(&ring_, limits);
    listen();
    for (;;) {
      take_arrived();
      submit_backlog();
      (void)is_taken(::io_uring_submit_and_wait(&ring_, 1));
      reap();
    }
  }

  // The bell wakes the service once more.
  void listen() {
    io_uring_sqe* const e = next_entry();
    ::io_uring_prep_read(e, bell_, &rung_, sizeof rung_, 0);
    ::io_uring_sqe_set_data(e, nullptr);
  }

  io_uring_sqe* next_entry() {
    for (;;) {
      if (io_uring_sqe* const e = ::io_uring_get_sqe(&ring_)) return e;
      if (!is_taken(::io_uring_submit(&ring_))) reap();
    }
  }

  // What the kernel says of submissions. Interrupted, or short of memory: what has completed makes
  // room. But a sandbox that the process has entered since does not change its mind.
  static bool is_taken(int result) noexcept {
    if (result == -EPERM || result == -EACCES || result == -ENOSYS) {
      base::fatal("io_uring is no longer allowed; set WEFT_DEBUG=iouring=0 for this sandbox");
    }
    return result >= 0;
  }

  // In the order in which they came.
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

  void submit_backlog() {
    while (first_ != nullptr && in_flight_ < in_flight_max) {
      pending* const p = first_;
      first_ = p->next;
      if (first_ == nullptr) last_ = nullptr;
      io_uring_sqe* const e = next_entry();
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
      if (p == nullptr) {
        listen();
        continue;
      }
      --in_flight_;
      p->result = result;
      detail::ready(p->who);  // *p is gone
      sched::the_scheduler.service_waits.fetch_sub(1, std::memory_order_relaxed);
    }
  }

  io_uring ring_{};
  bool is_disabled_ = false;
  int bell_ = -1;
  std::atomic<pending*> arrived_{nullptr};  // [RI1] the newest first
  std::atomic<bool> is_rung_{false};        // [RI1]
  // The service's own:
  std::uint64_t rung_ = 0;
  pending* first_ = nullptr;  // taken and not submitted
  pending* last_ = nullptr;
  unsigned in_flight_ = 0;
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
  int k = known.load(std::memory_order_acquire);  // the service is there
  if (k == 0) {
    const std::lock_guard one(finding_out);
    k = known.load(std::memory_order_relaxed);
    if (k == 0) {
      sched::ensure_started();  // which reads the environment
      k = base::env().io_uring && the_service().start() ? 1 : 2;
      known.store(k, std::memory_order_release);
    }
  }
  return k == 1;
}

std::int64_t run_on_ring(const ring_request& r) { return the_service().run(r); }

}  // namespace weft::os
