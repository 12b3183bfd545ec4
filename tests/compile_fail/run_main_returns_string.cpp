// expect: main returns int or nothing
//
// A main whose result is no status is a mistake.
#include <weft/go.hpp>

#include <string>

int main() {
  return weft::run([] { return std::string("done"); });
}
