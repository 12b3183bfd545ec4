// parser.cpp: Boost.Beast's parser, and where we differ from it.
//
// Beast finds lines, fields, chunks and numbers. In addition we refuse messages about whose end, or
// whose recipient, two parties on the way could disagree (request smuggling):
//
//   - A field of a request that continues in the next line (obs-fold). Beast joins the lines. We
//     see it from the place of the value, which is then not right behind the name. In answers Beast
//     may join them.
//   - Any Transfer-Encoding but "chunked", which Beast treats as no body at all; and every
//     Transfer-Encoding in a request of HTTP/1.0. Beast itself refuses Transfer-Encoding beside a
//     Content-Length, and two lengths that differ.
//   - Control characters in a chunk's extension, where Beast accepts a quoted line end.
//   - Control characters in the beginning of a line that is not complete yet, and anything but a
//     line end behind a chunk. Beast looks at these bytes only when the line or the header has
//     ended, and a line feed alone does not end it: the peer would wait for us, and we for the
//     peer.
//   - An HTTP/1.1 request without a Host; any request with two, or with an invalid one; and targets
//     that have none of RFC 9112's forms.
//
// Some lines that Beast refuses are correct, or common. We mend such a first line and pass it to
// Beast again: a later minor version is treated as 1.1, and a status line may lack the blank behind
// its number. Beast obeys Proxy-Connection, which means nothing. So a value of it that Beast cannot
// read is dropped, and this file decides by Connection alone whether the connection stays open.
//
// Beast does not bound chunk headers. A chunk header, and a trailer, may be as long as a header
// (the caller's buffer is not larger). A chunk header of 16 bytes plus two per byte of data is
// free; what exceeds that may be excess_max in all. Trailers are checked and dropped.
//
// Beast's assertions are off. One of them (n >= 5, in parse_chunk_header) does not hold when the
// last chunk comes in pieces, although the code is right in that case, too.
#define BOOST_DISABLE_ASSERTS

#include "http/parser.hpp"

#include "http/text.hpp"
#include "http/url.hpp"

#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/rfc7230.hpp>
#include <boost/beast/http/status.hpp>

#include <algorithm>
#include <utility>

namespace weft::http {
namespace {

namespace beast = boost::beast::http;
using boost::beast::error_code;

constexpr std::uint64_t excess_max = 16384;
constexpr std::string_view line_end = "\r\n";
constexpr std::string_view our_version = "HTTP/1.1";

std::string_view to_std(boost::beast::string_view s) noexcept { return {s.data(), s.size()}; }
beast::opt_token_list list_of(std::string_view s) {
  return beast::opt_token_list({s.data(), s.size()});
}

bool is_version(std::string_view v) noexcept {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return v.size() == our_version.size() && v.starts_with("HTTP/") && digit(v[5]) && v[6] == '.' &&
         digit(v[7]);
}

// Whether these bytes can be lines of which the last one has not ended yet.
bool may_become_lines(std::string_view s) noexcept {
  for (;;) {
    const std::string_view line = s.substr(0, s.find('\r'));
    s.remove_prefix(line.size());
    if (!is_field_value(line)) return false;
    if (line_end.starts_with(s)) return true;
    if (!s.starts_with(line_end)) return false;
    s.remove_prefix(line_end.size());
  }
}

// The common part of requests and answers. Calls Derived for the first line and for each field.
template <bool is_request, class Derived>
class parser : public beast::basic_parser<is_request> {
 public:
  put_result put_bytes(std::string_view bytes) {
    put_result result;
    error_code ec;
    const bool in_header = !this->is_header_done();
    piece_ = {};
    chunk_bytes_ = 0;
    result.used = put_some(bytes, ec);
    while (in_header && ec && ec != beast::error::need_more && status_ == 0) {
      const std::size_t mended = put_mended(bytes.substr(result.used), ec);
      if (mended == 0) break;
      result.used += mended;
      result.used += put_some(bytes.substr(result.used), ec);
    }
    result.body = piece_;
    std::size_t waiting = 0;
    if (ec == beast::error::need_more) {
      result.need_more = true;
      ec = {};
      const std::string_view rest = bytes.substr(result.used);
      waiting = rest.size();
      if (result.used != 0) seen_ = 0;
      const bool chunk_goes_on = has_chunk_ && waiting != 0 && rest.front() != '\r';
      if (chunk_goes_on || !may_become_lines(rest.substr(seen_))) refuse(400, ec);
      seen_ = waiting - (rest.ends_with('\r') ? 1 : 0);
    } else {
      seen_ = 0;
    }
    if (in_header) {
      header_bytes_ += result.used;
      // Beast counts the first line and the fields apart.
      if (!ec && header_bytes_ + waiting > limits_.header_bytes) ec = beast::error::header_limit;
    } else if (!ec && result.used != 0 && result.body.empty() && this->chunked()) {
      excess_ += result.used;
      excess_ -= std::min(excess_, 16 + 2 * chunk_bytes_);
      if (excess_ > excess_max && !this->is_done()) ec = beast::error::bad_chunk_extension;
    }
    if (ec) result.error = status_ != 0 ? status_ : status_of(ec, bytes.substr(result.used));
    return result;
  }

