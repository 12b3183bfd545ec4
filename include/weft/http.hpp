// weft/http.hpp: a small HTTP/1.1 server and client. Not part of weft/weft.hpp.
//
//     auto listener = weft::net::listen("tcp", "127.0.0.1:8080");
//     const auto answer = [](const weft::http::request& in, weft::http::response& out) {
//       out.write("hello, " + in.target);
//     };
//     const std::error_code why = weft::http::serve(*listener, answer);
//
// Each connection has a goroutine, and a handler is plain code that may wait. What a peer may send
// is bounded in size and time. There is no TLS: put a proxy in front of the server.
#pragma once

#include <weft/context.hpp>
#include <weft/detail/config.hpp>
#include <weft/net.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace weft::os {
class file;
}

namespace weft::http {

// A header field.
struct field {
  std::string name;
  std::string value;
  bool operator==(const field&) const = default;
};

// Header fields in the order in which they came. Names are compared without regard to case.
class headers {
 public:
  using const_iterator = const field*;

  headers() = default;
  WEFT_API headers(std::initializer_list<field> fields);
  WEFT_API headers(const headers& other);
  headers(headers&& other) noexcept { swap(other); }
  headers& operator=(headers other) noexcept {
    swap(other);
    return *this;
  }
  ~headers() = default;

  const_iterator begin() const noexcept { return fields_.data(); }
  const_iterator end() const noexcept { return fields_.data() + size_; }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }

  // Returns: the first value with that name, or null.
  WEFT_API const std::string* find(std::string_view name) const noexcept;
  // Returns: the first value with that name, or an empty string.
  WEFT_API const std::string& operator[](std::string_view name) const noexcept;

  // add() adds one more field of that name; set() replaces all fields of that name.
  WEFT_API void add(std::string_view name, std::string_view value);
  WEFT_API void set(std::string_view name, std::string_view value);
  // Removes all fields of that name. Returns: how many there were.
  WEFT_API std::size_t erase(std::string_view name);
  // Removes all fields. Keeps a modest amount of memory for the next ones.
  WEFT_API void clear() noexcept;

  void swap(headers& other) noexcept {
    fields_.swap(other.fields_);
    std::swap(size_, other.size_);
    std::swap(long_bytes_, other.long_bytes_);
  }

 private:
  std::vector<field> fields_;  // from size_ on: strings that will be used again
  std::size_t size_ = 0;
  std::size_t long_bytes_ = 0;  // memory that long strings keep
};

// What a client asks. Requests that are not well-formed never reach a handler.
struct request {
  std::string method;     // "GET"; case counts
  std::string target;     // "/path?query", as received; "/path" if "http://host/path" was received
  http::headers headers;  // Host is the host of the target, if the target has one
  std::string body;       // all of it; empty for a streaming handler
  // This context has the values of serve's context. It ends when the server gives up waiting for
  // the handler (serve_options::drain), but not when the client goes away: see
  // response::while_connected.
  context ctx = context::background();
};

namespace detail {
class connection;
}

// The answer to a request. The status is 200 unless the handler sets another. A body that ends
// within serve_options::buffer_bytes is sent with its Content-Length when the handler returns. A
// longer body, or one that is flushed, is sent in pieces (chunked), unless the handler has set a
// Content-Length. The answer to HEAD has the same head as if the body were sent, but no body. If
// the handler wrote no body and set no Content-Length, the head of that answer has no
// Content-Length.
//
// Requires: one goroutine at a time uses the response, and none after the handler has returned.
class response {
 public:
  // Sets the status. Throws: std::invalid_argument unless 200 <= code <= 999; std::logic_error if
  // the head has been sent.
  WEFT_API void status(int code);
  // set() sets a header field and replaces any field of that name; add() adds one more
  // (Set-Cookie). The server itself manages the connection: Transfer-Encoding cannot be set, and
  // Connection only to "close". With a Content-Length a flushed body is not chunked. Writing more
  // than the Content-Length throws std::logic_error, and writing less breaks the connection off.
  // Throws: std::invalid_argument if a name is no token, or a value has control characters (so that
  // nobody can smuggle a line in); std::logic_error if the head has been sent.
  WEFT_API void set(std::string_view name, std::string_view value);
  WEFT_API void add(std::string_view name, std::string_view value);
  // Appends to the body. Has no effect once the client is gone: see flush. Blocks: the goroutine,
  // while the client does not read and serve_options::buffer_bytes have been written.
  WEFT_API void write(std::string_view text);
  // Appends a file, from its current position on, at most `count` bytes. If that is more than a few
  // KiB of a file on a disk, the bytes never enter the program's memory, unless the body is
  // chunked. If the file is the whole body so far and no Content-Length is set, this call sets it.
  // Blocks: as flush. Returns: why the file cannot be read, or why the client can no longer be
  // reached.
  [[nodiscard]] WEFT_API std::error_code write_file(
      os::file& from, std::uint64_t count = std::numeric_limits<std::uint64_t>::max());
  // Sends what has been written so far; from then on the body is sent piece by piece. Blocks: the
  // goroutine, while the client does not read. Returns: why the client can no longer be reached.
  [[nodiscard]] WEFT_API std::error_code flush();
  // Returns: a context below request::ctx. It also ends when the handler returns, and when the
  // client closes the connection, or only the side on which the client sends. The first call starts
  // a goroutine. Throws: as weft::go.
  WEFT_API context while_connected();

