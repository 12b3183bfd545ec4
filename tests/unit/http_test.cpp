// The HTTP server and client. Most of it in memory, byte for byte; the last part over sockets.
#include "memory_stream.hpp"
#include "plain_socket.hpp"
#include "runtime_fixture.hpp"

#include "http/connection.hpp"
#include "http/date.hpp"
#include "http/parser.hpp"
#include "http/text.hpp"
#include "http/url.hpp"

#include <weft/http.hpp>
#include <weft/net.hpp>
#include <weft/weft.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <dlfcn.h>
#include <exception>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
using namespace std::string_view_literals;
namespace http = weft::http;
using http::detail::connection;
using http::detail::service;
using weft::test::memory_stream;

// ------------------------------------------------------------------------------------- in memory

// One answer, as our own parser sees it.
struct answer {
  int status = 0;
  http::headers headers;
  std::string body;
};

// All answers in `text`; fails if it is not a sequence of answers. `methods` are those of the
// requests, for HEAD.
std::vector<answer> parse_answers(std::string_view text, std::vector<std::string> methods = {}) {
  std::vector<answer> result;
  while (!text.empty()) {
    const bool head = result.size() < methods.size() && methods[result.size()] == "HEAD";
    http::message m;
    http::message_parser p(
        {1 << 20, 1 << 30}, m,
        head ? http::message_parser::has_body::never : http::message_parser::has_body::as_it_says);
    while (!p.is_done()) {
      if (text.empty()) {
        EXPECT_TRUE(p.end()) << "an answer is cut off";
        break;
      }
      const http::put_result r = p.put(text);
      text.remove_prefix(r.used);
      m.body += r.body;
      if (r.error != 0 || r.need_more) {
        ADD_FAILURE() << "no answer: " << text;
        return result;
      }
    }
    result.push_back({m.status, m.headers, m.body});
  }
  return result;
}

// Lets a server's connection have these pieces, and the end of the stream.
struct conversation {
  explicit conversation(std::vector<std::string> pieces) : peer(std::move(pieces)) {
    shared.whole = [this](const http::request& in, http::response& out) {
      seen.push_back(in);
      out.write("hello");
    };
  }

  std::vector<answer> run() {
    connection(peer, shared).run();
    std::vector<std::string> methods;
    for (const http::request& r : seen) methods.push_back(r.method);
    return parse_answers(peer.output, methods);
  }
  // Returns: the only answer's status; 0 if there is none.
  int status() {
    const std::vector<answer> all = run();
    EXPECT_LE(all.size(), 1u);
    return all.empty() ? 0 : all.front().status;
  }

  memory_stream peer;
  service shared;
  std::vector<http::request> seen;
};

constexpr const char* simple = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

int status_of(std::string request) { return conversation({std::move(request)}).status(); }

TEST(http, a_request_is_one_read_and_one_write) {
  conversation c({simple});
  const auto all = c.run();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].status, 200);
  EXPECT_EQ(all[0].body, "hello");
  EXPECT_EQ(all[0].headers["content-length"], "5");
  EXPECT_EQ(all[0].headers["Content-Type"], "text/plain; charset=utf-8");
  EXPECT_EQ(all[0].headers.find("connection"), nullptr);
  EXPECT_EQ(all[0].headers["date"].size(), 29u);
  EXPECT_EQ(c.peer.reads, 2u);  // the second finds the end of the stream
  EXPECT_EQ(c.peer.writes, 1u);
  ASSERT_EQ(c.seen.size(), 1u);
  EXPECT_EQ(c.seen[0].method, "GET");
  EXPECT_EQ(c.seen[0].target, "/");
  EXPECT_EQ(c.seen[0].headers["HOST"], "a");
}

// A client that asks for something quick and then for something slow gets the quick answer at once.
TEST(http, of_pipelined_requests_each_answer_goes_out_before_the_next_handler_is_called) {
  std::string many;
  for (int i = 0; i < 50; ++i) {
    many += "GET /" + std::to_string(i) + " HTTP/1.1\r\nHost: a\r\n\r\n";
  }
  conversation c({many});
  std::size_t called = 0;
  c.shared.whole = [&](const http::request& in, http::response& out) {
    EXPECT_EQ(parse_answers(c.peer.output).size(), called++);
    out.write(in.target);
    if (called % 2 == 0) (void)out.flush();
  };
  const auto all = c.run();
  ASSERT_EQ(all.size(), 50u);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(all[static_cast<std::size_t>(i)].body, "/" + std::to_string(i));
  }
  EXPECT_EQ(c.peer.writes, 75u);
  EXPECT_EQ(c.peer.reads, 2u);
}

