// file_too_large.cpp: a write that the kernel takes a part of and then refuses to go on with.
//
//   file_too_large limit FILE FLAGS HOW    the process may not write more to a file
//   file_too_large disk FOLDER FLAGS HOW   a file system that is full then is mounted there first
//   file_too_large ext4 FOLDER FLAGS HOW   the same with ext4 on a loop device, which has O_DIRECT
//
// HOW: pieces (by several writes), write, pwrite, copy (from another file), receive (a copy from a
// connection). It has to fail, and what fitted has to be in the file as it was written; of a copy
// from a file the rest has to be still to be read. Returns: 0, or 77 if nothing can be mounted, or
// what went wrong.
#include <weft/weft.hpp>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <linux/loop.h>
#include <sched.h>
#include <span>
#include <string>
#include <string_view>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <system_error>
#include <unistd.h>

namespace {

constexpr std::size_t room = 64 << 10;
constexpr std::size_t size = 4 * room;

alignas(4096) char lines_data[size];  // on a whole page, as O_DIRECT wants it

std::span<const char> numbered_lines() {
  for (std::size_t at = 0; at < size; at += 16) {
    char line[17];
    std::snprintf(line, sizeof line, "line %010zu\n", at / 16);
    std::copy_n(line, 16, lines_data + at);
  }
  return lines_data;
}

bool write_number(const char* file, const char* format, unsigned number) {
  std::FILE* const f = std::fopen(file, "w");
  if (f == nullptr) return false;
  std::fprintf(f, format, number);
  return std::fclose(f) == 0;
}

// In a user namespace of our own if that is what it takes. Requires: there is no other thread.
bool mount_small_disk(const char* folder) {
  const unsigned user = ::geteuid();
  const unsigned group = ::getegid();
  if (::unshare(CLONE_NEWNS) != 0 && (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 ||
                                      !write_number("/proc/self/uid_map", "0 %u 1", user) ||
                                      !write_number("/proc/self/setgroups", "deny", 0) ||
                                      !write_number("/proc/self/gid_map", "0 %u 1", group))) {
    return false;
  }
  return ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("small", folder, "tmpfs", 0, "size=64k") == 0;
}

// On a loop device that goes with the mount, and that with this process. Leaves `room` bytes.
bool mount_full_ext4(const std::string& folder) {
  const std::string image = folder + ".image";
  const std::string command =
      "mkfs.ext4 -q -F -b 4096 -m 0 -O ^has_journal,^resize_inode " + image + " 8M >/dev/null 2>&1";
  if (::geteuid() != 0 || std::system(command.c_str()) != 0) return false;
  const int control = ::open("/dev/loop-control", O_RDWR | O_CLOEXEC);
  const int backing = ::open(image.c_str(), O_RDWR | O_CLOEXEC);
  loop_config config{};
  config.fd = static_cast<unsigned>(backing);
  config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
  bool is_there = false;
  int device = -1;
  std::string name;
  // Another process may be faster.
  for (int turn = 0; turn < 20 && !is_there; ++turn) {
    name = "/dev/loop" + std::to_string(::ioctl(control, LOOP_CTL_GET_FREE));
    device = ::open(name.c_str(), O_RDWR | O_CLOEXEC);
    is_there = device >= 0 && ::ioctl(device, LOOP_CONFIGURE, &config) == 0;
  }
  is_there = is_there && ::unshare(CLONE_NEWNS) == 0 &&
             ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
             ::mount(name.c_str(), folder.c_str(), "ext4", 0, nullptr) == 0;
  if (device >= 0) ::close(device);
  if (!is_there) return false;
  // Its name is there before the rest is used up.
  ::close(::open((folder + "/file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const int filler = ::open((folder + "/filler").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  off_t used = 0;
  for (ssize_t n = 0; (n = ::write(filler, lines_data, 4096)) > 0;) used += n;
  ::fsync(filler);
  const bool has_room = ::ftruncate(filler, used - static_cast<off_t>(room)) == 0;
  ::fsync(filler);
  ::close(filler);
  ::sync();
  return has_room;
}

bool is_the_end(const std::error_code& e) {
  return e == std::errc::file_too_large || e == std::errc::no_space_on_device;
}

// Returns: the error.
std::error_code copy_from(weft::os::file& source, weft::os::file& to) {
  const auto copied = weft::os::copy(to, source);
  return copied ? std::error_code() : copied.error();
}

std::error_code receive(std::span<const char> text, weft::os::file& to) {
  auto listener = weft::net::listen("tcp", "127.0.0.1:0");
  if (!listener) return listener.error();
  weft::wait_group sender;
  sender.go([&, address = listener->local_address().to_string()] {
    auto c = weft::net::dial("tcp", address);
    if (c) (void)c->write(std::as_bytes(text));
  });
  std::error_code e;
  {
    auto c = listener->accept();
    if (!c) return c.error();
    const auto copied = weft::os::copy(to, *c);
    if (!copied) e = copied.error();
  }
  sender.wait();
  return e;
}

int write_too_much(const std::string& name, int flags, std::string_view how,
                   weft::os::file& source) {
  const std::span<const char> lines = numbered_lines();
  auto f = weft::os::open(name, O_RDWR | O_CREAT | flags);
  if (!f) return 4;
  std::error_code e;
  if (how == "pieces") {
    for (std::size_t at = 0; at < size && !e; at += room / 4) {
      const auto n = f->write(std::as_bytes(lines.subspan(at, room / 4)));
      if (!n) e = n.error();
    }
  } else if (how == "copy") {
    e = copy_from(source, *f);
  } else if (how == "receive") {
    e = receive(lines, *f);
  } else {
    const auto n =
        how == "pwrite" ? f->pwrite(std::as_bytes(lines), 0) : f->write(std::as_bytes(lines));
    if (!n) e = n.error();
  }
  if (!e) return 5;
  if (!is_the_end(e)) return 6;
  if (f->size() != room) return 7;
  auto reader = weft::os::open(name, O_RDONLY);
  std::string text(room, '\0');
  if (!reader || reader->read(std::as_writable_bytes(std::span(text))) != room) return 8;
  if (text != std::string_view(lines.data(), room)) return 9;
  const bool has_moved = source.seek(0, weft::os::seek_from::current) != 0;
  if (has_moved != (how == "copy")) return 10;
  return !has_moved || source.seek(0, weft::os::seek_from::current) == room ? 0 : 11;
}

// With the same lines, before anything is limited.
int make_source(const std::string& name) {
  const int fd = ::open(name.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const std::span<const char> lines = numbered_lines();
  if (fd < 0 || ::write(fd, lines.data(), lines.size()) != static_cast<ssize_t>(lines.size()) ||
      ::lseek(fd, 0, SEEK_SET) != 0) {
    std::_Exit(3);
  }
  return fd;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) return 3;
  ::signal(SIGXFSZ, SIG_IGN);
  std::string name = arguments[2];
  const bool is_disk = std::string_view(arguments[1]) == "disk";
  const int source = make_source(name + ".source");
  if (is_disk) {
    if (!mount_small_disk(arguments[2])) return 77;
    name += "/file";
  } else if (std::string_view(arguments[1]) == "ext4") {
    if (!mount_full_ext4(name)) return 77;
    name += "/file";
  } else {
    const rlimit limit{room, room};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 3;
  }
  return weft::run([&] {
    auto from = weft::os::file::adopt(source);
    return from ? write_too_much(name, std::atoi(arguments[3]), arguments[4], *from) : 3;
  });
}
