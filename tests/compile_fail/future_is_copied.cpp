// expect: (use of deleted function|call to (implicitly-)?deleted|deleted .*constructor)
//
// Two owners of one result would both take it.
#include <weft/go.hpp>

void use(weft::future<int>& f) {
  weft::future<int> copy = f;
  (void)copy;
}
