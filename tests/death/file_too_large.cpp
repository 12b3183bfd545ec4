// file_too_large.cpp: a write that the kernel takes a part of and then refuses to go on with.
//
//   file_too_large limit FILE FLAGS    the process may not write more to a file
//   file_too_large disk FOLDER FLAGS   a file system that is full then is mounted there first
//
// The write has to fail, and what fitted has to be in the file as it was written. Returns: 0, or
// 77 if nothing can be mounted, or what went wrong.
#include <weft/weft.hpp>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <sched.h>
#include <span>
#include <string>
#include <sys/mount.h>
#include <sys/resource.h>

namespace {

constexpr std::size_t room = 64 << 10;
constexpr std::size_t size = 4 * room;

// On a whole page, as O_DIRECT wants it.
std::span<char> numbered_lines() {
  const std::span all(static_cast<char*>(std::aligned_alloc(4096, size)), size);
  for (std::size_t at = 0; at < size; at += 16) {
    char line[17];
    std::snprintf(line, sizeof line, "line %010zu\n", at / 16);
    std::copy_n(line, 16, all.data() + at);
  }
  return all;
}

bool mount_small_disk(const char* folder) {
  return ::unshare(CLONE_NEWNS) == 0 &&
         ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("small", folder, "tmpfs", 0, "size=64k") == 0;
}

int write_too_much(const std::string& name, int flags) {
  const std::span<char> lines = numbered_lines();
  auto f = weft::os::open(name, O_RDWR | O_CREAT | flags);
  if (!f) return 4;
  const auto n = f->write(std::as_bytes(lines));
  if (n) return 5;
  if (n.error() != std::errc::file_too_large && n.error() != std::errc::no_space_on_device) {
    return 6;
  }
  if (f->size() != room) return 7;
  auto reader = weft::os::open(name, O_RDONLY);
  std::string text(room, '\0');
  if (!reader || reader->read(std::as_writable_bytes(std::span(text))) != room) return 8;
  return text == std::string_view(lines.data(), room) ? 0 : 9;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) return 3;
  ::signal(SIGXFSZ, SIG_IGN);
  std::string name = arguments[2];
  if (std::string_view(arguments[1]) == "disk") {
    if (!mount_small_disk(arguments[2])) return 77;
    name += "/file";
  } else {
    const rlimit limit{room, room};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 3;
  }
  return weft::run([&] { return write_too_much(name, std::atoi(arguments[3])); });
}
