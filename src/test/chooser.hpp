// chooser.hpp: decides which goroutine makes the next step. There is a chooser for each strategy,
// and one that follows a schedule.
#pragma once

#include "test/schedule.hpp"

#include <weft/test.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace weft::test {

// The actors that could make the next step. By default the first one does.
struct offer {
  std::vector<actor> actors;
  actor current;             // the goroutine that made the last step
  bool current_may = false;  // and could make the next

  // Whether picking this actor interrupts another one.
  bool preempts(std::size_t i) const {
    return current_may && actors[i].what == actor::kind::goroutine && !(actors[i] == current);
  }
};

// Equal for two states from which the same steps can follow.
class state_source {
 public:
  virtual std::uint64_t state_key() const = 0;

 protected:
  ~state_source() = default;
};

class chooser {
 public:
  static constexpr std::size_t diverged = ~std::size_t{0};

  virtual ~chooser() = default;

  // To be called before each run. Returns: false if all runs have been made.
  virtual bool begin() = 0;
  // Returns: an index, or `diverged` if the program does not behave as in the run before.
  virtual std::size_t pick(const offer& o, std::uint64_t step, const state_source& state) = 0;
  // Returns: a number below n.
  virtual std::uint32_t value(std::uint32_t n) = 0;
  virtual bool exhausted() const { return false; }
  // Returns: how many runs reached a state in which an earlier run had been.
  virtual std::uint64_t pruned() const { return 0; }
};

std::unique_ptr<chooser> make_random(std::uint64_t seed);
std::unique_ptr<chooser> make_priorities(std::uint64_t seed, int changes);

struct exhaustive_options {
  int preemptions = 2;  // -1: any number
  bool prune = false;   // skip orders of steps that commute: for programs that share nothing but
                        // what the engine sees
};
std::unique_ptr<chooser> make_exhaustive(exhaustive_options o);

// Follows a schedule as far as it fits; then picks the first.
std::unique_ptr<chooser> make_follower(const schedule& s);

// For choosers, and for deriving seeds.
inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = (a ^ 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9 + b;
  x = (x ^ (x >> 30)) * 0x94d049bb133111eb;
  x = (x ^ (x >> 27)) * 0xff51afd7ed558ccd;
  return x ^ (x >> 32);
}

}  // namespace weft::test
