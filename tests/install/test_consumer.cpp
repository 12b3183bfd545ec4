// The smallest test a user of the installed package writes.
#include <weft/test.hpp>
#include <weft/weft.hpp>

#include <chrono>

int main() {
  weft::test::bubble([] { weft::this_goroutine::sleep_for(std::chrono::hours(1)); });
  const auto r = weft::test::try_explore({}, [] {
    weft::test::var<int> n{0};
    weft::wait_group all;
    for (int i = 0; i < 2; ++i) all.go([&n] { ++n; });
    all.wait();
  });
  return r.ok ? 1 : 0;
}
