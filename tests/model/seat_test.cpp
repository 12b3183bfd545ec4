// seat_test.cpp: sched/seat.hpp on every interleaving of an owner and its claimers, with store
// buffers, within the bounds named at each test.
//
// The owner behaves as enter_slow() in sched/enter.cpp and give_up_seat() in sched/handoff.cpp do,
// the thief as rob(), the detacher as retake() and the monitor as watch::end_slice(). What a
// processor owns is a `var` that each of them reads and writes. (Which machine holds which
// processor otherwise is the subject of handoff.pml.)
#include "sched/seat.hpp"

#include "model/expect.hpp"
#include "model/explore.hpp"
#include "model/mutants.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>

namespace weft::model {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;

constexpr int work_there = 5;

struct processor {
  exclusive users{"the processor"};
  var<int> work{0, "work"};
  var<int> uses{0, "uses"};

  void use() {
    exclusive::stay here(users);
    uses.set(uses.get() + 1);
  }
};

template <class Platform>
struct machine {
  using seat_type = sched::basic_seat<Platform>;

  seat_type seat;
  processor first, second, third;
  int lost = 0;    // processors that were taken from it or given up; owner only
  int yields = 0;  // pleas it has heard; owner only
  int visits = 0;  // claims that ended well; claimers only
  int asked = 0;   // pleas that were left; monitor only
  int loot = 0;    // what was stolen; thief only
  // Guarded by the seat, as machine::p is: null after `taken`.
  var<processor*> p{nullptr, "p"};

  // As a thief: its mailbox.
  var<int> mailbox{0, "mailbox"};
  typename Platform::template atomic<std::uint32_t> delivered{0};

  // What this machine has given up, and another machine goes on with.
  typename Platform::template atomic<processor*> passed_on{nullptr};

  machine() {
    p.set(&first);
    delivered.name("delivered");
    passed_on.name("passed_on");
  }

  // Owner: into the runtime.
  void enter() {
    if (seat.enter()) return;
    for (;;) {
      const std::uint32_t word = seat.settle();
      switch (seat_type::kind_of(word)) {
        case seat_type::free:
          return;
        case seat_type::asked:
          if (seat.accept(word)) hand_over();
          break;
        case seat_type::yield_please:
          yields += seat.accept(word);
          break;
        case seat_type::taken:
          check(p.get() == nullptr, "taken, but its processor is still there");
          p.set(lost++ == 0 ? &second : &third);
          seat.reclaim();
          return;
        case seat_type::pending:
          break;
        case seat_type::stopped:
          check(false, "nobody has stopped it");
      }
    }
  }

  // Requires: the right to touch it.
  processor& mine() {
    processor* const held = p.get();
    check(held != nullptr, "it has no processor");
    return *held;
  }

  void hand_over() {
    processor& from = mine();
    exclusive::stay here(from.users);
    mailbox.set(from.work.get());
    from.work.set(0);
    delivered.store(1, release);
  }

  // One stay in the runtime.
  void pass_by() {
    enter();
    mine().use();
    seat.leave();
  }

  // Owner: passes its processor on, unless it has gone already. It must heed what give_up() says.
  template <bool heeds>
  void give_up() {
    enter();
    for (bool gone = false; !gone;) {
      const std::uint32_t word = seat.settle();
      switch (seat_type::kind_of(word)) {
        case seat_type::asked:
          if (seat.accept(word)) hand_over();
          break;
        case seat_type::yield_please:
          yields += seat.accept(word);
          break;
        case seat_type::free:
          gone = seat.give_up() || !heeds;
          break;
        case seat_type::taken:
          gone = true;
          break;
        default:
          check(false, "neither free nor taken");
      }
    }
    if (processor* const held = p.get()) {
      p.set(nullptr);
      passed_on.store(held, release);
    }
    seat.leave();
  }

  // Another machine, which takes over what was given up.
  void go_on() {
    if (processor* const theirs = passed_on.load(acquire)) theirs->use();
  }

  // At the end. Returns: whether a plea has not been heard yet.
  bool has_plea() {
    const bool has = !seat.enter() && seat.settle() == seat_type::yield_please;
    seat.leave();
    return has;
  }

