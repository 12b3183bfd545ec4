// expect: a case does nothing until a select has it
//
// send(c, v) beside c.send(v): it makes a case, and sends nothing.
#pragma GCC diagnostic error "-Wunused-result"
#pragma GCC diagnostic error "-Wunused-value"
#include <weft/select.hpp>
#include <weft/time.hpp>

#include <chrono>

void use(const weft::chan<int>& c) {
  weft::send(c, 1);                             // refused
  weft::send(weft::sender<int>(c), 1);          // refused
  weft::recv(c);                                // refused
  weft::recv(weft::receiver<int>(c), [] {});    // refused
  weft::after(std::chrono::seconds(1), [] {});  // refused
  weft::otherwise();                            // refused
  weft::after(std::chrono::seconds(1));         // refused
}
