// file_size_limit.cpp: a write that the kernel takes a part of and then refuses to go on with.
#include <weft/weft.hpp>

#include <csignal>
#include <fcntl.h>
#include <span>
#include <string>
#include <sys/resource.h>

int main(int, char** arguments) {
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{5000, 5000};
  if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 3;
  return weft::run([&] {
    auto f = weft::os::open(arguments[1], O_RDWR | O_CREAT);
    if (!f) return 4;
    const std::string much(20'000, 'x');
    const auto n = f->write(std::as_bytes(std::span(much)));
    if (n || n.error() != std::errc::file_too_large) return 5;
    return f->size() == 5000u ? 0 : 6;
  });
}
