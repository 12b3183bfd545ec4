// witness.hpp: what becomes of an exploration whose program ends the process: by a signal, abort()
// or a sanitizer's report, it prints the line that replays the run first (engine::last_words).
#pragma once

namespace weft::test {

// While it lives, this thread's simulations have last words. Faults and fatal() come by way of
// sched/report.cpp; here is what else it takes: abort() and the sanitizers.
class witness {
 public:
  witness();
  witness(const witness&) = delete;
  witness& operator=(const witness&) = delete;
  ~witness();
};

}  // namespace weft::test
