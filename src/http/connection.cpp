// connection.cpp: a server's connection: requests come in, one after the other.
//
// The loop reads what there is into one buffer, lets the parser find a request in it, calls the
// handler and sends the answer: a request costs one read and one write. If requests come together
// (pipelining), each answer is still sent by itself, because the next handler may take long.
//
// Time limits. One of three applies at a time. Until a request begins, the limit is `idle`; for the
// first request it is `read` if that is shorter. Until the header is complete, the limit is `read`,
// from the header's first byte on. For the body, the limit is `read` at first, and each byte adds
// the time that body_rate allows for it. But the deadline for a body is never later than `read`
// from now, so that bytes which came quickly do not allow a long silence later. Setting a deadline
// takes some time, so the idle deadline is set anew only when an eighth of it has passed.
//
// Stopping. The server changes the phase and then tells each connection (notice). A connection that
// waits for a request is woken by a deadline in the past. A connection that is about to wait sees
// the phase:
//
//   [HT1]  connection              server
//          idle_ = true            phase = stopping
//          reads phase             reads idle_; if true: sets a deadline in the past
//
//   All four accesses are sequentially consistent, so at least one side sees what the other wrote.
//   If the deadline in the past comes when a request has begun after all, the connection sets its
//   own deadline again. In the phase `over` the deadline in the past stays: each function that sets
//   a deadline looks at the phase afterwards.
//
// Watching. The connection does not read while a handler runs, so it would not notice that the
// client goes away. A handler that wants to know (while_connected) gets a goroutine that waits for
// the end of the stream and reads nothing. That goroutine occupies the reading side, so it is
// paused for each read of a body. In return, requests whose handlers do not ask for it cost nothing
// more. A stop may take the connection for an idle one. Then the deadline in the past ends the
// watch, too, and only the request's own context, which ends after `drain`, tells the handler to
// stop.
//
// Errors. A malformed request is answered (refuse) and ends the connection. The peer may still be
// sending. If the server just closed the connection, a reset would destroy the answer. So the
// server closes only its sending side, and reads on for a while (linger). An exception of a handler
// is a 500 for the client, with no details. The program learns the details by on_error or a line on
// stderr. That line contains text from the client. So the text is cut, and characters that could
// move a terminal's cursor or begin another line are replaced.
#include "http/connection.hpp"

#include "base/fatal.hpp"
#include "http/text.hpp"
#include "io/past.hpp"

#include <algorithm>
#include <cxxabi.h>
#include <limits>
#include <system_error>
#include <utility>

