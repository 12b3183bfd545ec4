// copies.cpp: data that the kernel may move by itself, 512 MiB in each case: from file to file,
// from a file to a connection, from one connection to another.
#include "copies.hpp"

#include "burn.hpp"
#include "require.hpp"

#include <weft/weft.hpp>

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace bench {
namespace {

constexpr std::uint64_t bytes = 512u << 20;
constexpr std::size_t block = 64u << 10;

weft::os::file temporary_file() {
  std::string path = "/tmp/weft_bench.XXXXXX";
  auto f = weft::os::file::adopt(::mkstemp(path.data()));
  require(f && std::remove(path.c_str()) == 0, "copies: a file");
  return std::move(*f);
}

// Returns: a file that holds the data, at its beginning.
weft::os::file filled_file() {
  weft::os::file f = temporary_file();
  const std::vector<std::byte> some(block, std::byte{1});
  for (std::uint64_t n = 0; n < bytes; n += block) {
    require(f.write(some).value_or(0) == block, "copies: filling a file");
  }
  require(f.seek(0).value_or(1) == 0, "copies: seek");
  return f;
}

// Both ends of a TCP connection over the loopback.
std::pair<weft::net::conn, weft::net::conn> connected() {
  auto listener = weft::net::listen("tcp", "127.0.0.1:0");
  require(listener.has_value(), "copies: listen");
  auto accepted = weft::async([&] { return listener->accept(); });
  auto dialed = weft::net::dial("tcp", listener->local_address().to_string());
  auto peer = accepted.get();
  require(dialed && peer, "copies: dial");
  return {std::move(*dialed), std::move(*peer)};
}

std::uint64_t read_all(weft::net::conn& from) {
  std::vector<std::byte> into(block);
  std::uint64_t sum = 0;
  for (;;) {
    const auto n = from.read(std::span(into));
    require(n.has_value(), "copies: read");
    if (*n == 0) return sum;
    sum += *n;
  }
}

template <class F>
void measure(std::string_view name, F&& copy) {
  const double cpu = cpu_ms();
  const auto begin = std::chrono::steady_clock::now();
  require(copy() == bytes, "copies: not all of it arrived");
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  const int procs = weft::max_procs();
  std::printf("%s-cpu %d %.1f ms-cpu\n", name.data(), procs, cpu_ms() - cpu);
  std::printf("%s %d %.1f ms\n", name.data(), procs, took.count());
}

void filecopy() {
  weft::os::file from = filled_file();
  weft::os::file to = temporary_file();
  measure("filecopy", [&] { return weft::os::copy(to, from).value_or(0); });
}

void sendfile() {
  weft::os::file from = filled_file();
  auto [here, there] = connected();
  measure("sendfile", [&, &here = here, &there = there] {
    auto arrived = weft::async([&there] { return read_all(there); });
    require(weft::os::copy(here, from).value_or(0) == bytes, "sendfile");
    here.close();
    return arrived.get();
  });
}

void proxy() {
  auto [client, in] = connected();
  auto [out, server] = connected();
  measure("proxy", [&, &client = client, &in = in, &out = out, &server = server] {
    auto arrived = weft::async([&server] { return read_all(server); });
    weft::go([&client] {
      const std::vector<std::byte> some(block, std::byte{1});
      for (std::uint64_t n = 0; n < bytes; n += block) {
        require(client.write(some).value_or(0) == block, "proxy: write");
      }
      client.close();
    });
    require(weft::net::copy(out, in).value_or(0) == bytes, "proxy");
    out.close();
    return arrived.get();
  });
}

}  // namespace

bool measure_copies(std::string_view name) {
  if (name == "filecopy") {
    filecopy();
  } else if (name == "sendfile") {
    sendfile();
  } else if (name == "proxy") {
    proxy();
  } else {
    return false;
  }
  return true;
}

}  // namespace bench
