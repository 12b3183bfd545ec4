// theft.hpp: how a processor that searches takes work from another one.
//
// The hard part is not to find work but to leave alone what is better left alone: a thief that
// takes a 20 ns goroutine to another core makes both slower. So a thief looks at a victim every 5
// us (`patience_ns`) and takes half of what it has only if
//   the victim has picked nothing for that long while something waits (it computes or blocks), or
//   something has waited for four times as long.
// A theft has paid when what was stolen kept the thief busy, other than with waiting for channels
// that others use, for longer than the theft cost, or when the victim is still where it was. Each
// unpaid theft doubles the thief's patience, a paid one resets it.
//
// Taking is by question first: the victim sees it at its next entry into the runtime and puts half
// of its queue into the thief's mailbox, at the cost of a few stores. If the victim does not come
// by within 1.5 us the thief claims the victim's seat (seat.hpp) and helps itself; so it does at
// once if the seat's word is a plea to yield, and under the scheduler's lock if the victim has its
// processor back from a loan and has not noticed (ownership.hpp).
//
// The line that steals is in take_half().
//
// Memory order:
//   [M1] the victim's delivery (release) -> the thief (acquire): the mailbox.
//
// Tried and dropped, with figures, in docs/decisions/: wake and steal at once as Go does
// (fine-grained work on two processors is slower than on one); stealing only what has aged 20 us.
#pragma once

#include "sched/machine.hpp"
#include "sched/processor.hpp"

#include <cstdint>

namespace weft::sched {

// --- the thief: inside, holding a processor ----------------------------------------------------

// Looks at every other processor once, beginning with one of them by chance, and robs the first one
// that is worth it. Returns: a goroutine to run, or null; the rest of the loot is queued.
goroutine* steal(machine* m, std::int64_t now_ns) noexcept;
// What was stolen last has been run, or waits: was it worth it?
void judge_theft(processor& p, std::int64_t now_ns) noexcept;

// --- the victim --------------------------------------------------------------------------------

// Answers a thief's question, at an entry into the runtime.
void hand_over(machine* m, std::uint32_t thief) noexcept;
// Tells the thief that there is nothing. The caller has accepted its question for the owner.
void turn_away(std::uint32_t thief) noexcept;

}  // namespace weft::sched
