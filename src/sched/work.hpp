// work.hpp: where work waits: hints for those who look from outside, and how a processor's queues
// are emptied.
#pragma once

#include "sched/processor.hpp"

#include <cstdint>

namespace weft::sched {

// Whether anything is in its own queues. A hint, unless the caller may touch it.
bool has_work(const processor& p) noexcept;
// Whether anything would run on it if what runs there did not. The same.
bool others_want(const processor& p) noexcept;
// Whether anything waits anywhere.
bool work_waits_hint() noexcept;
// Whether a goroutine waits that an idle processor should run at once, whichever it is.
bool is_anyones_work_hint() noexcept;
// Whether a timer is due, or a goroutine that the world woke has no processor (order.hpp, G2).
bool is_urgent_hint(std::int64_t now_ns) noexcept;

// Moves all of a processor's goroutines to the global queue. Requires: the right to touch it.
void share_all(processor& p) noexcept;
// And its stacks to the pool.
void drain(processor& p) noexcept;

}  // namespace weft::sched
