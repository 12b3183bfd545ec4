// explore.cpp: makes many runs, stops at the first that fails, and shrinks it.
//
// Shrinking works on the recorded schedule. It leaves out a part of the schedule, or swaps the
// turns of two goroutines, and runs the program with that schedule as far as it fits. If the run
// fails in the same way and its recorded schedule is smaller, shrinking continues with that one.
// Following a schedule "as far as it fits" always gives a possible run, so every candidate can be
// tried.
#include "base/clock.hpp"
#include "base/fatal.hpp"
#include "test/chooser.hpp"
#include "test/engine.hpp"
#include "test/expectations.hpp"
#include "test/schedule.hpp"
#include "test/witness.hpp"

#include <weft/go.hpp>
#include <weft/test.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

constexpr std::uint64_t usual_seed = 0x5eed;
constexpr int shrink_runs_max = 3'000;
constexpr std::int64_t shrink_time_ns = 5'000'000'000;
constexpr std::size_t store_buffer_entries = 6;

engine_options engine_options_of(const options& o) {
  engine_options e;
  e.steps = o.steps;
  e.late_ns = o.late.count();
  e.procs = o.procs;
  e.buffer_entries = o.model == memory::buffered ? store_buffer_entries : 0;
  e.intercept = true;
  return e;
}

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return n;
}

std::string_view environment_seed() {
  const char* const text = std::getenv("WEFT_SEED");
  return text != nullptr ? text : std::string_view{};
}

std::uint64_t seed_of(const options& o) {
  if (o.seed != 0) return o.seed;
  return parse_number(environment_seed()).value_or(usual_seed);
}

std::unique_ptr<chooser> make_chooser(const options& o) {
  switch (o.how) {
    case strategy::random:
      return make_random(seed_of(o));
    case strategy::priorities:
      return make_priorities(seed_of(o), o.changes);
    case strategy::exhaustive:
      return make_exhaustive({.preemptions = o.switches, .prune = false});
  }
  return nullptr;
}

// Smaller means: fewer switches; then fewer turns in all; then fewer choices that are not 0.
bool smaller(const schedule& a, const schedule& b) {
  if (a.switches() != b.switches()) return a.switches() < b.switches();
  if (a.segments.size() != b.segments.size()) return a.segments.size() < b.segments.size();
  const auto chosen = [](const schedule& s) {
    return std::count_if(s.values.begin(), s.values.end(), [](std::uint32_t v) { return v != 0; });
  };
  return chosen(a) < chosen(b);
}

class shrinker {
 public:
  shrinker(engine& e, const std::function<void()>& f, outcome found)
      : engine_(e), f_(f), best_(std::move(found)) {}

  void shrink() {
    bool better = true;
    while (better && left_ > 0) {
      better = false;
      for (std::size_t size = std::max<std::size_t>(best_.schedule.segments.size() / 2, 1);;
           size /= 2) {
        better = leave_out(size) || better;
        if (size <= 1) break;
      }
      better = gather() || better;
      better = swap_neighbours() || better;
      better = clear_values() || better;
    }
  }

  const outcome& best() const { return best_; }
  int runs() const { return runs_; }

 private:
  bool try_instead(const schedule& candidate) {
    if (left_ > 0 && base::now_ns() > until_ns_) left_ = 0;
    if (left_ == 0) return false;
    --left_;
    ++runs_;
    const std::unique_ptr<chooser> c = make_follower(candidate);
    c->begin();
    outcome o = engine_.run(f_, *c, engine::trace::no);
    if (o.what != best_.what || !smaller(o.schedule, best_.schedule)) return false;
    if (o.what == fault::exception && o.message != best_.message) return false;
    best_ = std::move(o);
    return true;
  }

  // Leaves out `size` segments at a time.
  bool leave_out(std::size_t size) {
    bool better = false;
    for (std::size_t at = 0; at < best_.schedule.segments.size() && left_ > 0;) {
      schedule candidate = best_.schedule;
      const auto first = candidate.segments.begin() + static_cast<std::ptrdiff_t>(at);
      const auto last =
          first + static_cast<std::ptrdiff_t>(std::min(size, candidate.segments.size() - at));
      candidate.segments.erase(first, last);
      if (try_instead(candidate)) {
        better = true;
      } else {
        at += size;
      }
    }
    return better;
  }

