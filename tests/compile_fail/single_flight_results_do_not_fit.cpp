// expect: for errors as values use
//
// A function that returns an expected needs a single_flight of expected, which the message says.
#include <weft/single_flight.hpp>

weft::expected<int> load(const weft::context&);

void use(const weft::context& ctx, weft::single_flight<int, int>& flights) {
  (void)flights.run(ctx, 1, load);
}
