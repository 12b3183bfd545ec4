// client.cpp: sends a request and reads its answer.
//
// A request is one write. The answer is read into one buffer and parsed as it comes. The end of the
// context ends a wait at once: a function of ours, which the context calls, sets a deadline in the
// past. It may run late, when the answer is complete already. So a connection is kept only if that
// function was removed before it ran.
//
// A server may answer before it has read all of a request: it refuses the body, or sends each part
// of the body back. If the client only wrote and did not read, each side could wait for the other
// for ever. So a goroutine of its own (sender) writes a request that may not fit into the socket's
// buffer, while the answer is read. When the answer is complete, the rest of the request is not
// sent, and the connection is not kept.
//
// The server may have closed a kept connection. Usually the client sees that before it uses the
// connection again; then it takes another one. It does so, too, if bytes have come without a
// request (a 408, say). But the server may also close the connection while the request is on its
// way. Then no answer comes, and the client does not know whether the request was carried out. So
// it repeats, on another connection, only requests that may be repeated: idempotent ones, or those
// with an Idempotency-Key. For other requests the caller gets the error. If the write failed, the
// request was not carried out; the caller of such a request still gets what the server had said
// before (a 408), or one of the three errors.
#include "base/error_category.hpp"
#include "http/input_buffer.hpp"
#include "http/parser.hpp"
#include "http/text.hpp"
#include "http/url.hpp"
#include "io/past.hpp"

#include <weft/http.hpp>
#include <weft/sync.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <sys/socket.h>
#include <system_error>
#include <utility>

namespace weft::http {
namespace {

constexpr std::size_t at_once_bytes = std::size_t{16} << 10;  // fit into a socket's buffer

enum class keep : bool { no, yes };

std::unexpected<std::error_code> error(std::errc e) {
  return std::unexpected(std::make_error_code(e));
}

bool may_be_repeated(std::string_view method, const headers& fields) noexcept {
  constexpr std::array<std::string_view, 6> idempotent = {"GET",    "HEAD",    "PUT",
                                                          "DELETE", "OPTIONS", "TRACE"};
  return std::find(idempotent.begin(), idempotent.end(), method) != idempotent.end() ||
         fields.find("Idempotency-Key") != nullptr;
}

// Fields that callers must not set: the client decides how the connection is used and where the
// body ends, and it does not wait for the answer to an expectation.
bool is_clients_own(std::string_view name) noexcept {
  return equal_ignoring_case(name, "Connection") || equal_ignoring_case(name, "Expect") ||
         equal_ignoring_case(name, "Transfer-Encoding");
}

// Returns: the head of a request, or invalid_argument for a request that the server would
// understand differently.
expected<std::string> format_head(std::string_view method, const url& to, const headers& fields,
                                  std::size_t body_bytes, keep k) {
  if (!is_token(method) || method == "CONNECT") return error(std::errc::invalid_argument);
  std::string head;
  head.append(method).append(" ").append(to.target).append(" HTTP/1.1\r\n");
  if (fields.find("Host") == nullptr) head.append("Host: ").append(to.host).append("\r\n");
  if (fields.find("User-Agent") == nullptr) head.append("User-Agent: weft\r\n");
  bool has_length = body_bytes != 0 || method == "POST" || method == "PUT" || method == "PATCH";
  for (const field& f : fields) {
    if (!is_token(f.name) || !is_field_value(f.value) || is_clients_own(f.name)) {
      return error(std::errc::invalid_argument);
    }
    if (equal_ignoring_case(f.name, "Content-Length")) {
      if (parse_number(f.value) != body_bytes) return error(std::errc::invalid_argument);
      has_length = true;
      continue;
    }
    head.append(f.name).append(": ").append(f.value).append("\r\n");
  }
  if (has_length) {
    head.append("Content-Length: ");
    append_number(head, body_bytes);
    head.append("\r\n");
  }
  if (k == keep::no) head.append("Connection: close\r\n");
  head.append("\r\n");
  return head;
}

// The result of a request on one connection.
struct outcome {
  expected<message> answer;
  bool got_some = false;  // of an answer
  bool reusable = false;
  bool ends_with_stream = false;  // only the end of the stream ends the answer
  bool was_too_late = false;      // the connection had broken before the request was written
};

outcome failed(std::error_code why, bool got_some) { return {std::unexpected(why), got_some}; }

outcome read_answer(net::conn& c, std::string_view method, const client_options& options) {
  const auto has_body =
      method == "HEAD" ? message_parser::has_body::never : message_parser::has_body::as_it_says;
  const parse_limits limits{options.header_bytes, options.body_bytes};
  input_buffer in(options.header_bytes);
  bool got_some = false;
  bool ends_with_stream = false;
  std::size_t interim_bytes = 0;  // of 1xx answers, before the final one
  for (;;) {
    bool begun = !in.empty();
    message m;
    message_parser parser(limits, m, has_body);
    while (!parser.is_done()) {
      bool need_more = in.empty();
      if (!need_more) {
        const put_result r = parser.put(in.view());
        in.consume(r.used);
        m.body += r.body;
        interim_bytes += r.used;
        if (r.error != 0) {
          const bool too_long = r.error == 413 || r.error == 414 || r.error == 431;
          return failed(
              std::make_error_code(too_long ? std::errc::message_size : std::errc::bad_message),
              got_some);
        }
        need_more = r.need_more;
      }
      if (!need_more) continue;
      const std::span<char> space =
          in.space(m.body.empty() ? input_buffer::small_bytes : input_buffer::large_bytes);
      if (space.empty()) return failed(std::make_error_code(std::errc::message_size), got_some);
      const expected<std::size_t> n = c.read(std::as_writable_bytes(space));
      if (!n) return failed(n.error(), got_some);
      if (*n == 0) {
        ends_with_stream = parser.end();
        if (ends_with_stream) break;
        return failed(begun ? answer_errc::truncated : answer_errc::missing, got_some);
      }
      got_some = begun = true;
      in.fill(*n);
    }
    if (m.status >= 200 || m.status == 101) {
      const bool reusable = m.status != 101 && parser.wants_keep_alive() && in.empty();
      return {std::move(m), true, reusable, ends_with_stream};
    }
    if (interim_bytes > options.header_bytes) {
      return failed(std::make_error_code(std::errc::message_size), got_some);
    }
  }
}

using request_pieces = std::span<const std::span<const std::byte>>;

// Whether a write failed because of the peer, or because the read side ended it. Then an answer may
// have come.
bool is_no_fault_of_ours(std::error_code e) noexcept {
  return e == std::errc::connection_reset || e == std::errc::broken_pipe ||
         e == std::errc::timed_out;
}

// Whether all that the peer has sent can still be read after a write that failed so: our own
// deadline has passed, or the peer takes no more, but has said where its own stream ends.
bool leaves_stream_whole(std::error_code e) noexcept {
  return e == make_error_code(errc::timed_out) || e == std::errc::broken_pipe;
}

// Writes a request while this object lives. Its destructor stops the writing.
class sender {
 public:
  // result: set when this object is destroyed.
  sender(net::conn& c, request_pieces pieces, expected<std::size_t>& result) : conn_(c) {
    writing_.go([&c, pieces, &result] {
      result = c.write(pieces);
      // No server answers half a request.
      if (!result && !is_no_fault_of_ours(result.error())) c.set_read_deadline(io::past);
    });
  }
  sender(const sender&) = delete;
  sender& operator=(const sender&) = delete;
  ~sender() {
    conn_.set_write_deadline(io::past);
    writing_.wait();
    conn_.set_write_deadline({});
  }