  // Moves steps of one goroutine from its next turns to this one, or from this one to its next.
  bool gather() {
    bool better = false;
    for (std::size_t at = 0; at < best_.schedule.segments.size() && left_ > 0;) {
      if (gather_at(at)) {
        better = true;
      } else {
        ++at;
      }
    }
    return better;
  }
  bool gather_at(std::size_t at) {
    const std::vector<schedule::segment>& all = best_.schedule.segments;
    const actor who = all[at].who;
    std::uint32_t later = 0;
    for (std::size_t i = at + 1; i < all.size(); ++i) later += all[i].who == who ? all[i].steps : 0;
    if (later == 0) return false;
    for (std::uint32_t n = 1; n <= later; n += 1 + n / 8) {
      schedule candidate = best_.schedule;
      candidate.segments[at].steps += n;
      std::uint32_t excess = n;
      for (std::size_t i = at + 1; excess > 0; ++i) {
        schedule::segment& s = candidate.segments[i];
        if (s.who != who) continue;
        const std::uint32_t taken = std::min(excess, s.steps);
        s.steps -= taken;
        excess -= taken;
      }
      if (try_instead(candidate)) return true;
    }
    for (std::uint32_t n = 1; n <= all[at].steps; n += 1 + n / 8) {
      schedule candidate = best_.schedule;
      candidate.segments[at].steps -= n;
      std::size_t next = at + 1;
      while (candidate.segments[next].who != who) ++next;
      candidate.segments[next].steps += n;
      if (try_instead(candidate)) return true;
    }
    return false;
  }

  bool swap_neighbours() {
    bool better = false;
    for (std::size_t at = 0; at + 1 < best_.schedule.segments.size() && left_ > 0; ++at) {
      schedule candidate = best_.schedule;
      std::swap(candidate.segments[at], candidate.segments[at + 1]);
      better = try_instead(candidate) || better;
    }
    return better;
  }

  bool clear_values() {
    bool better = false;
    for (std::size_t i = 0; i < best_.schedule.values.size() && left_ > 0; ++i) {
      if (best_.schedule.values[i] == 0) continue;
      schedule candidate = best_.schedule;
      candidate.values[i] = 0;
      better = try_instead(candidate) || better;
    }
    return better;
  }

  engine& engine_;
  const std::function<void()>& f_;
  outcome best_;
  int left_ = shrink_runs_max;
  int runs_ = 0;
  const std::int64_t until_ns_ = base::now_ns() + shrink_time_ns;
};

// The name of this program, for the line that replays.
std::string program_name() { return program_invocation_name; }

std::string_view base_name(std::string_view file) {
  const std::size_t slash = file.rfind('/');
  return slash == std::string_view::npos ? file : file.substr(slash + 1);
}

std::string place_of(const options& o) {
  return std::string(base_name(o.where.file_name())) + ":" + std::to_string(o.where.line());
}

// The parts before and behind the schedule in the line that replays.
std::string replay_before(const options& o) {
  return "replay: WEFT_SEED=" + std::to_string(o.where.line()) + ":";
}
std::string replay_after() { return " " + program_name() + test_filter() + "\n"; }

// Joins a message of several lines into one.
std::string one_line(const std::string& message) {
  std::string out;
  bool at_space = false;
  for (const char c : message) {
    at_space = c == ' ' || c == '\n';
    if (!at_space) {
      out += c;
    } else if (!out.empty() && out.back() != ' ') {
      out += ' ';
    }
  }
  if (!out.empty() && at_space) out.pop_back();
  return out;
}

// Runs a failing schedule once more, to print its table.
result tell(engine& e, const options& o, const std::function<void()>& f, const outcome& failure) {
  const std::unique_ptr<chooser> c = make_follower(failure.schedule);
  c->begin();
  const outcome told = e.run(f, *c, engine::trace::yes);
  result r;
  r.ok = false;
  r.failure = one_line(told.what == failure.what ? told.message : failure.message);
  r.switches = failure.schedule.switches();
  r.seed = std::to_string(o.where.line()) + ":" + failure.schedule.print();
  r.report = "weft::test: " + (told.ok() ? failure.message : told.message) + "\n";
  if (told.what != failure.what) {
    r.report += "but when it was run again it ended differently" +
                (told.ok() ? std::string(", without a failure") : ": " + told.message) +
                "; the program depends on something that is not of this run\n";
  }
  r.report += replay_before(o) + failure.schedule.print() + replay_after() + "\n" + told.table;
  return r;
}

result replay_schedule(const options& o, const schedule& s, const std::string& seed,
                       const std::function<void()>& f) {
  const witness w;
  engine e(engine_options_of(o));
  e.set_replay_line(replay_before(o), replay_after());
  const std::unique_ptr<chooser> c = make_follower(s);
  c->begin();
  const outcome told = e.run(f, *c, engine::trace::yes);
  // The run may be longer than the schedule, but must agree with it up to its end.
  const auto& wanted = s.segments;
  const auto& ran = told.schedule.segments;
  const bool fits =
      ran.size() >= wanted.size() &&
      std::equal(wanted.begin(), wanted.end() - (wanted.empty() ? 0 : 1), ran.begin());
  result r;
  r.ok = told.ok();
  r.runs = 1;
  r.steps = told.steps;
  r.switches = told.schedule.switches();
  r.seed = seed;
  r.failure = one_line(told.message);
  if (!r.ok) {
    r.report = "weft::test: " + told.message + "\n";
  } else if (fits) {
    r.report = "weft::test: the replayed run does not fail\n";
  } else {
    r.report =
        "weft::test: the replayed run does not fail, but the program has changed: it could "
        "not follow the schedule\n";
  }
  r.report += "\n" + told.table;
  return r;
}

