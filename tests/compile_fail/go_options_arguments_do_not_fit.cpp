// expect: the arguments of go do not fit its function
//
// The same for the form with options.
#include <weft/go.hpp>

void f(int&);

// Arguments are decay-copied and passed as rvalues: a reference needs std::ref.
void start() {
  int x = 0;
  weft::go({.name = "f"}, f, x);
}
