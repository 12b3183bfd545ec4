// closed_descriptors.cpp: other code (a helper that makes daemons, a wrong double close) closes the
// runtime's descriptors under it. A goroutine that needs them must not wait for ever: the process
// ends with a message.
//
// Also when the numbers are given to other files at once ("reused"), or to descriptors that the
// runtime opens itself for the network ("crossed").
//
//   closed_descriptors net|file|reused|crossed|waiting FILE
#include <weft/weft.hpp>

#include <chrono>
#include <cstdio>
#include <fcntl.h>
#include <optional>
#include <string>
#include <string_view>
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

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 3;
  const std::string_view what = arguments[1];
  return weft::run([&] {
    const bool is_about_files = what == "file" || what == "reused" || what == "crossed";
    if (!is_about_files) talk();
    if (is_about_files) sync_file(arguments[2]);
    std::optional<weft::net::listener> listener;
    if (what == "waiting") {
      listener = weft::net::listen("tcp", "127.0.0.1:0").value();
      weft::go([&] { (void)listener->accept(); });
      weft::this_goroutine::sleep_for(20ms);
    }
    ::close_range(3, ~0u, 0);
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
