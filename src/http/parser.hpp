// parser.hpp: bytes into requests and answers, by Boost.Beast's parser, which only parser.cpp sees.
//
// Nothing here reads or waits. The caller puts its bytes in, and keeps those that were not used
// until it has more.
#pragma once

#include <weft/http.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace weft::http {

struct parse_limits {
  std::size_t header_bytes = 0;
  std::uint64_t body_bytes = 0;
};

// The result of a put.
struct put_result {
  std::size_t used = 0;   // how many bytes are not needed any more
  std::string_view body;  // a piece of the body, within the bytes put in
  int error = 0;          // the status to answer, or 0. After an error the parser cannot be used
  bool need_more = false;
};

class request_parser {
 public:
  explicit request_parser(parse_limits limits);
  ~request_parser();

  // Begins a new request, whose method, target and headers are put there.
  void begin(request& into);
  // Parses up to the end of the header, or a piece of the body, or the end of the bytes.
  put_result put(std::string_view bytes);

  bool is_header_done() const noexcept;
  bool is_done() const noexcept;
  bool is_chunked() const noexcept;
  bool wants_keep_alive() const noexcept;
  // The length that the header gives; 0 if it gives none.
  std::uint64_t content_length() const noexcept;

  // Valid when the header is done.
  int minor_version() const noexcept;
  bool expects_continue() const noexcept;

 private:
  struct core;
  std::unique_ptr<core> core_;
};

class message_parser {
 public:
  enum class has_body : std::uint8_t { as_it_says, never };  // never: the answer to HEAD

  message_parser(parse_limits limits, message& into, has_body b);
  ~message_parser();

  put_result put(std::string_view bytes);
  // To be called at the end of the stream. Returns: false if the message is incomplete.
  bool end();

  bool is_done() const noexcept;
  bool wants_keep_alive() const noexcept;

 private:
  struct core;
  std::unique_ptr<core> core_;
};

// "Not Found"; may be empty.
std::string_view reason_phrase(int status) noexcept;

}  // namespace weft::http
