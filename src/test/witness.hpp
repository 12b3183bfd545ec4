// witness.hpp: what happens if an explored program ends the process by a signal, abort() or a
// sanitizer's report: first it prints the line that replays the run (engine::last_words).
#pragma once

namespace weft::test {

// While this object lives, this thread's simulations print their last words. For faults and
// fatal(), sched/report.cpp calls them; this file handles abort() and the sanitizers.
class witness {
 public:
  witness();
  witness(const witness&) = delete;
  witness& operator=(const witness&) = delete;
  ~witness();
};

}  // namespace weft::test
