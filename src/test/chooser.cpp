#include "test/chooser.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace weft::test {

namespace {

class generator {
 public:
  explicit generator(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15;
    return mix(state_, 0);
  }
  std::uint32_t below(std::size_t n) { return static_cast<std::uint32_t>(next() % n); }

 private:
  std::uint64_t state_;
};

class random_chooser final : public chooser {
 public:
  explicit random_chooser(std::uint64_t seed) : seed_(seed), random_(seed) {}
  bool begin() override {
    random_ = generator(mix(seed_, ++run_));
    return true;
  }
  std::size_t pick(const offer& o, std::uint64_t, const state_source&) override {
    return o.actors.size() == 1 ? 0 : random_.below(o.actors.size());
  }
  std::uint32_t value(std::uint32_t n) override { return random_.below(n); }

 private:
  std::uint64_t seed_;
  std::uint64_t run_ = 0;
  generator random_;
};

// Burckhardt, Kothari, Musuvathi and Nagarakatte's probabilistic concurrency testing: a bug that
// needs d ordered events is found with a probability of at least 1 in n * k^(d-1), n goroutines
// making k steps.
class priority_chooser final : public chooser {
 public:
  priority_chooser(std::uint64_t seed, int changes)
      : seed_(seed), changes_(std::max(changes, 0)), random_(seed) {}

  bool begin() override {
    random_ = generator(mix(seed_, ++run_));
    priorities_.clear();
    lowest_ = 0;
    const std::uint64_t length = std::max<std::uint64_t>(last_step_, 20);
    change_at_.assign(static_cast<std::size_t>(changes_), 0);
    for (std::uint64_t& when : change_at_) when = 1 + random_.next() % length;
    return true;
  }

  std::size_t pick(const offer& o, std::uint64_t step, const state_source&) override {
    last_step_ = step;
    if (std::find(change_at_.begin(), change_at_.end(), step) != change_at_.end()) {
      priority_of(o.actors[highest(o)]) = --lowest_;  // the highest goes to the bottom
    }
    return highest(o);
  }
  std::uint32_t value(std::uint32_t n) override { return random_.below(n); }

 private:
  using key = std::pair<actor::kind, std::uint32_t>;

  std::int64_t& priority_of(actor a) {
    const auto [found, is_new] = priorities_.try_emplace(key{a.what, a.index}, 0);
    if (is_new) found->second = static_cast<std::int64_t>(random_.next() >> 2);
    return found->second;
  }
  std::size_t highest(const offer& o) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < o.actors.size(); ++i) {
      if (priority_of(o.actors[i]) > priority_of(o.actors[best])) best = i;
    }
    return best;
  }

  std::uint64_t seed_;
  int changes_;
  std::uint64_t run_ = 0;
  generator random_;
  std::uint64_t last_step_ = 0;
  std::map<key, std::int64_t> priorities_;
  std::int64_t lowest_ = 0;
  std::vector<std::uint64_t> change_at_;
};

// Depth-first search. For each choice of the current run, path_ holds how many options there were
// and which one was taken. A run follows path_ to its end. Beyond that it takes the first option
// everywhere and appends these choices to path_. For the next run, the last choice with an option
// left is advanced, and everything behind it is dropped.
//
// With `prune`, a run that reaches a state in which an earlier run has been, with as many
// preemptions left, goes to its end without branching. engine.hpp says what a state is.
class exhaustive_chooser final : public chooser {
 public:
  explicit exhaustive_chooser(exhaustive_options o) : options_(o) {}

  bool begin() override {
    if (started_ && !backtrack()) return false;
    started_ = true;
    depth_ = 0;
    preemptions_ = 0;
    draining_ = false;
    return true;
  }

  std::size_t pick(const offer& o, std::uint64_t, const state_source& state) override {
    if (o.actors.size() == 1) return 0;
    const bool bounded = options_.preemptions >= 0;
    const bool may_preempt = !bounded || preemptions_ < options_.preemptions;
    allowed_.clear();
    for (std::size_t i = 0; i < o.actors.size(); ++i) {
      if (may_preempt || !o.preempts(i)) allowed_.push_back(i);
    }
    const std::size_t index = allowed_.size() == 1 ? 0 : branch(allowed_.size(), &o, &state);
    if (index == diverged) return diverged;
    const std::size_t picked = allowed_[index];
    if (o.preempts(picked)) ++preemptions_;
    return picked;
  }

