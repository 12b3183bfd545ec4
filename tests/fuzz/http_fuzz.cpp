// http_fuzz.cpp: any bytes at all, through the server's connection, in memory.
//
// The first byte of an input chooses the handler, the second how the rest is cut into the pieces
// that reads deliver. Besides what the sanitizers see, this must hold:
//
//   - what the server sends is a sequence of answers, complete unless it broke the connection off;
//   - what reaches a handler is a request: a token, a target without blanks, fields without line
//     ends, all of it within the limits;
//   - how the bytes were cut makes no difference to which requests there are;
//   - the buffer stays within its bounds.
#include "http/connection.hpp"
#include "http/parser.hpp"
#include "http/text.hpp"
#include "memory_stream.hpp"

#include <weft/http.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

namespace http = weft::http;
using weft::test::memory_stream;

constexpr std::size_t header_bytes = 600;
constexpr std::size_t body_bytes = 2'000;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "http_fuzz: %s\n", what);
  std::abort();
}

struct plan {
  explicit plan(std::uint8_t byte) : bits(byte) {}
  bool streams() const { return (bits & 1) != 0; }
  bool flushes() const { return (bits & 2) != 0; }
  bool reads_body() const { return (bits & 4) != 0; }
  bool throws() const { return (bits & 8) != 0; }
  bool times_out() const { return (bits & 16) != 0; }
  bool writes_much() const { return (bits & 32) != 0; }
  bool cannot_write() const { return (bits & 64) != 0; }
  std::uint8_t bits;
};

void check_request(const http::request& r) {
  require(http::is_token(r.method), "a method is a token");
  require(!r.target.empty(), "a target is not empty");
  for (const char c : r.target) {
    require(static_cast<unsigned char>(c) > 0x20 && c != 0x7f, "a target has no blanks");
  }
  std::size_t bytes = r.method.size() + r.target.size();
  for (const auto& [name, value] : r.headers) {
    require(http::is_token(name), "a name is a token");
    require(http::is_field_value(value), "a value has no control characters");
    bytes += name.size() + value.size();
  }
  require(bytes <= header_bytes, "the header is within its limit");
  require(r.body.size() <= body_bytes, "the body is within its limit");
}

struct outcome {
  std::vector<std::string> requests;  // "method target body"
  std::vector<std::string> methods;
};

// Answers are complete, and as many as there may be.
void check_answers(std::string_view text, const outcome& o, bool broken_off) {
  std::size_t count = 0;
  while (!text.empty()) {
    const bool head = count < o.methods.size() && o.methods[count] == "HEAD";
    http::message m;
    http::message_parser p(
        {1 << 16, 1 << 24}, m,
        head ? http::message_parser::has_body::never : http::message_parser::has_body::as_it_says);
    while (!p.is_done()) {
      if (text.empty()) {
        // Refused before the handler saw it; it may have been a HEAD.
        if (broken_off || count >= o.methods.size() || p.end()) break;
        require(false, "an answer is complete");
      }
      const http::put_result r = p.put(text);
      text.remove_prefix(r.used);
      require(r.error == 0, "an answer is well-formed");
      if (r.need_more) {
        require(broken_off, "an answer does not end within a line");
        text = {};
      }
    }
    if (m.status >= 200) ++count;
  }
  require(count <= o.methods.size() + 1, "there are no more answers than requests, and a refusal");
}

outcome run(const plan& p, std::vector<std::string> pieces) {
  outcome result;
  memory_stream peer(std::move(pieces));
  if (p.times_out()) peer.at_end = weft::errc::timed_out;
  if (p.cannot_write()) peer.write_error = std::make_error_code(std::errc::broken_pipe);

  http::detail::service shared;
  shared.options.header_bytes = header_bytes;
  shared.options.body_bytes = body_bytes;
  shared.options.buffer_bytes = 100;
  shared.options.on_error = [](const http::request&, const std::exception_ptr&) {};  // expected
  const auto answer = [&](const http::request& in, http::response& out) {
    out.set("X-Target", in.target);
    out.write(in.body);
    if (p.flushes()) (void)out.flush();
    if (p.writes_much()) {
      for (int i = 0; i < 40; ++i) out.write("0123456789");
    }
    if (p.throws() && in.target == "/throw") throw std::runtime_error("thrown");
  };
  const auto note = [&](const http::request& in, const std::string& body) {
    check_request(in);
    result.methods.push_back(in.method);
    result.requests.push_back(in.method + ' ' + in.target + ' ' + body);
  };
  if (p.streams()) {
    shared.by_piece = [&](const http::request& in, http::body_reader& body, http::response& out) {
      note(in, "");
      if (p.reads_body()) {
        std::size_t bytes = 0;
        for (auto piece = body.read(); piece && !piece->empty(); piece = body.read()) {
          bytes += piece->size();
          out.write(*piece);
        }
        require(bytes <= body_bytes, "a streamed body is within its limit");
      }
      answer(in, out);
    };
  } else {
    shared.whole = [&](const http::request& in, http::response& out) {
      note(in, in.body);
      answer(in, out);
    };
  }
  http::detail::connection(peer, shared).run();
  check_answers(peer.output, result, peer.broken_off);
  require(peer.read_bytes_max <= (std::size_t{64} << 10), "the buffer stays within its bounds");
  return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  const plan p(data[0]);
  std::uint32_t random = data[1];
  const std::string text(reinterpret_cast<const char*>(data + 2), size - 2);

  std::vector<std::string> pieces;
  for (std::size_t at = 0; at < text.size();) {
    random = random * 1'664'525u + 1'013'904'223u;
    const std::size_t n = 1 + (random >> 16) % (1 + (random >> 28) * 8);
    pieces.push_back(text.substr(at, n));
    at += n;
  }
  const outcome cut = run(p, std::move(pieces));
  const outcome whole = run(p, {text});
  // A client that is gone is noticed sooner or later.
  if (!p.cannot_write()) require(cut.requests == whole.requests, "where bytes are cut counts");
  return 0;
}
