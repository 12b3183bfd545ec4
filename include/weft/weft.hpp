// weft/weft.hpp: everything but weft/test.hpp and weft/http.hpp.
#pragma once

#include <weft/chan.hpp>     // IWYU pragma: export
#include <weft/context.hpp>  // IWYU pragma: export
#include <weft/debug.hpp>    // IWYU pragma: export
#include <weft/go.hpp>       // IWYU pragma: export
#include <weft/net.hpp>      // IWYU pragma: export
#include <weft/os.hpp>       // IWYU pragma: export
#include <weft/select.hpp>   // IWYU pragma: export
#include <weft/sync.hpp>     // IWYU pragma: export
#include <weft/time.hpp>     // IWYU pragma: export
