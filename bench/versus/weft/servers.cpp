#include "servers.hpp"

#include <weft/go.hpp>
#include <weft/net.hpp>

#ifdef WEFT_BENCH_HTTP
#include <weft/http.hpp>
#endif

#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <utility>

namespace bench {
namespace {

weft::expected<weft::net::listener> listen(std::string_view address) {
  auto l = weft::net::listen("tcp", address);
  if (!l) {
    std::fprintf(stderr, "weft_bench: listen on %s: %s\n", std::string(address).c_str(),
                 l.error().message().c_str());
  }
  return l;
}

}  // namespace

void serve_echo(std::string_view address) {
  auto l = listen(address);
  if (!l) return;
  for (;;) {
    auto c = l->accept();
    if (!c) return;
    weft::go([c = std::move(*c)]() mutable {
      std::byte buffer[4096];
      for (;;) {
        const auto n = c.read(buffer);
        if (!n || *n == 0 || !c.write(std::span(buffer, *n))) return;
      }
    });
  }
}

void serve_http([[maybe_unused]] std::string_view address) {
#ifdef WEFT_BENCH_HTTP
  auto l = listen(address);
  if (!l) return;
  (void)weft::http::serve(*l, [](const weft::http::request&, weft::http::response& out) {
    out.set("Content-Type", "text/plain");
    out.write("hello, world\n");
  });
#else
  std::fprintf(stderr, "weft_bench: built without weft/http.hpp\n");
#endif
}

}  // namespace bench
