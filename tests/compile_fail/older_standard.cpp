// expect: weft needs C..23.*(compilation terminated|[12] errors? generated)
// standard: c++20
//
// Who compiles as C++20 is told so once, and not by a thousand errors about std::expected.
#include <weft/weft.hpp>

int main() {
  return weft::run([] {});
}