  bool wants_keep_alive() const noexcept {
    return !close_ && !this->need_eof() && (minor_version != 0 || keep_alive_);
  }

  int minor_version = 1;

 protected:
  void on_request_impl(beast::verb, boost::beast::string_view method,
                       boost::beast::string_view target, int version, error_code& ec) override {
    got_first_line_ = true;
    minor_version = version - 10;
    if constexpr (is_request) self().first_line(to_std(method), to_std(target), ec);
  }
  void on_response_impl(int status, boost::beast::string_view, int version,
                        error_code& ec) override {
    got_first_line_ = true;
    minor_version = version - 10;
    if constexpr (!is_request) self().first_line(status, ec);
  }
  void on_field_impl(beast::field f, boost::beast::string_view name,
                     boost::beast::string_view value, error_code& ec) override {
    if constexpr (is_request) {
      const char* p = name.data() + name.size() + 1;
      while (p != value.data() && (*p == ' ' || *p == '\t')) ++p;
      if (p != value.data()) return refuse(400, ec);
    }
    if (got_header_) {
      // A trailer comes too late to name the recipient, and Beast lets no trailer set the end.
      if (f == beast::field::host) refuse(400, ec);
      return;
    }
    take_field(f, to_std(name), to_std(value), ec);
  }
  void on_header_impl(error_code& ec) override {
    got_header_ = true;
    if constexpr (is_request) self().header(ec);
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
    has_chunk_ = true;
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

  std::size_t put_some(std::string_view bytes, error_code& ec) {
    return this->put(boost::asio::const_buffer(bytes.data(), bytes.size()), ec);
  }

  // Accepts a line that Beast has just refused if the line is correct nevertheless. Returns: its
  // length; or 0 if it is wrong or has no end yet, and ec tells which.
  std::size_t put_mended(std::string_view rest, error_code& ec) {
    std::string line(rest.substr(0, rest.find('\r')));
    const std::string_view end = rest.substr(line.size(), line_end.size());
    const std::size_t bytes = line.size() + line_end.size();
    if (got_first_line_) {
      constexpr std::string_view ignored = "Proxy-Connection:";
      const bool is_ignored = equal_ignoring_case(rest.substr(0, ignored.size()), ignored);
      return is_ignored && ec == beast::error::bad_value && end == line_end ? bytes : 0;
    }
    if (ec != beast::error::bad_version && ec != beast::error::bad_status) return 0;
    if (!line_end.starts_with(end) || !self().mend(line)) return 0;
    ec = beast::error::need_more;
    if (end != line_end) return 0;
    const std::size_t used = put_some(line.append(line_end), ec);
    return used == line.size() && ec == beast::error::need_more ? bytes : 0;
  }

  void take_field(beast::field f, std::string_view name, std::string_view value, error_code& ec) {
    switch (f) {
      case beast::field::connection:
        for (const auto option : list_of(value)) {
          if (equal_ignoring_case(to_std(option), "close")) close_ = true;
          if (equal_ignoring_case(to_std(option), "keep-alive")) keep_alive_ = true;
        }
        break;
      case beast::field::content_length:
        // Beast has seen that all of them are the same number.
        if (std::exchange(has_length_, true)) return;
        value = to_std(*list_of(value).begin());
        break;
      case beast::field::transfer_encoding: {
        std::string_view last;
        for (const auto coding : list_of(value)) last = to_std(coding);
        if (!equal_ignoring_case(last, "chunked")) return refuse(400, ec);
        // With another coding below "chunked" we know where the body ends, but not what it means.
        if (last.size() != value.size()) return refuse(501, ec);
        // A sender that uses this in HTTP/1.0 may mean another end.
        if (minor_version == 0) close_ = true;
        break;
      }
      default:
        break;
    }
    self().next_field(f, name, value, ec);
  }

  // Returns: the status that says what is wrong. `rest` is what has not been parsed. It may contain
  // the first line, because when Beast waits it waits for the end of the header.
  int status_of(const error_code& ec, std::string_view rest) const noexcept {
    if (ec == beast::error::body_limit) return 413;
    if (ec != beast::error::header_limit) return 400;
    const bool has_first_line =
        got_first_line_ || rest.substr(0, limits_.header_bytes).find('\n') != rest.npos;
    return has_first_line ? 431 : 414;
  }

  const parse_limits limits_;
  std::string_view piece_;
  std::uint64_t chunk_bytes_ = 0;  // in the chunk header of this put
  std::uint64_t excess_ = 0;
  std::size_t header_bytes_ = 0;
  std::size_t seen_ = 0;  // how many waiting bytes were checked: they can become lines
  int status_ = 0;        // why a field was refused
  bool got_first_line_ = false;
  bool got_header_ = false;
  bool has_length_ = false;
  bool has_chunk_ = false;   // then a line end comes before the next chunk header
  bool close_ = false;       // by Connection
  bool keep_alive_ = false;  // by Connection, too
};

class parser_of_requests final : public parser<true, parser_of_requests> {
 public:
  parser_of_requests(parse_limits limits, request& into) : parser(limits), into_(into) {}