  explicit response(detail::connection& of) noexcept : connection_(of) {}  // for the server
  response(const response&) = delete;
  response& operator=(const response&) = delete;

 private:
  detail::connection& connection_;
};

// The body of a request, piece by piece.
class body_reader {
 public:
  // Returns: the next piece, which is valid until the next call; empty at the end. After an error
  // the connection is lost; if nothing was sent so far, the server sends the answer that the error
  // demands. If response::while_connected is in use and no goroutine can be made, the error is
  // not_enough_memory. Blocks: the goroutine.
  [[nodiscard]] WEFT_API expected<std::string_view> read();

  explicit body_reader(detail::connection& of) noexcept : connection_(of) {}  // for the server
  body_reader(const body_reader&) = delete;
  body_reader& operator=(const body_reader&) = delete;

 private:
  detail::connection& connection_;
};

// A function that answers a request.
using handler = std::function<void(const request&, response&)>;
// A handler that reads the body of the request itself.
using streaming_handler = std::function<void(const request&, body_reader&, response&)>;

// Limits of a server, and what it does about exceptions. A number after a limit is the status that
// a client gets for exceeding it.
struct serve_options {
  using duration = std::chrono::nanoseconds;

  std::size_t header_bytes = std::size_t{64} << 10;  // request line and header; more: 431 or 414
  std::size_t body_bytes = std::size_t{8} << 20;     // more: 413
  duration idle = std::chrono::seconds(75);          // for a request to begin
  // Three limits: how long the first request may take to begin (else the connection is closed), how
  // long a whole header may take (else 408), and how long no byte of a body may come (else 408).
  duration read = std::chrono::seconds(10);
  duration write = std::chrono::seconds(30);  // for the client to take 256 KiB of an answer
  std::size_t body_rate = 1024;      // least bytes per second of a body, over the time `read`: 408
  std::size_t connections = 65'536;  // at a time; more wait to be accepted
  std::size_t requests = std::numeric_limits<std::size_t>::max();  // per connection
  std::size_t buffer_bytes = std::size_t{16} << 10;  // of an answer's body; more is streamed
  // How long requests in flight may go on after the context of serve has ended.
  duration drain = std::chrono::seconds(30);

  // Called with each exception that leaves a handler, before the client gets its 500. Without this
  // function the exception becomes a line on stderr: "weft: http handler for GET /path: " and its
  // what(). Many goroutines call it at the same time.
  std::function<void(const request&, std::exception_ptr)> on_error = {};
};

// Answers the requests that come to the listener until the context ends or the listener is closed.
// Then serve closes the listener, so that new clients are refused at once. It closes idle
// connections; it answers requests in flight and then closes their connections. When
// serve_options::drain has passed, the contexts of the requests end. Answers that handlers give
// within the next 500 ms are still sent. Then the server no longer waits for any client. An
// exception that leaves the handler becomes a 500 and the end of that connection: see
// serve_options::on_error. Many goroutines call the handler at the same time.
//
// Returns: no error if the context ended, else why no more connections come (errc::closed). Blocks:
// the goroutine, until the last handler has returned.
[[nodiscard]] WEFT_API std::error_code serve(const context& ctx, net::listener& l, handler h,
                                             serve_options options = {});
