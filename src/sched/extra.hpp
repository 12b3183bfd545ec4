// extra.hpp: what only few goroutines have (name, place, goroutine-local values), made and
// destroyed in user mode.
#pragma once

#include "sched/goroutine.hpp"

#include <cstdint>
#include <source_location>
#include <string_view>

namespace weft::sched {

// Gives `g` a name and a place. Throws: std::bad_alloc.
void set_name(goroutine* g, std::string_view name, const std::source_location& where);

// Destroys the extras of `g`, goroutine-local values first, the newest of them first. A destructor
// may make new values; they are destroyed, too.
void destroy_extra(goroutine* g);

// Returns: the value kept under `key` in `g`, or null.
void* find_local(const goroutine* g, std::uint64_t key) noexcept;
// Throws: std::bad_alloc; then `value` has not been taken over.
void add_local(goroutine* g, std::uint64_t key, void* value, void (*destroy)(void*));

}  // namespace weft::sched
