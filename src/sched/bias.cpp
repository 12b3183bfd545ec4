#include "sched/bias.hpp"

#include "base/lock.hpp"
#include "base/platform.hpp"
#include "sched/scheduler.hpp"
#include "sched/start.hpp"

#include <mutex>

namespace weft::sched {
namespace {

constinit base::spin_lock revoking;  // I2; taken outside the runtime, alone

}  // namespace

void revoke_alone(void (*revoke)(void*), void* argument) noexcept {
  if (is_forked_child()) stop_here();  // the owner is not in this process
  machine* const m = this_machine();
  // Whoever ends the process does not stop this one with the lock.
  if (m != nullptr) m->revokes.store(true, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);  // on_stop runs on this thread
  revoking.lock();
  revoke(argument);
  revoking.unlock();
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (m != nullptr) m->revokes.store(false, std::memory_order_relaxed);
}

void revoke_bias(std::atomic<machine*>& bias) noexcept {
  revoke_alone(
      [](void* word) {
        revoke_bias_alone<base::platform>(*static_cast<std::atomic<machine*>*>(word));
      },
      &bias);
}

}  // namespace weft::sched
