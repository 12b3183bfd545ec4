// refused_call.cpp: a bit of everything in a sandbox that refuses one system call, or several.
//
//   refused_call NUMBER[,NUMBER...] ERRNO start|later FILE
//
// From the start, or after all of it has been done once. Prints a line for each part that did not
// do what it should: the part and the error. Returns: 0 if it got through, well or not; 77 if there
// is no sandbox to be had.
#include "sandbox.hpp"

#include <weft/weft.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fcntl.h>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <utility>

namespace {

using namespace std::chrono_literals;
using weft::this_goroutine::sleep_for;

std::string file_name;

void expect(bool is_so, const char* what) {
  if (!is_so) throw std::runtime_error(what);
}

template <class T>
T value(weft::expected<T> e, const char* what) {
  if (!e) throw std::runtime_error(std::string(what) + ": " + e.error().message());
  return std::move(*e);
}

void start_goroutines() {
  weft::wait_group all;
  std::atomic<int> ran{0};
  for (int i = 0; i < 2'000; ++i) {
    all.go([&] {
      sleep_for(1ms);
      ++ran;
    });
  }
  all.wait();
  expect(ran == 2'000, "some never ran");
}

void pass_values() {
  const weft::chan<int> numbers(8);
  weft::wait_group all;
  all.go([&] {
    for (int i = 0; i < 1'000; ++i) numbers.send(i);
    numbers.close();
  });
  int sum = 0;
  for (const int n : numbers) sum += n;
  all.wait();
  expect(sum == 499'500, "values were lost");
}

void keep_time() {
  weft::ticker t(2ms);
  for (int i = 0; i < 5; ++i) t.c().recv();
  bool is_late = false;
  const weft::chan<int> silent;
  weft::select(recv(silent, [] {}), weft::after(2ms, [&] { is_late = true; }));
  expect(is_late, "no timeout");
}

void share_with_hogs() {
  const int before = weft::max_procs(1);
  std::atomic<bool> stop{false};
  weft::wait_group hogs;
  for (int i = 0; i < 2; ++i) {
    hogs.go([&] {
      while (!stop.load(std::memory_order_relaxed)) {
      }
    });
  }
  for (int i = 0; i < 3; ++i) sleep_for(2ms);
  stop = true;
  hogs.wait();
  weft::max_procs(before);
}

void block() {
  weft::wait_group all;
  for (int i = 0; i < 8; ++i) {
    all.go([] { ::usleep(5'000); });
    all.go([] { weft::blocking([] { ::usleep(5'000); }); });
  }
  all.wait();
}

void talk() {
  // An error leaves the server to itself.
  const auto listener = std::make_shared<weft::net::listener>(
      value(weft::net::listen("tcp", "127.0.0.1:0"), "listen"));
  listener->set_deadline(2s);
  const auto server = std::make_shared<weft::wait_group>();
  server->go([listener, server] {
    auto c = listener->accept();
    if (!c) {
      std::printf("after net: accept: %s\n", c.error().message().c_str());
      (void)listener->close();  // also refuses the clients that wait to be accepted
    }
    char text[16];
    while (c) {
      const auto n = c->read(text);
      if (!n || *n == 0 || !c->write(std::string_view(text, *n))) return;
    }
  });
  {
    auto c = value(weft::net::dial("tcp", listener->local_address().to_string()), "dial");
    c.set_read_deadline(2s);
    char text[16];
    for (int i = 0; i < 20; ++i) {
      value(c.write("hello"), "write");
      expect(value(c.read(text), "read") == 5, "a short answer");
    }
    c.set_read_deadline(2ms);
    const auto n = c.read(text);
    expect(!n && n.error() == weft::errc::timed_out, "no deadline");
  }
  server->wait();
}

// A connection to itself: its two ends.
std::pair<weft::net::conn, weft::net::conn> connected() {
  auto listener = value(weft::net::listen("tcp", "127.0.0.1:0"), "listen");
  listener.set_deadline(2s);
  auto there = value(weft::net::dial("tcp", listener.local_address().to_string()), "dial");
  auto here = value(listener.accept(), "accept");
  for (weft::net::conn* c : {&here, &there}) c->set_deadline(2s);
  return {std::move(here), std::move(there)};
}

std::string numbered_lines() {
  std::string all;
  for (int i = 0; all.size() < 400'000; ++i) all += "line " + std::to_string(i) + '\n';
  return all;
}

void end(weft::net::conn& c) {
  if (c.close_write()) (void)c.close();
}

// File to file to connection to connection to file, much of it inside the kernel.
void copy_all() {
  const std::string text = numbered_lines();
  auto first = value(weft::os::open(file_name + ".1", O_RDWR | O_CREAT | O_TRUNC), "open");
  auto second = value(weft::os::open(file_name + ".2", O_RDWR | O_CREAT | O_TRUNC), "open");
  auto third = value(weft::os::open(file_name + ".3", O_RDWR | O_CREAT | O_TRUNC), "open");
  const std::string_view parts[] = {std::string_view(text).substr(0, 100),
                                    std::string_view(text).substr(100)};
  for (const std::string_view part : parts) value(first.write(part), "write");
  value(first.seek(0), "seek");
  expect(value(weft::os::copy(second, first), "copy to a file") == text.size(), "a short copy");
  value(second.seek(0), "seek");
  auto [in, to_proxy] = connected();
  auto [from_proxy, out] = connected();
  weft::wait_group all;
  std::atomic<int> well{0};
  all.go([&, &to_proxy = to_proxy] {
    well += weft::os::copy(to_proxy, second) == text.size();
    end(to_proxy);
  });
  all.go([&, &in = in, &from_proxy = from_proxy] {
    well += weft::net::copy(from_proxy, in) == text.size();
    end(from_proxy);
  });
  const auto stored = weft::os::copy(third, out);
  for (weft::net::conn* c : {&in, &out, &from_proxy, &to_proxy}) (void)c->close();
  all.wait();
  expect(value(stored, "copy from a connection") == text.size() && well == 2, "a short copy");
  std::string back(text.size() + 1, ' ');
  const auto size = value(third.pread(back, 0), "read");
  expect(size == text.size() && back.starts_with(text), "a bad copy");
  expect(value(third.size(), "size") == text.size() && !third.truncate(10), "no size");
}

void send_packets() {
  auto here = value(weft::net::listen_packet("udp", "127.0.0.1:0"), "listen");
  auto there = value(weft::net::listen_packet("udp", "127.0.0.1:0"), "listen");
  there.set_read_deadline(2s);
  value(here.write_to("hello", there.local_address()), "send");
  char text[16];
  expect(value(there.read_from(text), "receive").first == 5, "a short packet");
  auto [client, server] = connected();
  const std::span<const std::byte> pieces[] = {std::as_bytes(std::span("one")),
                                               std::as_bytes(std::span("two"))};
  expect(value(client.write(pieces), "write pieces") == 8, "a short write");
  expect(value(server.read(text), "read pieces") == 8, "a short read");
}

void be_signalled() {
  const weft::chan<int> signals(1);
  weft::os::notify(signals, {SIGUSR1});
  expect(::raise(SIGUSR1) == 0, "raise");
  bool came = false;
  weft::select(recv(signals, [&] { came = true; }), weft::after(2s));
  weft::os::stop(signals);
  expect(came, "no signal");
}

void look_names_up() {
  const auto [ctx, cancel] = weft::with_timeout(weft::context::background(), 2s);
  expect(!value(weft::net::resolve(ctx, "localhost"), "resolve").empty(), "no address");
}

void use_files() {
  auto f = value(weft::os::open(file_name, O_RDWR | O_CREAT | O_TRUNC), "open");
  const auto all = std::make_shared<weft::wait_group>();
  std::atomic<int> right{0};
  for (int i = 0; i < 40; ++i) {
    all->go([&, i] {
      const std::string page(4096, static_cast<char>('A' + i));
      const auto at = static_cast<std::uint64_t>(i) * 4096;
      char back[4096];
      if (f.pwrite(page, at) == 4096u && !f.fsync() && f.pread(back, at) == 4096u &&
          page == std::string_view(back, 4096)) {
        ++right;
      }
    });
  }
  all->wait();
  expect(right == 40, "pages differ");
  auto [reader, writer] = value(weft::os::pipe(), "pipe");
  char text[8];
  all->go([all, writer = std::make_shared<weft::os::file>(std::move(writer))] {
    sleep_for(1ms);
    (void)writer->write("hi");
  });
  expect(value(reader.read(text), "read a pipe") == 2, "a short read");
  all->wait();
  // One whose mode belongs to others, too.
  int ends[2];
  expect(::pipe(ends) == 0, "pipe");
  auto shared = value(weft::os::file::adopt(ends[0]), "adopt");
  expect(::write(ends[1], "hi", 2) == 2 && ::close(ends[1]) == 0, "write");
  expect(value(shared.read(text), "read a shared pipe") == 2, "a short read");
}

// A socket with a name in the file system, which goes with it.
void talk_by_name() {
  const std::string path = file_name + ".socket";
  {
    auto listener = value(weft::net::listen("unix", path), "listen");
    listener.set_deadline(2s);
    auto there = value(weft::net::dial("unix", path), "dial");
    auto here = value(listener.accept(), "accept");
    value(there.write("hello"), "write");
    char text[16];
    expect(value(here.read(text), "read") == 5, "a short read");
  }
  expect(::access(path.c_str(), F_OK) != 0, "the name is still there");
}

// All goroutines sleep, and only a thread that is none of weft's can go on: no deadlock.
void wait_for_a_thread() {
  const weft::chan<int> news;
  std::jthread other([&] {
    ::usleep(100'000);
    news.send(1);
  });
  expect(news.recv() == 1, "no news");
}

void try_all(std::string_view when) {
  static const struct {
    const char* name;
    void (*part)();
  } parts[] = {{"files", use_files},  // first: no goroutine is left that anything could wake
               {"threads", wait_for_a_thread},
               {"goroutines", start_goroutines},
               {"channels", pass_values},
               {"time", keep_time},
               {"hogs", share_with_hogs},
               {"blocking", block},
               {"net", talk},
               {"packets", send_packets},
               {"names", look_names_up},
               {"signals", be_signalled},
               {"copies", copy_all},
               {"net", talk_by_name}};
  for (const auto& p : parts) {
    try {
      p.part();
    } catch (const std::exception& e) {
      std::printf("%s %s: %s\n", std::string(when).c_str(), p.name, e.what());
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) return 3;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  file_name = arguments[4];
  const auto enter_sandbox = [&] {
    const int error = std::atoi(arguments[2]);
    const char* numbers = arguments[1];
    for (char* end = nullptr; *numbers != '\0'; numbers = *end == ',' ? end + 1 : end) {
      if (!weft::test::refuse_call(std::strtol(numbers, &end, 10), error)) std::_Exit(77);
    }
  };
  const bool later = std::string_view(arguments[3]) == "later";
  if (!later) enter_sandbox();
  try {
    return weft::run([&] {
      if (later) {
        try_all("before");
        enter_sandbox();
      }
      try_all("after");
      return 0;
    });
  } catch (const std::exception& e) {
    std::printf("after start: %s\n", e.what());
    return 0;
  }
}
