// closed_descriptors.cpp: other code (a helper that makes daemons, a wrong double close) closes the
// runtime's descriptors under it. A goroutine that needs them must not wait for ever: the process
// ends with a message.
//
// Also when the numbers are given to other files at once ("reused"), to the program's own eventfds
// and epoll instances ("eventfds", "epolls"), or to descriptors that the runtime opens itself for
// the network ("crossed"). Or if only the number of the epoll instance is, and connections stay
// ("swapped").
//
//   closed_descriptors net|file|reused|eventfds|epolls|crossed|waiting|swapped FILE
#include <weft/weft.hpp>

#include <chrono>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <system_error>
#include <unistd.h>

namespace {

using namespace std::chrono_literals;

void talk() {
  auto listener = weft::net::listen("tcp", "127.0.0.1:0");
  if (!listener) return;
  auto there = weft::net::dial("tcp", listener->local_address().to_string());
  auto here = listener->accept();
  weft::wait_group all;
  all.go([&] {
    weft::this_goroutine::sleep_for(1ms);
    (void)there->write("x");
  });
  char text[2];
  (void)here->read(text);
  all.wait();
}

void sync_file(const char* name) {
  auto f = weft::os::open(name, O_RDWR | O_CREAT);
  if (f) (void)f->fsync();
  std::puts(std::string(weft::os::file_backend()).c_str());
}

// What each of the numbers leads to, as in /proc/self/fd.
std::map<int, std::string> open_files() {
  std::map<int, std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto file = std::filesystem::read_symlink(entry.path(), gone);
    if (!gone) found[std::stoi(entry.path().filename())] = file;
  }
  return found;
}

// An eventfd or an epoll instance of the program's, if there was one of the runtime's; under its
// number. Something is ready in the epoll instance.
void put_another(int number, const std::string& kind) {
  int other = -1;
  if (kind == "anon_inode:[eventfd]") other = ::eventfd(0, EFD_CLOEXEC);
  if (kind == "anon_inode:[eventpoll]") {
    other = ::epoll_create1(EPOLL_CLOEXEC);
    epoll_event e{};
    e.events = EPOLLIN;
    e.data.ptr = &e;
    ::epoll_ctl(other, EPOLL_CTL_ADD, ::eventfd(1, EFD_CLOEXEC), &e);
  }
  if (other < 0 || other == number) return;
  ::dup2(other, number);
  ::close(other);
}

// While a connection is there.
void swap_epolls() {
  auto listener = weft::net::listen("tcp", "127.0.0.1:0").value();
  auto there = weft::net::dial("tcp", listener.local_address().to_string()).value();
  auto here = listener.accept().value();
  weft::this_goroutine::sleep_for(20ms);
  for (const auto& [number, kind] : open_files()) {
    if (kind == "anon_inode:[eventpoll]") put_another(number, kind);
  }
  char text[2];
  weft::go([&] { (void)here.read(text); });
  weft::this_goroutine::sleep_for(20ms);
  (void)there.write("x");
  weft::this_goroutine::sleep_for(100ms);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 3;
  const std::string_view what = arguments[1];
  return weft::run([&] {
    const bool is_about_files =
        what == "file" || what == "reused" || what == "crossed" || what == "eventfds";
    if (!is_about_files) talk();
    if (is_about_files) sync_file(arguments[2]);
    std::optional<weft::net::listener> listener;
    if (what == "waiting") {
      listener = weft::net::listen("tcp", "127.0.0.1:0").value();
      weft::go([&] { (void)listener->accept(); });
      weft::this_goroutine::sleep_for(20ms);
    }
    if (what == "swapped") swap_epolls();
    const auto before = open_files();
    ::close_range(3, ~0u, 0);
    if (what == "eventfds" || what == "epolls") {
      for (const auto& [number, kind] : before) put_another(number, kind);
    }
    if (what == "waiting") weft::this_goroutine::sleep_for(100ms);
    if (what == "crossed") {
      for (int i = 0; i < 4; ++i) talk();
    }
    if (what == "reused") {
      for (int i = 0; i < 32; ++i) (void)::open("/dev/null", O_RDWR | O_CLOEXEC);
    }
    if (!is_about_files) talk();
    if (is_about_files) sync_file(arguments[2]);
    return 0;
  });
}
