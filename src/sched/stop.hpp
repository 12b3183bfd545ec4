// stop.hpp: stopping all goroutines when the process ends; stop.cpp has the essay.
#pragma once

#include <cstdint>

namespace weft::sched {

// Learns where the C library and its kind are mapped. Called once, at the start.
void prepare_stop() noexcept;

// Whether code at `pc` belongs to the C library, the loader or their kind. For handlers: calls
// nothing.
bool interrupts_libraries(std::uintptr_t pc) noexcept;

// Stops every machine but the caller's, for good. The process ends with that status. Waits for at
// most a few milliseconds.
void stop_machines(int status) noexcept;

// From now on no goroutine runs any more: each machine but the caller's stops at its next entry
// into the runtime, and nobody is paused.
void freeze_goroutines() noexcept;

}  // namespace weft::sched
