// everyday.cpp: what a user's program does on any day, to be run under the tools that users run
// their programs under: AddressSanitizer with its leak checker, in a weft that was built with it
// and in one that was not, and valgrind. None of them must find anything.
#include <weft/weft.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <unistd.h>

namespace {

using namespace std::chrono_literals;

constexpr int crowd = 100;

void check(bool right, const char* what) {
  if (right) return;
  std::fprintf(stderr, "wrong: %s\n", what);
  std::_Exit(1);
}

// Leaves frames with buffers behind, which are poisoned until the sanitizer is told that they have
// gone.
enum class way { exception, exit };

[[gnu::noinline]] int leave(way how, int depth) {
  std::array<char, 200> text;
  std::snprintf(text.data(), text.size(), "x%d", depth);
  if (depth == 0 && how == way::exit) weft::this_goroutine::exit();
  if (depth == 0) throw std::runtime_error(text.data());
  return leave(how, depth - 1) + text[0];
}

[[gnu::noinline]] std::size_t stand(int depth) {
  std::array<char, 300> text;
  std::snprintf(text.data(), text.size(), "z%d", depth);
  return depth == 0 ? std::string(text.data()).size() : stand(depth - 1) + 1;
}

void unwind() {
  std::atomic<int> caught{0};
  weft::wait_group all;
  for (int i = 0; i < crowd; ++i) {
    all.go([&caught, i] {
      for (int k = 0; k < 10; ++k) {
        try {
          leave(way::exception, k);
        } catch (const std::exception&) {
          ++caught;
        }
        weft::this_goroutine::yield();
        check(stand(k) == 2u + static_cast<unsigned>(k), "a stack that was unwound");
      }
      if (i % 2 == 0) leave(way::exit, i % 7);
    });
  }
  all.wait();
  check(caught == 10 * crowd, "the exceptions");
}

void talk() {
  const weft::chan<std::string> words(4);
  weft::group speakers;
  for (int i = 0; i < 4; ++i) {
    speakers.go([words, i] {
      for (int k = 0; k < crowd; ++k)
        words.send("a word that is too long for its string, " + std::to_string(i));
    });
  }
  int heard = 0;
  int ticks = 0;
  while (heard < 4 * crowd) {
    weft::select(recv(words, [&](std::optional<std::string> word) { heard += word.has_value(); }),
                 weft::after(100ms, [&] { ++ticks; }));
  }
  speakers.wait();
  auto sum = weft::async([] { return std::make_unique<int>(42); });
  check(*sum.get() == 42, "the future");
}

void echo() {
  auto listener = weft::net::listen("tcp", "127.0.0.1:0").value();
  weft::wait_group server;
  server.go([&listener] {
    auto peer = listener.accept();
    std::array<std::byte, 64> buffer;
    while (peer) {
      const auto n = peer->read(buffer);
      if (!n || *n == 0 || !peer->write(std::span(buffer).first(*n))) return;
    }
  });
  auto client = weft::net::dial("tcp", listener.local_address().to_string()).value();
  std::array<std::byte, 16> out{};
  for (int i = 0; i < 20; ++i) {
    out.fill(static_cast<std::byte>(i));
    check(client.write(out).has_value(), "the request");
    std::array<std::byte, 16> in;
    std::size_t got = 0;
    while (got < in.size()) {
      const auto n = client.read(std::span(in).subspan(got));
      check(n && *n > 0, "the answer");
      got += *n;
    }
    check(in == out, "the echo");
  }
  client.close();
  server.wait();
}

void write_and_read() {
  const auto path =
      std::filesystem::temp_directory_path() / ("weft_everyday_" + std::to_string(::getpid()));
  std::array<std::byte, 1000> out;
  out.fill(std::byte{7});
  auto file = weft::os::open(path, O_RDWR | O_CREAT | O_EXCL, 0600).value();
  check(file.pwrite(out, 0).value() == out.size(), "writing");
  check(!file.fsync(), "synchronising");
  std::array<std::byte, 1000> in;
  check(file.pread(in, 0).value() == in.size() && in == out, "reading");
  std::filesystem::remove(path);
}

}  // namespace

// With an argument it takes so long that the runtime has looked after its own, too.
int main(int argc, char**) {
  return weft::run([argc] {
    unwind();
    talk();
    echo();
    write_and_read();
    // What these have captured is in use as long as they wait, and they do when the process ends.
    const weft::chan<int> never;
    static weft::wait_group forgotten;
    for (int i = 0; i < 10; ++i) {
      weft::go(
          [never, p = std::make_unique<int>(i)] { check(never.recv() && *p == 0, "nothing"); });
      forgotten.go(
          [never, p = std::make_unique<int>(i)] { check(never.recv() && *p == 0, "nothing"); });
    }
    weft::this_goroutine::sleep_for(argc > 1 ? 2500ms : 50ms);
    std::puts("an ordinary day");
  });
}
