// expect: the arguments of go do not fit its function
//
// A wrong argument must be told where go is called, not deep inside the library.
#include <weft/go.hpp>

#include <string>

void f(int, std::string);

void start() { weft::go(f, 1); }
