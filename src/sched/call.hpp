// call.hpp: announces a system call that is usually short (a file's read, a name's look-up). The
// goroutine keeps its processor, which costs two plain stores; if the call still lasts after 20 us
// and others wait, the monitor takes the processor (watch.hpp). For calls that are known to be
// long there is weft::blocking.
#pragma once

#include "sched/machine.hpp"
#include "sched/tls.hpp"

#include <atomic>

namespace weft::sched {

class short_call {
 public:
  short_call() noexcept : m_(this_machine()) { step(); }
  short_call(const short_call&) = delete;
  short_call& operator=(const short_call&) = delete;
  ~short_call() { step(); }

 private:
  // The machine stays the same: nothing in such a call enters the runtime.
  void step() noexcept {
    if (m_ == nullptr) return;
    // relaxed: the monitor reads it as a hint; the seat decides.
    m_->calls.store(m_->calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  machine* const m_;
};

}  // namespace weft::sched
