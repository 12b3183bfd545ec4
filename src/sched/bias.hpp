// bias.hpp: a lock that costs one machine nothing, while nobody else wants it.
//
// An atomic exchange takes longer than all else that a channel's send has to do, and most channels
// are used on one processor for long stretches at a time. So a primitive has, beside its lock, a
// word that names the machine which need not take it. Goroutines of one machine run one after the
// other, and none is switched away from while it is inside the runtime: that is exclusion enough
// among themselves. Any other machine or thread revokes the bias first, which takes 5 to 16 us.
//
//     the machine named (owner)              revoker, outside the runtime, one at a time
//     enter: store inside = 1                store bias = leaving
//            light barrier                   heavy barrier
//            load bias; itself: uses the     wait until the owner is away: inside == 0, or asleep
//            primitive                       store bias = null
//     leave: store inside = 0
//
// [E1] Store-then-load on both sides, as in seat.hpp, whose flag `inside` this is: either the owner
// sees that the bias is gone, or the revoker sees the owner inside and waits for it. Once the owner
// was seen away after the barrier, it finds no bias at its next entry.
//
// Invariants:
//   I1  While bias names a machine, only that machine uses the primitive, only inside the runtime.
//       It leaves the lock alone: somebody may have got that, and is about to see I3.
//   I2  bias is set to a machine by that machine, holding the lock; from there it goes to `leaving`
//       and to null, by a revoker, under the one lock for all of them. So nobody who revokes is
//       overtaken by a new bias.
//   I3  Whoever has taken the lock looks at bias again: it may have been set while it waited.
//   I4  A revoker is outside the runtime: two that wait for each other's machine both go on.
//
// Memory order:
//   [E2] the owner's leave (release) -> the revoker's look at inside (acquire): what the owner did.
//   [E3] the revoker's release of null -> acquire of whoever finds it.
//
// tests/model/bias_test.cpp walks it.
#pragma once

#include <atomic>
#include <cstdint>

namespace weft::sched {

struct machine;

// Stands for a machine whose bias is being revoked.
template <class Machine>
inline Machine* const leaving = reinterpret_cast<Machine*>(std::uintptr_t{1});

// The revoker's side, after it has said so in the word. Outside the runtime.
template <class Platform, class Machine>
void wait_until_away(const Machine& owner) noexcept {
  Platform::heavy_barrier();                      // [E1]
  for (int turn = 0; !owner.is_away(); ++turn) {  // [E1] [E2]
    if (turn < 100) {
      Platform::pause();
    } else {
      Platform::yield_thread();  // it has lost its core
    }
  }
}

// For a word that holds the machine. Requires: nobody else revokes it meanwhile.
template <class Platform, class Machine>
void revoke_bias_alone(typename Platform::template atomic<Machine*>& bias) noexcept {
  const Machine* const owner = bias.load(std::memory_order_acquire);
  if (owner == nullptr) return;
  bias.store(leaving<Machine>, std::memory_order_seq_cst);  // [E1]
  wait_until_away<Platform>(*owner);
  bias.store(nullptr, std::memory_order_release);  // [E3]
}

// Calls revoke(argument) while nobody else is in here: I2.
void revoke_alone(void (*revoke)(void*), void* argument) noexcept;
// Nobody has `bias` afterwards. Outside the runtime.
void revoke_bias(std::atomic<machine*>& bias) noexcept;

}  // namespace weft::sched
