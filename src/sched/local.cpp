// local.cpp: goroutine-local values (weft::local), by key. Those of a goroutine are in its extras
// (extra.hpp), those of a plain thread in a record of its own.
#include <weft/go.hpp>

#include "sched/extra.hpp"
#include "sched/goroutine.hpp"
#include "sched/machine.hpp"
#include "sched/simulation.hpp"
#include "sched/tls.hpp"

#include <atomic>

namespace weft::detail {

using sched::goroutine;
using sched::machine;

std::uint64_t new_local_key() noexcept {
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

namespace {

// A plain thread's values, destroyed when the thread ends.
struct thread_locals {
  goroutine holder;
  ~thread_locals() {
    if (holder.extra.load(std::memory_order_relaxed) != nullptr) sched::destroy_extra(&holder);
  }
};

goroutine* holder_of_locals() {
  if (machine* const m = sched::this_machine()) return m->g;
  if (sched::simulation* const s = sched::this_simulation()) return s->self();
  thread_local thread_locals mine;
  return &mine.holder;
}

}  // namespace

void* find_local(std::uint64_t key) { return sched::find_local(holder_of_locals(), key); }

void add_local(std::uint64_t key, void* value, void (*destroy)(void*)) {
  sched::add_local(holder_of_locals(), key, value, destroy);
}

}  // namespace weft::detail
