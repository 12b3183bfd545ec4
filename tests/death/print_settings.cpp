// print_settings.cpp: prints max_procs() and the bytes of a default stack, after a goroutine ran.
#include "sched/scheduler.hpp"

#include <weft/weft.hpp>

#include <cstdio>

int main() {
  return weft::run([] {
    weft::wait_group all;
    std::size_t bytes = 0;
    all.go([&] { bytes = weft::sched::this_machine()->g->stack->bytes(); });
    all.wait();
    std::printf("%d\n%zu\n", weft::max_procs(), bytes);
  });
}