// Deadlines are system calls, or at least locks: not one for every request.
TEST(http, deadlines_are_not_set_for_every_request) {
  std::vector<std::string> pieces(1'000, simple);
  conversation c(std::move(pieces));
  EXPECT_EQ(c.run().size(), 1'000u);
  EXPECT_EQ(c.peer.writes, 1'000u);
  EXPECT_LE(c.peer.read_deadlines, 3u);
  EXPECT_LE(c.peer.write_deadlines, 3u);
}

TEST(http, a_request_may_come_in_any_pieces) {
  const std::string text =
      "POST /x?y=1 HTTP/1.1\r\nHost: a\r\nX-Long: one two\t three \r\nContent-Length: 11\r\n\r\n"
      "hello world"
      "POST /chunks HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nX-Trailer: dropped\r\n\r\n"
      "GET /end HTTP/1.1\r\nHost: a\r\n\r\n";
  for (std::size_t size = 1; size <= text.size(); ++size) {
    std::vector<std::string> pieces;
    for (std::size_t i = 0; i < text.size(); i += size) pieces.push_back(text.substr(i, size));
    conversation c(std::move(pieces));
    ASSERT_EQ(c.run().size(), 3u) << size;
    ASSERT_EQ(c.seen.size(), 3u) << size;
    EXPECT_EQ(c.seen[0].body, "hello world");
    EXPECT_EQ(c.seen[0].headers["x-long"], "one two\t three");
    EXPECT_EQ(c.seen[1].body, "hello world");
    EXPECT_EQ(c.seen[1].headers.find("x-trailer"), nullptr);
    EXPECT_EQ(c.seen[2].target, "/end");
  }
}

TEST(http, what_is_no_request_is_a_400) {
  for (const char* bad : {
           "nonsense\r\n\r\n",
           "GET\r\n\r\n",
           "GET / HTTP/1.1\nHost: a\n\n",
           " GET / HTTP/1.1\r\nHost: a\r\n\r\n",
           "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
           "GET / HTTQ/1.1\r\nHost: a\r\n\r\n",
           "GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
           "GET / http/1.1\r\nHost: a\r\n\r\n",
           "G@T / HTTP/1.1\r\nHost: a\r\n\r\n",
           "GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n",
           "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
           "GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n",
           "GET / HTTP/1.1\r\nHost: a\r\n: empty\r\n\r\n",
           "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
           "GET / HTTP/1.1\r\nHost: a\r\nX: a\nb\r\n\r\n",
           "GET / HTTP/1.1\r\n\r\n",                           // no Host
           "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",     // two
           "GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",     // two
           "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",  // folded
           "GET / HTTP/1.1\r\nHost: a\r\nX:\r\n b\r\n\r\n",    // folded, nothing in the first line
           "GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n \r\n\r\n",   // folded, nothing in the second
           "GET / HTTP/1.1\r\nHost: a\r\nX:\r\n\t\r\n\r\n",    // folded, nothing at all
           "GET / HTTP/1.1\r\n X: folded\r\nHost: a\r\n\r\n",
       }) {
    conversation c({bad});
    const auto all = c.run();
    ASSERT_EQ(all.size(), 1u) << bad;
    EXPECT_EQ(all[0].status, 400) << bad;
    EXPECT_EQ(all[0].headers["connection"], "close") << bad;
    EXPECT_TRUE(c.seen.empty()) << bad;
    EXPECT_TRUE(c.peer.write_closed) << "the answer may be lost to a reset";
  }
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: a\r\nX: nul "s + '\0' + "\r\n\r\n"), 400);
}

// Two servers on one way must not see different ends of a request.
TEST(http, requests_whose_end_is_ambiguous_are_refused) {
  const std::string post = "POST / HTTP/1.1\r\nHost: a\r\n";
  const std::string smuggled = "\r\n0\r\n\r\nGET /evil HTTP/1.1\r\nHost: a\r\n\r\n";
  for (const char* fields : {
           "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
           "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
           "Transfer-Encoding: gzip\r\nContent-Length: 5\r\n",
           "Content-Length: 5\r\nTransfer-Encoding: identity\r\n",
           "Content-Length: 5\r\nContent-Length: 6\r\n",
           "Content-Length: 5, 6\r\n",
           "Content-Length: -5\r\n",
           "Content-Length: +5\r\n",
           "Content-Length: 0x5\r\n",
           "Content-Length: 5 5\r\n",
           "Content-Length: \r\n",
           "Content-Length: 99999999999999999999999\r\n",
           "Transfer-Encoding: xchunked\r\n",
           "Transfer-Encoding: chunked, identity\r\n",
           "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
           "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
           "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
           "Transfer-Encoding:\r\n chunked\r\n",
           "Transfer-Encoding: \"chunked\"\r\n",
           "Transfer-Encoding : chunked\r\n",
       }) {
    conversation c({post + fields + smuggled});
    const auto all = c.run();
    ASSERT_EQ(all.size(), 1u) << fields;
    EXPECT_EQ(all[0].status, 400) << fields;
    EXPECT_TRUE(c.seen.empty()) << fields;
  }
  // Where the end is clear but the meaning is not.
  EXPECT_EQ(status_of(post + "Transfer-Encoding: gzip, chunked\r\n" + smuggled), 501);
  EXPECT_EQ(status_of(post + "Transfer-Encoding: chunked;q=1\r\n" + smuggled), 501);
  EXPECT_EQ(status_of("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400);
}

TEST(http, chunks_that_are_none_are_refused) {
  const std::string post = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const char* body :
       {"x\r\n", "-1\r\n", "5\r\nhelloX\r\n0\r\n\r\n", "5 \n", "\r\n\r\n", "fffffffffffffffff\r\n",
        "5\r\nhello\r\n0\r\nbad trailer\r\n\r\n", "0\r\nContent-Length: 5\r\n\r\n", "1;=\r\n",
        "1\rx", "5;a=\"\n\"\r\nhello\r\n0\r\n\r\n", "5;a=\"\x01\"\r\nhello\r\n0\r\n\r\n"}) {
    conversation c({post + body});
    const auto all = c.run();
    ASSERT_EQ(all.size(), 1u) << body;
    EXPECT_EQ(all[0].status, 400) << body;
    EXPECT_TRUE(c.seen.empty()) << body;
  }
}

TEST(http, chunk_headers_are_bounded_together) {
  std::string text = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string extended = "1;" + std::string(100, 'e');
  for (int i = 0; i < 1'000; ++i) text += extended + "\r\nx\r\n";
  EXPECT_EQ(status_of(text + "0\r\n\r\n"), 400);
  std::string zeros = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string padded(100, '0');
  for (int i = 0; i < 1'000; ++i) zeros += padded + "1\r\nx\r\n";
  EXPECT_EQ(status_of(zeros + "0\r\n\r\n"), 400);
  // Tiny chunks alone are honest.
  std::string tiny = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 100'000; ++i) tiny += "1\r\nx\r\n";
  EXPECT_EQ(status_of(tiny + "0\r\n\r\n"), 200);
  // One that never ends does not fill the memory.
  conversation c({"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;"});
  c.shared.options.header_bytes = 8'192;
  c.peer.before_read = [](memory_stream& s) { s.push(std::string(1'000, 'e')); };
  EXPECT_EQ(c.status(), 400);
  EXPECT_LT(c.peer.reads, 2'000u);
}

TEST(http, versions) {
  EXPECT_EQ(status_of("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), 505);
  EXPECT_EQ(status_of("GET / HTTP/0.9\r\nHost: a\r\n\r\n"), 505);
  EXPECT_EQ(status_of("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);

  conversation old({"GET / HTTP/1.0\r\n\r\n", simple});
  const auto all = old.run();
  ASSERT_EQ(all.size(), 1u);  // and the connection is closed
  EXPECT_EQ(all[0].headers["connection"], "close");

  conversation kept({"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "GET / HTTP/1.0\r\n\r\n"});
  const auto both = kept.run();
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].headers["connection"], "keep-alive");
}

TEST(http, no_tunnels_and_no_other_expectations) {
  EXPECT_EQ(status_of("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n"), 501);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n"), 417);
}

TEST(http, other_methods_reach_the_handler) {
  conversation c({"BREW /pot HTTP/1.1\r\nHost: a\r\n\r\n"});
  EXPECT_EQ(c.status(), 200);
  EXPECT_EQ(c.seen.at(0).method, "BREW");
}

TEST(http, empty_lines_before_a_request_are_dropped) {
  conversation c({"\r\n"s + simple, "\r", "\n", simple});
  EXPECT_EQ(c.run().size(), 2u);
  EXPECT_EQ(status_of("\r\n\r\n\r\n\r\n\r\n\r\n\r\n"s + simple), 400);
}

TEST(http, headers_are_bounded) {
  const auto with = [](std::string text, std::size_t limit) {
    conversation c({std::move(text)});
    c.shared.options.header_bytes = limit;
    return c.status();
  };
  const std::string start = "GET / HTTP/1.1\r\nHost: a\r\n";
  EXPECT_EQ(with(start + "X: " + std::string(200, 'x') + "\r\n\r\n", 100), 431);
  EXPECT_EQ(with(start + "X: y\r\n\r\n", 100), 200);
  EXPECT_EQ(with("GET /" + std::string(200, 'x') + " HTTP/1.1\r\nHost: a\r\n\r\n", 100), 414);
  // To the byte, and in the sum of first line and fields.
  const std::string exact = start + "X: " + std::string(70, 'x') + "\r\n\r\n";
  EXPECT_EQ(with(exact, exact.size()), 200);
  EXPECT_EQ(with(exact, exact.size() - 1), 431);
  std::string many = start;
  while (many.size() < 70'000) many += "X: y\r\n";
  EXPECT_EQ(with(many + "\r\n", http::serve_options().header_bytes), 431);

  // One that never ends.
  conversation c({start});
  c.peer.before_read = [](memory_stream& s) { s.push("X: y\r\nLonger: " + std::string(90, 'z')); };
  EXPECT_EQ(c.status(), 431);
  EXPECT_LT(c.peer.reads, 4'000u);  // and some after the answer, that it may arrive
}

TEST(http, bodies_are_bounded) {
  const auto with = [](std::string text) {
    conversation c({std::move(text)});
    c.shared.options.body_bytes = 10;
    return c.status();
  };
  const std::string post = "POST / HTTP/1.1\r\nHost: a\r\n";
  EXPECT_EQ(with(post + "Content-Length: 10\r\n\r\n0123456789"), 200);
  EXPECT_EQ(with(post + "Content-Length: 11\r\n\r\n01234567890"), 413);
  EXPECT_EQ(with(post + "Transfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n0\r\n\r\n"), 200);
  EXPECT_EQ(with(post + "Transfer-Encoding: chunked\r\n\r\n6\r\n012345\r\n5\r\n01234\r\n0\r\n\r\n"),
            413);
}

TEST(http, large_bodies_come_whole) {
  std::string body(3'000'000, '\0');
  for (std::size_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>(i * 7);
  std::string text =
      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n";
  conversation c({text + body + simple});
  c.shared.whole = [&](const http::request& in, http::response& out) {
    c.seen.push_back(in);
    out.write(in.body);  // longer than buffer_bytes: in chunks
  };
  const auto all = c.run();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_TRUE(c.seen.at(0).body == body);
  EXPECT_TRUE(all[0].body == body);
  EXPECT_EQ(all[0].headers["transfer-encoding"], "chunked");
  EXPECT_LE(c.peer.read_bytes_max, 65'536u);
}

TEST(http, a_slow_header_is_a_408_and_an_idle_connection_just_ends) {
  conversation slow({"GET / HTT"});
  slow.peer.at_end = weft::errc::timed_out;
  EXPECT_EQ(slow.status(), 408);

  conversation body({"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe"});
  body.peer.at_end = weft::errc::timed_out;
  EXPECT_EQ(body.status(), 408);
  EXPECT_TRUE(body.seen.empty());

  conversation idle({simple});
  idle.peer.at_end = weft::errc::timed_out;
  EXPECT_EQ(idle.run().size(), 1u);
}

// Each byte in time must not make a header last for ever: its deadline stands from the first one.
TEST(http, the_deadline_of_a_header_does_not_move) {
  std::vector<std::string> bytes;
  for (const char* c = simple; *c != '\0'; ++c) bytes.push_back({*c});
  conversation c(std::move(bytes));
  std::vector<weft::clock::time_point> deadlines;
  c.peer.before_read = [&](memory_stream& s) { deadlines.push_back(s.read_deadline); };
  const auto begin = weft::clock::now();
  EXPECT_EQ(c.status(), 200);
  ASSERT_GT(deadlines.size(), 20u);
  EXPECT_GE(deadlines[0], begin + c.shared.options.read);
  for (std::size_t i = 2; i < 20; ++i) EXPECT_EQ(deadlines[i], deadlines[1]);
  EXPECT_LT(deadlines[1], weft::clock::now() + c.shared.options.read + 1ms);
}

// A client that has sent much of a body quickly would otherwise have bought hours of silence.
TEST(http, the_deadline_of_a_body_is_never_further_away_than_read) {
  const std::string piece(65'536, 'x');
  conversation c({"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " +
                  std::to_string(100 * piece.size()) + "\r\n\r\n"});
  for (int i = 0; i < 99; ++i) c.peer.push(piece);
  c.peer.at_end = weft::errc::timed_out;
  std::size_t checked = 0;
  c.peer.before_read = [&](memory_stream& s) {
    if (s.reads < 2 || s.write_closed) return;
    EXPECT_LE(s.read_deadline, weft::clock::now() + c.shared.options.read);
    ++checked;
  };
  EXPECT_EQ(c.status(), 408);
  EXPECT_GE(checked, 100u);
}

// One that comes with less than body_rate has no more than `read`, however long it is.
TEST(http, a_body_that_trickles_has_what_its_bytes_are_worth) {
  conversation c({"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2048\r\n\r\n"});
  for (int i = 0; i < 1024; ++i) c.peer.push("x");
  c.peer.at_end = weft::errc::timed_out;
  const auto begin = weft::clock::now();
  weft::clock::time_point last{};
  c.peer.before_read = [&](memory_stream& s) {
    if (!s.write_closed) last = s.read_deadline;
  };
  EXPECT_EQ(c.status(), 408);
  // All of them came at once: what is ahead is `read`, and not a second more for each KiB.
  EXPECT_LE(last, weft::clock::now() + c.shared.options.read);
  EXPECT_GE(last, begin + c.shared.options.read);
}

TEST(http, a_connection_that_ends_within_a_request_is_no_request) {
  conversation c({"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel"});
  EXPECT_EQ(c.status(), 400);
  EXPECT_TRUE(c.seen.empty());
  conversation lost({"GET / HTTP/1.1\r\nHo"});
  lost.peer.at_end = std::make_error_code(std::errc::connection_reset);
  EXPECT_EQ(lost.status(), 0);
}

TEST(http, connection_close_ends_it) {
  conversation c({"GET / HTTP/1.1\r\nHost: a\r\nConnection: foo, close\r\n\r\n"s + simple});
  const auto all = c.run();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].headers["connection"], "close");

  conversation by_handler({std::string(simple) + simple});
  by_handler.shared.whole = [](const http::request&, http::response& out) {
    out.set("connection", "Close");
  };
  EXPECT_EQ(by_handler.run().size(), 1u);

  conversation counted({simple, simple, simple, simple});
  counted.shared.options.requests = 3;
  const auto three = counted.run();
  ASSERT_EQ(three.size(), 3u);
  EXPECT_EQ(three[1].headers.find("connection"), nullptr);
  EXPECT_EQ(three[2].headers["connection"], "close");
}

TEST(http, head_has_the_head_of_get) {
  conversation c({"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", simple});
  const auto all = c.run();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].headers["content-length"], "5");
  EXPECT_TRUE(all[0].body.empty());
  EXPECT_EQ(all[1].body, "hello");

  conversation flushed({"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", simple});
  flushed.shared.whole = [&](const http::request& in, http::response& out) {
    flushed.seen.push_back(in);
    out.write("a");
    (void)out.flush();
    out.write("b");
  };
  const auto both = flushed.run();
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].headers["transfer-encoding"], "chunked");
  EXPECT_EQ(both[1].body, "ab");

  conversation declared({"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n"});
  declared.shared.whole = [&](const http::request& in, http::response& out) {
    declared.seen.push_back(in);
    out.set("Content-Length", "12345");
  };
  EXPECT_EQ(declared.run().at(0).headers["content-length"], "12345");

  // One that spares itself the work says nothing of GET's length; the next answer is found anyway.
  conversation early({"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", simple, "HEAD / HTTP/1.0\r\n\r\n"});
  early.shared.whole = [&](const http::request& in, http::response& out) {
    early.seen.push_back(in);
    if (in.method != "HEAD") out.write("hello");
  };
  const auto three = early.run();
  ASSERT_EQ(three.size(), 3u);
  EXPECT_EQ(three[0].headers.find("content-length"), nullptr);
  EXPECT_EQ(three[0].headers.find("connection"), nullptr);
  EXPECT_EQ(three[1].headers["content-length"], "5");
  EXPECT_EQ(three[2].headers.find("content-length"), nullptr);

  // To GET an empty body is one of a known length.
  conversation empty({simple});
  empty.shared.whole = [](const http::request&, http::response&) {};
  EXPECT_EQ(empty.run().at(0).headers["content-length"], "0");
}

TEST(http, answers_without_a_body_have_none) {
  for (const int status : {204, 304}) {
    conversation c({simple, simple});
    c.shared.whole = [&](const http::request&, http::response& out) {
      out.status(status);
      out.write("dropped");
    };
    const auto all = c.run();
    ASSERT_EQ(all.size(), 2u);
    EXPECT_EQ(all[0].status, status);
    EXPECT_TRUE(all[0].body.empty());
    EXPECT_EQ(all[0].headers.find("content-length"), nullptr);
    EXPECT_EQ(c.peer.output.find("dropped"), std::string::npos);
  }
}

TEST(http, expect_100_continue) {
  const std::string head =
      "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
  conversation c({head, "hello"});
  std::string before_body;
  c.peer.before_read = [&](memory_stream& s) {
    if (s.reads == 2) before_body = s.output;
  };
  const auto all = c.run();
  EXPECT_EQ(before_body, "HTTP/1.1 100 Continue\r\n\r\n");
  ASSERT_EQ(all.size(), 2u);  // the 100, too
  EXPECT_EQ(all[1].status, 200);
  EXPECT_EQ(c.seen.at(0).body, "hello");

  conversation at_once({head + "hello"});
  EXPECT_EQ(at_once.status(), 200);

  conversation refused({head});
  refused.shared.options.body_bytes = 4;
  EXPECT_EQ(refused.status(), 413);
}

// The time to write counts from when there is something to write, not from the last answer.
TEST(http, a_100_continue_after_a_long_silence) {
  conversation c({simple,
                  "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
                  "hello"});
  c.shared.options.write = 300ms;
  c.peer.before_read = [](memory_stream& s) {
    if (s.reads != 2) return;
    while (weft::clock::now() < s.write_deadline) std::this_thread::sleep_for(5ms);
  };
  const auto all = c.run();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[1].status, 100);
  EXPECT_EQ(all[2].status, 200);
}

TEST(http, an_exception_is_a_500_and_ends_the_connection) {
  conversation c({std::string(simple) + simple});
  c.shared.whole = [&](const http::request& in, http::response& out) {
    c.seen.push_back(in);
    out.set("X-Secret", "x");
    out.write("half an answer");
    throw std::runtime_error("secret");
  };
  const auto all = c.run();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].status, 500);
  EXPECT_EQ(all[0].headers["connection"], "close");
  EXPECT_EQ(all[0].headers.find("x-secret"), nullptr);
  EXPECT_EQ(c.peer.output.find("secret"), std::string::npos);
  EXPECT_EQ(c.peer.output.find("half"), std::string::npos);
  EXPECT_EQ(c.seen.size(), 1u);
}

// What is on stderr after one request to that handler.
template <class Handler>
std::string said_of(std::string request, Handler h, http::serve_options options = {}) {
  conversation c({std::move(request)});
  c.shared.options = std::move(options);
  c.shared.whole = [&](const http::request& in, http::response& out) { h(in, out); };
  ::testing::internal::CaptureStderr();
  connection(c.peer, c.shared).run();
  std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(c.peer.broken_off || parse_answers(c.peer.output).at(0).status == 500);
  return said;
}

// The client is told nothing, so somebody else has to be.
TEST(http, an_exception_is_a_line_on_stderr) {
  const std::string request = "DELETE /a?b HTTP/1.1\r\nHost: a\r\n\r\n";
  EXPECT_EQ(said_of(request, [](auto&, auto&) { throw std::runtime_error("no such row"); }),
            "weft: http handler for DELETE /a?b: no such row\n");
  EXPECT_EQ(said_of(request, [](auto&, auto&) { throw 1; }),
            "weft: http handler for DELETE /a?b: an exception that is no std::exception\n");
  EXPECT_EQ(
      said_of(request, [](auto&, auto& out) { out.set("Connection", "keep-alive"); }),
      "weft: http handler for DELETE /a?b: weft::http: Connection can only be set to close\n");
  // The client has a part of the answer.
  EXPECT_EQ(said_of(simple,
                    [](auto&, auto& out) {
                      (void)out.flush();
                      throw std::runtime_error("half");
                    }),
            "weft: http handler for GET /: half\n");
}

// The line contains the client's text, which may be meant to attack the terminal that shows it.
TEST(http, a_line_on_stderr_is_printable_and_bounded) {
  const std::string request = std::string(5'000, 'M') + " /caf\xc3\xa9" + std::string(5'000, 't') +
                              " HTTP/1.1\r\nHost: a\r\n\r\n";
  const std::string what = "\x1b[2J\nweft: \x9b" + std::string(5'000, 'w');
  const std::string said = said_of(request, [&](auto&, auto&) { throw std::runtime_error(what); });
  EXPECT_TRUE(said.starts_with("weft: http handler for MMM")) << said;
  EXPECT_NE(said.find("MMM... /caf??ttt"), std::string::npos) << said;
  EXPECT_NE(said.find("ttt...: ?[2J?weft: ?www"), std::string::npos) << said;
  EXPECT_TRUE(said.ends_with("www...\n")) << said;
  EXPECT_EQ(said.find('\n'), said.size() - 1);
  EXPECT_LE(said.size(), 1'000u);
}

TEST(http, on_error_gets_the_exception_instead) {
  std::string told;
  const auto throws = [](auto&, auto&) { throw std::runtime_error("x"); };
  const auto listens = [&](const http::request& in, std::exception_ptr e) {
    try {
      std::rethrow_exception(e);
    } catch (const std::runtime_error& x) {
      told = in.method + ' ' + in.target + ' ' + x.what();
    }
  };
  EXPECT_EQ(said_of(simple, throws, {.on_error = listens}), "");
  EXPECT_EQ(told, "GET / x");
  // One that fails itself does not cost the client its answer.
  const auto fails = [](const http::request&, std::exception_ptr) {
    throw std::runtime_error("disk full");
  };
  EXPECT_EQ(said_of(simple, throws, {.on_error = fails}),
            "weft: http on_error for GET /: disk full\n");
}

TEST(http, an_exception_in_a_stream_must_not_look_like_its_end) {
  conversation c({simple, simple});
  c.shared.whole = [](const http::request&, http::response& out) {
    out.write("half");
    (void)out.flush();
    throw 1;
  };
  connection(c.peer, c.shared).run();
  EXPECT_TRUE(c.peer.broken_off);
  EXPECT_TRUE(c.peer.output.ends_with("4\r\nhalf\r\n"));
  EXPECT_EQ(c.peer.left(), 1u);
}

TEST(http, nobody_smuggles_a_line_into_a_head) {
  conversation c({simple});
  int refused = 0;
  c.shared.whole = [&](const http::request&, http::response& out) {
    const auto expect_refused = [&](std::string_view name, std::string_view value) {
      try {
        out.set(name, value);
        ADD_FAILURE() << name << ": " << value;
      } catch (const std::invalid_argument&) {
        ++refused;
      }
      EXPECT_THROW(out.add(name, value), std::invalid_argument);
    };
    expect_refused("X", "a\r\nSet-Cookie: b");
    expect_refused("X", "a\nb");
    expect_refused("X", "a\rb");
    expect_refused("X", std::string_view("a\0b", 3));
    expect_refused("X\r\nY", "a");
    expect_refused("X:", "a");
    expect_refused("X Y", "a");
    expect_refused("", "a");
    expect_refused("Transfer-Encoding", "chunked");
    expect_refused("Content-Length", "-1");
    expect_refused("Connection", "upgrade");
    EXPECT_THROW(out.status(100), std::invalid_argument);
    EXPECT_THROW(out.status(1000), std::invalid_argument);
    out.set("X", "caf\xc3\xa9\tok");
  };
  const auto all = c.run();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(refused, 11);
  EXPECT_EQ(all[0].headers["x"], "caf\xc3\xa9\tok");
  EXPECT_EQ(all[0].headers.find("set-cookie"), nullptr);
}

TEST(http, headers_of_an_answer) {
  conversation c({simple});
  c.shared.whole = [](const http::request&, http::response& out) {
    out.status(404);
    out.set("X-One", "1");
    out.set("x-one", "2");
    out.add("Set-Cookie", "a");
    out.add("Set-Cookie", "b");
    out.set("Content-Type", "application/json");
    out.set("Date", "today");
    out.write("{}");
  };
  const auto all = c.run();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_TRUE(c.peer.output.starts_with("HTTP/1.1 404 Not Found\r\n"));
  std::multimap<std::string, std::string> fields;
  for (const auto& [name, value] : all[0].headers) fields.emplace(name, value);
  EXPECT_EQ(fields.count("X-One") + fields.count("x-one"), 1u);
  EXPECT_EQ(all[0].headers["x-one"], "2");
  EXPECT_EQ(fields.count("Set-Cookie"), 2u);
  EXPECT_EQ(fields.count("Content-Type"), 1u);
  EXPECT_EQ(fields.count("Date"), 1u);
  EXPECT_EQ(all[0].headers["date"], "today");
}

TEST(http, a_status_may_be_anybodys) {
  conversation c({simple});
  c.shared.whole = [](const http::request&, http::response& out) { out.status(799); };
  EXPECT_EQ(c.status(), 799);
  EXPECT_TRUE(c.peer.output.starts_with("HTTP/1.1 799 \r\n"));
}

TEST(http, a_flushed_body_goes_out_in_chunks) {
  conversation c({simple, simple});
  std::vector<std::size_t> sent;
  c.shared.whole = [&](const http::request&, http::response& out) {
    out.set("X", "y");
    for (int i = 0; i < 3; ++i) {
      out.write("tick ");
      EXPECT_FALSE(out.flush());
      sent.push_back(c.peer.output.size());
    }
    EXPECT_THROW(out.set("Y", "z"), std::logic_error);
    EXPECT_THROW(out.status(201), std::logic_error);
    out.write("end");
  };
  const auto all = c.run();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].body, "tick tick tick end");
  EXPECT_EQ(all[0].headers["transfer-encoding"], "chunked");
  EXPECT_EQ(all[0].headers.find("content-length"), nullptr);
  EXPECT_LT(sent.at(0), sent.at(1));
}

TEST(http, a_flushed_body_ends_with_the_connection_for_http_1_0) {
  conversation c({"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", simple});
  c.shared.whole = [](const http::request&, http::response& out) {
    out.write("a");
    (void)out.flush();
    out.write("b");
  };
  const auto all = c.run();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].body, "ab");
  EXPECT_EQ(all[0].headers.find("transfer-encoding"), nullptr);
  EXPECT_EQ(all[0].headers["connection"], "close");
}

TEST(http, a_flushed_body_with_a_content_length) {
  const auto with = [](std::size_t bytes, conversation& c) {
    c.shared.whole = [bytes](const http::request&, http::response& out) {
      out.set("Content-Length", "10");
      (void)out.flush();
      for (std::size_t i = 0; i < bytes; ++i) out.write("x");
    };
    connection(c.peer, c.shared).run();
  };
  conversation exact({simple, simple});
  with(10, exact);
  const auto all = parse_answers(exact.peer.output);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].body, "xxxxxxxxxx");
  EXPECT_EQ(all[0].headers.find("transfer-encoding"), nullptr);
  for (const std::size_t wrong : {9, 11}) {
    conversation c({simple, simple});
    with(wrong, c);
    EXPECT_TRUE(c.peer.broken_off) << wrong;
    EXPECT_EQ(c.peer.left(), 1u) << wrong;
  }
}

TEST(http, a_collected_body_with_a_content_length) {
  const auto with = [](std::size_t bytes, conversation& c) {
    c.shared.whole = [bytes](const http::request&, http::response& out) {
      out.set("Content-Length", "10");
      out.write(std::string(bytes, 'x'));
    };
    connection(c.peer, c.shared).run();
  };
  conversation exact({simple, simple});
  with(10, exact);
  EXPECT_EQ(parse_answers(exact.peer.output).size(), 2u);
  conversation early({simple, simple});
  with(9, early);
  EXPECT_TRUE(early.peer.broken_off);
  EXPECT_TRUE(early.peer.output.ends_with("\r\n\r\nxxxxxxxxx"));
  EXPECT_NE(early.peer.output.find("Content-Length: 10\r\n"), std::string::npos);
  conversation late({simple, simple});
  with(11, late);
  const auto all = parse_answers(late.peer.output);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].status, 500);
}

// A file of that size, which is gone when it is closed.
weft::os::file file_of(const std::string& text) {
  const std::string path = "/tmp/weft-test-" + std::to_string(::getpid()) + ".http";
  auto f = weft::os::open(path, O_RDWR | O_CREAT | O_TRUNC).value();
  ::unlink(path.c_str());
  EXPECT_EQ(f.pwrite(std::as_bytes(std::span(text)), 0).value_or(0), text.size());
  return f;
}

TEST(http, a_file_is_a_body_with_its_length) {
  for (const std::size_t size : {0, 10, 16'384, 16'385, 1'000'000}) {
    std::string text(size, '\0');
    for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 7);
    conversation c({simple, "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", simple});
    c.shared.whole = [&](const http::request& in, http::response& out) {
      c.seen.push_back(in);
      weft::os::file f = file_of(text);
      EXPECT_FALSE(out.write_file(f));
    };
    const auto all = c.run();
    ASSERT_EQ(all.size(), 3u) << size;
    EXPECT_TRUE(all[0].body == text) << size;
    EXPECT_TRUE(all[2].body == text) << size;
    EXPECT_EQ(all[0].headers["content-length"], std::to_string(size));
    if (size != 0) {
      EXPECT_EQ(all[1].headers["content-length"], std::to_string(size));
    }
    EXPECT_EQ(c.peer.files_sent != 0, size > 16'384);
  }
}

TEST(http, a_file_may_be_a_part_of_a_body) {
  const std::string text(100'000, 'f');
  const auto body_of = [&](auto handler) {
    conversation c({simple, simple});
    c.shared.whole = [&](const http::request&, http::response& out) {
      weft::os::file f = file_of(text);
      handler(f, out);
    };
    const auto all = c.run();
    EXPECT_EQ(all.size(), 2u);
    return all.empty() ? std::string() : all[0].body;
  };
  const auto around = [](weft::os::file& f, http::response& out) {
    out.write("<");
    EXPECT_FALSE(out.write_file(f));
    out.write(">");
  };
  const std::string marked = "<" + text + ">";
  EXPECT_TRUE(body_of(around) == marked);
  EXPECT_TRUE(body_of([&](weft::os::file& f, http::response& out) {
                out.set("Content-Length", std::to_string(text.size() + 2));
                around(f, out);
              }) == marked);
  EXPECT_TRUE(body_of([&](weft::os::file& f, http::response& out) {
                (void)out.flush();
                around(f, out);
              }) == marked);
  EXPECT_TRUE(body_of([&](weft::os::file& f, http::response& out) {
                EXPECT_FALSE(out.write_file(f, 50'000));
              }) == text.substr(0, 50'000));
  EXPECT_EQ(body_of([](weft::os::file& f, http::response& out) {
              (void)f.close();
              EXPECT_EQ(out.write_file(f), weft::errc::closed);
              out.write("no");
            }),
            "no");
}

// It must not look as if it were complete.
TEST(http, a_file_that_is_too_long_or_too_short_breaks_the_connection_off) {
  const std::string text(100'000, 'f');
  for (const int more : {-1, 1}) {
    conversation c({simple, simple});
    c.shared.options.on_error = [](const http::request&, std::exception_ptr) {};
    c.shared.whole = [&](const http::request&, http::response& out) {
      out.set("Content-Length", std::to_string(static_cast<int>(text.size()) + more));
      weft::os::file f = file_of(text);
      (void)out.write_file(f);
    };
    connection(c.peer, c.shared).run();
    EXPECT_TRUE(c.peer.broken_off) << more;
    EXPECT_EQ(c.peer.left(), 1u);
  }
}

TEST(http, a_client_that_is_gone_ends_the_work) {
  conversation c({simple, simple});
  c.peer.write_error = std::make_error_code(std::errc::broken_pipe);
  int rounds = 0;
  c.shared.whole = [&](const http::request&, http::response& out) {
    while (!out.flush() && rounds < 100) {
      out.write("x");
      ++rounds;
    }
  };
  connection(c.peer, c.shared).run();
  EXPECT_EQ(rounds, 0);
  EXPECT_EQ(c.peer.left(), 1u);
}

TEST(http, a_streaming_handler_reads_piece_by_piece) {
  conversation c({"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n", "0123", "456789",
                  "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
                  "3\r\ncde\r\n0\r\n\r\n", simple});
  c.shared.whole = nullptr;
  c.shared.by_piece = [](const http::request& in, http::body_reader& body, http::response& out) {
    EXPECT_TRUE(in.body.empty());
    for (;;) {
      const auto piece = body.read();
      ASSERT_TRUE(piece) << piece.error().message();
      if (piece->empty()) break;
      out.write("[");
      out.write(*piece);
      out.write("]");
    }
    EXPECT_TRUE(body.read()->empty());
  };
  const auto all = c.run();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].body, "[0123][456789]");
  EXPECT_EQ(all[1].body, "[ab][cde]");
  EXPECT_EQ(all[2].body, "");
}

TEST(http, a_body_nobody_reads_is_skipped_if_it_is_short) {
  const auto with = [](std::size_t bytes) {
    conversation c({"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(bytes) +
                        "\r\n\r\n" + std::string(bytes, 'x'),
                    simple});
    c.shared.whole = nullptr;
    c.shared.by_piece = [](const http::request&, http::body_reader&, http::response& out) {
      out.write("no");
    };
    return c.run();
  };
  const auto both = with(1'000);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].headers.find("connection"), nullptr);
  const auto one = with(1'000'000);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].headers["connection"], "close");
}

// Only the end of a chunked body tells how long it is. A server that answers before the end cannot
// promise to read the rest. A client that relied on the connection would lose its next request.
TEST(http, an_answer_before_the_end_of_a_chunked_body_closes_the_connection) {
  const std::string head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  std::string long_body;
  for (int i = 0; i < 100; ++i) long_body += "1000\r\n" + std::string(0x1000, 'x') + "\r\n";
  const auto read_all = [](http::body_reader& body) {
    for (auto piece = body.read(); piece && !piece->empty(); piece = body.read()) continue;
  };
  const auto ignores = [](http::body_reader&, http::response& out) { out.write("no"); };
  const auto flushes_first = [&](http::body_reader& body, http::response& out) {
    (void)out.flush();
    read_all(body);
  };
  const auto reads = [&](http::body_reader& body, http::response& out) {
    read_all(body);
    (void)out.flush();
  };
  const auto with = [&](const std::string& body, auto handler) {
    conversation c({head + body + "0\r\n\r\n", simple});
    c.shared.whole = nullptr;
    c.shared.by_piece = [&](const http::request&, http::body_reader& in, http::response& out) {
      handler(in, out);
    };
    return c.run();
  };
  for (const std::string& body : {long_body, "2\r\nab\r\n"s}) {
    for (const auto& early : {with(body, ignores), with(body, flushes_first)}) {
      ASSERT_EQ(early.size(), 1u);
      EXPECT_EQ(early[0].headers["connection"], "close");
    }
    const auto both = with(body, reads);
    ASSERT_EQ(both.size(), 2u);
    EXPECT_EQ(both[0].headers.find("connection"), nullptr);
  }
}

TEST(http, a_body_that_nobody_wanted_is_not_waited_for) {
  conversation c(
      {"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n", simple});
  c.shared.whole = nullptr;
  c.shared.by_piece = [](const http::request&, http::body_reader&, http::response& out) {
    out.write("no");
  };
  const auto all = c.run();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].headers["connection"], "close");
}

TEST(http, a_streaming_handlers_own_time_is_not_the_clients) {
  conversation c({"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n", "ab", "cd"});
  c.shared.whole = nullptr;
  std::vector<weft::clock::time_point> deadlines;
  c.peer.before_read = [&](memory_stream& s) { deadlines.push_back(s.read_deadline); };
  c.shared.by_piece = [](const http::request&, http::body_reader& body, http::response&) {
    ASSERT_TRUE(body.read());
    std::this_thread::sleep_for(30ms);
    ASSERT_TRUE(body.read());
  };
  EXPECT_EQ(c.run().size(), 1u);
  ASSERT_GE(deadlines.size(), 3u);
  EXPECT_GE(deadlines[2] - deadlines[1], 30ms);
}

TEST(http, an_error_of_a_streamed_body_is_answered) {
  conversation c({"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"});
  c.shared.whole = nullptr;
  std::error_code seen;
  c.shared.by_piece = [&](const http::request&, http::body_reader& body, http::response& out) {
    out.write("collected and dropped");
    const auto piece = body.read();
    if (!piece) seen = piece.error();
  };
  EXPECT_EQ(c.status(), 400);
  EXPECT_EQ(seen, std::errc::bad_message);
}

// A handler's output must survive that of the connection's own, in between.
TEST(http, what_was_written_before_the_body_was_read_is_kept) {
  conversation c(
      {"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n", "abc"});
  c.shared.whole = nullptr;
  c.shared.by_piece = [](const http::request&, http::body_reader& body, http::response& out) {
    out.write("before ");
    const auto piece = body.read();
    ASSERT_TRUE(piece);
    out.write(*piece);
  };
  const auto all = c.run();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].status, 100);
  EXPECT_EQ(all[1].body, "before abc");
}

TEST(http, stopping_answers_what_has_begun_and_ends) {
  conversation c({std::string(simple) + simple, simple});
  c.shared.whole = [&](const http::request& in, http::response& out) {
    c.seen.push_back(in);
    c.shared.now = service::phase::stopping;
    out.write("last");
  };
  const auto all = c.run();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].body, "last");
  EXPECT_EQ(all[0].headers["connection"], "close");

  conversation idle({simple});
  idle.shared.now = service::phase::stopping;
  EXPECT_EQ(idle.run().size(), 0u);
  EXPECT_EQ(idle.peer.reads, 0u);
}

// The deadline that wakes idle connections may reach one that has just begun a request.
TEST(http, a_stop_does_not_time_out_a_request_that_has_begun) {
  for (const auto limit : {std::chrono::nanoseconds(10s), std::chrono::nanoseconds(0)}) {
    conversation c({"GET / HTTP/1.1\r\n"});
    c.shared.options.read = limit;
    c.peer.at_end = weft::errc::timed_out;
    // The second read times out early; then the rest comes.
    c.peer.before_read = [&](memory_stream& s) {
      if (s.reads == 2) c.shared.now = service::phase::stopping;
      if (s.reads == 3) s.push("Host: a\r\n\r\n");
    };
    EXPECT_EQ(c.status(), 200);
    EXPECT_GE(c.peer.reads, 3u);
  }
}

TEST(http, a_second_request_like_the_first_keeps_the_first_ones_nothing) {
  conversation c(
      {"POST /long/target HTTP/1.1\r\nHost: a\r\nX: y\r\nContent-Length: 3\r\n\r\nabc", simple});
  EXPECT_EQ(c.run().size(), 2u);
  EXPECT_EQ(c.seen.at(1).target, "/");
  EXPECT_EQ(c.seen.at(1).body, "");
  EXPECT_EQ(c.seen.at(1).headers.size(), 1u);
}

// ------------------------------------------------------------------------------------------ nouns

TEST(http_headers, find_add_set_erase) {
  http::headers h{{"A", "1"}, {"b", "2"}};
  EXPECT_EQ(h.size(), 2u);
  EXPECT_EQ(h["a"], "1");
  EXPECT_EQ(h["B"], "2");
  EXPECT_EQ(h["c"], "");
  EXPECT_EQ(h.find("c"), nullptr);
  h.add("a", "3");
  EXPECT_EQ(h["A"], "1");
  h.set("A", *h.find("b"));
  EXPECT_EQ(h["A"], "2");
  EXPECT_EQ(h.size(), 2u);
  http::headers copy = h;
  EXPECT_EQ(copy.erase(copy.begin()->name), 1u);
  EXPECT_EQ(copy.size(), 1u);
  EXPECT_EQ(h.size(), 2u);
  const http::headers moved = std::move(h);
  EXPECT_EQ(moved.size(), 2u);
  copy.clear();
  EXPECT_TRUE(copy.empty());
  copy.add("x", "y");
  EXPECT_EQ(copy["x"], "y");
  int n = 0;
  for (auto& [name, value] : moved) n += static_cast<int>(name.size() + value.size());
  EXPECT_EQ(n, 4);
}

TEST(http_text, a_long_string_gives_its_memory_back) {
  std::string s(10'000, 'x');
  http::clear(s, 10'000);
  EXPECT_TRUE(s.empty());
  EXPECT_GE(s.capacity(), 10'000u);
  http::clear(s, 4'096);
  EXPECT_LT(s.capacity(), 4'096u);
}

TEST(http_text, a_field_value_has_no_control_characters_anywhere) {
  for (std::size_t size = 1; size <= 20; ++size) {
    for (std::size_t at = 0; at < size; ++at) {
      for (int c = 0; c < 256; ++c) {
        std::string text(size, 'x');
        text[at] = static_cast<char>(c);
        const bool is_good = (c >= 0x20 && c != 0x7f) || c == '\t';
        ASSERT_EQ(http::is_field_value(text), is_good) << c << " at " << at << " of " << size;
      }
    }
  }
}

TEST(http_url, parts) {
  const auto u = http::url::parse("http://example.org/a?b#c");
  ASSERT_TRUE(u);
  EXPECT_EQ(u->address, "example.org:80");
  EXPECT_EQ(u->host, "example.org");
  EXPECT_EQ(u->target, "/a?b");
  const auto v6 = http::url::parse("HTTP://[::1]:8080?x");
  ASSERT_TRUE(v6);
  EXPECT_EQ(v6->address, "[::1]:8080");
  EXPECT_EQ(v6->host, "[::1]:8080");
  EXPECT_EQ(v6->target, "/?x");
  EXPECT_EQ(http::url::parse("https://a/").error(), std::errc::protocol_not_supported);
  EXPECT_EQ(http::url::parse("ftp://a/").error(), std::errc::protocol_not_supported);
  for (const char* bad : {"", "a", "/a", "http:/a", "http://", "http:///a", "http://:80/",
                          "http://a:0/", "http://a:65536/", "http://a:x/", "http://u:p@a/",
                          "http://a b/", "http://a/ b", "http://a/\r\nX: y", "http://[::1/",
                          "http://[]/", "http://[::1]x/", "://a", "http://a\\b/"}) {
    const auto parsed = http::url::parse(bad);
    EXPECT_FALSE(parsed) << bad;
    if (!parsed) {
      EXPECT_EQ(parsed.error(), std::errc::invalid_argument) << bad;
    }
  }
}

TEST(http_date, is_the_time_of_day) {
  http::date_cache cache;
  const std::string text(cache.at(weft::clock::now()));
  std::tm parsed{};
  ASSERT_NE(::strptime(text.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &parsed), nullptr) << text;
  const auto seconds = ::timegm(&parsed);
  EXPECT_LE(std::abs(static_cast<double>(::time(nullptr) - seconds)), 2);
  char again[64];
  std::strftime(again, sizeof again, "%a, %d %b %Y %H:%M:%S GMT", &parsed);
  EXPECT_EQ(text, again);
}

// -------------------------------------------------------------------------------------- sockets

class http_sockets : public weft::test::runtime_test {};

// A server that runs until stop().
class live_server {
 public:
  explicit live_server(http::handler h, http::serve_options options = {})
      : listener_(weft::net::listen("tcp", "127.0.0.1:0").value()),
        address_(listener_.local_address().to_string()),
        stopper_(weft::with_cancel(weft::context::background())),
        result_(weft::async([this, handler = std::move(h), options] {
          return http::serve(stopper_.ctx, listener_, handler, options);
        })) {}
  ~live_server() {
    if (result_.valid()) stop();
  }

  std::string address() const { return address_; }
  std::string url(std::string_view path = "/") const {
    return "http://" + address() + std::string(path);
  }
  void begin_to_stop() { stopper_.cancel(); }
  std::error_code stop() {
    stopper_.cancel();
    return result_.get();
  }
  std::error_code wait() { return result_.get(); }
  weft::net::listener& listener() { return listener_; }

 private:
  weft::net::listener listener_;
  const std::string address_;
  weft::cancellable stopper_;
  weft::future<std::error_code> result_;
};

weft::net::conn connect(const std::string& address) {
  return weft::net::dial("tcp", address).value();
}
void send(weft::net::conn& c, std::string_view text) {
  ASSERT_TRUE(c.write(std::as_bytes(std::span(text))));
}
// Reads until the text ends like that, or the stream does.
std::string read_until(weft::net::conn& c, std::string_view end) {
  std::string all;
  char buffer[4096];
  while (!all.ends_with(end) || end.empty()) {
    const auto n = c.read(std::as_writable_bytes(std::span(buffer)));
    if (!n) {
      ADD_FAILURE() << n.error().message() << " after: " << all;
      break;
    }
    if (*n == 0) break;
    all.append(buffer, *n);
  }
  return all;
}
std::string read_all(weft::net::conn& c) { return read_until(c, ""); }

void echo(const http::request& in, http::response& out) {
  out.set("X-Method", in.method);
  out.write(in.target);
  out.write(in.body);
}

TEST_F(http_sockets, serve_and_get) {
  live_server server(echo);
  const auto m = http::get(server.url("/path?q"));
  ASSERT_TRUE(m) << m.error().message();
  EXPECT_EQ(m->status, 200);
  EXPECT_EQ(m->body, "/path?q");
  EXPECT_EQ(m->headers["x-method"], "GET");
  const auto p = http::send("POST", server.url("/"), {{"X", "y"}}, std::string(100'000, 'b'));
  ASSERT_TRUE(p) << p.error().message();
  EXPECT_EQ(p->body.size(), 100'001u);
  const auto h = http::send("HEAD", server.url("/abc"));
  ASSERT_TRUE(h);
  EXPECT_EQ(h->headers["content-length"], "4");
  EXPECT_EQ(h->body, "");
  EXPECT_FALSE(server.stop());
}

TEST_F(http_sockets, a_file_is_sent) {
  std::string text(5'000'000, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7 + i / 1000);
  live_server server([&](const http::request&, http::response& out) {
    weft::os::file f = file_of(text);
    EXPECT_FALSE(out.write_file(f));
  });
  http::client client;
  for (int i = 0; i < 3; ++i) {
    const auto m = client.get(server.url());
    ASSERT_TRUE(m) << m.error().message();
    EXPECT_TRUE(m->body == text);
    EXPECT_EQ(m->headers["content-length"], std::to_string(text.size()));
  }
}

TEST_F(http_sockets, a_client_keeps_its_connection) {
  live_server server(echo, {.connections = 1});
  http::client client;
  for (int i = 0; i < 1'000; ++i) {
    const auto m = client.get(server.url("/" + std::to_string(i)));
    ASSERT_TRUE(m) << m.error().message();
    ASSERT_EQ(m->body, "/" + std::to_string(i));
  }
  EXPECT_FALSE(server.stop());
}

TEST_F(http_sockets, many_clients_at_a_time) {
  live_server server(echo);
  weft::wait_group all;
  std::atomic<int> good{0};
  for (int g = 0; g < 50; ++g) {
    all.go([&] {
      http::client client;
      for (int i = 0; i < 20; ++i) {
        const auto m = client.request("POST", server.url("/"), {}, "x");
        if (m && m->body == "/x") good.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  all.wait();
  EXPECT_EQ(good.load(), 1'000);
}

TEST_F(http_sockets, pipelined_requests_over_a_socket) {
  live_server server(echo);
  weft::net::conn c = connect(server.address());
  std::string text;
  for (int i = 0; i < 200; ++i) {
    text += "GET /" + std::to_string(i) + " HTTP/1.1\r\nHost: a\r\n\r\n";
  }
  send(c, text + "GET /end HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  const auto all = parse_answers(read_all(c));
  ASSERT_EQ(all.size(), 201u);
  for (std::size_t i = 0; i < 200; ++i) EXPECT_EQ(all[i].body, "/" + std::to_string(i));
}

TEST_F(http_sockets, a_quick_answer_does_not_wait_for_a_slow_one) {
  weft::chan<std::monostate> go_on;
  live_server server([&](const http::request& in, http::response& out) {
    if (in.target == "/slow") go_on.recv();
    out.write(in.target);
  });
  weft::net::conn c = connect(server.address());
  c.set_read_deadline(weft::clock::now() + 20s);
  send(c, "GET /quick HTTP/1.1\r\nHost: a\r\n\r\nGET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_TRUE(read_until(c, "/quick").ends_with("/quick"));
  go_on.send({});
  EXPECT_TRUE(read_until(c, "/slow").ends_with("/slow"));
}

TEST_F(http_sockets, a_slow_client_gets_a_408) {
  live_server server(echo, {.read = 50ms});
  weft::net::conn c = connect(server.address());
  send(c, "GET / HTTP/1.1\r\nHos");
  const auto all = parse_answers(read_all(c));
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].status, 408);
}

TEST_F(http_sockets, an_idle_client_is_closed) {
  live_server server(echo, {.idle = 50ms});
  weft::net::conn c = connect(server.address());
  EXPECT_EQ(read_all(c), "");
}

// The server need not wait long for a client that has not said anything yet.
TEST_F(http_sockets, a_silent_client_has_the_time_of_a_header) {
  live_server server(echo, {.idle = 60s, .read = 400ms});
  weft::net::conn c = connect(server.address());
  c.set_read_deadline(20s);
  EXPECT_EQ(read_all(c), "");
  // From its first answer on it may be idle.
  weft::net::conn kept = connect(server.address());
  kept.set_read_deadline(20s);
  for (int i = 0; i < 2; ++i) {
    send(kept, simple);
    EXPECT_TRUE(read_until(kept, "\r\n\r\n/").ends_with("/"));
    weft::this_goroutine::sleep_for(600ms);
  }
}

TEST_F(http_sockets, a_body_that_stops_coming_is_a_408) {
  live_server server(echo, {.read = 500ms, .body_rate = 1});
  weft::net::conn c = connect(server.address());
  c.set_deadline(20s);
  send(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
  send(c, std::string(999'999, 'x'));
  const auto all = parse_answers(read_all(c));
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].status, 408);
}

std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t all = 0;
  std::size_t resident = 0;
  statm >> all >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// Many clients that ask for much and read nothing: what they are to get must not lie in memory.
TEST_F(http_sockets, clients_that_do_not_read_hold_little_memory) {
  constexpr auto clients = static_cast<std::size_t>(weft::test::scaled(1000, 50));
  static const std::string whole(1 << 20, 'x');
  std::atomic<std::size_t> asked{0};
  std::atomic<std::size_t> over{0};
  live_server server(
      [&](const http::request& in, http::response& out) {
        asked.fetch_add(1, std::memory_order_relaxed);
        if (in.target == "/whole") {
          out.write(whole);
        } else {
          for (int i = 0; i < 1024; ++i) out.write(std::string_view(whole).substr(0, 1024));
        }
        over.fetch_add(1, std::memory_order_relaxed);
      },
      {.write = 60s});
  // So that the kernel does not take all of it.
  const int small = 16'384;
  ASSERT_EQ(
      ::setsockopt(server.listener().native_handle(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small),
      0);
  const std::size_t before = resident_bytes();
  std::size_t during = 0;
  {
    std::vector<weft::test::plain_socket> all;
    for (std::size_t i = 0; i < clients; ++i) {
      all.emplace_back(weft::net::address::parse(server.address()).value(),
                       weft::test::plain_socket::mode::blocking, 4096);
      const std::string ask =
          "GET /"s + (i % 2 == 0 ? "whole" : "pieces") + " HTTP/1.1\r\nHost: a\r\n\r\n";
      ASSERT_EQ(::send(all.back().fd(), ask.data(), ask.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(ask.size()));
    }
    ASSERT_TRUE(weft::test::eventually([&] { return asked.load() == clients; }));
    ASSERT_TRUE(weft::test::until_waiting(clients, weft::detail::wait_reason::io));
    during = resident_bytes() - before;
    EXPECT_EQ(over.load(), 0u) << "the kernel has taken an answer";
  }
  ASSERT_TRUE(weft::test::eventually([&] { return over.load() == clients; }));
  EXPECT_FALSE(server.stop());
  std::printf("%zu clients that do not read: %zu KiB each\n", clients, during / clients / 1024);
  if (!weft::test::slow_build) {
    EXPECT_LT(during, clients * (std::size_t{80} << 10));
    EXPECT_LT(resident_bytes(), before + clients * (std::size_t{40} << 10)) << "is kept";
  }
}

// One who asks for much and reads nothing must not keep a goroutine for ever.
TEST_F(http_sockets, a_client_that_does_not_read_is_given_up) {
  weft::chan<std::error_code> ended(1);
  live_server server(
      [&](const http::request&, http::response& out) {
        std::error_code e;
        for (int i = 0; i < 10'000 && !e; ++i) {
          out.write(std::string(65'536, 'x'));
          e = out.flush();
        }
        ended.send(e);
      },
      {.write = 50ms});
  weft::net::conn c = connect(server.address());
  send(c, simple);
  EXPECT_EQ(ended.recv(), weft::errc::timed_out);
}

TEST_F(http_sockets, an_exception_leaves_the_server_alive) {
  live_server server([](const http::request& in, http::response& out) {
    if (in.target == "/throw") throw std::runtime_error("x");
    if (in.target == "/exit") weft::this_goroutine::exit();
    out.write("fine");
  });
  EXPECT_EQ(http::get(server.url("/throw"))->status, 500);
  EXPECT_FALSE(http::get(server.url("/exit")));
  EXPECT_EQ(http::get(server.url("/"))->body, "fine");
  EXPECT_FALSE(server.stop());
}

TEST_F(http_sockets, on_error_may_end_its_goroutine) {
  live_server server(
      [](const http::request& in, http::response& out) {
        if (in.target == "/throw") throw std::runtime_error("x");
        out.write("fine");
      },
      {.on_error = [](const http::request&, std::exception_ptr) { weft::this_goroutine::exit(); }});
  EXPECT_FALSE(http::get(server.url("/throw")));
  EXPECT_EQ(http::get(server.url("/"))->body, "fine");
  EXPECT_FALSE(server.stop());
}

// The end of the stream would be the end of the body.
TEST_F(http_sockets, an_exit_in_a_stream_must_not_look_like_its_end) {
  weft::chan<std::monostate> go_on;
  live_server server([&](const http::request&, http::response& out) {
    out.write("half");
    (void)out.flush();
    go_on.recv();
    weft::this_goroutine::exit();
  });
  weft::net::conn c = connect(server.address());
  send(c, "GET / HTTP/1.0\r\n\r\n");
  EXPECT_TRUE(read_until(c, "half").ends_with("half"));
  go_on.send({});
  char byte;
  EXPECT_FALSE(c.read(std::as_writable_bytes(std::span(&byte, 1))));
}

TEST_F(http_sockets, a_stop_closes_idle_connections_and_answers_the_others) {
  weft::chan<std::monostate> entered;
  weft::chan<std::monostate> go_on;
  std::error_code ctx_error;
  live_server server([&](const http::request& in, http::response& out) {
    if (in.target == "/slow") {
      entered.send({});
      go_on.recv();
      ctx_error = in.ctx.err();
    }
    out.write("done");
  });
  weft::net::conn idle = connect(server.address());
  send(idle, simple);
  EXPECT_EQ(parse_answers(read_until(idle, "done")).size(), 1u);
  weft::net::conn fresh = connect(server.address());
  weft::net::conn busy = connect(server.address());
  send(busy, "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
  entered.recv();

  server.begin_to_stop();
  EXPECT_EQ(read_all(idle), "");
  EXPECT_EQ(read_all(fresh), "");
  go_on.send({});
  const auto all = parse_answers(read_all(busy));
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].body, "done");
  EXPECT_EQ(all[0].headers["connection"], "close");
  busy.close();
  EXPECT_FALSE(server.wait());
  EXPECT_FALSE(ctx_error);
  EXPECT_FALSE(server.listener().is_open());
}

// A client that comes too late must not wait for the last answer to somebody else.
TEST_F(http_sockets, new_clients_are_refused_while_requests_are_answered) {
  for (const bool streaming : {false, true}) {
    weft::net::listener l = weft::net::listen("tcp", "127.0.0.1:0").value();
    const std::string address = l.local_address().to_string();
    auto [ctx, cancel] = weft::with_cancel(weft::context::background());
    weft::chan<std::monostate> entered;
    weft::chan<std::monostate> go_on;
    const auto answer = [&](http::response& out) {
      entered.send({});
      go_on.recv();
      out.write("done");
    };
    auto result = weft::async([&, ctx = ctx] {
      if (streaming) {
        return http::serve_streaming(
            ctx, l,
            [&](const http::request&, http::body_reader&, http::response& out) { answer(out); });
      }
      return http::serve(ctx, l, [&](const http::request&, http::response& out) { answer(out); });
    });
    weft::net::conn busy = connect(address);
    send(busy, simple);
    entered.recv();
    cancel();
    auto [limit, cancel_limit] = weft::with_timeout(weft::context::background(), 20s);
    EXPECT_TRUE(weft::test::eventually([&, limit = limit] {
      const auto late = weft::net::dial(limit, "tcp", address);
      return !late && late.error() == std::errc::connection_refused;
    }));
    cancel_limit();
    go_on.send({});
    EXPECT_TRUE(read_all(busy).ends_with("done"));
    busy.close();
    EXPECT_FALSE(result.get());
  }
}

// There is nothing to wait for: serve has to see the context first, and not the closed listener.
TEST_F(http_sockets, a_context_that_has_ended_ends_serve_without_an_error) {
  weft::net::listener l = weft::net::listen("tcp", "127.0.0.1:0").value();
  auto [ctx, cancel] = weft::with_cancel(weft::context::background());
  cancel();
  EXPECT_FALSE(http::serve(ctx, l, echo));
  EXPECT_FALSE(l.is_open());
}

TEST_F(http_sockets, after_the_drain_time_the_contexts_of_requests_end) {
  weft::chan<std::monostate> entered;
  live_server server(
      [&](const http::request& in, http::response&) {
        entered.send({});
        in.ctx.done().recv();
      },
      {.drain = 20ms});
  weft::net::conn c = connect(server.address());
  send(c, simple);
  entered.recv();
  // Another one sends half a request and then nothing.
  weft::net::conn half = connect(server.address());
  send(half, "GET / HTTP/1.1\r\n");
  EXPECT_FALSE(server.stop());
}

// A handler that ends because its context has ended can still tell the client so.
TEST_F(http_sockets, a_handler_whose_context_has_ended_can_answer) {
  weft::chan<std::monostate> entered;
  live_server server(
      [&](const http::request& in, http::response& out) {
        entered.send({});
        in.ctx.done().recv();
        out.status(503);
        out.write("later");
        if (in.target == "/flush") {
          EXPECT_FALSE(out.flush());
        }
      },
      {.drain = 20ms});
  weft::net::conn a = connect(server.address());
  weft::net::conn b = connect(server.address());
  send(a, simple);
  send(b, "GET /flush HTTP/1.1\r\nHost: a\r\n\r\n");
  entered.recv();
  entered.recv();
  server.begin_to_stop();
  for (weft::net::conn* each : {&a, &b}) {
    const auto all = parse_answers(read_all(*each));
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0].status, 503);
    EXPECT_EQ(all[0].body, "later");
    each->close();
  }
  EXPECT_FALSE(server.wait());
}

// But not for ever.
TEST_F(http_sockets, after_its_last_words_nobody_waits_for_a_client_that_does_not_read) {
  weft::chan<std::monostate> entered;
  std::error_code why;
  live_server server(
      [&](const http::request& in, http::response& out) {
        entered.send({});
        in.ctx.done().recv();
        for (int i = 0; i < 10'000 && !why; ++i) {
          out.write(std::string(65'536, 'x'));
          why = out.flush();
        }
      },
      {.write = 0s, .drain = 0s});
  weft::net::conn c = connect(server.address());
  send(c, simple);
  entered.recv();
  EXPECT_FALSE(server.stop());
  EXPECT_EQ(why, weft::errc::timed_out);
}

// Returns: whether the context ended, and not the patience of the test.
bool ends(const weft::context& ctx) {
  weft::timer limit(20s);
  return weft::select(weft::recv(ctx.done()), weft::recv(limit.c())) == 0;
}

// Work for a client that is gone is for nothing.
TEST_F(http_sockets, a_handler_can_wait_for_its_client_to_go_away) {
  weft::chan<std::monostate> entered;
  weft::chan<bool> ended;
  live_server server([&](const http::request& in, http::response& out) {
    const weft::context ctx = out.while_connected();
    EXPECT_FALSE(ctx.err());
    entered.send({});
    const bool gone = ends(ctx);
    EXPECT_FALSE(in.ctx.err());
    ended.send(gone);
  });
  for (const bool reset : {false, true}) {
    weft::net::conn c = connect(server.address());
    send(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /pipelined HTTP/1.1\r\n");
    entered.recv();
    send(c, "Host: a\r\n");
    EXPECT_FALSE(c.set_linger(reset ? 0s : -1s));
    c.close();
    EXPECT_TRUE(*ended.recv());
  }
  EXPECT_FALSE(server.stop());
}

// What comes while it is watched belongs to the next requests; their times count as before.
TEST_F(http_sockets, a_connection_that_was_watched_goes_on) {
  weft::chan<std::monostate> entered;
  weft::chan<std::monostate> go_on;
  std::vector<weft::context> contexts;
  live_server server(
      [&](const http::request& in, http::response& out) {
        contexts.push_back(out.while_connected());
        entered.send({});
        go_on.recv();
        EXPECT_FALSE(out.while_connected().err());
        out.write(in.target);
      },
      {.idle = 100ms});
  weft::net::conn c = connect(server.address());
  c.set_read_deadline(weft::clock::now() + 60s);
  send(c, "GET /0 HTTP/1.1\r\nHost: a\r\n\r\n");
  for (int i = 0; i < 20; ++i) {
    entered.recv();
    if (i < 19) send(c, "GET /" + std::to_string(i + 1) + " HTTP/1.1\r\nHost: a\r\n\r\n");
    go_on.send({});
    const std::string target = "\r\n\r\n/" + std::to_string(i);
    EXPECT_TRUE(read_until(c, target).ends_with(target));
  }
  EXPECT_EQ(read_all(c), "");  // idle
  ASSERT_EQ(contexts.size(), 20u);
  for (const weft::context& ctx : contexts) EXPECT_EQ(ctx.err(), weft::errc::canceled);
}

TEST_F(http_sockets, a_client_can_go_away_within_a_streamed_body) {
  weft::net::listener l = weft::net::listen("tcp", "127.0.0.1:0").value();
  auto [ctx, cancel] = weft::with_cancel(weft::context::background());
  weft::chan<std::string> got;
  weft::chan<bool> ended;
  auto done = weft::async([&, ctx = ctx] {
    return http::serve_streaming(
        ctx, l, [&](const http::request& in, http::body_reader& body, http::response& out) {
          const weft::context connected = out.while_connected();
          while (true) {
            const auto piece = body.read();
            if (!piece) return ended.send(ends(connected));
            got.send(std::string(*piece));
            if (in.target == "/waits") return ended.send(ends(connected));
          }
        });
  });
  for (const char* target : {"/waits", "/reads"}) {
    weft::net::conn c = connect(l.local_address().to_string());
    send(c, "POST "s + target + " HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n");
    send(c, "ab");
    EXPECT_EQ(got.recv(), "ab");
    if (target == "/reads"sv) {
      send(c, "cd");
      EXPECT_EQ(got.recv(), "cd");
    }
    c.close();
    EXPECT_TRUE(*ended.recv());
  }
  cancel();
  EXPECT_FALSE(done.get());
}

TEST_F(http_sockets, a_handler_that_watches_may_end_in_any_way) {
  live_server server(
      [](const http::request& in, http::response& out) {
        const weft::context ctx = out.while_connected();
        if (in.target == "/throw") throw std::runtime_error("x");
        if (in.target == "/exit") weft::this_goroutine::exit();
        ends(ctx);
      },
      {.drain = 20ms});
  EXPECT_EQ(http::get(server.url("/throw"))->status, 500);
  EXPECT_FALSE(http::get(server.url("/exit")));
  weft::net::conn c = connect(server.address());
  send(c, simple);
  EXPECT_FALSE(server.stop());  // which ends the context, too
}

TEST_F(http_sockets, a_closed_listener_ends_serve) {
  live_server server(echo);
  EXPECT_EQ(http::get(server.url())->status, 200);
  server.listener().close();
  EXPECT_EQ(server.wait(), weft::errc::closed);
}

TEST_F(http_sockets, a_closed_listener_ends_serve_when_all_seats_are_taken) {
  weft::chan<std::monostate> entered;
  bool ended = false;
  live_server server(
      [&](const http::request& in, http::response&) {
        entered.send({});
        weft::timer limit(20s);
        ended = weft::select(weft::recv(in.ctx.done()), weft::recv(limit.c())) == 0;
      },
      {.connections = 1, .drain = 0s});
  weft::net::conn c = connect(server.address());
  send(c, simple);
  entered.recv();
  server.listener().close();
  EXPECT_EQ(server.wait(), weft::errc::closed);
  EXPECT_TRUE(ended);
}

TEST_F(http_sockets, more_connections_wait) {
  live_server server(echo, {.connections = 2});
  weft::net::conn a = connect(server.address());
  weft::net::conn b = connect(server.address());
  weft::net::conn c = connect(server.address());
  for (weft::net::conn* each : {&a, &b, &c}) send(*each, simple);
  EXPECT_NE(read_until(a, "\r\n\r\n/"), "");
  EXPECT_NE(read_until(b, "\r\n\r\n/"), "");
  char byte;
  c.set_read_deadline(weft::clock::now() + 50ms);
  const auto n = c.read(std::as_writable_bytes(std::span(&byte, 1)));
  EXPECT_FALSE(n);
  c.set_read_deadline({});
  a.close();
  EXPECT_NE(read_until(c, "\r\n\r\n/"), "");
}

TEST_F(http_sockets, a_streaming_handler_echoes_while_it_reads) {
  weft::net::listener l = weft::net::listen("tcp", "127.0.0.1:0").value();
  auto [ctx, cancel] = weft::with_cancel(weft::context::background());
  auto done = weft::async([&l, ctx = ctx] {
    return http::serve_streaming(
        ctx, l, [](const http::request&, http::body_reader& body, http::response& out) {
          (void)out.flush();
          for (auto piece = body.read(); piece && !piece->empty(); piece = body.read()) {
            out.write(*piece);
            if (out.flush()) break;
          }
        });
  });
  weft::net::conn c = connect(l.local_address().to_string());
  send(c, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
  read_until(c, "\r\n\r\n");
  for (int i = 0; i < 10; ++i) {
    send(c, "4\r\nping\r\n");
    EXPECT_EQ(read_until(c, "ping\r\n"), "4\r\nping\r\n");
  }
  send(c, "0\r\n\r\n");
  EXPECT_EQ(read_until(c, "0\r\n\r\n"), "0\r\n\r\n");
  c.close();
  cancel();
  EXPECT_FALSE(done.get());
}

// ----------------------------------------------------------------------------------- the client

// A body that fits into no socket's buffer, from a server that sends it back as it reads it: if the
// client wrote first and read then, both would wait for each other.
TEST_F(http_sockets, a_large_body_is_sent_while_its_answer_is_read) {
  weft::net::listener l = weft::net::listen("tcp", "127.0.0.1:0").value();
  auto [ctx, cancel] = weft::with_cancel(weft::context::background());
  auto done = weft::async([&l, ctx = ctx] {
    return http::serve_streaming(
        ctx, l,
        [](const http::request&, http::body_reader& body, http::response& out) {
          for (auto piece = body.read(); piece && !piece->empty(); piece = body.read()) {
            out.write(*piece);
          }
        },
        {.body_bytes = 64 << 20, .buffer_bytes = 0});
  });
  std::string body(40 << 20, '\0');
  for (std::size_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>(i >> 10);
  auto [limit, cancel_limit] = weft::with_timeout(weft::context::background(), 60s);
  const auto m =
      http::send(limit, "PUT", "http://" + l.local_address().to_string() + "/", {}, body);
  cancel_limit();
  ASSERT_TRUE(m) << m.error().message();
  EXPECT_TRUE(m->body == body);
  cancel();
  EXPECT_FALSE(done.get());
}

// Only one of them can be there at a time.
TEST_F(http_sockets, a_connection_is_kept_after_a_large_body) {
  live_server server(echo, {.connections = 1});
  http::client client;
  auto [limit, cancel_limit] = weft::with_timeout(weft::context::background(), 60s);
  for (const std::size_t size : {16'000, 17'000, 1'000'000}) {
    for (int i = 0; i < 50; ++i) {
      const auto m = client.request(limit, "PUT", server.url(), {}, std::string(size, 'x'));
      ASSERT_TRUE(m) << m.error().message();
      ASSERT_EQ(m->body.size(), size + 1);
    }
  }
  cancel_limit();
}

// A server that answers connection by connection, whatever it is asked.
class scripted_server {
 public:
  using script = std::function<void(weft::net::conn&)>;
  explicit scripted_server(std::vector<script> scripts)
      : listener_(weft::net::listen("tcp", "127.0.0.1:0").value()) {
    done_.go([this, all = std::move(scripts)] {
      for (const script& s : all) {
        auto c = listener_.accept();
        if (!c) return;
        s(*c);
      }
    });
  }
  ~scripted_server() {
    listener_.close();
    done_.wait();
  }
  std::string url() const { return "http://" + listener_.local_address().to_string() + "/"; }

 private:
  weft::net::listener listener_;
  weft::wait_group done_;
};

scripted_server::script answers(std::string text) {
  return [text = std::move(text)](weft::net::conn& c) {
    read_until(c, "\r\n\r\n");
    send(c, text);
  };
}

// The same to a request of which it reads no more than the head and what came with it.
scripted_server::script answers_head(std::string text) {
  return [text = std::move(text)](weft::net::conn& c) {
    std::string all;
    char buffer[4096];
    while (all.find("\r\n\r\n") == all.npos) {
      const auto n = c.read(std::as_writable_bytes(std::span(buffer)));
      ASSERT_TRUE(n && *n != 0);
      all.append(buffer, *n);
    }
    send(c, text);
  };
}

weft::expected<http::message> get_from(std::string text) {
  scripted_server server({answers(std::move(text))});
  return http::get(server.url());
}

TEST_F(http_sockets, the_client_reads_every_kind_of_body) {
  EXPECT_EQ(get_from("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc")->body, "abc");
  EXPECT_EQ(get_from("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                     "2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")
                ->body,
            "abc");
  EXPECT_EQ(get_from("HTTP/1.0 200 OK\r\n\r\nto the end")->body, "to the end");
  EXPECT_EQ(get_from("HTTP/1.1 204 No Content\r\n\r\n")->status, 204);
  EXPECT_EQ(get_from("HTTP/1.1 301 Moved\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n")
                ->headers["location"],
            "/x");
  EXPECT_EQ(get_from("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
                     "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx")
                ->status,
            200);
}

TEST_F(http_sockets, the_client_bounds_what_a_server_sends) {
  EXPECT_EQ(get_from("").error(), std::errc::connection_reset);
  EXPECT_EQ(get_from("HTTP/1.1 200 OK\r\nContent-Le").error(), std::errc::connection_reset);
  EXPECT_EQ(get_from("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc").error(),
            std::errc::connection_reset);
  EXPECT_EQ(get_from("SSH-2.0-OpenSSH\r\n").error(), std::errc::bad_message);
  EXPECT_EQ(get_from("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n")
                .error(),
            std::errc::bad_message);
  EXPECT_EQ(get_from("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n").error(),
            std::errc::message_size);
  EXPECT_EQ(get_from("HTTP/1.1 200 OK\r\nX: " + std::string(300'000, 'x')).error(),
            std::errc::message_size);
  // Not for ever.
  std::string interim;
  while (interim.size() < 300'000) interim += "HTTP/1.1 100 Continue\r\n\r\n";
  EXPECT_EQ(get_from(interim).error(), std::errc::message_size);
}

// Servers are older, and newer, than the client.
TEST_F(http_sockets, the_client_takes_what_servers_send) {
  const std::string rest = "Content-Length: 3\r\n\r\nabc";
  for (const char* line :
       {"HTTP/1.1 200\r\n", "HTTP/1.1 200 \r\n", "HTTP/1.2 200 OK\r\n", "HTTP/1.0 200 \xe9\t!\r\n",
        "HTTP/1.1 200 OK\r\nProxy-Connection: (\r\n"}) {
    const auto m = get_from(line + rest);
    ASSERT_TRUE(m) << line << m.error().message();
    EXPECT_EQ(m->status, 200);
    EXPECT_EQ(m->body, "abc");
  }
  const auto folded = get_from(
      "HTTP/1.1 200 OK\r\nX: one\r\n two\r\n\t three \r\nY:\r\n four\r\nContent-Length:\r\n"
      " 3\r\n\r\nabc");
  ASSERT_TRUE(folded) << folded.error().message();
  EXPECT_EQ(folded->headers["x"], "one two three");
  EXPECT_EQ(folded->headers["y"], "four");
  EXPECT_EQ(folded->headers["content-length"], "3");
  EXPECT_EQ(folded->body, "abc");
  EXPECT_EQ(get_from("HTTP/1.1 200 OK\r\n X: y\r\n" + rest).error(), std::errc::bad_message);

  std::string interim;
  for (int i = 0; i < 1'000; ++i) interim += "HTTP/1.1 102 Processing\r\nX: y\r\n\r\n";
  const auto last = get_from(interim + "HTTP/1.1 200 OK\r\n" + rest);
  ASSERT_TRUE(last) << last.error().message();
  EXPECT_EQ(last->body, "abc");
  EXPECT_EQ(last->headers.find("x"), nullptr);
  EXPECT_EQ(get_from("HTTP/2.0 200 OK\r\n" + rest).error(), std::errc::bad_message);
  EXPECT_EQ(get_from("HTTP/1.1 20 OK\r\n" + rest).error(), std::errc::bad_message);
  EXPECT_EQ(get_from("HTTP/1.1 2000 OK\r\n" + rest).error(), std::errc::bad_message);
}

// A client that waited for the end of such a line would wait for ever.
TEST_F(http_sockets, a_line_that_ends_with_a_line_feed_alone_is_an_error_at_once) {
  const std::string head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string& text : {head + "5\n", head + "5\r\nhello\n", head + "5\r\nhelloX",
                                  head + "0\r\nX: y\n", "HTTP/1.1 200 OK\n"s}) {
    weft::chan<std::monostate> over;
    scripted_server server({[&](weft::net::conn& c) {
      answers(text)(c);
      over.recv();
    }});
    auto [limit, cancel_limit] = weft::with_timeout(weft::context::background(), 20s);
    EXPECT_EQ(http::get(limit, server.url()).error(), std::errc::bad_message) << text;
    cancel_limit();
    over.send({});
  }
}

// A caller that asks again, or reports the error, has to know which it was.
TEST_F(http_sockets, an_answer_that_is_missing_cut_or_reset_is_three_errors) {
  const auto missing = get_from("").error();
  EXPECT_EQ(missing, http::answer_errc::missing);
  EXPECT_EQ(missing.message(), "the server closed the connection without an answer");
  for (const char* cut :
       {"H", "HTTP/1.1 200 OK\r\nContent-Le", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"}) {
    EXPECT_EQ(get_from(cut).error(), http::answer_errc::truncated) << cut;
  }
  EXPECT_EQ(get_from("HTTP/1.1 100 Continue\r\n\r\n").error(), http::answer_errc::missing);
  EXPECT_NE(make_error_code(http::answer_errc::truncated).message(), missing.message());

  scripted_server server({[](weft::net::conn& c) {
    answers("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc")(c);
    (void)c.set_linger(0s);
  }});
  const auto reset = http::get(server.url());
  ASSERT_FALSE(reset);
  EXPECT_EQ(reset.error(), std::make_error_code(std::errc::connection_reset));
}

// A server that has seen enough answers and reads no more: neither does that keep the client, nor
// does what becomes of the rest of the body hide the answer.
TEST_F(http_sockets, an_answer_to_the_beginning_of_a_body_ends_the_request) {
  const std::string too_large = "HTTP/1.1 413 No\r\nContent-Length: 3\r\n\r\nno!";
  const auto refuses = answers_head(too_large);
  weft::chan<std::monostate> over;
  const auto refuses_and_stays = [&](weft::net::conn& c) {
    refuses(c);
    over.recv();
  };
  const std::string body(64 << 20, 'x');
  scripted_server server({refuses, refuses_and_stays, refuses, answers_head(""),
                          answers("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")});
  http::client client;
  auto [limit, cancel_limit] = weft::with_timeout(weft::context::background(), 60s);
  for (int i = 0; i < 3; ++i) {
    const auto m = client.request(limit, "PUT", server.url(), {}, body);
    if (i == 1) over.send({});
    ASSERT_TRUE(m) << m.error().message();
    EXPECT_EQ(m->status, 413);
    EXPECT_EQ(m->body, "no!");
  }
  const auto none = client.request(limit, "PUT", server.url(), {}, body);
  EXPECT_EQ(none.error(), std::errc::connection_reset);
  // On a connection that knows nothing of all that.
  const auto last = client.get(limit, server.url());
  ASSERT_TRUE(last) << last.error().message();
  EXPECT_EQ(last->body, "ok");
  cancel_limit();
}

// The error that says so comes once: the goroutine that writes may be the one that gets it.
TEST_F(http_sockets, an_answer_that_a_reset_cuts_off_is_none) {
  const auto cuts_off = [](weft::net::conn& c) {
    answers_head("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nsome of it")(c);
    (void)c.set_linger(0s);
    (void)c.close();
  };
  constexpr int rounds = 50;
  const std::string body(8 << 20, 'x');
  scripted_server server(std::vector<scripted_server::script>(rounds, cuts_off));
  http::client client;
  auto [limit, cancel_limit] = weft::with_timeout(weft::context::background(), 60s);
  for (int i = 0; i < rounds; ++i) {
    const auto m = client.request(limit, "PUT", server.url(), {}, body);
    ASSERT_FALSE(m) << m->body;
    EXPECT_EQ(m.error(), std::errc::connection_reset) << m.error().message();
  }
  cancel_limit();
}

TEST_F(http_sockets, a_context_ends_a_request_that_is_being_sent) {
  weft::chan<std::monostate> asked;
  weft::chan<std::monostate> over;
  scripted_server server({[&](weft::net::conn& c) {
    char byte;
    EXPECT_TRUE(c.read(std::as_writable_bytes(std::span(&byte, 1))));
    asked.send({});
    over.recv();
  }});
  auto [ctx, cancel] = weft::with_cancel(weft::context::background());
  const std::string body(64 << 20, 'x');
  auto answer =
      weft::async([&, ctx = ctx] { return http::send(ctx, "POST", server.url(), {}, body); });
  asked.recv();
  cancel();
  EXPECT_EQ(answer.get().error(), weft::errc::canceled);
  over.send({});
}

TEST_F(http_sockets, a_request_that_cannot_be_sent_is_not) {
  EXPECT_EQ(http::get("https://127.0.0.1/").error(), std::errc::protocol_not_supported);
  EXPECT_EQ(http::get("nonsense").error(), std::errc::invalid_argument);
  const std::string url = "http://127.0.0.1:1/";
  EXPECT_EQ(http::send("G T", url).error(), std::errc::invalid_argument);
  EXPECT_EQ(http::send("GET", url, {{"X", "a\r\nY: b"}}).error(), std::errc::invalid_argument);
  EXPECT_EQ(http::send("GET", url, {{"X:", "a"}}).error(), std::errc::invalid_argument);
  EXPECT_EQ(http::send("CONNECT", url).error(), std::errc::invalid_argument);
  for (const http::field& f : std::vector<http::field>{{"connection", "close"},
                                                       {"Transfer-Encoding", "chunked"},
                                                       {"EXPECT", "100-continue"},
                                                       {"Content-Length", "5"},
                                                       {"Content-Length", "+4"},
                                                       {"Content-Length", ""}}) {
    EXPECT_EQ(http::send("PUT", url, {f}, "four").error(), std::errc::invalid_argument) << f.name;
  }
  EXPECT_EQ(http::get(url).error(), std::errc::connection_refused);
}

// Header fields that came with a body may go on with it.
TEST_F(http_sockets, a_content_length_that_is_right_is_sent_once) {
  live_server server([](const http::request& in, http::response& out) {
    for (const http::field& f : in.headers) {
      if (f.name == "content-length" || f.name == "Content-Length") out.write(f.value + ";");
    }
  });
  const auto put = http::send("PUT", server.url(), {{"content-length", "4"}}, "four");
  ASSERT_TRUE(put) << put.error().message();
  EXPECT_EQ(put->body, "4;");
  const auto get = http::send("GET", server.url(), {{"Content-Length", "0"}});
  ASSERT_TRUE(get) << get.error().message();
  EXPECT_EQ(get->body, "0;");
}

// As if goroutines waited for memory for their stacks. Ends with the next goroutine that ends, too.
void begin_shortage() {
  weft::sched::the_scheduler.stack_shortage.store(true, std::memory_order_relaxed);
}
void end_shortage() {
  weft::sched::the_scheduler.stack_shortage.store(false, std::memory_order_relaxed);
}

// A lack of memory is the world's fault: no exception.
TEST_F(http_sockets, a_request_that_needs_a_goroutine_and_gets_none_is_an_error) {
  weft::net::listener l = weft::net::listen("tcp", "127.0.0.1:0").value();
  const std::string url = "http://" + l.local_address().to_string() + "/";
  const std::string body(1 << 20, 'x');
  begin_shortage();
  const auto m = http::send("POST", url, {}, body);
  end_shortage();
  ASSERT_FALSE(m);
  EXPECT_EQ(m.error(), std::errc::not_enough_memory);
}

TEST_F(http_sockets, a_watch_that_gets_no_goroutine_ends_the_request_or_is_tried_again) {
  const weft::test::procs_scope one(1);  // who has ended has ended before others go on
  conversation c({"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n", "fo", "ur"});
  c.shared.whole = nullptr;
  c.peer.before_read = [](memory_stream& s) {
    if (s.reads == 3) begin_shortage();
  };
  std::vector<std::error_code> errors;
  c.shared.by_piece = [&](const http::request&, http::body_reader& in, http::response& out) {
    begin_shortage();
    EXPECT_THROW(out.while_connected(), std::system_error);
    EXPECT_THROW(out.while_connected(), std::system_error);  // not one that nobody watches
    end_shortage();
    const weft::context ctx = out.while_connected();
    EXPECT_TRUE(in.read());
    EXPECT_FALSE(ctx.err());
    for (int i = 0; i < 2; ++i) errors.push_back(in.read().error());
    EXPECT_EQ(ctx.err(), weft::errc::canceled);
    end_shortage();
  };
  std::vector<answer> all;
  weft::async([&] { all = c.run(); }).get();
  const auto none = std::make_error_code(std::errc::not_enough_memory);
  EXPECT_EQ(errors, std::vector(2, none));
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].status, 503);
}

TEST_F(http_sockets, a_context_ends_a_request_at_once) {
  weft::chan<std::monostate> asked(1);
  weft::chan<std::monostate> over;
  scripted_server server({[&](weft::net::conn& c) {
                            read_until(c, "\r\n\r\n");
                            asked.send({});
                            over.recv();
                          },
                          [&](weft::net::conn&) { over.recv(); }});
  auto [ctx, cancel] = weft::with_cancel(weft::context::background());
  auto answer = weft::async([&server, ctx = ctx] { return http::get(ctx, server.url()); });
  asked.recv();
  cancel();
  EXPECT_EQ(answer.get().error(), weft::errc::canceled);
  EXPECT_EQ(http::get(ctx, server.url()).error(), weft::errc::canceled);
  over.send({});

  auto [timed, cancel_timed] = weft::with_timeout(weft::context::background(), 20ms);
  EXPECT_EQ(http::get(timed, server.url()).error(), weft::errc::deadline_exceeded);
  over.send({});
}

// A kept connection that the server has closed meanwhile: the request is sent again on a new one.
TEST_F(http_sockets, a_connection_that_went_stale_is_replaced) {
  const std::string ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
  scripted_server server({answers(ok), answers(ok), answers(ok)});
  http::client client;
  for (int i = 0; i < 3; ++i) {
    const auto m = client.get(server.url());
    ASSERT_TRUE(m) << m.error().message();
    EXPECT_EQ(m->body, "ok");
  }
}

// A client that made a connection for each of them would soon have no port left.
TEST_F(http_sockets, requests_that_may_not_be_repeated_use_kept_connections) {
  std::atomic<int> connections{0};
  const std::string ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
  scripted_server server(std::vector<scripted_server::script>(50, [&](weft::net::conn& c) {
    connections.fetch_add(1, std::memory_order_relaxed);
    while (read_until(c, "\r\n\r\nx").ends_with("x")) send(c, ok);
  }));
  {
    http::client client;
    for (int i = 0; i < 50; ++i) {
      const auto m = client.request("POST", server.url(), {}, "x");
      ASSERT_TRUE(m) << m.error().message();
    }
  }
  EXPECT_EQ(connections.load(), 1);
}

// A request whose answer did not come may have been carried out. A server that would answer the
// second one shows who sends it again.
TEST_F(http_sockets, a_request_is_repeated_only_if_that_does_no_harm) {
  const std::string ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
  const auto closes_at_the_second = [&](weft::net::conn& c) {
    read_until(c, "\r\n\r\n");
    send(c, ok);
    char some[4096];
    (void)c.read(some);  // carried out, perhaps, but not answered
  };
  const auto second = [&](std::string_view method, const http::headers& fields = {}) {
    scripted_server server({closes_at_the_second, answers(ok)});
    http::client client;
    EXPECT_TRUE(client.get(server.url()));
    return client.request(method, server.url(), fields);
  };
  for (const char* method : {"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"}) {
    EXPECT_TRUE(second(method)) << method;
  }
  for (const char* method : {"POST", "PATCH", "LOCK"}) {
    const auto m = second(method);
    ASSERT_FALSE(m) << method;
    EXPECT_EQ(m.error(), http::answer_errc::missing) << method;
  }
  EXPECT_TRUE(second("POST", {{"Idempotency-Key", "1"}}));
}

// What a server says unasked, while the connection is kept, answers nothing.
TEST_F(http_sockets, a_connection_that_is_not_quiet_is_replaced) {
  const std::string ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
  weft::chan<std::monostate> answered;
  weft::chan<std::monostate> said;
  weft::net::conn kept;
  scripted_server server({[&](weft::net::conn& c) {
                            answers(ok)(c);
                            answered.recv();
                            send(c, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n");
                            kept = std::move(c);
                            said.send({});
                          },
                          answers(ok)});
  http::client client;
  ASSERT_TRUE(client.get(server.url()));
  answered.send({});
  said.recv();
  const auto m = client.get(server.url());
  ASSERT_TRUE(m) << m.error().message();
  EXPECT_EQ(m->status, 200);
}

// Called once, when is_quiet() has found a connection quiet, before the request is written.
std::function<void()> after_quiet;

}  // namespace

// What the client calls: it must not park here.
extern "C" ssize_t recv(int fd, void* into, std::size_t n, int flags) {
  static const auto next = reinterpret_cast<decltype(&::recv)>(::dlsym(RTLD_NEXT, "recv"));
  const ssize_t got = next(fd, into, n, flags);
  if (got < 0 && errno == EAGAIN && flags == (MSG_PEEK | MSG_DONTWAIT) && after_quiet) {
    std::exchange(after_quiet, nullptr)();
    errno = EAGAIN;
  }
  return got;
}

namespace {

// There the write fails, with EPIPE if the stream had ended before.
TEST_F(http_sockets, a_connection_that_breaks_just_before_a_request) {
  const std::string ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
  const std::string late = "HTTP/1.1 408 Late\r\nContent-Length: 3\r\n\r\noh!";
  const weft::test::procs_scope two(2);
  enum class by { reset, end_and_reset };
  const auto second = [&](std::string said, by how, std::string_view method,
                          std::string_view body) {
    std::atomic<bool> begun{false};
    std::atomic<bool> broken{false};
    scripted_server server({[&](weft::net::conn& c) {
                              answers(ok)(c);
                              while (!begun) weft::this_goroutine::sleep_for(1ms);
                              send(c, said);
                              if (how == by::end_and_reset) {
                                EXPECT_FALSE(c.close_write());
                              }
                              EXPECT_FALSE(c.set_linger(0s));
                              EXPECT_FALSE(c.close());
                              broken = true;
                            },
                            answers_head(ok)});
    http::client client;
    EXPECT_TRUE(client.get(server.url()));
    after_quiet = [&] {
      begun = true;
      while (!broken) std::this_thread::sleep_for(1ms);
    };
    auto m = client.request(method, server.url(), {}, body);
    EXPECT_TRUE(broken);
    return m;
  };
  const auto reset = std::make_error_code(std::errc::connection_reset);
  for (const char* body : {"", "x"}) {
    SCOPED_TRACE(body);
    for (const by how : {by::reset, by::end_and_reset}) {
      const auto m = second(late, how, "POST", body);
      ASSERT_TRUE(m) << m.error().message();
      EXPECT_EQ(m->status, 408);
      EXPECT_EQ(m->body, "oh!");
      // This may be repeated.
      const auto again = second(late, how, "PUT", body);
      ASSERT_TRUE(again) << again.error().message();
      EXPECT_EQ(again->status, 200);
    }
    EXPECT_EQ(second("", by::end_and_reset, "POST", body).error(), http::answer_errc::missing);
    EXPECT_EQ(second("", by::reset, "POST", body).error(), reset);
    EXPECT_EQ(second(late.substr(0, late.size() - 1), by::end_and_reset, "POST", body).error(),
              http::answer_errc::truncated);
    EXPECT_EQ(second(late.substr(0, late.size() - 1), by::reset, "POST", body).error(), reset);
    // Only the end of the stream ends this one.
    const std::string open = "HTTP/1.1 408 Late\r\nConnection: close\r\n\r\noh!";
    EXPECT_EQ(second(open, by::reset, "POST", body).error(), reset);
    const auto m = second(open, by::end_and_reset, "POST", body);
    ASSERT_TRUE(m) << m.error().message();
    EXPECT_EQ(m->body, "oh!");
  }
}

}  // namespace
