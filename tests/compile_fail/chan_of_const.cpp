// expect: a channel carries objects
//
// A value is moved through it, so it cannot be const.
#include <weft/chan.hpp>

void use() {
  const weft::chan<const int> c(1);
  (void)c;
}
