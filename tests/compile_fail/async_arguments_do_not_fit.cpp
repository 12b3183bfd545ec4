// expect: no matching function for call to .async
//
// async is not there for a call that cannot be made, so that overload resolution may go on.
#include <weft/go.hpp>

int f(int);

void start() { (void)weft::async(f, nullptr); }
