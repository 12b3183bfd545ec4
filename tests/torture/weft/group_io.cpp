// The groups that talk over sockets and read and write files; see groups.cpp for the others.
#include "program.hpp"

#include <weft/go.hpp>
#include <weft/net.hpp>
#include <weft/os.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <unistd.h>
#include <vector>

namespace torture {
namespace {

[[noreturn]] void failed(const char* what, std::error_code why) {
  std::fprintf(stderr, "%s: %s\n", what, why.message().c_str());
  std::_Exit(4);
}

// The name of this member is about to change; both are taken.
template <class Listener>
std::string address_of(const Listener& l) {
  if constexpr (requires { l.local_address(); }) {
    return l.local_address().to_string();
  } else {
    return l.local_address().to_string();
  }
}

void write_time(weft::net::conn& c) {
  const std::int64_t now = now_ns();
  // The reader may be gone, which it finds out itself.
  (void)c.write(std::as_bytes(std::span(&now, 1)));
}

// Returns: the time that was sent, or 0 at the end of the stream.
std::int64_t read_time(weft::net::conn& c) {
  std::int64_t sent = 0;
  auto left = std::as_writable_bytes(std::span(&sent, 1));
  while (!left.empty()) {
    const auto got = c.read(left);
    if (!got || *got == 0) return 0;
    left = left.subspan(*got);
  }
  return sent;
}

void serve(group& g, weft::net::conn c) {
  for (;;) {
    const std::int64_t began = now_ns();
    const std::int64_t sent = read_time(c);
    if (sent == 0) return;
    g.received(wait::io, sent, began);
    write_time(c);
  }
}

void start_sockets(program& all, group& g) {
  const std::int64_t work = g.number("work_us");
  const std::int64_t every = g.number("every_us");
  auto listener = weft::net::listen("tcp", "127.0.0.1:0");
  if (!listener) failed("listen", listener.error());
  const std::string address = address_of(*listener);
  g.start(counted::no, [&g, l = std::move(*listener)]() mutable {
    for (std::size_t i = 0; i < g.size(); ++i) {
      auto c = l.accept();
      if (!c) failed("accept", c.error());
      g.start(counted::no, [&g, c = std::move(*c)]() mutable { serve(g, std::move(c)); });
    }
  });
  for (std::size_t i = 0; i < g.size(); ++i) {
    g.start(counted::no, [&all, &g, work, every, address, i] {
      auto c = weft::net::dial("tcp", address);
      if (!c) failed("dial", c.error());
      std::int64_t turns = 0;
      for (; g.more(turns); ++turns) {
        g.sleep(every);
        const std::int64_t began = now_ns();
        write_time(*c);
        const std::int64_t sent = read_time(*c);
        if (sent == 0) break;
        g.received(wait::io, sent, began);
        all.compute(work);
      }
      g.made_progress(i, turns);
    });
  }
}

// What was written must be read. How long the disk takes is not metered, only what it does to
// others.
void start_files(program&, group& g) {
  const std::int64_t every = g.number("every_us");
  const auto size = static_cast<std::size_t>(g.number("bytes"));
  for (std::size_t i = 0; i < g.size(); ++i) {
    g.start(counted::no, [&g, every, size, i] {
      std::string name = (std::filesystem::temp_directory_path() / "torture.XXXXXX").string();
      const int fd = ::mkstemp(name.data());
      if (fd < 0) failed("mkstemp", std::error_code(errno, std::generic_category()));
      ::unlink(name.c_str());
      auto file = weft::os::file::adopt(fd);
      if (!file) failed("adopt", file.error());
      std::vector<std::byte> out(size);
      std::vector<std::byte> in(size);
      std::int64_t turns = 0;
      for (; g.more(turns); ++turns) {
        std::memset(out.data(), static_cast<int>(turns % 256), size);
        const std::uint64_t offset = static_cast<std::uint64_t>(turns % 8) * size;
        if (const auto n = file->pwrite(out, offset); !n) failed("pwrite", n.error());
        if (const auto n = file->pread(in, offset); !n) failed("pread", n.error());
        if (in != out) failed("the file holds something else", {});
        g.sleep(every);
      }
      g.made_progress(i, turns);
    });
  }
}

}  // namespace

bool start_io_group(program& all, group& g) {
  if (g.parameters().word() == "sockets") {
    start_sockets(all, g);
  } else if (g.parameters().word() == "files") {
    start_files(all, g);
  } else {
    return false;
  }
  return true;
}

}  // namespace torture
