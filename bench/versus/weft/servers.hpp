// servers.hpp: the cases that are servers, and run until they are stopped.
#pragma once

#include <string_view>

namespace bench {

// Both return only if they cannot listen there, or, http, if weft was built without it.
void serve_echo(std::string_view address);
void serve_http(std::string_view address);

}  // namespace bench