  // Claimer: looks at the processor from outside and gives it back.
  bool visit(int turns, typename seat_type::word_kind otherwise = seat_type::free) {
    if (!seat.claim(turns, otherwise)) return false;
    mine().use();
    seat.release();
    return true;
  }

  // Claimer: takes the processor away and keeps it.
  bool detach(int turns) {
    if (!seat.claim(turns)) return false;
    if (p.get() != &first) {  // another claimer was faster
      seat.release();
      return false;
    }
    p.set(nullptr);
    seat.take();
    first.use();
    return true;
  }

  // Claimer: asks for work; turns the question into a claim if no answer comes, and claims at once
  // where it cannot ask. Returns: the loot.
  int rob(int turns) {
    mailbox.set(0);
    delivered.store(0, relaxed);
    if (!seat.ask(7)) {
      if (!seat.claim(turns)) return 0;
      help_itself();
    } else if (delivered.load(acquire) == 0) {
      switch (seat.claim_after_asking(7, turns)) {
        case seat_type::claimed::no:
          return 0;
        case seat_type::claimed::accepted:
          while (delivered.load(acquire) == 0) Platform::pause();
          break;
        case seat_type::claimed::yes:
          help_itself();
          break;
      }
    }
    return mailbox.get();
  }

  // Claimer, whose claim was granted: takes what is there, and gives the processor back.
  void help_itself() {
    if (processor* const victim = p.get()) {
      exclusive::stay here(victim->users);
      mailbox.set(victim->work.get());
      victim->work.set(0);
    }
    seat.release();
  }

  // Claimer: like detach(), but also if a thief has asked; the thief is told that there is nothing.
  bool detach_from_thief(int turns) {
    if (detach(turns)) return true;
    const std::uint32_t question = seat.accept_for_owner();
    if (question == seat_type::free) return false;
    check(seat_type::thief_of(question) == 7, "the question is another's");
    mailbox.set(0);
    delivered.store(1, release);
    return detach(turns);
  }

  // Claimer: asks for work; takes the question back, by a claim, if no answer comes.
  int beg() {
    mailbox.set(0);
    delivered.store(0, relaxed);
    if (!seat.ask(7)) return 0;
    if (delivered.load(acquire) == 0) {
      switch (seat.claim_after_asking(7, 1)) {
        case seat_type::claimed::yes:
          seat.release();
          return 0;
        case seat_type::claimed::no:
          return 0;
        case seat_type::claimed::accepted:
          break;
      }
      while (delivered.load(acquire) == 0) Platform::pause();
    }
    return mailbox.get();
  }

  // Requires: a scene with_work().
  void check_work() { check(first.work.get() + loot == work_there, "work was lost or doubled"); }

  // I3, and no machine is left inside.
  void check_free() {
    check(!seat.inside_hint(), "the owner is still inside");
    check(seat.claim(1), "a request was left behind");
  }
};

// A machine and the other participants. The machine notes what each of them achieved.
template <class Platform>
class scene {
 public:
  using seat_type = machine<Platform>::seat_type;

  explicit scene(world& w) : w_(w) {}

  void with_work() { m_->first.work.set(work_there); }

  void owner(int stays) {
    w_.thread("owner", [m = m_, stays] {
      for (int i = 0; i < stays; ++i) m->pass_by();
    });
  }
  template <bool heeds>
  void owner_that_gives_up() {
    w_.thread("owner", [m = m_] {
      m->template give_up<heeds>();
      m->pass_by();
    });
  }
  void heir() {
    w_.thread("heir", [m = m_] { m->go_on(); });
  }
  void claimer(int turns, typename seat_type::word_kind otherwise = seat_type::free) {
    w_.thread("claimer", [m = m_, turns, otherwise] { m->visits += m->visit(turns, otherwise); });
  }
  void monitor() {
    w_.thread("monitor", [m = m_] { m->asked = m->seat.ask_to_yield(); });
  }
  void thief(int turns) {
    w_.thread("thief", [m = m_, turns] { m->loot = m->rob(turns); });
  }
  // Another participant, or a condition at the end: a function of the machine.
  template <class F>
  void thread(const char* name, F body) {
    w_.thread(name, [m = m_, body] { body(*m); });
  }
  template <class F>
  void at_end(F check_more) {
    w_.at_end([m = m_, check_more] {
      check_more(*m);
      m->check_free();
    });
  }

