// expect: (use of deleted function|call to (implicitly-)?deleted|deleted .*constructor)
//
// A copy of a counter counts nothing: as in Go, the most common mistake with a wait group.
#include <weft/sync.hpp>

void wait(weft::wait_group g) { g.wait(); }

void use(weft::wait_group& g) { wait(g); }
