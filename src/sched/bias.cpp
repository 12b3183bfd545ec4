#include "sched/bias.hpp"

#include "base/lock.hpp"
#include "base/platform.hpp"
#include "sched/scheduler.hpp"

#include <mutex>

namespace weft::sched {
namespace {

constinit base::spin_lock revoking;  // I2; taken outside the runtime, alone

}  // namespace

void revoke_alone(void (*revoke)(void*), void* argument) noexcept {
  const std::lock_guard hold(revoking);
  revoke(argument);
}

void revoke_bias(std::atomic<machine*>& bias) noexcept {
  const std::lock_guard hold(revoking);
  revoke_bias_alone<base::platform>(bias);
}

}  // namespace weft::sched
