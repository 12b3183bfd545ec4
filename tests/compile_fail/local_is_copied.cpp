// expect: (use of deleted function|call to (implicitly-)?deleted|deleted .*constructor)
//
// The identity of the variable is its key.
#include <weft/go.hpp>

void use(weft::local<int>& v) {
  weft::local<int> copy = v;
  (void)copy;
}