namespace weft::http {

expected<std::string_view> body_reader::read() { return connection_.read_body(); }

namespace detail {
namespace {

using std::chrono::seconds;

constexpr auto linger_time = seconds(1);
constexpr std::size_t linger_bytes = std::size_t{256} << 10;
constexpr std::size_t skipped_bytes = std::size_t{256} << 10;  // of an unread body
constexpr std::size_t kept_bytes = std::size_t{64} << 10;      // of a string, for the next request
constexpr std::size_t kept_idle_bytes = std::size_t{4} << 10;  // while no request is in progress
constexpr std::size_t shown_method_bytes = 20;                 // in a line on stderr
constexpr std::size_t shown_target_bytes = 200;
constexpr std::size_t shown_what_bytes = 600;

// Returns: `now` + `d`; or {}, no deadline, if `d` stands for no limit.
clock::time_point later(clock::time_point now, clock::duration d) noexcept {
  constexpr clock::duration for_ever = std::chrono::hours(24 * 365);
  return d <= d.zero() || d > for_ever ? clock::time_point() : now + d;
}

// Returns: the smaller of two limits. Zero or less stands for no limit.
clock::duration shorter(clock::duration a, clock::duration b) noexcept {
  if (a <= a.zero() || b <= b.zero()) return std::max(a, b);
  return std::min(a, b);
}

void append_printable(base::text& line, std::string_view s, std::size_t bytes_max) noexcept {
  for (const char c : s.substr(0, bytes_max)) {
    line << (c >= ' ' && c <= '~' ? std::string_view(&c, 1) : std::string_view("?"));
  }
  if (s.size() > bytes_max) line << "...";
}

}  // namespace

connection::connection(stream& s, const service& of)
    : stream_(s),
      service_(of),
      options_(of.options),
      now_(clock::now()),
      in_(of.options.header_bytes),
      parser_({of.options.header_bytes, of.options.body_bytes}) {
  request_.ctx = of.requests;
}

void connection::run() {
  while (answer_one()) continue;
  if (linger_ && !broken_off_ && !output_error_) linger();
}

void connection::break_off() {
  send_pending();
  stream_.break_off();
  broken_off_ = true;
  keep_alive_ = false;
}

void connection::notice() {
  const bool over = phase() == service::phase::over;
  if (over || idle_.load(std::memory_order_seq_cst)) stream_.set_read_deadline(io::past);  // [HT1]
  if (over) stream_.set_write_deadline(io::past);
}

bool connection::answer_one() {
  clear(request_.method, kept_bytes);
  request_.headers.clear();
  clear(request_.target, kept_bytes);
  clear(request_.body, kept_bytes);
  parser_.begin(request_);
  begin_answer();
  if (read_header() == found::nothing) return false;

  ++answered_;
  keep_alive_ = parser_.wants_keep_alive() && answered_ < options_.requests;
  continue_wanted_ = parser_.expects_continue();
  body_bytes_read_ = 0;
  body_bytes_timed_ = 0;
  body_until_ = {};
  given_ = {};

  if (service_.whole && !parser_.is_done() && !read_whole_body()) return false;
  if (!call_handler()) return false;
  if (!parser_.is_done() && keep_alive_ && !skip_body()) keep_alive_ = false;
  // The client may be sending the rest of a body, or requests that get no answer.
  if (!parser_.is_done() || (!keep_alive_ && parser_.wants_keep_alive())) linger_ = true;
  return keep_alive_ && !output_error_;
}

connection::found connection::read_header() {
  bool begun = false;
  int empty_lines = 0;
  for (;;) {
    // Some clients send an empty line behind a body.
    while (!begun && empty_lines < 4 && in_.view().starts_with("\r\n")) {
      in_.consume(2);
      ++empty_lines;
    }
    if (!in_.empty() && (begun || in_.view() != "\r")) {
      const put_result r = parser_.put(in_.view());
      in_.consume(r.used);
      if (r.error != 0) {
        refuse(r.error);
        return found::nothing;
      }
      if (parser_.is_header_done()) return found::header;
      if (!begun) {
        begun = true;
        refresh_now();
        arm_read(later(now_, options_.read));
      }
    }
    if (!fill(begun ? waiting_for::header : waiting_for::request)) {
      if (begun && input_status_ != 0) refuse(input_status_);
      return found::nothing;
    }
  }
}

bool connection::fill(waiting_for what) {
  if (what == waiting_for::request) {
    if (in_.empty()) in_.shrink();
    for (std::string* s : {&request_.method, &request_.target, &request_.body, &body_, &out_}) {
      clear(*s, kept_idle_bytes);
    }
    const auto allowed =
        answered_ == 0 ? shorter(options_.idle, options_.read) : clock::duration(options_.idle);
    const clock::time_point until = later(now_, allowed);
    if (until < read_deadline_ || until - allowed / 8 > read_deadline_) arm_read(until);
  }
  std::size_t wanted = input_buffer::small_bytes;
  if (what == waiting_for::body) {
    refresh_now();
    const clock::time_point until = body_deadline();
    if (until != read_deadline_) arm_read(until);
    // content_length() is roughly what is left of the body; the parser has bounded it.
    if (parser_.is_chunked() || parser_.content_length() > 4 * wanted) {
      wanted = input_buffer::large_bytes;
    }
  }
  const std::span<char> space = in_.space(wanted);
  if (space.empty()) {
    input_status_ = what == waiting_for::body ? 400 : 431;
    input_error_ = std::make_error_code(std::errc::message_size);
    return false;
  }
  for (;;) {
    if (what == waiting_for::request) {
      idle_.store(true, std::memory_order_seq_cst);  // [HT1]
      if (phase() != service::phase::serving) return false;
    }
    const expected<std::size_t> n = stream_.read(space);
    // relaxed: if the server still sees idle_ set, it only sets a deadline, which is taken back.
    if (what == waiting_for::request) idle_.store(false, std::memory_order_relaxed);
    if (n && *n != 0) {
      in_.fill(*n);
      return true;
    }
    const bool timed_out = !n && n.error() == errc::timed_out;
    if (timed_out && what != waiting_for::request && phase() == service::phase::stopping &&
        (read_deadline_ == clock::time_point() || clock::now() < read_deadline_)) {
      arm_read(read_deadline_);  // the deadline in the past was meant for an idle connection
      continue;
    }
    input_error_ = n ? std::make_error_code(std::errc::connection_reset) : n.error();
    if (n) {
      input_status_ = 400;  // the client may have closed only its sending side
    } else {
      input_status_ = timed_out ? 408 : 0;
    }
    return false;
  }
}

clock::time_point connection::body_deadline() {
  const clock::time_point latest = later(now_, options_.read);
  if (latest == clock::time_point()) return latest;
  const std::uint64_t bytes = body_bytes_read_ - std::exchange(body_bytes_timed_, body_bytes_read_);
  const auto per_byte = clock::duration(seconds(1)) /
                        static_cast<std::int64_t>(std::max<std::size_t>(options_.body_rate, 1));
  body_until_ = body_until_ == clock::time_point()
                    ? latest
                    : std::min(body_until_ + per_byte * static_cast<std::int64_t>(bytes), latest);
  return body_until_;
}

expected<std::string_view> connection::read_body() {
  if (input_error_) return std::unexpected(input_error_);
  if (given_ != clock::time_point()) {
    // The time that the handler took does not count against the client.
    if (body_until_ != clock::time_point()) body_until_ += clock::now() - given_;
    given_ = {};
  }
  for (;;) {
    if (parser_.is_done()) return std::string_view();
    if (!in_.empty()) {
      continue_wanted_ = false;
      const put_result r = parser_.put(in_.view());
      in_.consume(r.used);
      body_bytes_read_ += r.body.size();
      if (r.error != 0) {
        input_status_ = r.error;
        input_error_ =
            std::make_error_code(r.error == 413 ? std::errc::message_size : std::errc::bad_message);
        return std::unexpected(input_error_);
      }
      if (!r.body.empty()) {
        if (service_.by_piece) given_ = clock::now();
        return r.body;
      }
      if (!r.need_more) continue;
    }
    if (continue_wanted_) {
      continue_wanted_ = false;
      if (framing_ == framing::open) out_ += "HTTP/1.1 100 Continue\r\n\r\n";
    }
    if (!send_pending()) {
      input_error_ = output_error_;
      return std::unexpected(input_error_);
    }
    if (watch_ != nullptr) pause_watch();
    if (!fill(waiting_for::body)) {
      if (watch_ != nullptr) watch_->of_request.cancel();
      return std::unexpected(input_error_);
    }
    if (watch_ == nullptr) continue;
    try {
      begin_watch();
    } catch (const std::system_error& e) {  // no goroutine can be started
      input_status_ = 503;
      input_error_ = e.code();
    }
    if (input_error_) {
      watch_->of_request.cancel();
      return std::unexpected(input_error_);
    }
  }
}

bool connection::read_whole_body() {
  request_.body.reserve(
      static_cast<std::size_t>(std::min<std::uint64_t>(parser_.content_length(), kept_bytes)));
  for (;;) {
    const expected<std::string_view> piece = read_body();
    if (!piece) {
      if (input_status_ != 0) refuse(input_status_);
      return false;
    }
    if (piece->empty()) return true;
    request_.body += *piece;
  }
}

// Whether the rest of the body is to be read, to get to the next request. The head of the answer
// says whether the connection stays open, and is sent before the rest is read. So the length must
// be known: a chunked body is never read.
bool connection::may_skip_body() const noexcept {
  if (continue_wanted_) return false;  // the client may or may not send the body
  if (parser_.is_chunked()) return false;
  return parser_.content_length() <= body_bytes_read_ + skipped_bytes;
}

// Reads the rest of a body that the handler has not read, to get to the next request.
bool connection::skip_body() {
  if (!may_skip_body()) return false;
  for (;;) {
    const expected<std::string_view> piece = read_body();
    if (!piece) return false;
    if (piece->empty()) return true;
  }
}

context connection::while_connected() {
  if (watch_ == nullptr) {
    watch_ = std::make_unique<watch>(request_.ctx);
    try {
      begin_watch();
    } catch (...) {
      watch_.reset();
      throw;
    }
  }
  return watch_->of_request.ctx;
}

void connection::begin_watch() {
  arm_read({});  // no deadline while the handler runs
  watch_->waiting.go([this] {
    if (!stream_.wait_for_end()) watch_->of_request.cancel();
  });
}

void connection::pause_watch() {
  stream_.set_read_deadline(io::past);
  watch_->waiting.wait();
  arm_read({});
}

void connection::end_watch() {
  if (watch_ == nullptr) return;
  pause_watch();
  watch_->of_request.cancel();
  watch_.reset();
}

bool connection::call_handler() {
  struct unwatch {
    connection& of;
    ~unwatch() { of.end_watch(); }
  } const on_return{*this};
  response out(*this);
  std::exception_ptr thrown;
  try {
    if (service_.whole) {
      service_.whole(request_, out);
    } else {
      body_reader in(*this);
      service_.by_piece(request_, in, out);
    }
    if (!input_error_) {
      finish_answer();
      return true;
    }
  } catch (const abi::__forced_unwind&) {
    if (framing_ != framing::open) stream_.break_off();  // our own break_off() might wait
    throw;                                               // the goroutine ends
  } catch (...) {
    thrown = std::current_exception();
    if (!input_error_ || input_status_ == 0) input_status_ = 500;
  }
  const bool begun = framing_ != framing::open;
  if (begun) break_off();  // the answer must not look complete
  if (thrown) report(std::move(thrown));
  if (!begun && input_status_ != 0) refuse(input_status_);
  return false;
}

void connection::report(std::exception_ptr thrown) {
  std::string_view who = "http handler for ";
  if (options_.on_error) {
    try {
      return options_.on_error(request_, thrown);
    } catch (const abi::__forced_unwind&) {
      throw;
    } catch (...) {
      who = "http on_error for ";
      thrown = std::current_exception();
    }
  }
  base::text line;
  line << who;
  append_printable(line, request_.method, shown_method_bytes);
  line << " ";
  append_printable(line, request_.target, shown_target_bytes);
  line << ": ";
  try {
    std::rethrow_exception(std::move(thrown));
  } catch (const std::exception& e) {
    append_printable(line, e.what(), shown_what_bytes);
  } catch (...) {
    line << "an exception that is no std::exception";
  }
  base::warn_or_drop(line.view());
}

void connection::linger() {
  stream_.close_write();
  refresh_now();
  arm_read(now_ + linger_time);
  std::size_t dropped = 0;
  while (dropped < linger_bytes) {
    in_.shrink();
    const expected<std::size_t> n = stream_.read(in_.space());
    if (!n || *n == 0) return;
    dropped += *n;
  }
}

void connection::arm_read(clock::time_point when) {
  read_deadline_ = when;
  stream_.set_read_deadline(when);
  if (phase() == service::phase::over) notice();  // [HT1]
}

void connection::arm_write() {
  const clock::time_point until = later(now_, options_.write);
  if (until >= write_deadline_ && until - options_.write / 8 <= write_deadline_) return;
  write_deadline_ = until;
  stream_.set_write_deadline(until);
  if (phase() == service::phase::over) notice();  // [HT1]
}

}  // namespace detail
}  // namespace weft::http