void say(const std::string& line) { base::write_stderr(line); }

// A seed is "<line of the explore>:<schedule>".
bool parse_seed(std::string_view seed, std::uint64_t& line, schedule& s) {
  const std::size_t colon = seed.find(':');
  if (colon == std::string_view::npos) return false;
  const std::optional<std::uint64_t> number = parse_number(seed.substr(0, colon));
  if (!number || !schedule::parse(seed.substr(colon + 1), s)) return false;
  line = *number;
  return true;
}

result explore_here(const options& o, const std::function<void()>& f) {
  schedule given;
  std::uint64_t line = 0;
  const std::string_view seed = environment_seed();
  if (parse_seed(seed, line, given)) {
    if (line == o.where.line()) {
      result replayed = replay_schedule(o, given, std::string(seed), f);
      if (replayed.ok) say(replayed.report.substr(0, replayed.report.find('\n') + 1));
      return replayed;
    }
    say("weft::test: WEFT_SEED is for line " + std::to_string(line) + "; the exploration at " +
        place_of(o) + " runs in full\n");
  } else if (!seed.empty() && !parse_number(seed)) {
    throw std::invalid_argument("weft::test: WEFT_SEED=" + std::string(seed) +
                                " is neither a number nor a line and a schedule");
  }

  const witness w;
  engine e(engine_options_of(o));
  e.set_replay_line(replay_before(o), replay_after());
  const std::unique_ptr<chooser> c = make_chooser(o);
  result r;
  while (r.runs < o.runs && c->begin()) {
    outcome one = e.run(f, *c, engine::trace::no);
    ++r.runs;
    r.steps += one.steps;
    if (one.ok()) continue;
    const std::size_t switches = one.schedule.switches();
    shrinker s(e, f, std::move(one));
    if (o.shrink && switches != 0 && s.best().what != fault::diverged) s.shrink();
    result told = tell(e, o, f, s.best());
    told.runs = r.runs;
    told.steps = r.steps;
    told.report = "run " + std::to_string(r.runs) + " of the exploration at " + place_of(o) +
                  " failed; " + std::to_string(switches) + " switches, shrunk to " +
                  std::to_string(told.switches) + " in " + std::to_string(s.runs()) + " runs\n" +
                  told.report;
    return told;
  }
  r.exhausted = o.how == strategy::exhaustive && (c->exhausted() || !c->begin());
  r.report = "ok: " + std::to_string(r.runs) + " runs, " + std::to_string(r.steps) + " steps" +
             (r.exhausted ? ", exhausted" : "");
  return r;
}

// Runs `call` on a thread that is no machine: this one, or a new one.
template <class F>
auto off_machine(F&& call) -> decltype(call()) {
  if (this_goroutine::id() == 0 || engine::current() != nullptr) return call();
  std::optional<decltype(call())> value;
  std::exception_ptr thrown;
  std::thread t([&] {
    try {
      value.emplace(call());
    } catch (...) {
      thrown = std::current_exception();
    }
  });
  t.join();
  if (thrown != nullptr) std::rethrow_exception(thrown);
  return std::move(*value);
}

}  // namespace

result try_explore(const options& o, const std::function<void()>& f) {
  return off_machine([&] { return explore_here(o, f); });
}

void explore(const options& o, const std::function<void()>& f) {
  const result r = try_explore(o, f);
  if (!r.ok) throw failed(r);
}

result replay(const options& o, const std::string& seed, const std::function<void()>& f) {
  schedule s;
  std::uint64_t line = 0;
  if (!parse_seed(seed, line, s)) {
    throw std::invalid_argument("weft::test::replay: " + seed + " is not a seed");
  }
  return off_machine([&] { return replay_schedule(o, s, seed, f); });
}

void bubble(const std::function<void()>& f, const bubble_options& b) {
  const outcome o = off_machine([&] {
    engine_options options;
    options.steps = b.steps;
    engine e(options);
    const std::unique_ptr<chooser> c =
        make_random(parse_number(environment_seed()).value_or(usual_seed));
    c->begin();
    return e.run(f, *c, engine::trace::no);
  });
  if (o.ok()) return;
  if (o.thrown != nullptr) std::rethrow_exception(o.thrown);
  result r;
  r.ok = false;
  r.failure = one_line(o.message);
  r.report = "weft::test::bubble: " + o.message;
  throw failed(r);
}

}  // namespace weft::test
