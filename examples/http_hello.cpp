// http_hello.cpp: an HTTP server, its client, and a stop that loses no request.
//
//     http_hello              serves on a free port, asks itself a few things, and stops
//     http_hello 0.0.0.0:8080 serves there until it is killed
#include <weft/http.hpp>
#include <weft/weft.hpp>

#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>

using namespace std::chrono_literals;
namespace http = weft::http;

static void answer(const http::request& in, http::response& out) {
  if (in.target == "/") {
    out.write("hello, world\n");
  } else if (in.target == "/slow") {
    weft::this_goroutine::sleep_for(100ms);  // other requests go on meanwhile
    out.write("here at last\n");
  } else if (in.target == "/count") {
    for (int i = 1; i <= 3; ++i) {
      out.write(std::to_string(i) + "\n");
      if (out.flush()) return;  // the client has gone
      weft::this_goroutine::sleep_for(20ms);
    }
  } else {
    out.status(404);
    out.write("nothing here\n");
  }
}

int main(int argc, char** argv) {
  return weft::run([&] {
    auto listener = weft::net::listen("tcp", argc > 1 ? argv[1] : "127.0.0.1:0");
    if (!listener) {
      std::fprintf(stderr, "listen: %s\n", listener.error().message().c_str());
      return 1;
    }
    const std::string url = "http://" + listener->local_address().to_string();
    std::printf("serving %s\n", url.c_str());
    std::fflush(stdout);
    if (argc > 1) return http::serve(*listener, answer) ? 1 : 0;

    auto [ctx, stop] = weft::with_cancel(weft::context::background());
    auto server = weft::async([&, ctx = ctx] { return http::serve(ctx, *listener, answer); });

    http::client client;  // keeps its connection
    for (const std::string_view path : {"/", "/count", "/nowhere"}) {
      const auto reply = client.get(url + std::string(path));
      if (!reply) return 1;
      std::printf("%s: %d %s", std::string(path).c_str(), reply->status, reply->body.c_str());
    }

    // The stop comes when this one has been asked and not yet been answered.
    auto slow = weft::async([&] { return http::get(url + "/slow"); });
    weft::this_goroutine::sleep_for(30ms);
    stop();
    const auto reply = slow.get();
    std::printf("/slow: %s", reply ? reply->body.c_str() : reply.error().message().c_str());
    return server.get() ? 1 : 0;
  });
}
