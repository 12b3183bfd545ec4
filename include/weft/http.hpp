// weft/http.hpp: a small HTTP/1.1 server and client. Not part of weft/weft.hpp.
//
//     auto listener = weft::net::listen("tcp", "127.0.0.1:8080");
//     const auto answer = [](const weft::http::request& in, weft::http::response& out) {
//       out.write("hello, " + in.target);
//     };
//     const std::error_code why = weft::http::serve(*listener, answer);
//
// Each connection is a goroutine, and a handler is plain code that may wait. What a peer may send
// is bounded in size and time. There is no TLS: put a proxy in front of it.
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

  // Returns: the first value of that name, or null.
  WEFT_API const std::string* find(std::string_view name) const noexcept;
  // The same, or an empty string.
  WEFT_API const std::string& operator[](std::string_view name) const noexcept;

  // Adds one more field of that name, or puts it in the place of all there are.
  WEFT_API void add(std::string_view name, std::string_view value);
  WEFT_API void set(std::string_view name, std::string_view value);
  // Returns: how many there were.
  WEFT_API std::size_t erase(std::string_view name);
  // Keeps a modest amount of memory for the next ones.
  WEFT_API void clear() noexcept;

  void swap(headers& other) noexcept {
    fields_.swap(other.fields_);
    std::swap(size_, other.size_);
    std::swap(long_bytes_, other.long_bytes_);
  }

 private:
  std::vector<field> fields_;  // from size_ on: strings to be used again
  std::size_t size_ = 0;
  std::size_t long_bytes_ = 0;  // kept by long strings
};

// What a client asks. Requests that are not well-formed never reach a handler.
struct request {
  std::string method;                   // "GET"; case counts
  std::string target;                   // "/path?query", as it came; of "http://host/path", "/path"
  http::headers headers;                // Host is the target's host if that has one
  std::string body;                     // all of it; empty for a streaming handler
  context ctx = context::background();  // with the values of serve's. Ends when the server gives
                                        // up waiting for the handler (serve_options::drain), but
                                        // not with the client: see response::while_connected
};

namespace detail {
class connection;
}

// The answer. The status is 200 unless set. A body that ends within serve_options::buffer_bytes is
// sent with its Content-Length, when the handler returns; a longer one, or one that is flushed, in
// pieces (chunked), unless the handler has set a Content-Length. The answer to HEAD has that head
// and no body; if the handler wrote none, and set no Content-Length, the head has no length.
//
// Requires: used by one goroutine at a time, and not after the handler returned.
class response {
 public:
  // Throws: std::invalid_argument unless 200 <= code <= 999; std::logic_error if the head has been
  // sent.
  WEFT_API void status(int code);
  // Sets a header field, in the place of any of that name, or adds one (Set-Cookie). The connection
  // itself belongs to the server: Transfer-Encoding cannot be set, Connection only to "close".
  // A Content-Length lets a flushed body go out as it is; writing more than that throws
  // std::logic_error, and less breaks the connection off.
  // Throws: std::invalid_argument if a name is no token, or a value has control characters (so
  // nobody can smuggle a line in); std::logic_error if the head has been sent.
  WEFT_API void set(std::string_view name, std::string_view value);
  WEFT_API void add(std::string_view name, std::string_view value);
  // Appends to the body. Blocks: the goroutine, from serve_options::buffer_bytes on, while the
  // client does not read. Without effect once the client is gone: see flush.
  WEFT_API void write(std::string_view text);
  // Appends a file from its position on, at most `count` bytes. Of a file on a disk that is more
  // than a few KiB nothing comes into the program's memory, unless the body goes out in chunks; and
  // if it is the whole body so far, and no Content-Length is set, this sets it. Blocks: as flush.
  // Returns: why the file cannot be read, or the client not be reached any more.
  [[nodiscard]] WEFT_API std::error_code write_file(
      os::file& from, std::uint64_t count = std::numeric_limits<std::uint64_t>::max());
  // Sends what there is so far, and the rest piece by piece. Blocks: the goroutine, while the
  // client does not read. Returns: why the client cannot be reached any more.
  [[nodiscard]] WEFT_API std::error_code flush();
  // A context below request::ctx that also ends when the client goes away: closes the connection,
  // or only the side it sends on; and when the handler returns. Costs a goroutine from the first
  // call on. Throws: as weft::go.
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
  // Returns: the next piece, which is valid until the next call; empty at the end. On an error the
  // connection is lost; the server answers what has to be answered if nothing was sent so far.
  // Beside response::while_connected that may be not_enough_memory, if no goroutine can be made.
  // Blocks: the goroutine.
  [[nodiscard]] WEFT_API expected<std::string_view> read();

