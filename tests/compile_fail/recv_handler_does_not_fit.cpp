// expect: the handler of recv takes a std::optional
//
// Nothing is what a closed channel delivers, so a handler that takes a bare T could not be told.
#include <weft/select.hpp>

void use(const weft::chan<int>& c) {
  weft::select(weft::recv(c, [](const char*) {}));
}
