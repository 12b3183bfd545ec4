// expect: use of deleted function|call to deleted member function
//
// The temporary is gone at the end of the line, and the selector waits after it.
#include <weft/select.hpp>

#include <string>
#include <utility>

void use(const weft::chan<std::string>& c, std::string& s) {
  weft::selector all;
  all.add(weft::send(c, std::string("a temporary")));                       // refused
  all.add(weft::send(c, std::move(s)));                                     // refused
  all.add(weft::send(weft::sender<std::string>(c), std::string(), [] {}));  // refused
  weft::chan<int> numbers(1);
  all.add(weft::send(numbers, 1));  // refused
  all.add(weft::send(c, s));
  all.add(weft::send(c, weft::moving(s)));
  all.wait();
}