  explicit body_reader(detail::connection& of) noexcept : connection_(of) {}  // for the server
  body_reader(const body_reader&) = delete;
  body_reader& operator=(const body_reader&) = delete;

 private:
  detail::connection& connection_;
};

using handler = std::function<void(const request&, response&)>;
using streaming_handler = std::function<void(const request&, body_reader&, response&)>;

struct serve_options {
  using duration = std::chrono::nanoseconds;

  std::size_t header_bytes = std::size_t{64} << 10;  // request line and header; more: 431 or 414
  std::size_t body_bytes = std::size_t{8} << 20;     // more: 413
  duration idle = std::chrono::seconds(75);          // for the next request to begin, at most
  duration read = std::chrono::seconds(10);   // for the first request to begin, for a whole header:
                                              // 408; and without a byte of a body: 408
  duration write = std::chrono::seconds(30);  // for the client to take 256 KiB of an answer
  std::size_t body_rate = 1024;  // bytes per second that a body must come with, over `read`: 408
  std::size_t connections = 65'536;  // at a time; more wait to be accepted
  std::size_t requests = std::numeric_limits<std::size_t>::max();  // of one connection
  std::size_t buffer_bytes = std::size_t{16} << 10;  // of an answer's body; the rest is streamed
  duration drain = std::chrono::seconds(30);  // for requests in flight when serve's context ends

  // Gets each exception that leaves a handler, before the client gets its 500. If it is not set the
  // exception is a line on stderr: "weft: http handler for GET /path: " and its what(). Called by
  // many goroutines at the same time.
  std::function<void(const request&, std::exception_ptr)> on_error = {};
};

// Answers what comes to the listener until the context ends or the listener is closed. Then serve
// closes the listener, so that new clients are refused at once; idle connections are closed, too,
// requests in flight are answered and their connections closed. After serve_options::drain the
// contexts of the requests end; what a handler answers within 500 ms from then still goes out, then
// nobody waits for a client any more. An exception that leaves the handler is a 500 and the end of
// that connection: see serve_options::on_error. The handler is called by many goroutines at the
// same time.
//
// Returns: nothing if the context ended, else why nothing comes any more (errc::closed). Blocks:
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

// What a server answers.
struct message {
  int status = 0;
  http::headers headers;
  std::string body;
};

// Why there is no answer, or not all of it, when the connection came to an ordinary end. Both are
// std::errc::connection_reset, too; a connection that was reset has that code itself.
enum class answer_errc { missing = 1, truncated };

WEFT_API const std::error_category& answer_category() noexcept;
inline std::error_code make_error_code(answer_errc e) noexcept {
  return {static_cast<int>(e), answer_category()};
}

}  // namespace weft::http

template <>
struct std::is_error_code_enum<weft::http::answer_errc> : std::true_type {};

namespace weft::http {

struct client_options {
  std::size_t header_bytes = std::size_t{256} << 10;
  std::size_t body_bytes = std::size_t{64} << 20;
  std::size_t idle_connections = 8;                          // kept open, per server; 0: none
  std::chrono::nanoseconds idle = std::chrono::seconds(30);  // how long
};

// Sends requests, on connections that are kept open between them. Any number of goroutines may use
// one at a time. Redirects are answers like others. A request that gets no answer on a connection
// that was kept is sent again, on another one, if its method or an Idempotency-Key says that this
// does no harm; never if it could then be carried out twice (POST).
//
// Header fields are sent as they are given; Host and User-Agent are added if they are missing. The
// connection itself belongs to the client: it refuses Connection, Transfer-Encoding and Expect, and
// a Content-Length that is not the body's (it sends the right one by itself). Whoever passes a
// request on has to erase these.
//
// Errors: that of the context, at once, if it ends; std::errc::protocol_not_supported for an https
// URL; invalid_argument for what is no http URL, for the method CONNECT or one that is no token,
// and for a field that is refused, whose name is no token or whose value has control characters;
// bad_message if the answer is no HTTP, message_size if it is too long, answer_errc::missing or
// truncated if the connection ends before it does; not_enough_memory if no goroutine can be made,
// which bodies of more than 16 KiB take; else the network's.
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

// One request on a connection of its own.
[[nodiscard]] WEFT_API expected<message> get(const context& ctx, std::string_view url);
[[nodiscard]] inline expected<message> get(std::string_view url) {
  return get(context::background(), url);
}
[[nodiscard]] WEFT_API expected<message> send(const context& ctx, std::string_view method,
                                              std::string_view url, const headers& fields = {},
                                              std::string_view body = {});
[[nodiscard]] inline expected<message> send(std::string_view method, std::string_view url,
                                            const headers& fields = {},
                                            std::string_view body = {}) {
  return send(context::background(), method, url, fields, body);
}

}  // namespace weft::http
