// http_rfc_test.cpp: what RFC 9112 (HTTP/1.1) and RFC 9110 (HTTP semantics) demand of a server, one
// row for each MUST, by section; and those SHOULDs that programs rely on.
//
// A row has what a client sends and what the answers must be, whether all of it comes at once or
// byte by byte. Behind it goes a request that shows whether the connection is still used: a server
// that says "close", or has met a message without a known end, must not answer that.
//
// No rows have those MUSTs which only a handler can keep (Allow in a 405, WWW-Authenticate in a
// 401, the headers of a 206 and a 304, conditional requests), those of clients, proxies, gateways
// and caches, those about TLS, and those that ask for what the handler alone sees to (9110 9.3.4,
// PUT). The three formats of dates (9110 5.6.7) are for those who parse one, which the server does
// not.
#include "memory_stream.hpp"

#include "http/connection.hpp"
#include "http/parser.hpp"

#include <weft/http.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <regex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace std::string_literals;
namespace http = weft::http;
using weft::test::memory_stream;

// What becomes of the connection.
enum class then : std::uint8_t {
  stays,   // the next request is answered
  closes,  // it is not
  ends,    // there is no next one: the client has gone
};

struct row {
  const char* section;
  const char* rule;
  std::string sent;
  std::vector<int> statuses;
  then connection = then::stays;
  std::string has = {};    // is in what the server sends; "\n" at its beginning: of a line
  std::string lacks = {};  // is not
};

constexpr std::string_view probe = "GET /probe HTTP/1.1\r\nHost: probe\r\n\r\n";

// Says what it got, unless the target asks for something else.
void answer(const http::request& in, http::response& out) {
  if (in.target == "/204") return out.status(204), out.write("dropped");
  if (in.target == "/205") return out.status(205), out.write("dropped");
  if (in.target == "/205-flushed") return out.status(205), out.write("dropped"), (void)out.flush();
  if (in.target == "/304") return out.status(304), out.write("dropped");
  if (in.target == "/301") return out.status(301);
  if (in.target == "/404") return out.status(404);
  if (in.target == "/599") return out.status(599);
  if (in.target == "/close") return out.set("Connection", "close");
  if (in.target == "/flush") (void)out.flush();
  out.write("[" + in.method + " " + in.target + " host=" + in.headers["Host"] + " x=" +
            in.headers["X"] + " length=" + in.headers["Content-Length"] + " body=" + in.body + "]");
}

struct seen {
  std::vector<int> statuses;
  bool probe_answered = false;
  std::string text;
};

enum class arrival : std::uint8_t { at_once, byte_by_byte };

seen run(const row& r, arrival a) {
  std::vector<std::string> pieces;
  if (a == arrival::at_once) {
    pieces.push_back(r.sent);
  } else {
    for (const char c : r.sent) pieces.emplace_back(1, c);
  }
  if (r.connection != then::ends) pieces.emplace_back(probe);
  memory_stream peer(std::move(pieces));
  http::detail::service shared;
  seen result;
  std::vector<std::string> methods;
  shared.whole = [&](const http::request& in, http::response& out) {
    if (in.target == "/probe") result.probe_answered = true;
    methods.push_back(in.method);
    answer(in, out);
  };
  http::detail::connection(peer, shared).run();
  result.text = peer.output;
  std::string_view text = peer.output;
  for (std::size_t finals = 0; !text.empty();) {
    // One that was refused has not come to the handler.
    const bool head =
        finals < methods.size() ? methods[finals] == "HEAD" : r.sent.starts_with("HEAD");
    http::message m;
    http::message_parser p(
        {1 << 20, 1 << 20}, m,
        head ? http::message_parser::has_body::never : http::message_parser::has_body::as_it_says);
    while (!p.is_done()) {
      const http::put_result put = p.put(text);
      text.remove_prefix(put.used);
      if (put.error == 0 && !put.need_more && (!text.empty() || p.is_done() || p.end())) continue;
      ADD_FAILURE() << r.section << ": no answer: " << peer.output;
      return result;
    }
    result.statuses.push_back(m.status);
    if (m.status >= 200) ++finals;
  }
  if (result.probe_answered) result.statuses.pop_back();
  return result;
}

