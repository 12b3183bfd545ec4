// expect: takes nothing; run\(ctx, key, f\) gives it a context
//
// A context is given to a call that others than its caller wait for; run(key, f) has none to give.
#include <weft/single_flight.hpp>

void use(weft::single_flight<int, int>& flights) {
  (void)flights.run(1, [](const weft::context&) { return 1; });
}
