// work.hpp: where work waits: hints for threads that look from outside; and how a processor's
// queues are emptied.
#pragma once

#include "sched/processor.hpp"

#include <cstdint>

namespace weft::sched {

// Whether `p` has goroutines in its own queues. A hint, unless the caller may touch `p`.
bool has_work(const processor& p) noexcept;
// Whether `p` would run something if its present goroutine did not. A hint, unless the caller may
// touch `p`.
bool others_want(const processor& p) noexcept;
// Whether a goroutine waits in any queue.
bool work_waits_hint() noexcept;
// Whether a goroutine waits that any idle processor should run at once.
bool is_anyones_work_hint() noexcept;
// Whether a timer is due, or a goroutine that the world woke has no processor (order.hpp, G2).
bool is_urgent_hint(std::int64_t now_ns) noexcept;

// Moves all of a processor's goroutines to the global queue. Requires: the right to touch it.
void share_all(processor& p) noexcept;
// Moves all of a processor's goroutines to the global queue, and its stacks to the pool.
void drain(processor& p) noexcept;

}  // namespace weft::sched
