// The smallest program a user of the installed package writes.
#include <weft/weft.hpp>

int main() {
  return weft::run([] {
    weft::wait_group w;
    int x = 0;
    w.go([&] { x = 42; });
    w.wait();
    return x == 42 ? 0 : 1;
  });
}
