// response.cpp: a server's connection: answers go out.
//
// The body is collected. If the handler returns before the body is longer than buffer_bytes, head
// and body are sent together, with a Content-Length; a small body is copied to out_, so that there
// is one piece to write. Otherwise, and if the handler flushes, the head is sent first (I1) and the
// body in pieces.
//
// Invariants:
//   I1  framing_ is `open` exactly as long as no byte of this answer is in out_ or has been sent.
//       Until then refuse() can still replace the whole answer.
//   I2  After an output_error_ nothing is written any more.
//
// The head is formatted by hand. The handler's values were checked when they were set, so no value
// can end its line.
#include "http/connection.hpp"
#include "http/text.hpp"

#include <weft/os.hpp>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace weft::http {

void response::status(int code) { connection_.set_status(code); }
void response::set(std::string_view name, std::string_view value) {
  connection_.set_field(name, value);
}
void response::add(std::string_view name, std::string_view value) {
  connection_.add_field(name, value);
}
void response::write(std::string_view text) { connection_.write_body(text); }
std::error_code response::write_file(os::file& from, std::uint64_t count) {
  return connection_.write_file(from, count);
}
std::error_code response::flush() { return connection_.flush_body(); }
context response::while_connected() { return connection_.while_connected(); }

namespace detail {
namespace {

constexpr std::size_t small_body = std::size_t{16} << 10;    // is copied, not sent apart
constexpr std::size_t slice_bytes = std::size_t{256} << 10;  // per write timeout
constexpr std::size_t kept_bytes = std::size_t{64} << 10;
constexpr std::size_t file_piece = std::size_t{64} << 10;  // how much is read at a time

}  // namespace

void connection::begin_answer() {
  clear(body_, kept_bytes);
  fields_.clear();
  status_ = 200;
  framing_ = framing::open;
  declared_.reset();
  has_date_ = false;
  has_type_ = false;
}

void connection::set_status(int code) {
  if (code < 200 || code > 999) {
    throw std::invalid_argument("weft::http: the status is not between 200 and 999");
  }
  if (framing_ != framing::open) throw std::logic_error("weft::http: the head has been sent");
  status_ = code;
}

void connection::check_field(std::string_view name, std::string_view value) const {
  if (!is_token(name)) {
    throw std::invalid_argument("weft::http: the name of a header field is malformed");
  }
  if (!is_field_value(value)) {
    throw std::invalid_argument("weft::http: a header field has control characters");
  }
  if (framing_ != framing::open) throw std::logic_error("weft::http: the head has been sent");
}

// Handles the fields that concern the server. Returns: whether the field is kept elsewhere than in
// fields_.
bool connection::take_special(std::string_view name, std::string_view value) {
  switch (name.size()) {
    case 4:
      if (equal_ignoring_case(name, "date")) has_date_ = true;
      return false;
    case 10:
      if (!equal_ignoring_case(name, "connection")) return false;
      if (!equal_ignoring_case(value, "close")) {
        throw std::invalid_argument("weft::http: Connection can only be set to close");
      }
      keep_alive_ = false;
      return true;
    case 12:
      if (equal_ignoring_case(name, "content-type")) has_type_ = true;
      return false;
    case 14:
      if (!equal_ignoring_case(name, "content-length")) return false;
      if (const auto length = parse_number(value)) {
        declared_ = length;
        return true;
      }
      throw std::invalid_argument("weft::http: Content-Length is not a number");
    case 17:
      if (!equal_ignoring_case(name, "transfer-encoding")) return false;
      throw std::invalid_argument("weft::http: only the server sets Transfer-Encoding");
    default:
      return false;
  }
}

void connection::set_field(std::string_view name, std::string_view value) {
  check_field(name, value);
  if (!take_special(name, value)) fields_.set(name, value);
}

void connection::add_field(std::string_view name, std::string_view value) {
  check_field(name, value);
  if (!take_special(name, value)) fields_.add(name, value);
}

bool connection::takes_body() const noexcept {
  return request_.method != "HEAD" && status_ != 204 && status_ != 205 && status_ != 304;
}

void connection::write_body(std::string_view text) {
  if (output_error_) return;
  switch (framing_) {
    case framing::open:
      if (declared_ && takes_body() && body_.size() + text.size() > *declared_) {
        throw std::logic_error("weft::http: the body is longer than its Content-Length");
      }
      if (body_.size() + text.size() <= options_.buffer_bytes) {
        body_.append(text);
        return;
      }
      begin_pieces();
      break;
    case framing::none:
      return;
    case framing::chunked:
    case framing::counted:
    case framing::until_close:
      break;
  }
  if (framing_ == framing::none) return;
  if (framing_ == framing::counted) {
    if (text.size() > remaining_) {
      throw std::logic_error("weft::http: the body is longer than its Content-Length");
    }
    remaining_ -= text.size();
  }
  if (body_.size() + text.size() < small_body) {
    body_.append(text);
  } else {
    emit(text);
  }
}

// The length of a file on a disk is known, and the kernel can send it. Other files, small files,
// and files that are sent in chunks are read.
std::error_code connection::write_file(os::file& from, std::uint64_t count) {
  if (output_error_) return output_error_;
  if (!from.is_open()) return errc::closed;
  struct stat about{};
  const off_t at = ::lseek(from.native_handle(), 0, SEEK_CUR);
  // Files of /proc report size 0 although they have contents.
  const bool has_size = at >= 0 && ::fstat(from.native_handle(), &about) == 0 &&
                        S_ISREG(about.st_mode) && about.st_size > at;
  if (has_size) {
    count = std::min(count, static_cast<std::uint64_t>(about.st_size - at));
    if (framing_ == framing::open && !declared_ && body_.empty()) declared_ = count;
    if (count > small_body) {
      if (framing_ == framing::open) begin_pieces();
      if (framing_ == framing::none) return {};
      if (framing_ != framing::chunked) return send_file(from, count);
    }
  }
  std::vector<std::byte> buffer(file_piece);
  while (count != 0) {
    const auto most = static_cast<std::size_t>(std::min<std::uint64_t>(count, buffer.size()));
    const expected<std::size_t> n = from.read(std::span(buffer).first(most));
    if (!n) return n.error();
    if (*n == 0) break;
    count -= *n;
    write_body({reinterpret_cast<const char*>(buffer.data()), *n});
    if (output_error_) break;
  }
  return output_error_;
}

std::error_code connection::send_file(os::file& from, std::uint64_t count) {
  if (framing_ == framing::counted) {
    if (count > remaining_) {
      throw std::logic_error("weft::http: the body is longer than its Content-Length");
    }
    remaining_ -= count;
  }
  emit({});
  send_pending();
  while (count != 0 && !output_error_) {
    refresh_now();
    arm_write();
    const auto n = stream_.send_file(from, std::min<std::uint64_t>(count, slice_bytes));
    if (!n) {
      output_error_ = n.error();
      break_off();
    } else if (*n == 0) {  // the file has become shorter
      if (framing_ == framing::counted) remaining_ += count;
      break;
    } else {
      count -= *n;
    }
  }
  return output_error_;
}

std::error_code connection::flush_body() {
  if (!output_error_) {
    if (framing_ == framing::open) begin_pieces();
    emit({});
    send_pending();
  }
  return output_error_;
}

// The head, for a body whose end is not known yet.
void connection::begin_pieces() {
  refresh_now();
  framing f = framing::chunked;
  if (declared_) {
    f = framing::counted;
  } else if (parser_.minor_version() == 0) {
    f = framing::until_close;
    keep_alive_ = false;
  }
  if (f == framing::counted) {
    if (body_.size() > *declared_ && takes_body()) {
      throw std::logic_error("weft::http: the body is longer than its Content-Length");
    }
    remaining_ = *declared_ - std::min<std::uint64_t>(body_.size(), *declared_);
  }
  append_head(f, declared_);
  framing_ = f;
  if (!takes_body()) {
    framing_ = framing::none;
    body_.clear();
  }
}

void connection::finish_answer() {
  if (output_error_) return;
  refresh_now();
  switch (framing_) {
    case framing::open: {
      const bool with_body = takes_body();
      if (with_body && declared_ && *declared_ != body_.size()) {
        begin_pieces();
        emit({});
        break_off();
        return;
      }
      std::optional<std::uint64_t> length = body_.size();
      if (!with_body && declared_) {
        length = declared_;
      } else if (request_.method == "HEAD" && body_.empty()) {
        length.reset();  // the length that GET would have is not known
      }
      append_head(framing::counted, length);
      framing_ = framing::none;
      if (with_body && body_.size() > small_body) {
        const std::array<std::string_view, 2> pieces = {out_, body_};
        send(pieces);
      } else if (with_body) {
        out_ += body_;
      }
      break;
    }
    case framing::chunked:
      emit({});
      out_ += "0\r\n\r\n";
      break;
    case framing::counted:
      emit({});
      // Otherwise the client would take the next answer for the rest of this one.
      if (remaining_ != 0) return break_off();
      break;
    case framing::until_close:
      emit({});
      break;
    case framing::none:
      break;
  }
  send_pending();
}

void connection::refuse(int status) {
  refresh_now();
  begin_answer();
  status_ = status;
  keep_alive_ = false;
  linger_ = true;
  append_number(body_, static_cast<std::uint64_t>(status));
  body_ += ' ';
  body_ += reason_phrase(status);
  body_ += '\n';
  append_head(framing::counted, body_.size());
  framing_ = framing::none;
  if (request_.method != "HEAD") out_ += body_;
  send_pending();
}

void connection::append_head(framing f, std::optional<std::uint64_t> length) {
  if (phase() != service::phase::serving) keep_alive_ = false;
  if (status_ == 205) {  // its body must be empty
    f = framing::counted;
    length = 0;
  }
  // If the rest of the request will not be read, the head says so.
  if (parser_.is_header_done() && !parser_.is_done() && !may_skip_body()) keep_alive_ = false;
  if (status_ == 200) {
    out_ += "HTTP/1.1 200 OK\r\n";
  } else {
    out_ += "HTTP/1.1 ";
    append_number(out_, static_cast<std::uint64_t>(status_));
    out_ += ' ';
    out_ += reason_phrase(status_);
    out_ += "\r\n";
  }
  if (!has_date_) {
    out_ += "Date: ";
    out_ += date_.at(now_);
    out_ += "\r\n";
  }
  for (const field& x : fields_) {
    out_ += x.name;
    out_ += ": ";
    out_ += x.value;
    out_ += "\r\n";
  }
  const bool may_have_body = status_ != 204 && status_ != 304;
  if (f == framing::counted) {
    // With a 304, Content-Length is that of the full answer, which only the handler knows.
    if (length && (may_have_body || (status_ == 304 && declared_))) {
      out_ += "Content-Length: ";
      append_number(out_, *length);
      out_ += "\r\n";
    }
    if (!has_type_ && may_have_body && length.value_or(0) != 0) {
      // So that browsers do not guess.
      out_ += "Content-Type: text/plain; charset=utf-8\r\n";
    }
  } else if (may_have_body) {
    if (f == framing::chunked) out_ += "Transfer-Encoding: chunked\r\n";
    if (!has_type_) out_ += "Content-Type: text/plain; charset=utf-8\r\n";
  }
  if (!keep_alive_) {
    out_ += "Connection: close\r\n";
  } else if (parser_.minor_version() == 0) {
    out_ += "Connection: keep-alive\r\n";
  }
  out_ += "\r\n";
}

// Sends body_ and `more` together.
void connection::emit(std::string_view more) {
  const std::size_t size = body_.size() + more.size();
  if (size == 0 || output_error_) return;
  refresh_now();
  std::string_view end;
  if (framing_ == framing::chunked) {
    append_number(out_, size, 16);
    out_ += "\r\n";
    end = "\r\n";
  }
  if (size <= small_body) {
    out_ += body_;
    out_ += more;
    out_ += end;
    body_.clear();
    if (out_.size() > small_body) send_pending();
    return;
  }
  const std::array<std::string_view, 4> pieces = {out_, body_, more, end};
  send(pieces);
  body_.clear();
}

bool connection::send_pending() {
  if (output_error_) return false;
  if (out_.empty()) return true;
  const std::string_view piece = out_;
  return send({&piece, 1});
}

// Sends the pieces, the first of which is out_, and then empties out_. Parks.
bool connection::send(std::span<const std::string_view> pieces) {
  if (output_error_) return false;
  std::size_t total = 0;
  for (const std::string_view p : pieces) total += p.size();
  if (total <= slice_bytes) {
    refresh_now();
    arm_write();
    output_error_ = stream_.write(pieces);
  } else {
    for (std::string_view p : pieces) {
      while (!p.empty() && !output_error_) {
        const std::string_view slice = p.substr(0, slice_bytes);
        p.remove_prefix(slice.size());
        refresh_now();
        arm_write();
        output_error_ = stream_.write({&slice, 1});
      }
    }
  }
  clear(out_, kept_bytes);
  return !output_error_;
}

}  // namespace detail
}  // namespace weft::http
