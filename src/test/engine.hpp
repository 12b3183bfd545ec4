// engine.hpp: makes one run of a program after another; a chooser makes every choice.
//
// The engine is a scheduler of its own (sched/simulation.hpp): its goroutines all run on one OS
// thread, each on its own stack. Before it does what other goroutines can notice, a goroutine calls
// point(), on its own stack. point() collects the actors that could make the next step and lets the
// chooser pick one: a goroutine, a goroutine's store buffer, a goroutine's timeout, or the clock.
// What happens between two points is one step. A run begins and ends on the thread's own stack,
// which is called the host.
//
// Standings. A goroutine has one of these:
//   ready      it can make a step.
//   parked     until it is readied.
//   yielding   until another actor has made a step. From its second yield on also: until every
//              goroutine that could make a step has made one since the yield before. (This is
//              CHESS's fairness: loops that wait for other goroutines end under every strategy.)
//   resting    in test::wait, until no other goroutine can go on.
//   done       it has ended.
// Model tests of lock-free protocols (tests/model/explore.hpp) have three more:
//   asleep     in a futex.
//   spinning   until something has changed that it has read since its last pause.
//   joining    until no other goroutine is left.
//
// Time stands still while any goroutine can go on, then jumps to the next timer. An exploration may
// let time jump earlier, by at most `late`, as if a ready goroutine had been kept waiting.
//
// Memory. An atomic holds its value itself. The engine keeps, by address, what an acquire of that
// atomic makes visible. With memory::buffered, a store that is not seq_cst enters its goroutine's
// buffer, first in first out. The goroutine's own loads see the store; other goroutines see it only
// when it is flushed, by a step of the actor `buffer` or to make room in a full buffer. A
// read-modify-write, a seq_cst store and a seq_cst fence drain the goroutine's buffer first. So
// does everything that makes the past visible through a primitive, a futex, go or ready; but the
// end of a goroutine does not. Flushes are offered late: a flush commutes with everything but other
// goroutines' accesses to its location. So it is offered only when another goroutine is about to
// access a location in that buffer, waits for it, or has buffered a store to it; or when no
// goroutine can go on. A store into the buffer is a point, too: a heavy barrier before that store
// does not drain it.
//
// Races. Each goroutine carries a vector clock; so does each location and each primitive through
// which something was released. Edges are those of C++ (release to acquire through the value read,
// release sequences, fences), of weft's primitives (observe()), of go and ready, of a futex's
// wake-up, and from all goroutines to the end of test::wait or of a join. heavy_barrier() counts as
// a full fence of every goroutine.
//
// States seen (exhaustive_options::prune). A state is named by its history. Each goroutine has a
// chain: a hash of its operations and, for each, of the write that it read from. Each buffer has a
// chain of its flushes and of the write that each flush replaced. Goroutines are deterministic, so
// equal chains mean equal states. This includes plain memory, provided that operations on atomics
// order conflicting plain accesses; `var` checks that. (Comparing values instead would merge more
// states, but wrongly as soon as plain memory is involved.) Points and operations of primitives are
// no operations on memory; they count as conflicting with one another. 64-bit hashes may collide;
// with ten million states that happens once in 400,000 searches.
//
// A failed run is abandoned: the host goes on, and what the goroutines held is never destroyed.
#pragma once

#include "base/signal_stack.hpp"
#include "sched/simulation.hpp"
#include "test/chooser.hpp"
#include "test/place_table.hpp"
#include "test/schedule.hpp"
#include "test/vector_clock.hpp"

#include <weft/test.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace weft::test {

class expectations;

// What went wrong. A shrunken run must fail in the same way.
enum class fault : std::uint8_t {
  none,
  exception,
  expectation,
  deadlock,
  left_behind,
  race,
  no_end,
  check,
  diverged,
};

// Kinds of links in a chain: the operations of a goroutine (see "States seen").
enum link : std::uint64_t {
  own_buffer = 0x11,
  a_store = 0x12,
  a_fence = 0x13,
  a_wake = 0x14,
  a_pause = 0x15,
  a_point = 0x21,
  a_start = 0x22,
  a_park = 0x23,
  a_wake_up = 0x24,
  a_yield = 0x25,
  a_rest = 0x26,
  a_value = 0x27,
  a_write = 0x31,
  a_read = 0x32
};