 private:
  world& w_;
  std::shared_ptr<machine<Platform>> m_ = std::make_shared<machine<Platform>>();
};

// I1: owner and claimer never use the processor at the same time, and each sees what the other
// left.
template <class Platform, int stays, int turns>
void owner_and_claimer(world& w) {
  scene<Platform> s(w);
  s.owner(stays);
  s.claimer(turns);
  s.at_end([](auto& m) { check(m.first.uses.get() == stays + m.visits, "a use was lost"); });
}

// I1 between two claimers, of which one may be thrown back by the other.
template <class Platform, int turns>
void owner_and_two_claimers(world& w) {
  scene<Platform> s(w);
  s.owner(1);
  s.claimer(turns);
  s.claimer(turns);
  s.at_end([](auto& m) { check(m.first.uses.get() == 1 + m.visits, "a use was lost"); });
}

// I2: a detacher that has taken the processor has it for good. The owner goes on with another one,
// which may be claimed in turn.
template <class Platform, int turns>
void owner_and_detacher(world& w) {
  auto m = std::make_shared<machine<Platform>>();
  w.thread("owner", [m] {
    m->pass_by();
    m->pass_by();
  });
  w.thread("detacher", [m] {
    if (m->detach(turns)) m->first.use();
  });
  w.thread("visitor", [m] {
    if (!m->seat.claim(turns)) return;
    if (processor* const p = m->p.get()) p->use();
    m->seat.release();
  });
  w.at_end([m] { check(!m->seat.inside_hint(), "the owner is still inside"); });
}

// A question is answered once, or becomes a claim; whatever happens, each piece of
// work is in one place.
template <class Platform, int stays, int turns>
void owner_and_thief(world& w) {
  scene<Platform> s(w);
  s.with_work();
  s.owner(stays);
  s.thief(turns);
  s.at_end([](auto& m) { m.check_work(); });
}

// The same with a thief that takes its question back, asks again, and meets a claimer.
template <class Platform>
void owner_beggar_and_claimer(world& w) {
  scene<Platform> s(w);
  s.with_work();
  s.owner(1);
  s.thread("thief", [](auto& m) {
    m.loot = m.beg();
    m.loot += m.beg();
  });
  s.claimer(1);
  s.at_end([](auto& m) { m.check_work(); });
}

// A claim that failed leaves its plea. The owner hears the plea once, at its next entry.
template <class Platform, int stays>
void owner_and_pleading_claimer(world& w) {
  scene<Platform> s(w);
  s.owner(stays);
  s.claimer(1, scene<Platform>::seat_type::yield_please);
  s.at_end([](auto& m) {
    check(m.first.uses.get() == stays + m.visits, "a use was lost");
    check(m.visits + m.yields + m.has_plea() == 1, "a plea was lost or heard twice");
  });
}

// The same for the monitor's plea. A claim that fails leaves the plea. A claim that succeeds may
// end it, because the processor has changed hands, or could have.
template <class Platform, int turns>
void owner_monitor_and_claimer(world& w) {
  scene<Platform> s(w);
  s.owner(2);
  s.monitor();
  s.claimer(turns);
  s.at_end([](auto& m) {
    check(m.first.uses.get() == 2 + m.visits, "a use was lost");
    const int pleas = m.yields + m.has_plea();
    check(pleas <= m.asked, "a plea was heard twice");
    check(pleas == m.asked || m.visits != 0, "a plea was lost");
  });
}

// A plea and a question do not undo each other, whichever comes first; a thief that finds a plea
// claims, which may end it.
template <class Platform, int turns>
void owner_monitor_and_thief(world& w) {
  scene<Platform> s(w);
  s.with_work();
  s.owner(2);
  s.monitor();
  s.thief(turns);
  s.at_end([](auto& m) {
    m.check_work();
    const int pleas = m.yields + m.has_plea();
    check(pleas <= m.asked, "a plea was heard twice");
    check(pleas == m.asked || m.loot != 0, "a plea was lost");
  });
}

// A processor leaves its machine although a thief's question lies on the seat. The thief is
// answered once, by the owner or by the detacher that took the processor, and goes on.
template <class Platform, int turns>
void owner_thief_and_detacher(world& w) {
  scene<Platform> s(w);
  s.with_work();
  s.owner(1);
  s.thief(turns);
  s.thread("detacher", [](auto& m) { m.visits = m.detach_from_thief(turns); });
  s.at_end([](auto& m) {
    m.check_work();
    m.pass_by();  // finds out what it has lost
  });
}

// A processor that the owner gives up goes to one thread: no claimer has it, too, or takes it
// later.
template <class Platform, bool heeds>
void owner_gives_up(world& w) {
  scene<Platform> s(w);
  s.template owner_that_gives_up<heeds>();
  s.thread("detacher", [](auto& m) { m.visits = m.detach(1); });
  s.heir();
  s.at_end([](auto& m) {
    check((m.passed_on.load(relaxed) == &m.first) != (m.visits != 0),
          "the processor was lost or doubled");
  });
}

// As above, with a thief whose question is answered before the processor leaves, or not at all.
template <class Platform, bool heeds>
void owner_gives_up_beside_a_thief(world& w) {
  scene<Platform> s(w);
  s.with_work();
  s.template owner_that_gives_up<heeds>();
  s.thief(1);
  s.heir();
  s.at_end([](auto& m) {
    check(m.passed_on.load(relaxed) == &m.first, "the processor was lost");
    m.check_work();
  });
}

// What stop() shuts stays shut: a claimer that is busy meanwhile must not open it again.
template <class Platform, bool takes>
void owner_claimer_and_stop(world& w) {
  struct state {
    sched::basic_seat<Platform> seat;
    typename Platform::template atomic<bool> over{false};
  };
  auto s = std::make_shared<state>();
  s->over.name("over");
  w.thread("owner", [s] {
    using seat_type = sched::basic_seat<Platform>;
    const bool over = s->over.load(std::memory_order_seq_cst);
    if (s->seat.enter()) {
      check(!over, "the owner came in after the end");
    } else if (s->seat.settle() == seat_type::free) {
      check(!over, "the owner came in after the end, and had to wait for it");
    }
    s->seat.leave();
  });
  w.thread("claimer", [s] {
    if (!s->seat.claim(2)) return;
    if constexpr (takes) {
      s->seat.take();
    } else {
      s->seat.release();
    }
  });
  w.thread("end", [s] {
    s->seat.stop();
    s->over.store(true, std::memory_order_seq_cst);
  });
  w.at_end([s] {
    s->seat.enter();
    check(s->seat.settle() == sched::basic_seat<Platform>::stopped, "opened again after stop()");
  });
}

// A claimer that looks once gives up while the owner is inside. One that looks twice waits for it.
// A whim ends that wait early.
template <class Platform>
class seat : public testing::Test {};

// All three forms of the platform: membarrier, fences, TSan's.
using platforms = testing::Types<platform, fenced_platform, sequential_platform>;
TYPED_TEST_SUITE(seat, platforms);

constexpr options all{.preemptions = -1};
constexpr options all_with_a_whim{.preemptions = -1, .whims = 1};
constexpr options some_with_a_whim{.preemptions = 3, .whims = 1};

// [S1] Both inside at once corrupt the run queue.
TYPED_TEST(seat, keeps_owner_and_claimer_apart) {
  expect_right(all, &owner_and_claimer<TypeParam, 2, 1>);
  expect_right(all, &owner_and_claimer<TypeParam, 2, 2>);
  expect_right(all_with_a_whim, &owner_and_claimer<TypeParam, 2, 2>);
  // A claimer that is patient gets in: an owner that stands back must be seen outside.
  expect_right(all, &owner_and_claimer<TypeParam, 2, 1000>);
}

// [S2] [S3] A claimer that does not see what the one before it wrote runs a goroutine twice.
TYPED_TEST(seat, keeps_two_claimers_apart) {
  expect_right(all, &owner_and_two_claimers<TypeParam, 1>);
  expect_right(some_with_a_whim, &owner_and_two_claimers<TypeParam, 2>);
}

// An owner that goes on with the processor it has lost runs goroutines of another machine.
TYPED_TEST(seat, lets_the_owner_know_that_its_processor_was_taken) {
  expect_right({.preemptions = 3}, &owner_and_detacher<TypeParam, 1>);
  expect_right({.preemptions = 2, .whims = 1}, &owner_and_detacher<TypeParam, 2>);
}

// A question answered twice loses goroutines; one left behind makes the seat unclaimable.
TYPED_TEST(seat, answers_a_question_once) {
  expect_right(all, &owner_and_thief<TypeParam, 1, 1>);
  expect_right(all_with_a_whim, &owner_and_thief<TypeParam, 2, 2>);
  expect_right({.preemptions = 3}, &owner_beggar_and_claimer<TypeParam>);
}

// A goroutine that blocks with a thief's question on its seat would keep its processor until the
// thief gets a core again.
TYPED_TEST(seat, is_taken_whatever_a_thief_asks) {
  expect_right({.preemptions = 3}, &owner_thief_and_detacher<TypeParam, 1>);
  expect_right({.preemptions = 2, .whims = 1}, &owner_thief_and_detacher<TypeParam, 2>);
}

// A hog that does not hear its plea keeps its processor until its signal comes. A hog that hears a
// plea twice yields twice.
TYPED_TEST(seat, hears_a_plea_once) {
  expect_right(all, &owner_and_pleading_claimer<TypeParam, 2>);
  expect_right(all, &owner_and_pleading_claimer<TypeParam, 3>);
  expect_right({.preemptions = 3}, &owner_monitor_and_claimer<TypeParam, 1>);
  expect_right({.preemptions = 2, .whims = 1}, &owner_monitor_and_claimer<TypeParam, 2>);
  expect_right({.preemptions = 3}, &owner_monitor_and_thief<TypeParam, 1>);
}

// Two machines with one processor run each other's goroutines.
TYPED_TEST(seat, is_given_up_to_nobody_else) {
  expect_right(all, &owner_gives_up<TypeParam, true>);
  expect_right({.preemptions = 3}, &owner_gives_up_beside_a_thief<TypeParam, true>);
}

// A goroutine that runs during the destruction of globals crashes the process at its end.
TYPED_TEST(seat, stays_shut_once_it_is_stopped) {
  expect_right(all_with_a_whim, &owner_claimer_and_stop<TypeParam, false>);
  expect_right(all_with_a_whim, &owner_claimer_and_stop<TypeParam, true>);
}

// The tests above notice what they are there to notice.
//
// What no platform can break was broken by hand, in copies of seat.hpp, and noticed as well:
// settle() that does not leave while it waits, or a failed claim that leaves `pending` (livelock);
// accept() by a store (work was lost); a claim by a load and a store, or enter() that
// loads before it stores, or settle() that takes pending for free (both inside, or a race);
// claim_after_asking() without the barrier (both inside); reclaim() left out (taken for ever);
// ask() or accept() relaxed (a race for the mailbox); claims ended by a store (opened again after
// stop); a claim that forgets the plea it found (a plea was lost); ask_to_yield() or give_up() by a
// store (both have the processor, or a race).
TEST(seat_mutants, are_caught) {
  for (const result& r : {explore({}, &owner_and_claimer<mutant::no_heavy_barrier, 1, 1>),
                          explore({}, &owner_and_claimer<mutant::local_heavy_barrier, 1, 1>),
                          explore({}, &owner_and_thief<mutant::no_heavy_barrier, 1, 1>)}) {
    // Under TSan the way in is an exchange, [S4], which is right without any barrier.
    EXPECT_EQ(r.ok, WEFT_TSAN != 0) << r.report;
  }
  for (const result& r : {explore({}, &owner_and_claimer<mutant::no_release, 1, 2>),
                          explore({}, &owner_and_claimer<mutant::no_acquire, 2, 2>)}) {
    EXPECT_FALSE(r.ok);
    EXPECT_NE(r.message.find("race on "), std::string::npos) << r.report;
  }
  // The owner gives up what has been claimed; or the word is not exchanged in one step.
  for (const result& r :
       {explore({}, &owner_gives_up<platform, false>),
        explore({}, &owner_gives_up_beside_a_thief<platform, false>),
        explore({}, &owner_gives_up<mutant::torn_compare_exchange, true>),
        explore({}, &owner_gives_up_beside_a_thief<mutant::torn_compare_exchange, true>),
        explore({}, &owner_monitor_and_claimer<mutant::torn_compare_exchange, 1>),
        explore({}, &owner_monitor_and_thief<mutant::torn_compare_exchange, 1>)}) {
    EXPECT_FALSE(r.ok) << r.report;
  }
}

}  // namespace
}  // namespace weft::model
