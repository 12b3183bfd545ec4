// file_backend.cpp: prints how files are read, and that they can be.
#include <weft/weft.hpp>

#include <cstdio>
#include <fcntl.h>
#include <span>
#include <string>
#include <vector>

int main(int, char** arguments) {
  return weft::run([&] {
    auto f = weft::os::open(arguments[1], O_RDWR | O_CREAT);
    const std::string text(1 << 20, 'x');
    if (!f || !f->write(std::as_bytes(std::span(text))) || f->fsync()) return 3;
    ::posix_fadvise(f->native_handle(), 0, 0, POSIX_FADV_DONTNEED);
    std::vector<std::byte> into(text.size());
    if (f->pread(into, 0) != text.size()) return 4;
    std::puts(std::string(weft::os::file_backend()).c_str());
    return 0;
  });
}