struct engine_options {
  std::uint64_t steps = 100'000;
  std::int64_t late_ns = 0;
  int procs = 0;
  std::size_t buffer_entries = 0;  // the size of a store buffer; 0: memory::sequential
  bool intercept = false;          // a failed expectation of GoogleTest fails the run
  bool descriptors = true;         // a descriptor that is left open fails the run
  // Says whether tables show the lines of a file. Null: all files but those of weft, of GoogleTest
  // and of the standard library.
  bool (*shows)(std::string_view file) = nullptr;
  // For model tests.
  int timeouts = 1;          // how many timed waits of a run may time out while others can go on
  int whims = 0;             // how many futex waits and pauses of a run may end without a reason
  int fruitless_spins = 20;  // how many turns a spinning loop gets when nothing else can happen
  bool late_flushes = true;  // false: offer flushes that commute, too, which finds nothing more
};

// The result of one run.
struct outcome {
  fault what = fault::none;
  std::string message;
  std::exception_ptr thrown;  // set if `what` is fault::exception
  test::schedule schedule;
  std::uint64_t steps = 0;
  std::string table;  // empty unless the run was traced

  bool ok() const { return what == fault::none; }
};

enum class standing : std::uint8_t {
  ready,
  parked,
  yielding,
  spinning,
  asleep,
  resting,
  joining,
  done,
};

// A goroutine of a simulation.
struct strand : sched::goroutine {
  struct buffered_store {
    void* place;
    std::uint32_t where;  // location
    std::uint64_t bits;
    std::uint64_t hash;
    vector_clock sync;
  };
  struct read_mark {
    std::uint32_t where;  // location
    std::uint32_t version;
  };
  static constexpr std::uint32_t nowhere = ~std::uint32_t{0};

  // For searches in alive_, which is sorted by index.
  static bool comes_before(std::uint32_t index, const strand* s) { return index < s->index; }

  std::uint32_t index = 0;
  int fiber_uses = 0;           // how often its TSan fiber was used before
  const char* title = nullptr;  // its name, if it is a thread of a model
  std::string last_name;        // its name, once it has ended
  standing stands = standing::ready;
  bool begun = false;
  bool token = false;  // it was readied; park() takes the token
  bool has_processor = false;
  bool in_prologue = false;  // runs up to its first point before anything else
  std::int64_t ready_since_ns = 0;
  std::uint64_t moved_at = 0;        // the number of its last step, or when it became ready
  std::uint64_t yielded_at = 0;      // the step of its last yield
  std::uint64_t yielded_before = 0;  // the step of the yield before that
  std::uint32_t pending = nowhere;   // the location that it is about to touch

  vector_clock clock;                  // what happened before its next step
  vector_clock seen;                   // what an acquire fence would add
  vector_clock fence;                  // what a relaxed store releases
  std::vector<buffered_store> buffer;  // the oldest first

  std::uint64_t chain = 0;
  std::uint64_t flush_chain = 0;
  std::uint64_t locations_made = 0;

  // The locations that it has read since its last pause: if none has changed, another turn of its
  // loop is useless.
  std::array<read_mark, 12> reads;
  std::size_t read_count = 0;
  bool read_overflow = false;       // `reads` is too small: any change of memory counts
  std::uint64_t start_version = 0;  // version_ when this turn of the loop began
  bool released = false;            // its pause ended without a reason
  int fruitless = 0;                // turns in a row for which nothing had changed
  std::uint64_t spin_version = 0;   // version_ at its last pause

  const void* sleeps_on = nullptr;  // futex
  bool timed = false;
  bool timed_out = false;
};

class engine final : public sched::simulation, public state_source {
 public:
  explicit engine(const engine_options& o);
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;
  ~engine();

  // The engine that runs on this thread. Null outside of run().
  static engine* current() noexcept;

  // Sets what stands before and after the schedule in the line that replays a run.
  void set_replay_line(std::string before, std::string after);

  enum class trace : bool { no, yes };
  outcome run(const std::function<void()>& f, chooser& c, trace t);

