// expect: an lvalue is copied, and this one cannot be
//
// A send that empties an lvalue surprises a caller that sends it to the next channel, too.
#include <weft/select.hpp>

#include <memory>

void use(const weft::chan<std::unique_ptr<int>>& c, std::unique_ptr<int>& p) {
  weft::select(weft::send(c, p));
}
