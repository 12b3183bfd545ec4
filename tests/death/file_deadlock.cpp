// file_deadlock.cpp: a deadlock after files, pipes and their service have been used.
#include <weft/weft.hpp>

#include <fcntl.h>
#include <span>
#include <string>

int main(int, char** arguments) {
  return weft::run([&] {
    weft::wait_group all;
    for (int i = 0; i < 20; ++i) {
      all.go([&, i] {
        auto f = weft::os::open(std::string(arguments[1]) + std::to_string(i), O_RDWR | O_CREAT);
        const std::string text(100'000, 'x');
        if (f) (void)f->write(std::as_bytes(std::span(text)));
        if (f) (void)f->fsync();
      });
    }
    all.wait();
    auto ends = weft::os::pipe();
    if (!ends || !ends->second.write(std::as_bytes(std::span("x")))) return 3;
    weft::chan<int>().recv();
    return 0;
  });
}