[[nodiscard]] inline std::error_code serve(net::listener& l, handler h,
                                           serve_options options = {}) {
  return serve(context::background(), l, std::move(h), std::move(options));
}
// Like serve, for handlers that read the body themselves.
[[nodiscard]] WEFT_API std::error_code serve_streaming(const context& ctx, net::listener& l,
                                                       streaming_handler h,
                                                       serve_options options = {});
[[nodiscard]] inline std::error_code serve_streaming(net::listener& l, streaming_handler h,
                                                     serve_options options = {}) {
  return serve_streaming(context::background(), l, std::move(h), std::move(options));
}

// The answer of a server, as a client gets it.
struct message {
  int status = 0;
  http::headers headers;
  std::string body;
};

// Why an answer is missing or incomplete although the connection came to an ordinary end. Both
// codes equal std::errc::connection_reset, too. If the connection was reset instead, the error is
// std::errc::connection_reset itself.
enum class answer_errc { missing = 1, truncated };

WEFT_API const std::error_category& answer_category() noexcept;
inline std::error_code make_error_code(answer_errc e) noexcept {
  return {static_cast<int>(e), answer_category()};
}

}  // namespace weft::http

template <>
struct std::is_error_code_enum<weft::http::answer_errc> : std::true_type {};

namespace weft::http {

// Limits of a client.
struct client_options {
  std::size_t header_bytes = std::size_t{256} << 10;
  std::size_t body_bytes = std::size_t{64} << 20;
  std::size_t idle_connections = 8;                          // kept open per server; 0: none
  std::chrono::nanoseconds idle = std::chrono::seconds(30);  // how long they are kept
};

// Sends requests on connections that stay open between them. Any number of goroutines may use one
// client at the same time. A redirect is an answer like any other. If a request gets no answer on a
// connection that was kept open, the client sends it again on another connection, provided that its
// method or an Idempotency-Key says that this does no harm. A request that could then be carried
// out twice (POST) is never sent again.
//
// Header fields are sent as they are given; Host and User-Agent are added if they are missing. The
// client itself manages the connection: it refuses Connection, Transfer-Encoding and Expect, and a
// Content-Length that differs from the length of the body (the client sends the right one). A
// program that passes a request on has to erase these fields.
//
// Errors: the error of the context, at once, if the context ends; std::errc::protocol_not_supported
// for an https URL; invalid_argument for a URL that is not http, for the method CONNECT, for a
// method that is no token, and for a field that is refused, whose name is no token or whose value
// has control characters; bad_message if the answer is no HTTP; message_size if the answer is too
// long; answer_errc::missing or truncated if the connection ends before the answer does;
// not_enough_memory if no goroutine can be made, which bodies of more than 16 KiB need; else the
// error of the network.
class client {
 public:
  WEFT_API explicit client(client_options options = {});
  WEFT_API ~client();
  client(const client&) = delete;
  client& operator=(const client&) = delete;

  [[nodiscard]] WEFT_API expected<message> get(const context& ctx, std::string_view url);
  [[nodiscard]] expected<message> get(std::string_view url) {
    return get(context::background(), url);
  }
  [[nodiscard]] WEFT_API expected<message> request(const context& ctx, std::string_view method,
                                                   std::string_view url, const headers& fields = {},
                                                   std::string_view body = {});
  [[nodiscard]] expected<message> request(std::string_view method, std::string_view url,
                                          const headers& fields = {}, std::string_view body = {}) {
    return request(context::background(), method, url, fields, body);
  }

 private:
  class pool;
  std::shared_ptr<pool> pool_;
};

// get and send make one request on a connection of its own.
[[nodiscard]] WEFT_API expected<message> get(const context& ctx, std::string_view url);
[[nodiscard]] inline expected<message> get(std::string_view url) {
  return get(context::background(), url);
}
// Sends a request with any method on a connection of its own.
[[nodiscard]] WEFT_API expected<message> send(const context& ctx, std::string_view method,
                                              std::string_view url, const headers& fields = {},
                                              std::string_view body = {});
[[nodiscard]] inline expected<message> send(std::string_view method, std::string_view url,
                                            const headers& fields = {},
                                            std::string_view body = {}) {
  return send(context::background(), method, url, fields, body);
}

}  // namespace weft::http
