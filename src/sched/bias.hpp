// bias.hpp: a lock that costs one machine nothing while no other thread wants it.
//
// An atomic exchange takes longer than everything else that a channel's send does, and most
// channels are used on one processor for long stretches at a time. So beside its lock a primitive
// has a word that names a machine which need not take the lock. Goroutines of one machine run one
// after the other, and none is switched away from while it is inside the runtime; so they exclude
// each other anyway. Any other machine or thread revokes the bias first, which takes 5 to 16 us.
//
//     the machine named (owner)              revoker, outside the runtime, one at a time
//     enter: store inside = 1                store bias = leaving
//            light barrier                   heavy barrier
//            load bias; itself: uses the     wait until the owner is away: inside == 0, or asleep
//            primitive                       store bias = null
//     leave: store inside = 0
//
// [E1] Store-then-load on both sides, with the flag `inside` of seat.hpp, and as there: either the
// owner sees that the bias is gone, or the revoker sees the owner inside and waits. Once the
// revoker has seen the owner away after the barrier, the owner finds no bias at its next entry.
//
// Invariants:
//   I1  While bias names a machine, only that machine uses the primitive, and only inside the
//       runtime. It leaves the lock alone: another thread may have got the lock, and then acts by
//       I3.
//   I2  bias is set to a machine by that machine, holding the lock. From there a revoker sets it to
//       `leaving` and then to null, under the one lock for all revokers. So no new bias can come
//       between while a thread revokes.
//   I3  A thread that has taken the lock looks at bias again: it may have been set meanwhile.
//   I4  A revoker is outside the runtime: two that wait for each other's machine both go on.
//
// Memory order:
//   [E2] the owner's leave (release) -> the revoker's look at inside (acquire): what the owner did.
//        The same goes for an owner that marks itself asleep, or stopped for good.
//   [E3] the revoker's release of null -> acquire of the thread that finds it.
//   [E4] the owner's store of bias to its own machine -> the revoker: the machine's record.
//
// tests/model/bias_test.cpp walks the interleavings.
#pragma once

#include "base/check.hpp"

#include <atomic>
#include <cstdint>

namespace weft::sched {

struct machine;

// Stands for a machine whose bias is being revoked.
template <class Machine>
inline Machine* const leaving = reinterpret_cast<Machine*>(std::uintptr_t{1});

// The revoker's side, after it has stored `leaving`. Outside the runtime.
template <class Platform, class Machine>
void wait_until_away(const Machine& owner) noexcept {
  Platform::heavy_barrier();                      // [E1]
  for (int turn = 0; !owner.is_away(); ++turn) {  // [E1] [E2]
    if (turn < 100) {
      Platform::pause();
    } else {
      Platform::yield_thread();  // the owner has lost its core
    }
  }
}

// Revokes a bias whose word holds the machine. Requires: no other thread revokes it meanwhile.
template <class Platform, class Machine>
void revoke_bias_alone(typename Platform::template atomic<Machine*>& bias) noexcept {
  const Machine* const owner = bias.load(std::memory_order_acquire);  // [E4]
  if (owner == nullptr) return;
  WEFT_ASSERT_ON(Platform, owner != leaving<Machine>);      // I2
  bias.store(leaving<Machine>, std::memory_order_seq_cst);  // [E1]
  wait_until_away<Platform>(*owner);
  bias.store(nullptr, std::memory_order_release);  // [E3]
}

// Calls revoke(argument) while no other thread revokes: I2.
void revoke_alone(void (*revoke)(void*), void* argument) noexcept;
// Revokes `bias`: afterwards no machine has it. Outside the runtime.
void revoke_bias(std::atomic<machine*>& bias) noexcept;

}  // namespace weft::sched