 private:
  net::conn& conn_;
  wait_group writing_;
};

outcome exchange(const std::shared_ptr<net::conn>& c, std::string_view head,
                 std::string_view method, std::string_view body, const client_options& options,
                 const context& ctx) {
  const auto talk = [&]() -> outcome {
    const std::array<std::span<const std::byte>, 2> pieces = {std::as_bytes(std::span(head)),
                                                              std::as_bytes(std::span(body))};
    expected<std::size_t> sent;
    outcome result;
    if (head.size() + body.size() > at_once_bytes) {
      try {
        const sender meanwhile(*c, pieces, sent);
        result = read_answer(*c, method, options);
      } catch (const std::system_error& e) {  // no goroutine can be started
        return failed(e.code(), true);        // and another connection would not help
      }
      if (!sent && !result.answer && !is_no_fault_of_ours(sent.error())) {
        return failed(sent.error(), true);
      }
    } else {
      sent = body.empty() ? c->write(pieces[0]) : c->write(request_pieces(pieces));
      if (!sent && !is_no_fault_of_ours(sent.error())) return failed(sent.error(), false);
      result = read_answer(*c, method, options);
      result.was_too_late = !sent;
    }
    // The kernel tells an error of a stream once. If the write was told, the reader may have found
    // an orderly end instead, so an answer that only the end of the stream ends may be cut off.
    if (!sent && result.ends_with_stream && !leaves_stream_whole(sent.error())) {
      result.answer = std::unexpected(sent.error());
    }
    if (!sent && !result.answer && sent.error() == std::errc::connection_reset &&
        result.answer.error() == std::errc::connection_reset) {
      result.answer = std::unexpected(sent.error());
    }
    if (!sent) result.reusable = false;
    return result;
  };
  if (!ctx.done()) return talk();
  const auto unwatch = after_func(ctx, [c] { c->set_deadline(io::past); });
  outcome result = talk();
  if (!unwatch()) result.reusable = false;
  if (!result.answer && ctx.err()) result.answer = std::unexpected(ctx.err());
  return result;
}

expected<std::shared_ptr<net::conn>> connect(const url& to, const context& ctx) {
  expected<net::conn> c = net::dial(ctx, "tcp", to.address);
  if (!c) return std::unexpected(ctx.err() ? ctx.err() : c.error());
  return std::make_shared<net::conn>(*std::move(c));
}

// Whether neither bytes nor the end of the stream have come.
bool is_quiet(const net::conn& c) noexcept {
  char byte;
  return ::recv(c.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

constexpr base::error_row error_rows[] = {
    {answer_errc::missing, "the server closed the connection without an answer",
     std::errc::connection_reset},
    {answer_errc::truncated, "the server closed the connection in the middle of its answer",
     std::errc::connection_reset},
};

}  // namespace

const std::error_category& answer_category() noexcept {
  static const base::error_category the_category("weft.http", error_rows);
  return the_category;
}

// Connections that wait for the next request.
class client::pool {
 public:
  explicit pool(client_options options) : options_(options) {}
  const client_options& options() const noexcept { return options_; }

  std::shared_ptr<net::conn> take(const std::string& address) {
    std::vector<idle> stale;  // closed after the lock is released
    const std::lock_guard hold(lock_);
    const auto found = idle_.find(address);
    if (found == idle_.end()) return nullptr;
    std::vector<idle>& list = found->second;
    std::shared_ptr<net::conn> c;
    const clock::time_point now = clock::now();
    while (!list.empty() && c == nullptr) {
      idle& last = list.back();  // the connection that has waited for the shortest time
      if (now - last.since < options_.idle && is_quiet(*last.conn)) {
        c = std::move(last.conn);
      } else {
        stale.push_back(std::move(last));
      }
      list.pop_back();
    }
    if (list.empty()) idle_.erase(found);
    return c;
  }

  void put(const std::string& address, std::shared_ptr<net::conn> c) {
    std::vector<idle> gone;
    const std::lock_guard hold(lock_);
    drop_stale(gone);
    std::vector<idle>& list = idle_[address];
    if (list.size() >= options_.idle_connections) {
      gone.push_back(std::move(list.front()));
      list.erase(list.begin());
    }
    list.push_back({std::move(c), clock::now()});
  }

 private:
  struct idle {
    std::shared_ptr<net::conn> conn;
    clock::time_point since;
  };

  // Checks the connections to all servers, so that those to unused servers are closed, too.
  void drop_stale(std::vector<idle>& gone) {
    const clock::time_point oldest = clock::now() - options_.idle;
    for (auto i = idle_.begin(); i != idle_.end();) {
      std::vector<idle>& list = i->second;
      const auto fresh = std::find_if(list.begin(), list.end(),
                                      [oldest](const idle& x) { return x.since > oldest; });
      std::move(list.begin(), fresh, std::back_inserter(gone));
      list.erase(list.begin(), fresh);
      i = list.empty() ? idle_.erase(i) : std::next(i);
    }
  }

  const client_options options_;
  mutex lock_;
  std::map<std::string, std::vector<idle>> idle_;  // guarded by lock_; the oldest first
};

client::client(client_options options) : pool_(std::make_shared<pool>(options)) {}
client::~client() = default;

expected<message> client::get(const context& ctx, std::string_view url) {
  return request(ctx, "GET", url);
}

expected<message> client::request(const context& ctx, std::string_view method,
                                  std::string_view address, const headers& fields,
                                  std::string_view body) {
  const expected<url> to = url::parse(address);
  if (!to) return std::unexpected(to.error());
  const client_options& options = pool_->options();
  const keep k = options.idle_connections == 0 ? keep::no : keep::yes;
  const expected<std::string> head = format_head(method, *to, fields, body.size(), k);
  if (!head) return std::unexpected(head.error());
  if (ctx.err()) return std::unexpected(ctx.err());

  const bool repeatable = may_be_repeated(method, fields);
  while (const std::shared_ptr<net::conn> kept = pool_->take(to->address)) {
    outcome result = exchange(kept, *head, method, body, options, ctx);
    if (result.reusable) pool_->put(to->address, kept);
    if (repeatable && result.was_too_late && !ctx.err()) continue;
    if (result.answer || result.got_some || !repeatable || ctx.err()) {
      return std::move(result.answer);
    }
  }
  const auto fresh = connect(*to, ctx);
  if (!fresh) return std::unexpected(fresh.error());
  outcome result = exchange(*fresh, *head, method, body, options, ctx);
  if (result.reusable && k == keep::yes) pool_->put(to->address, *fresh);
  return std::move(result.answer);
}

expected<message> get(const context& ctx, std::string_view url) { return send(ctx, "GET", url); }

expected<message> send(const context& ctx, std::string_view method, std::string_view url,
                       const headers& fields, std::string_view body) {
  client once({.idle_connections = 0});
  return once.request(ctx, method, url, fields, body);
}

}  // namespace weft::http
