// expect: (nodiscard|declared with attribute|ignoring return)
//
// A result that nobody keeps is nearly always a forgotten wait. This is a warning, so the file
// makes warnings errors.
#pragma GCC diagnostic error "-Wunused-result"
#include <weft/go.hpp>

void start() {
  weft::async([] { return 1; });
}
