// parser.cpp: Boost.Beast's parser, and where we are stricter than it.
//
// Beast finds lines, fields, chunks and numbers. On top of that we refuse what lets two parties on
// one way disagree about where a message ends (request smuggling):
//
//   - a field that goes on in the next line (obs-fold), which Beast joins. It shows in where the
//     value lies: not right behind its name.
//   - any Transfer-Encoding but "chunked", which Beast takes for no body at all, and every one in
//     HTTP/1.0. Both it and a Content-Length, or two that differ, Beast refuses itself.
//   - control characters in a chunk's extension, where Beast lets a quoted line end pass.
//   - an HTTP/1.1 request without a Host, or any with two.
//
// And what Beast does not bound: chunk headers. One of them, and a trailer, may be as long as a
// header (whoever calls has a buffer of that size and no larger); on top of 16 bytes and two per
// byte of its data all of them together may have excess_max. Trailers are dropped.
//
// Beast's assertions are off: one of them (n >= 5, in parse_chunk_header) does not hold when the
// last chunk comes in pieces, though the code is right then, too.
#define BOOST_DISABLE_ASSERTS

#include "http/parser.hpp"

#include "http/text.hpp"

#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/status.hpp>

#include <algorithm>
#include <utility>

namespace weft::http {
namespace {

namespace beast = boost::beast::http;
using boost::beast::error_code;

constexpr std::uint64_t excess_max = 16384;

std::string_view to_std(boost::beast::string_view s) noexcept { return {s.data(), s.size()}; }

// What requests and answers have in common. Derived is told of the first line and the fields.
template <bool is_request, class Derived>
class parser : public beast::basic_parser<is_request> {
 public:
  put_result put_bytes(std::string_view bytes) {
    put_result result;
    error_code ec;
    const bool in_header = !this->is_header_done();
    piece_ = {};
    chunk_bytes_ = 0;
    result.used = this->put(boost::asio::const_buffer(bytes.data(), bytes.size()), ec);
    result.body = piece_;
    if (ec == beast::error::need_more) {
      result.need_more = true;
      ec = {};
    }
    if (in_header) {
      header_bytes_ += result.used;
      const std::size_t waiting = result.need_more ? bytes.size() - result.used : 0;
      // Beast counts the first line and the fields apart.
      if (!ec && header_bytes_ + waiting > limits_.header_bytes) ec = beast::error::header_limit;
    } else if (!ec && result.body.empty() && this->chunked()) {
      excess_ += result.used;
      excess_ -= std::min(excess_, 16 + 2 * chunk_bytes_);
      if (excess_ > excess_max && !this->is_done()) ec = beast::error::bad_chunk_extension;
    }
    if (ec) result.error = status_ != 0 ? status_ : status_of(ec, bytes.substr(result.used));
    return result;
  }

 protected:
  void on_request_impl(beast::verb, boost::beast::string_view method,
                       boost::beast::string_view target, int version, error_code& ec) override {
    got_first_line_ = true;
    if constexpr (is_request) self().first_line(to_std(method), to_std(target), version, ec);
  }
  void on_response_impl(int status, boost::beast::string_view, int, error_code&) override {
    got_first_line_ = true;
    if constexpr (!is_request) self().first_line(status);
  }
  void on_field_impl(beast::field f, boost::beast::string_view name,
                     boost::beast::string_view value, error_code& ec) override {
    const char* p = name.data() + name.size() + 1;
    while (p != value.data() && (*p == ' ' || *p == '\t')) ++p;
    if (p != value.data()) return refuse(400, ec);
    if (got_header_) return;
    self().next_field(f, to_std(name), to_std(value), ec);
  }
  void on_header_impl(error_code& ec) override {
    got_header_ = true;
    self().header(ec);
  }
  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}
  std::size_t on_body_impl(boost::beast::string_view piece, error_code&) override {
    piece_ = to_std(piece);
    return piece.size();
  }
  void on_chunk_header_impl(std::uint64_t size, boost::beast::string_view extension,
                            error_code& ec) override {
    if (!is_field_value(to_std(extension))) return refuse(400, ec);
    chunk_bytes_ = size;
  }
  std::size_t on_chunk_body_impl(std::uint64_t, boost::beast::string_view piece,
                                 error_code&) override {
    piece_ = to_std(piece);
    return piece.size();
  }
  void on_finish_impl(error_code&) override {}

  void refuse(int status, error_code& ec) noexcept {
    status_ = status;
    ec = beast::error::bad_value;
  }

 private:
  friend Derived;
  explicit parser(parse_limits limits) : limits_(limits) {
    this->header_limit(static_cast<std::uint32_t>(
        std::min<std::size_t>(limits.header_bytes, std::numeric_limits<std::uint32_t>::max())));
    this->body_limit(limits.body_bytes);
  }

  Derived& self() noexcept { return static_cast<Derived&>(*this); }