  std::uint32_t value(std::uint32_t n) override {
    const std::size_t index = n == 1 ? 0 : branch(n, nullptr, nullptr);
    return static_cast<std::uint32_t>(index == diverged ? 0 : index);
  }

  bool exhausted() const override { return exhausted_; }
  std::uint64_t pruned() const override { return pruned_; }

 private:
  struct node {
    std::size_t count;
    std::size_t index;
  };
  struct entry {
    std::uint64_t key = 0;
    int preemptions = 0;
  };

  std::size_t branch(std::size_t count, const offer* o, const state_source* state) {
    if (depth_ < path_.size()) {
      const node& n = path_[depth_++];
      return n.count == count ? n.index : diverged;
    }
    if (!draining_ && options_.prune && state != nullptr && seen(*o, *state)) {
      draining_ = true;
      ++pruned_;
    }
    if (draining_) return 0;
    path_.push_back({count, 0});
    ++depth_;
    return 0;
  }

  bool backtrack() {
    while (!path_.empty() && path_.back().index + 1 == path_.back().count) path_.pop_back();
    exhausted_ = path_.empty();
    if (exhausted_) return false;
    ++path_.back().index;
    return true;
  }

  bool seen(const offer& o, const state_source& state) {
    std::uint64_t key = state.state_key();
    const bool bounded = options_.preemptions >= 0;
    if (bounded && o.current_may) key = mix(key, o.current.index + 1);
    if (key == 0) key = 1;
    const int used = bounded ? preemptions_ : 0;
    if (table_.empty() || table_used_ * 2 > table_.size()) grow_table();
    entry& e = find_entry(key);
    if (e.key == key && e.preemptions <= used) return true;
    if (e.key == 0) ++table_used_;
    e = {key, used};
    return false;
  }
  entry& find_entry(std::uint64_t key) {
    std::size_t i = key & (table_.size() - 1);
    while (table_[i].key != 0 && table_[i].key != key) i = (i + 1) & (table_.size() - 1);
    return table_[i];
  }
  void grow_table() {
    std::vector<entry> old(table_.empty() ? 1024 : table_.size() * 2);
    old.swap(table_);
    for (const entry& e : old) {
      if (e.key != 0) find_entry(e.key) = e;
    }
  }

  exhaustive_options options_;
  std::vector<node> path_;
  std::vector<std::size_t> allowed_;
  std::size_t depth_ = 0;
  int preemptions_ = 0;
  bool started_ = false;
  bool draining_ = false;
  bool exhausted_ = false;
  std::uint64_t pruned_ = 0;
  std::vector<entry> table_;
  std::size_t table_used_ = 0;
};

class follower final : public chooser {
 public:
  explicit follower(const schedule& s) : schedule_(s) {}
  bool begin() override {
    at_ = 0;
    used_ = 0;
    value_at_ = 0;
    return true;
  }
  std::size_t pick(const offer& o, std::uint64_t, const state_source&) override {
    for (; at_ < schedule_.segments.size(); ++at_, used_ = 0) {
      const schedule::segment& s = schedule_.segments[at_];
      if (used_ == s.steps) continue;
      const auto found = std::find(o.actors.begin(), o.actors.end(), s.who);
      if (found == o.actors.end()) continue;
      ++used_;
      return static_cast<std::size_t>(found - o.actors.begin());
    }
    return 0;
  }
  std::uint32_t value(std::uint32_t n) override {
    if (value_at_ == schedule_.values.size()) return 0;
    return std::min(schedule_.values[value_at_++], n - 1);
  }

 private:
  schedule schedule_;
  std::size_t at_ = 0;
  std::uint32_t used_ = 0;
  std::size_t value_at_ = 0;
};

}  // namespace

std::unique_ptr<chooser> make_random(std::uint64_t seed) {
  return std::make_unique<random_chooser>(seed);
}
std::unique_ptr<chooser> make_priorities(std::uint64_t seed, int changes) {
  return std::make_unique<priority_chooser>(seed, changes);
}
std::unique_ptr<chooser> make_exhaustive(exhaustive_options o) {
  return std::make_unique<exhaustive_chooser>(o);
}
std::unique_ptr<chooser> make_follower(const schedule& s) { return std::make_unique<follower>(s); }

}  // namespace weft::test
