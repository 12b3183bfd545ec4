#include "test/witness.hpp"
#include "base/sanitizer.hpp"
#include "sched/simulation.hpp"

#include <csignal>
#include <mutex>

namespace weft::test {
namespace {

std::mutex witnesses_mutex;  // guards what follows: explorations may run on several threads
int witnesses = 0;
struct sigaction previous_abort;

void speak() {
  if (sched::simulation* const s = sched::this_simulation()) s->last_words();
}

// abort() goes on when this returns.
void on_abort(int) {
  speak();
  ::sigaction(SIGABRT, &previous_abort, nullptr);
}

}  // namespace

witness::witness() {
  const std::lock_guard hold(witnesses_mutex);
  if (++witnesses != 1) return;
  struct sigaction action{};
  action.sa_handler = &on_abort;
  action.sa_flags = SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGABRT, &action, &previous_abort);
  base::sanitizer::set_death_callback(&speak);
}

witness::~witness() {
  const std::lock_guard hold(witnesses_mutex);
  if (--witnesses != 0) return;
  ::sigaction(SIGABRT, &previous_abort, nullptr);
  base::sanitizer::set_death_callback(nullptr);
}

}  // namespace weft::test
