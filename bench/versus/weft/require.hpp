// require.hpp: a case checks its result, and a wrong one ends the program.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace bench {

inline void require(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "wrong result: %s\n", what);
  std::_Exit(1);
}

}  // namespace bench
