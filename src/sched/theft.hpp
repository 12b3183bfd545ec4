// theft.hpp: how a processor that searches takes work from another one.
//
// The hard part is not to find work but to leave alone what is better left alone: a thief that
// takes a 20 ns goroutine to another core makes both processors slower. So a thief looks at a
// victim every 5 us, and takes half of what the victim has only if
//   - the victim has picked nothing for `patience_ns` while something waits (it computes or
//     blocks), or
//   - something has waited for four times as long.
// A theft has paid if the stolen goroutines kept the thief busy for longer than the theft cost, not
// counting the time they waited for channels that others used; or if the victim still has not
// picked. Each unpaid theft doubles the thief's patience, a paid one resets it.
//
// A thief first asks. The victim sees the question at its next entry into the runtime, and puts
// half of its queue into the thief's mailbox, at the cost of a few stores. If the victim does not
// enter within 1.5 us, the thief claims the victim's seat (seat.hpp) and helps itself. It claims at
// once if the seat's word is a plea to yield. If the victim has its processor back from a loan and
// has not noticed (ownership.hpp), the thief helps itself under the scheduler's lock.
//
// The code that steals is take_half().
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

// Looks at every other processor once, beginning with a random one, and robs the first that is
// worth it. Returns: a goroutine to run, or null; the other stolen goroutines are queued.
goroutine* steal(machine* m, std::int64_t now_ns) noexcept;
// Decides whether the last theft was worth it, now that the goroutines have run, or wait.
void judge_theft(processor& p, std::int64_t now_ns) noexcept;

// --- the victim --------------------------------------------------------------------------------

// Answers a thief's question, at an entry into the runtime.
void hand_over(machine* m, std::uint32_t thief) noexcept;
// Tells the thief that there is nothing. The caller has accepted the question in the owner's stead.
void turn_away(std::uint32_t thief) noexcept;

}  // namespace weft::sched
