// ownership.hpp: which machine holds which processor, and every way in which that changes.
//
// A processor is in exactly one of these situations:
//
//   held      by a machine, which runs goroutines or looks for some. The machine's `p` is the
//             processor, the processor's `holder` is the machine
//   idle      in the idle list (idle_list.hpp). `holder` is the machine that sleeps with it; or
//             null, if there is none
//   starting  waits for a new thread (starter.hpp); no holder
//   granted   on its way to a machine on which a goroutine waits for it (`granted_p`); no holder
//   retired   out of circulation (resize.hpp); no holder
//
// How it goes from one to the next:
//
//   hold      a machine has the processor from now on
//   lose      a machine no longer has it
//   pass on   a processor that has lost its machine goes to another machine, back to its lender, to
//             the idle list, or out of circulation
//   staff     a processor gets a machine: the one that sleeps with it, a spare one, or a new thread
//   grant     a processor goes to the machine on which a goroutine waits that can run only there
//   acquire   a goroutine that has lost its processor gets its old processor, or any idle one
//   lend      a processor goes to urgent work while the goroutine on its machine computes on; the
//             processor will come back to that machine
//   return    a borrowed processor goes back to its lender, unless the loan has ended
//
// Every function that writes `machine::p`, `processor::holder` or a field of loans and grants is a
// member of class ownership; the compiler refuses other writers (owned.hpp). handoff.hpp decides
// when a processor is taken from a machine that runs user code.
//
// Who may change what, and when:
//   I1  `m->p == p` and `p->holder == m` hold together, except in the middle of a function here.
//       (Another exception: when the process exits, the exiting thread takes the processor of a
//       machine that has been stopped for good.)
//   I2  `p->lender == m` exactly if `m->lent == p`. Then m holds no processor: `m->p` is null.
//   I3  `m->p` changes only: by the machine itself while it is inside and its seat is not `taken`;
//       by a claimer of its seat; under the scheduler's lock while the machine is asleep or its
//       seat is `taken`.
//   I4  `is_returned` is set only while `m->p` is not null. It means that the machine has its
//       processor back from a loan. The machine finds that out at its next entry, because its seat
//       is still `taken`.
//   I5  A held processor is not in the idle list, and neither retired nor starting.
//
// Loans. To lend a processor and to return it must both be quick. When the borrower has nothing to
// run, it returns the processor by setting three pointers. The word on the lender's seat stays at
// `taken`, so the lender cannot touch the processor without the lock. For the same reason the next
// loan needs no membarrier. A machine with `taken` on its seat is in one of these situations:
//
//   p       lent   is_returned
//   null    null   no    it runs without a processor, in a call or computing; or is paused
//   null    set    no    likewise, and `lent` comes back to it when nothing urgent is left
//   set     null   yes   it has its processor back, and finds that out at its next entry
//
// Order of writes, and memory order:
//   hold writes `m->p` first and publishes `holder` last; lose clears `m->p` first. A claimer reads
//   `holder`, claims that machine's seat, and only then compares `m->p` with the processor it
//   wants. So if `holder` was out of date, the claimer loses the claim and nothing else.
//   [OW1] hold's store of `holder` (release) -> the load of a thread that is about to ask or claim
//         (acquire): the machine's seat and its `p`. The store of null when a machine loses its
//         processor is a release, too; no thread relies on that.
//
// tests/model/handoff.pml is this protocol in Promela, checked exhaustively.
#pragma once

#include "sched/machine.hpp"
#include "sched/processor.hpp"

#include <cstdint>

namespace weft::sched {

// What is to be done after unlocking when a processor has left its machine.
struct departure {
  machine* woken = nullptr;   // to be woken: goes on with the processor
  machine* keeper = nullptr;  // to be woken: is the new keeper
  bool is_idle = false;       // the processor is idle: check that no work was overlooked
  void finish() const noexcept;
};

// All functions with `_locked` in their names require the scheduler's lock and the right to touch
// the processor. If such a function returns a machine, the caller wakes that machine after
// unlocking; null means that there is none to wake.
class ownership {
 public:
  // --- for the machine that calls, inside the runtime ------------------------------------------

