// Runs one random program of the torture machine with weft: reads its table from a file, or from
// standard input, and prints what was measured as one JSON object.
//
// A plain thread, the watch, observes the process. It samples the CPU time. That tells whether a
// goroutine had to wait although the process used little CPU, or because the machine was too busy.
// The watch ends the process with status 9 when the program should have been over for ten seconds.
// With TORTURE_STAY in the environment it stays instead, for a debugger.
//
// Status: 0 measured (also if what was measured is bad: ../run judges), 3 a wrong table, 4 an error
// of the system, 9 a hang.
#include "late_threads.hpp"
#include "program.hpp"
#include "table.hpp"

#include <weft/go.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <thread>
#include <unistd.h>

namespace {

std::string read_all(std::istream& in) {
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

[[noreturn]] void watch(const torture::table& t, torture::program& p) {
  constexpr std::int64_t patience_ns = 10'000'000'000;
  for (;;) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(torture::program::sample_ns));
    p.sample_cpu();
    if (torture::now_ns() < p.latest_end_ns() + patience_ns) continue;
    std::fprintf(stderr, "the program hangs:\n%s", t.text.c_str());
    if (std::getenv("TORTURE_STAY") != nullptr) ::pause();
    std::_Exit(9);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::string text;
  if (argc > 1) {
    std::ifstream file(argv[1]);
    text = read_all(file);
  } else {
    text = read_all(std::cin);
  }
  const torture::table t(text);
  weft::max_procs(static_cast<int>(t.head.number("procs")));
  weft::run([&t] {
    torture::program p(t);
    std::thread(watch, std::cref(t), std::ref(p)).detach();
    torture::make_threads_late(t.head.number_or("late_us", 0), t.head.number_or("late_permille", 0),
                               static_cast<std::uint64_t>(t.head.number_or("seed", 1)));
    p.run();
    p.print_json();
    std::_Exit(0);  // the watch still looks at what is on this stack
  });
}