  // ---- sched::simulation ----
  sched::goroutine* take_record() override;
  sched::goroutine* take_record_inside() noexcept override;
  void start(sched::goroutine* g) noexcept override;
  void drop(sched::goroutine* g) noexcept override;
  [[noreturn]] void exited() override;
  sched::goroutine* self() noexcept override { return current_; }
  void prepare_park(weft::detail::wait_reason reason) noexcept override;
  void prepare_park_inside(weft::detail::wait_reason reason) noexcept override;
  void cancel_park() noexcept override;
  void park() noexcept override;
  void ready(sched::goroutine* g) noexcept override;
  void yield() noexcept override;
  void observe(weft::detail::touch how, const void* object, const char* what) noexcept override;
  void remember(const void* what, std::function<void()> undo) override;
  void forget(const void* what) noexcept override;
  void last_words() noexcept override;
  sched::timer_heap& timers() noexcept override { return timers_; }
  std::int64_t now_ns() noexcept override { return now_ns_; }
  std::uint32_t choose(std::uint32_t n) noexcept override;
  std::size_t goroutines() const noexcept override;
  int procs() const noexcept override { return options_.procs > 0 ? options_.procs : 4; }

  std::uint64_t state_key() const override;

  // ---- What atomics and vars call (memory.cpp). ----
  void created(const void* place, const detail::cell& c);
  void destroyed(const void* place);
  void named(const void* place, const char* name);
  std::uint64_t load(const void* place, const detail::cell& c, std::memory_order order);
  void store(void* place, const detail::cell& c, std::uint64_t bits, std::memory_order order);
  std::uint64_t modify(void* place, const detail::cell& c, const char* what,
                       std::memory_order order, std::memory_order failure, detail::modifier m,
                       void* argument);
  void fence(std::memory_order order);
  void touch_var(const void* place, detail::access a, const char* name, const void* from,
                 detail::shown value);
  // Like touch_var(), but makes no step.
  void check_var(const void* place, detail::access a, const char* name, const void* from,
                 detail::shown value = {});
  void forget_var(const void* place);

  // ---- For model tests. ----
  void heavy_barrier();
  enum class wait_kind : std::uint8_t { endless, timed };
  // Returns: false if the wait ended by its timeout.
  bool futex_wait(const void* place, std::uint64_t expected, wait_kind kind);
  // Uses only the address: the word may have been destroyed.
  void futex_wake(const void* place, int count);
  void pause();
  // Starts a goroutine, which runs up to its first point at once. Requires: `f` outlives the run.
  void thread(const char* title, const std::function<void()>& f);
  // A point without an operation.
  void step() { point(); }

  // The caller waits until no other goroutine can go on.
  void rest();
  // The caller waits until all others have ended and their stores are flushed.
  void join();

  // Ends the run. Does not return if a goroutine calls this.
  void fail(fault what, std::string message);

  bool tracing() const noexcept { return tracing_; }
  void note(std::string text);
  strand& running() noexcept { return *current_; }
  // Text of the program's, which a terminal must not obey: as base::text::printable().
  static std::string printable(std::string_view s);
  std::string name_of(const strand& s) const;

 private:
  struct location {
    const detail::cell* cell = nullptr;
    std::uint64_t key = 0;         // the same in every run
    std::uint64_t write_hash = 0;  // names the write its value comes from
    std::uint64_t queue_hash = 0;  // names the last change of the futex's queue
    vector_clock sync;             // what an acquire of its value sees
    std::uint32_t version = 0;     // how often its value has changed
    bool alive = true;
    const char* name = nullptr;
    void reset() { *this = location(); }
  };
  static constexpr std::uint32_t nowhere = strand::nowhere;
  struct release_mark {
    vector_clock clock;
    void reset() { clock = {}; }
  };
  struct var_access {
    std::uint32_t time = 0;      // by the goroutine's own clock; 0: there was no access
    const void* from = nullptr;  // the address of the code
  };
  struct var_state {
    std::uint32_t writer = 0;
    var_access written;
    std::vector<std::pair<std::uint32_t, var_access>> reads;  // the last of each goroutine
    void reset() {
      writer = 0;
      written = {};
      reads.clear();
    }
  };
  struct event {
    std::uint32_t strand;
    std::int64_t at_ns;
    std::string text;
    std::string where;
  };
  // What something outside refers to (see sched::simulation::remember()).
  struct reference {
    const void* to;
    std::function<void()> undo;
  };
  // How the events of an endless run end: from `begin` on, `events` of them repeat the `length`
  // events before `begin`.
  struct rounds {
    std::size_t begin;
    std::size_t events;
    std::size_t length;
  };

