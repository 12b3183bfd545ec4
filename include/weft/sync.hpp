// weft/sync.hpp: synchronisation between goroutines, and between goroutines and plain threads. Each
// class also has a header of its own.
#pragma once

#include <weft/barrier.hpp>             // IWYU pragma: export
#include <weft/condition_variable.hpp>  // IWYU pragma: export
#include <weft/group.hpp>               // IWYU pragma: export
#include <weft/latch.hpp>               // IWYU pragma: export
#include <weft/mutex.hpp>               // IWYU pragma: export
#include <weft/once.hpp>                // IWYU pragma: export
#include <weft/pool.hpp>                // IWYU pragma: export
#include <weft/semaphore.hpp>           // IWYU pragma: export
#include <weft/shared_mutex.hpp>        // IWYU pragma: export
#include <weft/single_flight.hpp>       // IWYU pragma: export
#include <weft/wait_group.hpp>          // IWYU pragma: export
