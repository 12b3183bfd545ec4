#include "sched/bias.hpp"

#include "base/lock.hpp"
#include "base/platform.hpp"
#include "sched/enter.hpp"
#include "sched/machine.hpp"
#include "sched/start.hpp"

namespace weft::sched {
namespace {

constinit base::spin_lock revoking;  // I2; taken outside the runtime, alone

}  // namespace

void revoke_alone(void (*revoke)(void*), void* argument) noexcept {
  if (is_forked_child()) stop_here();  // the owner is not in this process; waiting would not end
  if (const machine* const m = this_machine()) expect_outside(m);
  const lock_outside mark;
  revoking.lock();
  revoke(argument);
  revoking.unlock();
}

void revoke_bias(std::atomic<machine*>& bias) noexcept {
  revoke_alone(
      [](void* word) {
        revoke_bias_alone<base::platform>(*static_cast<std::atomic<machine*>*>(word));
      },
      &bias);
}

}  // namespace weft::sched