  // Scheduling.
  void point(std::uint32_t pending = strand::nowhere);
  strand* decide();
  strand* admit_step(strand& s);
  void collect();
  void collect_buffers();
  void collect_timeouts();
  std::uint64_t interest(const strand& s) const;
  void collect_last_resort();
  bool enabled(const strand& s) const;
  bool owes_a_turn(const strand& yielder) const;
  bool changed(const strand& s) const;
  std::uint32_t draw(std::uint32_t n);
  void advance_clock();
  void stir(strand& s);
  void release_processor(strand& s) noexcept;
  void stuck();
  void fail_later(fault what, std::string message);
  void fail_by(const std::exception_ptr& thrown);
  bool check_expectations();

  // Switching.
  void go_to(strand* next);
  void switch_to(sched::goroutine* to, bool for_good, sched::goroutine* from);
  void arrive(sched::goroutine* who);
  static void begin(void*);
  [[noreturn]] void finish_strand();
  void give_stack(strand& s);
  void give_fiber(strand& s);
  void take_fiber(strand& s);
  strand* new_strand();
  void admit(strand& s);
  void retire(strand& s);
  void see_everything(strand& s);
  void reset();
  void bury(bool abandoned);

  // Memory.
  std::uint32_t number_of(const void* place, const detail::cell& c);
  location& come_to(std::uint32_t where);
  void check_alive(std::uint32_t where);
  void receive(strand& s, const vector_clock& sync, std::memory_order order);
  void set(void* place, std::uint32_t where, std::uint64_t bits, strand& writer);
  void remember_read(strand& s, std::uint32_t where);
  void forget_reads(strand& s);
  void land(strand& s, const strand::buffered_store& b);
  void flush_oldest(strand& s);
  void drain(strand& s);
  void link_rest(strand& s, std::uint64_t what);
  std::string label(std::uint32_t where) const;
  std::string object_label(const void* object);
  void race(const char* name, detail::access mine, std::uint32_t other, detail::access theirs,
            const void* their_from);

  // Reports (listing.cpp).
  void note_for(const strand& s, std::string text, std::string where);
  std::string where_am_i() const;
  std::string where_is(const strand& s) const;
  std::string usual_file() const;
  rounds last_rounds() const;
  std::string table() const;
  std::string roll_call() const;

  const base::signal_stack alternate_;  // for a goroutine that overflows its stack
  engine_options options_;
  std::string replay_before_;
  std::string replay_after_;
  bool said_last_words_ = false;
  sched::goroutine host_;
  const void* host_low_ = nullptr;
  std::size_t host_bytes_ = 0;
  sched::exception_globals* eh_ = nullptr;
  std::vector<stack::extent*> free_stacks_;
  std::vector<std::unique_ptr<strand>> spare_;
  std::vector<std::pair<void*, int>> free_fibers_;  // fibers, and how often each was used
  sched::goroutine discard_;                        // takes the contexts that never go on
  bool knows_host_ = false;

  // State of this run.
  chooser* chooser_ = nullptr;
  bool tracing_ = false;
  std::vector<std::unique_ptr<strand>> strands_;
  std::vector<reference> references_;  // the oldest first
  // Strands that are not done or have stores that are not flushed; sorted by index.
  std::vector<strand*> alive_;
  strand* current_ = nullptr;  // the strand on whose stack the thread is; null: on the host's
  strand* last_ = nullptr;     // the strand that made the last step
  strand* main_ = nullptr;
  strand* dead_ = nullptr;    // has ended; its stack is free once the thread has left it
  strand* rester_ = nullptr;  // is in rest()
  expectations* watch_ = nullptr;
  bool clock_runs_ = false;
  int occupied_ = 0;
  sched::timer_heap timers_;
  std::int64_t now_ns_ = 0;
  offer offer_;
  std::uint64_t steps_ = 0;
  int fruitless_yields_ = 0;
  int timeouts_ = 0;
  int whims_ = 0;
  std::uint64_t version_ = 0;  // how often memory has changed
  std::size_t buffered_ = 0;   // how many stores are in all buffers
  std::uint64_t rest_hash_ = 0;
  place_table<location> locations_;
  place_table<release_mark> released_;                   // what was released through primitives
  std::unordered_map<const void*, std::string> labels_;  // names of primitives, for tables
  std::uint32_t labels_numbered_ = 0;
  place_table<var_state> vars_;
  schedule recorded_;
  fault fault_ = fault::none;
  std::string message_;
  std::exception_ptr thrown_;
  std::vector<event> events_;
};

}  // namespace weft::test
