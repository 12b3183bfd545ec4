// stop.hpp: stopping all goroutines when the process ends; stop.cpp has the essay.
#pragma once

#include <cstdint>

namespace weft::sched {

// Learns where the C library and the like are mapped. Called once, at the start.
void prepare_stop() noexcept;

// Whether code at `pc` belongs to the C library, the loader or the like. For signal handlers: calls
// nothing.
bool interrupts_libraries(std::uintptr_t pc) noexcept;

// Stops every machine but the caller's, for good. The process ends with `status`. Usually takes a
// few milliseconds at most.
void stop_machines(int status) noexcept;

// From now on no other goroutine runs: each machine but the caller's stops at its next entry into
// the runtime, and no machine is paused any more.
void freeze_goroutines() noexcept;

}  // namespace weft::sched
