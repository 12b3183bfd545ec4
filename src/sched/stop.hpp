// stop.hpp: stopping all goroutines when the process ends, and what runs after that.
#pragma once

#include <cstdint>

namespace weft::sched {

struct goroutine;
struct machine;

// --- stop.cpp -----------------------------------------------------------------------------------

// Learns where the C library and its kind are mapped. Called once, at the start.
void prepare_stop() noexcept;

// Whether code at `pc` belongs to the C library, the loader or their kind. For handlers: calls
// nothing.
bool interrupts_libraries(std::uintptr_t pc) noexcept;

// Stops every machine but the caller's, for good. The process ends with that status. Waits for at
// most a few milliseconds.
void stop_machines(int status) noexcept;

// --- exit.cpp -----------------------------------------------------------------------------------

// All but `self`, the caller's machine, or null, have stopped: from now on goroutines run on the
// calling thread while it waits.
void begin_exit(machine* self, int status) noexcept;
// Whether it is the one that goes on.
bool is_exiting(const machine* m) noexcept;
// Whether the process exits, and the caller is not one of the goroutines that are stopped then:
// those may still run while they are about to be.
bool runs_at_exit() noexcept;
// Waits until there is a goroutine to run, on the exiting machine, inside. Does not return if there
// will be none.
goroutine* find_at_exit(machine* m) noexcept;
// Runs goroutines on the calling thread, the exiting one, until `self`, its record, has been made
// ready. Parks.
void run_until_ready(goroutine* self) noexcept;
// Lets goroutines run first, if the caller is the exiting thread. Returns: false if it is not.
bool yield_at_exit() noexcept;
// Whether the process has threads that are not the runtime's and do not wait in weft.
bool has_foreign_threads() noexcept;

}  // namespace weft::sched