  // Gives up the caller's processor: to another machine if there is work for it, else to the idle
  // list. If the caller has lent its processor, ends the loan: the processor does not come back.
  static void pass_on_own(machine* m) noexcept;
  // Gives the caller's processor to the machine on which `g` waits.
  static void grant_own(machine* m, goroutine* g) noexcept;
  // Gives a borrowed processor back. Requires: nothing to run. Returns: false if the processor was
  // not borrowed, its lender has gone on without it, or there is something to do after all.
  static bool return_own(machine* m) noexcept;
  // Gets a processor for a goroutine that has lost its own. Returns: false if there is none.
  static bool acquire(machine* m) noexcept;
  static bool acquire_locked(machine* m, machine*& to_wake) noexcept;
  // Waits, perhaps asleep, until a processor has been granted for this machine's goroutine, and
  // then holds it. Calls lie_down() if the machine has to sleep. Returns: the goroutine, or null if
  // the process ends.
  static goroutine* await_grant(machine* m, void (*lie_down)()) noexcept;
  // Goes on with the machine's processor, which may have come back from a loan without the machine
  // having noticed.
  static void keep_locked(machine* m) noexcept;
  // Takes over the processor of a machine that has been stopped for good, when the process exits.
  static void seize_locked(machine* m, processor* p) noexcept;

  // --- a machine and its processor -------------------------------------------------------------

  // `m` goes on with `p`, for which a search is counted already. Requires: `m` sleeps, or starts.
  static void hold_locked(machine* m, processor* p) noexcept;
  // If a processor waits for a new thread, or is numb (the kernel refused it one), `m` goes on with
  // it. Returns: whether there was such a processor.
  static bool hold_waiting_locked(machine* m) noexcept;
  // The processor leaves `m`. Returns: the processor, which is the caller's to pass on.
  static processor* lose_locked(machine* m) noexcept;
  // If a machine sleeps with this idle processor, the machine loses the processor. The machine
  // then goes on with a processor that waits for a thread, or becomes a spare machine.
  static machine* dismiss_sleeper_locked(processor* p) noexcept;

  // --- a processor without a machine -----------------------------------------------------------

  // The processor goes to another machine, back to its lender, or to the idle list.
  static machine* pass_on_locked(processor* p) noexcept;
  // Returns: what has to follow when `p` has been passed on. `woken`: the machine that got `p`, or
  // null.
  static departure after_passing_locked(const processor& p, machine* woken) noexcept;
  // Finds a machine for `p`. Requires: `p` is out of the idle list, and a search is counted for it.
  static machine* staff_locked(processor* p) noexcept;
  // Lends `p`, which `m` has just lost: it goes to urgent work, and comes back to `m`.
  static machine* lend_locked(machine* m, processor* p) noexcept;
  // Gives `p` to the machine on which `g` waits.
  static machine* grant_locked(processor* p, goroutine* g) noexcept;
  // Like grant_locked(), if it is the turn of `g`. Goroutines that were woken on `p` go to the
  // global queue.
  static machine* grant_turn_locked(processor* p, goroutine* g) noexcept;
  // Passes `p` on if there is no thread for it: back to its lender, to the machine of a goroutine
  // that has a thread, or to the idle list.
  static machine* go_without_thread_locked(processor* p) noexcept;
  // For when a new thread does not come. The first processor that waits for a thread is passed on
  // without one. Nothing happens if no processor waits. look_for_others() must follow.
  static machine* rescue_starting_locked() noexcept;

  // --- loans -----------------------------------------------------------------------------------

  // Gives `p` back to its lender.
  static void return_locked(processor* p) noexcept;
  // Ends the loan that `lender` gave, or the loan of `p`: the processor does not come back.
  static void end_loan_locked(machine* lender) noexcept;
  static void end_loan_of_locked(processor& p) noexcept;

 private:
  static void hold(machine* m, processor* p) noexcept;
  static void note_turn(processor& p, std::int64_t now) noexcept;
  static machine* staff_searching_locked(processor* p) noexcept;
};

}  // namespace weft::sched