void check(const row& r, arrival a) {
  seen s = run(r, a);
  std::vector<int> expected = r.statuses;
  if (a == arrival::byte_by_byte) {
    // A body that has not come yet when it is read is asked for.
    std::erase(s.statuses, 100);
    std::erase(expected, 100);
  }
  const std::string about = std::string(r.section) + ": " + r.rule + "\n--- sent\n" +
                            r.sent.substr(0, 300) + "\n--- answered\n" + s.text.substr(0, 1'000);
  EXPECT_EQ(s.statuses, expected) << about;
  EXPECT_EQ(s.probe_answered, r.connection == then::stays) << about;
  if (!r.has.empty()) {
    EXPECT_NE(("\n" + s.text).find(r.has), std::string::npos) << about << "\nlacks " << r.has;
  }
  if (!r.lacks.empty()) {
    EXPECT_EQ(s.text.find(r.lacks), std::string::npos) << about << "\nhas " << r.lacks;
  }
}

void check(const std::vector<row>& rows) {
  for (const row& r : rows) {
    check(r, arrival::at_once);
    check(r, arrival::byte_by_byte);
  }
}

// A request for "/" with these lines behind its Host.
std::string get(const std::string& lines) {
  return "GET / HTTP/1.1\r\nHost: a\r\n" + lines + "\r\n";
}
std::string post(const std::string& lines, const std::string& body) {
  return "POST / HTTP/1.1\r\nHost: a\r\n" + lines + "\r\n" + body;
}
std::string with_host(const std::string& host) {
  return "GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n";
}
const std::string chunked = "Transfer-Encoding: chunked\r\n";

TEST(http_rfc, messages_and_first_lines) {
  check({
      {"9112 2.2",
       "bytes that are no ASCII are bytes",
       get("X: caf\xe9\r\n"),
       {200},
       then::stays,
       "x=caf\xe9"},
      {"9112 2.2",
       "a bare CR in the first line is invalid",
       "GET /\r HTTP/1.1\r\nHost: a\r\n\r\n",
       {400},
       then::closes},
      {"9112 2.2", "a bare CR in a field is invalid", get("X: a\rb\r\n"), {400}, then::closes},
      {"9112 2.2",
       "a bare CR in a chunk header is invalid",
       post(chunked, "1\ra\r\n0\r\n\r\n"),
       {400},
       then::closes},
      {"9112 2.2",
       "white space between the first line and the fields is refused",
       "GET / HTTP/1.1\r\n X: y\r\nHost: a\r\n\r\n",
       {400},
       then::closes},
      {"9112 2.2", "an empty line ahead of a request is ignored", "\r\n" + get(""), {200}},
      {"9112 2.2", "what is no HTTP is a 400", "\x16\x03\x01 hello\r\n\r\n", {400}, then::closes},
      {"9112 2.2",
       "a line feed alone ends no line",
       "GET / HTTP/1.1\nHost: a\n\n",
       {400},
       then::closes},
      {"9112 2.3",
       "the version has two digits",
       "GET / HTTP/1\r\nHost: a\r\n\r\n",
       {400},
       then::closes},
      {"9112 2.3",
       "the name of the protocol has its case",
       "GET / http/1.1\r\nHost: a\r\n\r\n",
       {400},
       then::closes},
      {"9110 2.5",
       "a higher minor version is the one we know",
       "GET / HTTP/1.2\r\nHost: a\r\n\r\n",
       {200},
       then::stays,
       "\nHTTP/1.1 200"},
      {"9110 2.5", "it needs a Host, too", "GET / HTTP/1.9\r\n\r\n", {400}, then::closes},
      {"9110 6.2",
       "the answer has a version that we conform to",
       "GET / HTTP/1.0\r\n\r\n",
       {200},
       then::closes,
       "\nHTTP/1.1 200"},
      {"9110 6.2",
       "another major version may be refused",
       "GET / HTTP/2.0\r\nHost: a\r\n\r\n",
       {505},
       then::closes},
      {"9110 9.3.2",
       "HEAD gets no content then either",
       "HEAD / HTTP/2.0\r\nHost: a\r\n\r\n",
       {505},
       then::ends,
       "\nContent-Length: ",
       "505 HTTP Version Not Supported\n"},
      {"9112 3",
       "a target that is too long is a 414",
       "GET /" + std::string(70'000, 'x') + " HTTP/1.1\r\nHost: a\r\n\r\n",
       {414},
       then::closes},
      {"9112 3",
       "a blank in the target is not put right",
       "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
       {400},
       then::closes},
      {"9112 3",
       "words are one blank apart",
       "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
       {400},
       then::closes},
      {"9112 3",
       "nothing follows the version",
       "GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
       {400},
       then::closes},
      {"9112 3.1", "a method is a token", "G@T / HTTP/1.1\r\nHost: a\r\n\r\n", {400}, then::closes},
      {"9112 3.1",
       "a method has its case, and a handler decides",
       "get / HTTP/1.1\r\nHost: a\r\n\r\n",
       {200},
       then::stays,
       "[get /"},
      {"9112 4",
       "the blank is there without a reason, too",
       "GET /599 HTTP/1.1\r\nHost: a\r\n\r\n",
       {599},
       then::stays,
       "\nHTTP/1.1 599 \r\n"},
  });
}

TEST(http_rfc, targets_and_hosts) {
  std::vector<row> rows = {
      {"9112 3.2", "HTTP/1.1 needs a Host", "GET / HTTP/1.1\r\n\r\n", {400}, then::closes},
      {"9112 3.2", "HTTP/1.0 does not", "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", {200}},
      {"9112 3.2", "two are one too many", get("Host: a\r\n"), {400}, then::closes},
      {"9112 3.2",
       "in HTTP/1.0, too",
       "GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n",
       {400},
       then::closes},
      {"9112 3.2",
       "an invalid one in HTTP/1.0",
       "GET / HTTP/1.0\r\nHost: a b\r\n\r\n",
       {400},
       then::closes},
      {"9112 3.2",
       "an invalid one beside an absolute target",
       "GET http://a/ HTTP/1.1\r\nHost: <b>\r\n\r\n",
       {400},
       then::closes},
      {"9112 3.2.1",
       "a path begins with a slash",
       "GET foo HTTP/1.1\r\nHost: a\r\n\r\n",
       {400},
       then::closes},
      {"9112 3.2.2",
       "the absolute form is accepted, and its host counts",
       "GET http://right:81/p?q HTTP/1.1\r\nHost: wrong\r\n\r\n",
       {200},
       then::stays,
       "[GET /p?q host=right:81 "},
      {"9112 3.2.2",
       "the scheme has any case",
       "GET HTTP://right/ HTTP/1.1\r\nHost: wrong\r\n\r\n",
       {200},
       then::stays,
       "[GET / host=right "},
      {"9112 3.2.2",
       "an empty path is the root",
       "GET http://right HTTP/1.1\r\nHost: a\r\n\r\n",
       {200},
       then::stays,
       "[GET / host=right "},
      {"9112 3.2.2",
       "also with a query",
       "GET http://right?q HTTP/1.1\r\nHost: a\r\n\r\n",
       {200},
       then::stays,
       "[GET /?q host=right "},
      {"9112 3.2.2",
       "the Host field has to be there nevertheless",
       "GET http://right/ HTTP/1.1\r\n\r\n",
       {400},
       then::closes},
      {"9112 3.2.2",
       "HTTP/1.0 has its host from there, too",
       "GET http://right/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
       {200},
       then::stays,
       "host=right "},
      {"9112 3.2.2",
       "a client of another server is not ours",
       "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
       {400},
       then::closes},
      {"9112 3.2.3",
       "the authority form is for CONNECT only",
       "GET a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n",
       {400},
       then::closes},
      {"9112 3.2.4",
       "the asterisk form is for OPTIONS",
       "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
       {200},
       then::stays,
       "[OPTIONS * "},
      {"9112 3.2.4",
       "and for nothing else",
       "GET * HTTP/1.1\r\nHost: a\r\n\r\n",
       {400},
       then::closes},
      {"9112 3.2.4",
       "OPTIONS of a server in the absolute form",
       "OPTIONS http://right HTTP/1.1\r\nHost: a\r\n\r\n",
       {200},
       then::stays,
       "[OPTIONS * host=right "},
      {"9110 4.2.1",
       "an http URI without a host is invalid",
       "GET http:///p HTTP/1.1\r\nHost: a\r\n\r\n",
       {400},
       then::closes},
      {"9110 4.2.1",
       "with nothing but a port, too",
       "GET http://:80/p HTTP/1.1\r\nHost: a\r\n\r\n",
       {400},
       then::closes},
      {"9110 4.2.2",
       "an https URI without a host is invalid",
       "GET https:///p HTTP/1.1\r\nHost: a\r\n\r\n",
       {400},
       then::closes},
      {"9110 4.2.4",
       "a user in a target is an error",
       "GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n",
       {400},
       then::closes},
      {"9110 7.4",
       "an https resource is not served unsecured",
       "GET https://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
       {421},
       then::closes},
      {"9110 9.3.6",
       "CONNECT to no port is refused",
       "CONNECT a HTTP/1.1\r\nHost: a\r\n\r\n",
       {400},
       then::closes},
      {"9110 9.3.6",
       "to an empty one",
       "CONNECT a: HTTP/1.1\r\nHost: a\r\n\r\n",
       {400},
       then::closes},
      {"9110 9.3.6",
       "to an invalid one",
       "CONNECT a:99999 HTTP/1.1\r\nHost: a\r\n\r\n",
       {400},
       then::closes},
      {"9110 9.3.6",
       "there are no tunnels",
       "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n",
       {501},
       then::closes},
  };
  for (const char* good :
       {"", "a", "A.example", "a:80", "a:", "127.0.0.1:8080", "[::1]", "[::1]:80",
        "[fe80::1%25eth0]", "foo-bar_baz.com", "xn--bcher-kva.example", "a%20b", "a;b=c", "~a!"}) {
    rows.push_back(
        {"9112 3.2", "a valid Host", with_host(good), {200}, then::stays, "host="s + good + " "});
  }
  for (const char* bad : {"<script>a b/c@d",
                          "a b",
                          "a,b c",
                          "a/b",
                          "a?b",
                          "a#b",
                          "u@a",
                          "a:b",
                          "a:80:80",
                          "a:-1",
                          "a:65536",
                          ":80",
                          "::1",
                          "[::1",
                          "[::1]x",
                          "[]",
                          "[zz]",
                          "[1.2.3.4]",
                          "a%2",
                          "a%zz",
                          "\xe9",
                          "a\\b",
                          "\"a\"",
                          "{",
                          "a|b",
                          "a^b",
                          "a`b",
                          "http://a"}) {
    rows.push_back({"9112 3.2", "an invalid Host", with_host(bad), {400}, then::closes});
  }
  check(rows);
}

TEST(http_rfc, fields) {
  check({
      {"9112 5",
       "names have no case",
       "GET / HTTP/1.1\r\nhOST: a\r\nx: y\r\n\r\n",
       {200},
       then::stays,
       "host=a x=y "},
      {"9112 5.1", "a blank before the colon is a 400", get("X : y\r\n"), {400}, then::closes},
      {"9112 5.1", "a tab, too", get("X\t: y\r\n"), {400}, then::closes},
      {"9112 5.1",
       "blanks around a value are not part of it",
       get("X: \t y z \t\r\n"),
       {200},
       then::stays,
       "x=y z "},
      {"9112 5.1", "a line needs a colon", get("X\r\n"), {400}, then::closes},
      {"9112 5.1", "and a name", get(": y\r\n"), {400}, then::closes},
      {"9112 5.2", "a folded field is a 400", get("X: a\r\n b\r\n"), {400}, then::closes},
      {"9112 5.2",
       "also if nothing is in its first line",
       get("X:\r\n\tb\r\n"),
       {400},
       then::closes},
      {"9110 5.3",
       "nothing is done before the header is complete",
       "GET / HTTP/1.1\r\nHost: a\r\n",
       {400},
       then::ends},
      {"9110 5.4",
       "a field that is too long is a 4xx",
       get("X: " + std::string(70'000, 'x') + "\r\n"),
       {431},
       then::closes},
      {"9110 5.4",
       "so are too many",
       get([] {
         std::string many;
         while (many.size() < 70'000) many += "X: y\r\n";
         return many;
       }()),
       {431},
       then::closes},
      {"9110 5.5", "a NUL in a value is refused", get("X: a\0b\r\n"s), {400}, then::closes},
      {"9110 5.5", "a line feed, too", get("X: a\nb\r\n"), {400}, then::closes},
      {"9110 5.6.1.2",
       "empty elements of a list are ignored",
       get("Connection: ,, close ,\r\n"),
       {200},
       then::closes},
      {"9110 6.6.1", "a 2xx has a Date", get(""), {200}, then::stays, "\nDate: "},
      {"9110 6.6.1",
       "a 3xx has a Date",
       "GET /301 HTTP/1.1\r\nHost: a\r\n\r\n",
       {301},
       then::stays,
       "\nDate: "},
      {"9110 6.6.1",
       "a 4xx has a Date",
       "GET /404 HTTP/1.1\r\nHost: a\r\n\r\n",
       {404},
       then::stays,
       "\nDate: "},
      {"9110 6.6.1",
       "one of the server's own, too",
       "nonsense\r\n\r\n",
       {400},
       then::closes,
       "\nDate: "},
      {"9110 5.6.7", "which has the one format", get(""), {200}, then::stays, " GMT\r\n"},
      {"9110 7.6.1", "Proxy-Connection means nothing", get("Proxy-Connection: close\r\n"), {200}},
      {"9110 7.6.1", "whatever is in it", get("Proxy-Connection: \"(\r\n"), {200}},
      {"9110 7.6.1",
       "not in HTTP/1.0 either",
       "GET / HTTP/1.0\r\nProxy-Connection: keep-alive\r\n\r\n",
       {200},
       then::closes},
      {"9110 7.8",
       "an Upgrade to a protocol that we do not speak is ignored",
       get("Connection: upgrade\r\nUpgrade: websocket\r\n"),
       {200},
       then::stays,
       "",
       "Upgrade"},
      {"9110 7.8",
       "an Upgrade in HTTP/1.0 is ignored",
       "GET / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
       {200},
       then::closes,
       "",
       "Upgrade"},
      {"9110 14.2", "a range of an unknown unit is ignored", get("Range: lines=1-2\r\n"), {200}},
      {"9110 14.2",
       "a range for another method is ignored",
       post("Range: bytes=0-0\r\nContent-Length: 1\r\n", "x"),
       {200}},
  });
}

// What else is in it, says http_date of http_test.cpp.
TEST(http_rfc, dates_have_the_one_format) {
  const std::regex line(
      "Date: (Mon|Tue|Wed|Thu|Fri|Sat|Sun), [0-3][0-9] "
      "(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [0-9]{4} [0-2][0-9]:[0-5][0-9]:[0-6][0-9] "
      "GMT\r\n");
  for (const std::string& sent : {get(""), get("X : y\r\n"), "GET / HTTP/1.0\r\n\r\n"s}) {
    const seen s = run({"9110 5.6.7", "dates", sent, {}, then::ends}, arrival::at_once);
    EXPECT_TRUE(std::regex_search(s.text, line)) << s.text;
  }
}

TEST(http_rfc, bodies_of_requests) {
  const std::string two = "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
  check({
      {"9112 6.1",
       "chunks are understood",
       post(chunked, two),
       {200},
       then::stays,
       "body=hello world]"},
      {"9112 6",
       "a GET ends where its length says",
       get("Content-Length: 3\r\n") + "abc",
       {200},
       then::stays,
       "body=abc]"},
      {"9112 6",
       "so does a method that nobody knows",
       "PUSH / HTTP/1.1\r\nHost: a\r\n" + chunked + "\r\n3\r\nabc\r\n0\r\n\r\n",
       {200},
       then::stays,
       "body=abc]"},
      {"9112 7",
       "chunked has no parameters",
       post("Transfer-Encoding: chunked;q=1\r\n", two),
       {501},
       then::closes},
      {"9112 7",
       "its name has no case",
       post("Transfer-Encoding: Chunked\r\n", two),
       {200},
       then::stays,
       "body=hello world]"},
      {"9112 6.1",
       "an unknown coding is a 501",
       post("Transfer-Encoding: gzip, chunked\r\n", two),
       {501},
       then::closes},
      {"9112 6.1",
       "chunked twice is refused",
       post("Transfer-Encoding: chunked, chunked\r\n", two),
       {501},
       then::closes},
      {"9112 6.1", "in two fields, too", post(chunked + chunked, two), {400}, then::closes},
      {"9112 6.1",
       "a length and chunks: the connection is closed",
       post("Content-Length: 5\r\n" + chunked, two),
       {400},
       then::closes},
      {"9112 6.1",
       "in the other order, too",
       post(chunked + "Content-Length: 5\r\n", two),
       {400},
       then::closes},
      {"9112 6.1",
       "chunks in HTTP/1.0: the framing is faulty",
       "POST / HTTP/1.0\r\nConnection: keep-alive\r\n" + chunked + "\r\n" + two,
       {400},
       then::closes},
      {"9112 6.3",
       "chunked is not the last coding",
       post("Transfer-Encoding: chunked, gzip\r\n", two),
       {400},
       then::closes},
      {"9112 6.3",
       "it is none of them",
       post("Transfer-Encoding: gzip\r\n", two),
       {400},
       then::closes},
      {"9112 6.3",
       "an invalid length is a 400",
       post("Content-Length: 5x\r\n", "hello"),
       {400},
       then::closes},
      {"9112 6.3",
       "a sign is invalid",
       post("Content-Length: +5\r\n", "hello"),
       {400},
       then::closes},
      {"9112 6.3", "none is invalid", post("Content-Length:\r\n", "hello"), {400}, then::closes},
      {"9112 6.3",
       "two that differ are invalid",
       post("Content-Length: 5\r\nContent-Length: 6\r\n", "hello"),
       {400},
       then::closes},
      {"9112 6.3",
       "in one field, too",
       post("Content-Length: 5, 6\r\n", "hello"),
       {400},
       then::closes},
      {"9110 8.6",
       "one length twice counts once",
       post("Content-Length: 3, 3\r\n", "abc"),
       {200},
       then::stays,
       "length=3 body=abc]"},
      {"9110 8.6",
       "in two fields, too",
       post("Content-Length: 3\r\nContent-Length: 3\r\n", "abc"),
       {200},
       then::stays,
       "length=3 body=abc]"},
      {"9110 8.6",
       "large numbers do not overflow",
       post("Content-Length: 18446744073709551619\r\n", "abc"),
       {400},
       then::closes},
      {"9110 8.6",
       "those that fit may be too much",
       post("Content-Length: 18446744073709551615\r\n", "abc"),
       {413},
       then::closes},
      {"9112 6.3",
       "without either there is no body",
       "POST / HTTP/1.1\r\nHost: a\r\n\r\n",
       {200},
       then::stays,
       "body=]"},
      {"9112 6.3",
       "a body that ends early is no request",
       post("Content-Length: 5\r\n", "hel"),
       {400},
       then::ends},
      {"9112 8",
       "chunks that end early are none",
       post(chunked, "5\r\nhello\r\n"),
       {400},
       then::ends},
      {"9112 7.1",
       "large chunk sizes do not overflow",
       post(chunked, "10000000000000003\r\nabc"),
       {400},
       then::closes},
      {"9112 7.1",
       "those that fit may be too much",
       post(chunked, "ffffffffffffffff\r\nabc"),
       {413},
       then::closes},
      {"9112 7.1",
       "a size is hexadecimal, of either case",
       post(chunked, "a\r\n0123456789\r\nA\r\n0123456789\r\n00\r\n\r\n"),
       {200},
       then::stays,
       "body=01234567890123456789]"},
      {"9112 7.1",
       "a chunk ends where it says",
       post(chunked, "3\r\nabcd\r\n0\r\n\r\n"),
       {400},
       then::closes},
      {"9112 7.1",
       "a line feed alone ends no chunk header",
       post(chunked, "3\nabc\r\n0\r\n\r\n"),
       {400},
       then::closes},
      {"9112 7.1.1",
       "unknown extensions are ignored",
       post(chunked, "3;a;b=c ; d = \"e;\\\"f\"\r\nabc\r\n0;x\r\n\r\n"),
       {200},
       then::stays,
       "body=abc]"},
      {"9112 7.1.1",
       "too many of them are a 4xx",
       post(chunked,
            [] {
              std::string many;
              for (int i = 0; i < 1'000; ++i) many += "1;" + std::string(100, 'e') + "\r\nx\r\n";
              return many + "0\r\n\r\n";
            }()),
       {400},
       then::closes},
      {"9112 7.1.2",
       "a trailer is no header",
       post(chunked, "0\r\nX: trailer\r\n\r\n"),
       {200},
       then::stays,
       "x= ",
       "trailer"},
      {"9110 6.5.1",
       "it cannot say where the message ends",
       post(chunked, "0\r\nContent-Length: 5\r\n\r\n"),
       {400},
       then::closes},
      {"9110 6.5.1",
       "nor for whom it is",
       post(chunked, "0\r\nHost: a\r\n\r\n"),
       {400},
       then::closes},
      {"9110 10.1.1",
       "100-continue is answered ahead of the body",
       post("Expect: 100-continue\r\nContent-Length: 5\r\n", ""),
       {100, 400},
       then::ends,
       "\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 400"},
      {"9110 10.1.1",
       "in any case",
       post("Expect: 100-Continue\r\nContent-Length: 5\r\n", "hello"),
       {200},
       then::stays},
      {"9110 10.1.1",
       "or with the final status at once",
       post("Expect: 100-continue\r\nContent-Length: 99999999\r\n", ""),
       {413},
       then::closes},
      {"9110 10.1.1",
       "in HTTP/1.0 it is ignored",
       "POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
       {400},
       then::ends,
       "",
       " 100 "},
      {"9110 10.1.1",
       "other expectations are not met",
       get("Expect: tea\r\n"),
       {417},
       then::closes},
      {"9110 10.1.1",
       "not beside the known one either",
       post("Expect: 100-continue, tea\r\nContent-Length: 1\r\n", "x"),
       {417},
       then::closes},
  });
}

TEST(http_rfc, answers_and_connections) {
  const auto target = [](const std::string& path, const std::string& method = "GET") {
    return method + " " + path + " HTTP/1.1\r\nHost: a\r\n\r\n";
  };
  check({
      {"9112 6.1",
       "a 204 has no coding",
       target("/204"),
       {204},
       then::stays,
       "",
       "Transfer-Encoding"},
      {"9110 8.6",
       "a 204 has no length",
       "GET /204 HTTP/1.0\r\n\r\n",
       {204},
       then::closes,
       "",
       "Content-Length"},
      {"9112 6.3", "a 204 has no content", target("/204"), {204}, then::stays, "", "dropped"},
      {"9112 6.3", "a 304 has no content", target("/304"), {304}, then::stays, "", "dropped"},
      {"9110 8.6",
       "a 304 has no length that is not the 200's",
       "GET /304 HTTP/1.0\r\n\r\n",
       {304},
       then::closes,
       "",
       "Content-Length"},
      {"9110 15.3.6",
       "a 205 has no content",
       target("/205"),
       {205},
       then::stays,
       "\nContent-Length: 0\r\n",
       "dropped"},
      {"9110 15.3.6",
       "not if it is flushed either",
       target("/205-flushed"),
       {205},
       then::stays,
       "\nContent-Length: 0\r\n",
       "dropped"},
      {"9112 6.1",
       "HTTP/1.0 gets no chunks",
       "GET /flush HTTP/1.0\r\n\r\n",
       {200},
       then::closes,
       "",
       "Transfer-Encoding"},
      {"9112 6.2",
       "chunks have no length",
       "GET /flush HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
       {200},
       then::closes,
       "\nTransfer-Encoding: chunked\r\n",
       "Content-Length: "},
      {"9110 9.1", "HEAD is there", target("/", "HEAD"), {200}, then::stays, "\nContent-Length: "},
      {"9110 9.3.2", "and has no content", target("/", "HEAD"), {200}, then::stays, "", "[HEAD"},
      {"9110 9.3.2",
       "not if it is refused either",
       "HEAD / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n",
       {400},
       then::ends,
       "\nContent-Length: ",
       "400 Bad Request\n"},
      {"9112 9.3",
       "what is not read closes the connection",
       post("Content-Length: 9999999\r\n", "x"),
       {413},
       then::closes,
       "\nConnection: close\r\n"},
      {"9112 9.3", "HTTP/1.1 stays open", target("/"), {200}, then::stays, "", "Connection: "},
      {"9112 9.3", "HTTP/1.0 does not", "GET / HTTP/1.0\r\n\r\n", {200}, then::closes},
      {"9112 9.3",
       "unless the client asks for it",
       "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n",
       {200},
       then::stays,
       "\nConnection: keep-alive\r\n"},
      {"9112 9.3.2",
       "answers come in the order of the requests",
       target("/1") + target("/2") + target("/3"),
       {200, 200, 200},
       then::stays},
      {"9112 9.6",
       "after a close of the client's nothing is answered",
       get("Connection: close\r\n"),
       {200},
       then::closes,
       "\nConnection: close\r\n"},
      {"9112 9.6",
       "in a list and any case, too",
       get("Connection: x, CLOSE\r\n"),
       {200},
       then::closes,
       "\nConnection: close\r\n"},
      {"9112 9.6",
       "after a close of the server's nothing is answered",
       target("/close"),
       {200},
       then::closes,
       "\nConnection: close\r\n"},
      {"9110 15.2",
       "HTTP/1.0 gets no 1xx",
       "POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx",
       {200},
       then::closes,
       "",
       " 100 "},
  });
}

}  // namespace
