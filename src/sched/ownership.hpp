// ownership.hpp: which machine holds which processor, and every way in which that changes.
//
// A processor is in exactly one of these situations:
//
//   held      by a machine, which runs goroutines or looks for some. The machine's `p` is the
//             processor, the processor's `holder` is the machine
//   idle      in the idle list (idle_list.hpp). `holder` is the machine that sleeps with it; or
//             null, if there is none
//   starting  waits for a new thread (starter.hpp); no holder
//   granted   on its way to a machine that waits for it with its goroutine (`granted_p`); no holder
//   retired   out of circulation (resize.hpp); no holder
//
// How it goes from one to the next:
//
//   hold      a machine has the processor from now on
//   lose      a machine no longer has it
//   pass on   a processor that has lost its machine goes to another one, back to its lender, to the
//             idle list, or out of circulation
//   staff     a processor gets a machine: the one that sleeps with it, a spare one, or a new thread
//   grant     a processor goes to the machine on which a goroutine waits that can run only there
//   acquire   a goroutine that has lost its processor gets one: the old one, or any idle one
//   lend      a processor goes to urgent work and will come back to its machine, which computes on
//   return    a borrowed processor goes back to its lender; or the loan ends, and it does not
//
// Every function that writes `machine::p`, `processor::holder` or a field of loans and grants is a
// member of class ownership; the compiler refuses the others (owned.hpp). handoff.hpp decides when
// a processor is taken from a machine that runs user code.
//
// Who may change what, and when:
//   I1  `m->p == p` and `p->holder == m` hold together, except in the midst of a function here.
//       (Another exception: when the process exits, the exiting thread takes the processor of a
//       machine that has been stopped for good.)
//   I2  `p->lender == m` exactly if `m->lent == p`. Then m holds nothing: `m->p` is null.
//   I3  `m->p` changes only: by the machine itself while it is inside and its seat is not `taken`;
//       by a claimer of its seat; under the scheduler's lock while the machine is asleep or its
//       seat is `taken`.
//   I4  `is_returned` is set only while `m->p` is: the machine has its processor back from a loan,
//       and will find that out at its next entry, because its seat is still `taken`.
//   I5  A held processor is not in the idle list, and neither retired nor starting.
//
// Loans. A processor that was lent has no time to lose in either direction. When its borrower has
// nothing to run it returns the processor by setting three pointers. The word on the lender's seat
// stays at `taken`, so the lender cannot touch the processor without the lock; so the next loan
// needs no membarrier either. A machine with `taken` on its seat is in one of these situations:
//
//   p       lent   is_returned
//   null    null   no    it runs without a processor, in a call or computing; or is paused
//   null    set    no    the same, and `lent` comes back to it when nothing urgent is left
//   set     null   yes   it has its processor back, and finds that out at its next entry
//
// Order of writes, and memory order:
//   hold writes `m->p` first and publishes `holder` last; lose clears `m->p` first. A claimer reads
//   `holder`, claims that machine's seat, and only then compares `m->p` with the processor it
//   wants: a holder that is out of date costs it the claim and nothing else.
//   [OW1] hold's store of `holder` (release) -> the load of whoever is about to ask or claim
//         (acquire): the machine's seat and its `p`.
//
// tests/model/handoff.pml is this in Promela, checked exhaustively.
#pragma once

#include "sched/machine.hpp"
#include "sched/processor.hpp"

#include <cstdint>

namespace weft::sched {

// What is to be done without the lock when a processor has left its machine.
struct departure {
  machine* woken = nullptr;   // goes on with it
  machine* keeper = nullptr;  // keeps time instead
  bool is_idle = false;       // nobody goes on with it: look whether it was missed
  void finish() const noexcept;
};

// All functions with `_locked` in their names require the scheduler's lock and the right to touch
// the processor. Where they return a machine, it is to be woken after unlocking; null: nobody is.
class ownership {
 public:
  // --- for the machine that calls, inside the runtime ------------------------------------------

  // Gives up the caller's processor: to another machine if there is work for it, else to the idle
  // list. One that it has lent does not come back.
  static void pass_on_own(machine* m) noexcept;
  // Gives the caller's processor to the machine on which `g` waits.
  static void grant_own(machine* m, goroutine* g) noexcept;
  // Gives a borrowed processor back. Requires: nothing to run. Returns: false if it was not
  // borrowed, its lender has gone on without it, or there is something to do after all.
  static bool return_own(machine* m) noexcept;
  // For a goroutine that has lost its processor. Returns: false if there is none to be had.
  static bool acquire(machine* m) noexcept;
  static bool acquire_locked(machine* m, machine*& to_wake) noexcept;
  // Waits, perhaps asleep, until somebody has granted a processor for this machine's goroutine, and
  // holds it then. lie_down() is called if the machine has to sleep. Returns: the goroutine, or
  // null if the process ends.
  static goroutine* await_grant(machine* m, void (*lie_down)()) noexcept;
  // Goes on with the processor that it has, and may have got back without having noticed.
  static void keep_locked(machine* m) noexcept;
  // Takes over the processor of a machine that has been stopped for good: the process exits.
  static void seize_locked(machine* m, processor* p) noexcept;

  // --- a machine and its processor -------------------------------------------------------------

  // `m` goes on with `p`, for which a search is counted already. Requires: `m` sleeps, or starts.
  static void hold_locked(machine* m, processor* p) noexcept;
  // A processor that waits for a thread, in vain or not, goes on with `m`. Returns: false if none
  // does.
  static bool hold_waiting_locked(machine* m) noexcept;
  // The processor leaves `m`, and is the caller's to pass on. Returns: it.
  static processor* lose_locked(machine* m) noexcept;
  // The machine that sleeps with an idle processor, if any, becomes a spare one.
  static machine* dismiss_sleeper_locked(processor* p) noexcept;

  // --- a processor without a machine -----------------------------------------------------------

  // It goes on with another machine, back to its lender, or to the idle list.
  static machine* pass_on_locked(processor* p) noexcept;
  // What has to follow when it has been passed on, to `woken` if to anybody.
  static departure after_passing_locked(const processor& p, machine* woken) noexcept;
  // Requires: out of the idle list, and a search counted for it.
  static machine* staff_locked(processor* p) noexcept;
  // Lends it: it goes to urgent work, and comes back to `m`, which has just lost it.
  static machine* lend_locked(machine* m, processor* p) noexcept;
  // To the machine on which `g` waits.
  static machine* grant_locked(processor* p, goroutine* g) noexcept;
  // The same if it is the turn of `g`. What was woken on `p` becomes global.
  static machine* grant_turn_locked(processor* p, goroutine* g) noexcept;
  // There is no thread for it: it goes to a goroutine that has one, or to the idle list.
  static machine* go_without_thread_locked(processor* p) noexcept;
  // A new thread does not come: a processor that waits for it goes without. Nothing happens if none
  // waits. look_for_others() must follow.
  static machine* rescue_starting_locked() noexcept;

  // --- loans -----------------------------------------------------------------------------------

  // To its lender.
  static void return_locked(processor* p) noexcept;
  // A lender does not get its processor back; a processor does not go back.
  static void end_loan_locked(machine* lender) noexcept;
  static void end_loan_of_locked(processor& p) noexcept;

 private:
  static void hold(machine* m, processor* p) noexcept;
  static void note_turn(processor& p, std::int64_t now) noexcept;
  static machine* staff_searching_locked(processor* p) noexcept;
};

}  // namespace weft::sched
