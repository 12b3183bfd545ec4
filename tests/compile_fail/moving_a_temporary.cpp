// expect: (no matching function|invalid initialization|cannot bind|expects an lvalue)
//
// moving() says that a variable is meant, which lives on.
#include <weft/select.hpp>

#include <string>

void use(const weft::chan<std::string>& c) {
  weft::selector all;
  all.add(weft::send(c, weft::moving(std::string("a temporary"))));  // refused
  const std::string s;
  all.add(weft::send(c, weft::moving(s)));  // refused
}