  // The status that says what is wrong. `rest` begins with what could not be parsed.
  int status_of(const error_code& ec, std::string_view rest) const noexcept {
    if (ec == beast::error::header_limit) return got_first_line_ ? 431 : 414;
    if (ec == beast::error::body_limit) return 413;
    if (ec == beast::error::bad_version) {
      // Only a version that is one can be one that we do not speak.
      const std::string_view line = rest.substr(0, rest.find('\r'));
      const std::size_t space = line.rfind(' ');
      if (space == line.npos) return 400;
      const std::string_view v = line.substr(space + 1);
      const auto digit = [](char c) { return c >= '0' && c <= '9'; };
      const bool is_version =
          v.size() == 8 && v.starts_with("HTTP/") && digit(v[5]) && v[6] == '.' && digit(v[7]);
      return is_version ? 505 : 400;
    }
    return 400;
  }

  const parse_limits limits_;
  std::string_view piece_;
  std::uint64_t chunk_bytes_ = 0;  // by the chunk header of this put
  std::uint64_t excess_ = 0;
  std::size_t header_bytes_ = 0;
  int status_ = 0;  // why a field was refused
  bool got_first_line_ = false;
  bool got_header_ = false;
};

class parser_of_requests final : public parser<true, parser_of_requests> {
 public:
  parser_of_requests(parse_limits limits, request& into) : parser(limits), into_(into) {}

  void first_line(std::string_view method, std::string_view target, int version, error_code& ec) {
    into_.method.assign(method);
    into_.target.assign(target);
    minor_version = version - 10;
    if (method == "CONNECT") refuse(501, ec);  // no tunnels here
  }
  void next_field(beast::field f, std::string_view name, std::string_view value, error_code& ec) {
    switch (f) {
      case beast::field::host:
        if (hosts_++ != 0) return refuse(400, ec);
        break;
      case beast::field::transfer_encoding:
        if (minor_version == 0) return refuse(400, ec);
        if (!equal_ignoring_case(value, "chunked")) {
          // With something else below it we know where it ends, but not what it means.
          return refuse(this->chunked() ? 501 : 400, ec);
        }
        break;
      case beast::field::expect:
        if (minor_version == 0) break;
        if (!equal_ignoring_case(value, "100-continue")) return refuse(417, ec);
        expects_continue = true;
        break;
      default:
        break;
    }
    into_.headers.add(name, value);
  }
  void header(error_code& ec) {
    if (minor_version == 1 && hosts_ == 0) refuse(400, ec);
  }

  int minor_version = 1;
  bool expects_continue = false;

 private:
  request& into_;
  int hosts_ = 0;
};

class parser_of_messages final : public parser<false, parser_of_messages> {
 public:
  parser_of_messages(parse_limits limits, message& into) : parser(limits), into_(into) {}

  void first_line(int status) { into_.status = status; }
  void next_field(beast::field f, std::string_view name, std::string_view value, error_code& ec) {
    if (f == beast::field::transfer_encoding && !equal_ignoring_case(value, "chunked")) {
      return refuse(400, ec);
    }
    into_.headers.add(name, value);
  }
  void header(error_code&) {}

 private:
  message& into_;
};

}  // namespace

struct request_parser::core {
  parse_limits limits;
  std::optional<parser_of_requests> p;  // Beast's cannot be used twice
};

request_parser::request_parser(parse_limits limits)
    : core_(std::make_unique<core>(core{limits, std::nullopt})) {}
request_parser::~request_parser() = default;

void request_parser::begin(request& into) { core_->p.emplace(core_->limits, into); }
put_result request_parser::put(std::string_view bytes) { return core_->p->put_bytes(bytes); }
bool request_parser::is_header_done() const noexcept { return core_->p->is_header_done(); }
bool request_parser::is_done() const noexcept { return core_->p->is_done(); }
bool request_parser::is_chunked() const noexcept { return core_->p->chunked(); }
bool request_parser::wants_keep_alive() const noexcept { return core_->p->keep_alive(); }
std::uint64_t request_parser::content_length() const noexcept {
  return core_->p->content_length().value_or(0);
}
int request_parser::minor_version() const noexcept { return core_->p->minor_version; }
bool request_parser::expects_continue() const noexcept { return core_->p->expects_continue; }

struct message_parser::core {
  parser_of_messages p;
};

message_parser::message_parser(parse_limits limits, message& into, has_body b)
    : core_(std::make_unique<core>(core{parser_of_messages(limits, into)})) {
  core_->p.skip(b == has_body::never);
}
message_parser::~message_parser() = default;

put_result message_parser::put(std::string_view bytes) { return core_->p.put_bytes(bytes); }
bool message_parser::end() {
  if (!core_->p.got_some()) return false;
  error_code ec;
  core_->p.put_eof(ec);
  return !ec;
}
bool message_parser::is_done() const noexcept { return core_->p.is_done(); }
bool message_parser::wants_keep_alive() const noexcept { return core_->p.keep_alive(); }

std::string_view reason_phrase(int status) noexcept {
  const beast::status known = beast::int_to_status(static_cast<unsigned>(status));
  if (known == beast::status::unknown) return {};
  return to_std(beast::obsolete_reason(known));
}

}  // namespace weft::http
