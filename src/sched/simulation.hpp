// simulation.hpp: the door through which a test takes the scheduler's place.
//
// A simulation runs goroutines by itself, all of them on one OS thread, so that it controls time,
// chance and the order of events (src/test/, weft/test.hpp). To the runtime that thread is a plain
// thread: it has no machine. Everything in weft that a plain thread can call first checks whether
// the thread simulates. So programs on the real scheduler, whose goroutines have a machine, pay
// nothing.
//
// The goroutines of a simulation have records like all others, of mode `simulated`, and sit in the
// wait queues of primitives like all others.
#pragma once

#include "sched/goroutine.hpp"
#include "sched/timers.hpp"

#include <weft/detail/park.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace weft::sched {

class simulation {
 public:
  // Takes a record for a goroutine, which then starts or is dropped. Throws: std::bad_alloc.
  virtual goroutine* take_record() = 0;
  virtual goroutine* take_record_inside() noexcept = 0;  // like that, but not a point of choice
  virtual void start(goroutine* g) noexcept = 0;
  virtual void drop(goroutine* g) noexcept = 0;
  // The running goroutine has been unwound by this_goroutine::exit.
  [[noreturn]] virtual void exited() = 0;

  virtual goroutine* self() noexcept = 0;
  virtual void prepare_park(detail::wait_reason reason) noexcept = 0;
  virtual void prepare_park_inside(detail::wait_reason reason) noexcept = 0;  // likewise
  virtual void cancel_park() noexcept = 0;
  virtual void park() noexcept = 0;
  // From any thread. A wake-up from outside is an error, which the simulation reports.
  virtual void ready(goroutine* g) noexcept = 0;
  virtual void yield() noexcept = 0;

  // The running goroutine is about to touch `object`, or has touched it (touch::acquire). `what`
  // names the operation for reports; may be null.
  virtual void observe(detail::touch how, const void* object, const char* what) noexcept = 0;

  // `what` lies on the stack of the running goroutine, or leads to what does, and something outside
  // of the simulation now refers to it. If the run is abandoned before forget(what), the simulation
  // calls `undo`, on no goroutine, before it uses the stack again.
  virtual void remember(const void* what, std::function<void()> undo) = 0;
  virtual void forget(const void* what) noexcept = 0;

  // The process ends, perhaps by a signal: prints how to come to this point again.
  virtual void last_words() noexcept = 0;

  virtual timer_heap& timers() noexcept = 0;
  virtual std::int64_t now_ns() noexcept = 0;
  virtual std::uint32_t choose(std::uint32_t n) noexcept = 0;
  virtual std::size_t goroutines() const noexcept = 0;
  virtual int procs() const noexcept = 0;

 protected:
  ~simulation() = default;
};

// Set while the calling thread simulates. Goroutines of a simulation never change their thread, so
// its address may be remembered, unlike that of this_machine().
extern constinit thread_local simulation* current_simulation;

inline simulation* this_simulation() noexcept { return current_simulation; }

}  // namespace weft::sched