  // Replaces a version that we do not speak by ours. A request of another major version is refused,
  // but only when the method is known.
  bool mend(std::string& line) {
    if (std::count(line.begin(), line.end(), ' ') != 2) return false;
    const std::size_t version = line.rfind(' ') + 1;
    if (!is_version(std::string_view(line).substr(version))) return false;
    is_foreign_ = line[version + 5] != '1';
    line.replace(version, our_version.size(), our_version);
    return true;
  }
  void first_line(std::string_view method, std::string_view target, error_code& ec) {
    into_.method.assign(method);
    into_.target.assign(target);
    const int status = is_foreign_ ? 505 : take_target(target);
    if (status != 0) refuse(status, ec);
  }
  void next_field(beast::field f, std::string_view name, std::string_view value, error_code& ec) {
    switch (f) {
      case beast::field::host: {
        if (std::exchange(has_host_, true)) return refuse(400, ec);
        const std::optional<authority> parts = authority::parse(value);
        if (!parts || (parts->host.empty() && !value.empty())) return refuse(400, ec);
        if (!host_.empty()) value = host_;
        break;
      }
      case beast::field::transfer_encoding:
        if (minor_version == 0) return refuse(400, ec);
        break;
      case beast::field::expect:
        if (minor_version == 0) break;
        if (!beast::validate_list(list_of(value))) return refuse(417, ec);
        for (const auto expectation : list_of(value)) {
          expects_continue = equal_ignoring_case(to_std(expectation), "100-continue");
          if (!expects_continue) return refuse(417, ec);
        }
        break;
      default:
        break;
    }
    into_.headers.add(name, value);
  }
  void header(error_code& ec) {
    if (minor_version != 0 && !has_host_) return refuse(400, ec);
    if (!has_host_ && !host_.empty()) into_.headers.add("Host", host_);
  }

