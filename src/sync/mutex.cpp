// mutex.cpp: the slow paths of weft::mutex. The essay is in weft/detail/mutex_core.hpp.
#include <weft/detail/mutex_core.hpp>

#include "base/fatal.hpp"
#include "sched/bias.hpp"
#include "sched/enter.hpp"
#include "sched/scheduler.hpp"
#include "sync/mutex_slow.hpp"

namespace weft::detail {

template <>
struct bias_door<seam> {
  static constexpr bool biases = true;
  static sched::machine* here() noexcept { return sched::this_machine(); }
  static sched::machine* enter(sched::machine* m) noexcept { return sched::enter(m); }
  static void leave(sched::machine* m) noexcept { sched::leave(m); }
  template <class F>
  static void alone(F&& f) noexcept {
    sched::revoke_alone([](void* call) { (*static_cast<F*>(call))(); }, &f);
  }
  static void wait_until_away(const void* m) noexcept {
    sched::wait_until_away<base::platform>(*static_cast<const sched::machine*>(m));
  }
};

template class basic_mutex<seam>;

void die_of_unlock(const char* what) noexcept {
  base::text message;
  message << "unlock of " << what;
  base::fatal(message.view());
}

void die_of_destruction(const char* what) noexcept {
  // When the process ends, static objects are destroyed although goroutines that were stopped still
  // wait for them.
  if (sched::the_scheduler.stopping.load(std::memory_order_relaxed)) return;
  base::text message;
  message << "somebody waits for a " << what << " that is destroyed";
  base::fatal(message.view());
}

}  // namespace weft::detail