  bool expects_continue = false;

 private:
  // The four forms of RFC 9112, section 3.2. The absolute one becomes the origin form, with its
  // host in the place of the Host field's. Returns: the status of the refusal, or 0.
  int take_target(std::string_view target) {
    if (into_.method == "CONNECT") {
      const std::optional<authority> to = authority::parse(target);
      return to && !to->host.empty() && to->port.value_or(0) != 0 ? 501 : 400;  // no tunnels here
    }
    if (target.starts_with('/')) return 0;
    if (target == "*") return into_.method == "OPTIONS" ? 0 : 400;
    const bool is_https = equal_ignoring_case(target.substr(0, 8), "https://");
    const expected<url> parts =
        url::parse(is_https ? "http" + std::string(target.substr(5)) : std::string(target));
    if (!parts) return 400;
    if (is_https) return 421;  // we do not speak TLS
    host_ = parts->host;
    const bool has_path = parts->target != "/" || target.ends_with('/');
    into_.target = has_path || into_.method != "OPTIONS" ? parts->target : "*";
    return 0;
  }

  request& into_;
  std::string host_;  // by the target, if that has one
  bool has_host_ = false;
  bool is_foreign_ = false;  // its major version is not ours
};

class parser_of_messages final : public parser<false, parser_of_messages> {
 public:
  parser_of_messages(parse_limits limits, message& into) : parser(limits), into_(into) {}

  // Replaces a later minor version by ours. The blank before the reason phrase may be missing
  // together with the phrase.
  bool mend(std::string& line) {
    if (!line.starts_with("HTTP/1.") ||
        !is_version(std::string_view(line).substr(0, our_version.size()))) {
      return false;
    }
    line[our_version.size() - 1] = std::min(line[our_version.size() - 1], '1');
    if (line.size() == std::string_view("HTTP/1.1 200").size()) line += ' ';
    return true;
  }
  void first_line(int status, error_code& ec) {
    into_.status = status;
    if (status < 100) refuse(400, ec);
  }
  void next_field(beast::field, std::string_view name, std::string_view value, error_code&) {
    into_.headers.add(name, value);
  }

 private:
  message& into_;
};

}  // namespace

struct request_parser::core {
  parse_limits limits;
  std::optional<parser_of_requests> p;  // Beast's parser cannot be used twice
};

request_parser::request_parser(parse_limits limits)
    : core_(std::make_unique<core>(core{limits, std::nullopt})) {}
request_parser::~request_parser() = default;

void request_parser::begin(request& into) { core_->p.emplace(core_->limits, into); }
put_result request_parser::put(std::string_view bytes) { return core_->p->put_bytes(bytes); }
bool request_parser::is_header_done() const noexcept { return core_->p->is_header_done(); }
bool request_parser::is_done() const noexcept { return core_->p->is_done(); }
bool request_parser::is_chunked() const noexcept { return core_->p->chunked(); }
bool request_parser::wants_keep_alive() const noexcept { return core_->p->wants_keep_alive(); }
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
bool message_parser::wants_keep_alive() const noexcept { return core_->p.wants_keep_alive(); }

std::string_view reason_phrase(int status) noexcept {
  const beast::status known = beast::int_to_status(static_cast<unsigned>(status));
  // The last three are numbers that only Beast has a phrase for.
  if (known == beast::status::unknown || status == 444 || status == 499 || status == 599) return {};
  return to_std(beast::obsolete_reason(known));
}

}  // namespace weft::http
