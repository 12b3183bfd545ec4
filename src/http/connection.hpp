// connection.hpp: one connection of the server, from its first request to its end.
//
// A connection belongs to the goroutine that runs it. Other goroutines may call only the members
// under "Others". connection.cpp has the part that reads, response.cpp the part that writes.
#pragma once

#include "http/date.hpp"
#include "http/input_buffer.hpp"
#include "http/parser.hpp"
#include "http/stream.hpp"

#include <weft/http.hpp>
#include <weft/sync.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

namespace weft::http::detail {

// The state that all connections of a server share.
struct service {
  enum class phase : std::uint8_t {
    serving,
    stopping,  // no new requests
    over,      // no wait for a peer goes on
  };

  handler whole;               // or
  streaming_handler by_piece;  // the other one is empty
  serve_options options;
  context requests = context::background();
  std::atomic<phase> now{phase::serving};  // [HT1] in connection.cpp
};

class connection {
 public:
  connection(stream& s, const service& of);
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;

  // Answers requests until the connection is to be closed. Parks.
  void run();

  // Others. To be called when the service's phase has changed.
  void notice();

  // Called by the handler, through its response and body_reader.
  void set_status(int code);
  void set_field(std::string_view name, std::string_view value);
  void add_field(std::string_view name, std::string_view value);
  void write_body(std::string_view text);
  std::error_code write_file(os::file& from, std::uint64_t count);
  std::error_code flush_body();
  expected<std::string_view> read_body();
  context while_connected();

 private:
  // How the body of the answer is sent.
  enum class framing : std::uint8_t {
    open,         // nothing has been sent; the body is collected in body_
    chunked,      // the head has been sent, from here on
    counted,      // with the handler's Content-Length; remaining_ bytes are left
    until_close,  // to an HTTP/1.0 client that knows no chunks
    none,         // HEAD, 204, 205, 304: what is written is dropped
  };
  enum class waiting_for : std::uint8_t { request, header, body };
  enum class found : std::uint8_t { header, nothing };

  bool answer_one();
  found read_header();
  // catch (...) also catches a forced unwinding, which has no exception object.
  __attribute__((noinline, no_sanitize("undefined"))) bool call_handler();
  // Tells the program that an exception left its handler. Handles a forced unwinding in the same
  // way.
  __attribute__((noinline, no_sanitize("undefined"))) void report(std::exception_ptr thrown);
  bool read_whole_body();
  bool may_skip_body() const noexcept;
  bool skip_body();
  // The goroutine that waits for the client to go away, if the handler asked for it. The stream is
  // read only while this goroutine is paused.
  struct watch {
    explicit watch(const context& parent) : of_request(with_cancel(parent)) {}
    const cancellable of_request;
    wait_group waiting;
  };
  void begin_watch();
  void pause_watch();
  void end_watch();
  // Reads once. Returns: false at the end of the stream and on an error, which is in input_error_.
  bool fill(waiting_for what);
  clock::time_point body_deadline();
  void linger();
  // Resets the connection, so that the peer sees that the answer is incomplete.
  void break_off();

  // Sends an answer of the server itself instead of the handler's. No further answer follows.
  void refuse(int status);
  void begin_answer();
  void begin_pieces();
  void finish_answer();
  bool takes_body() const noexcept;
  bool take_special(std::string_view name, std::string_view value);
  void check_field(std::string_view name, std::string_view value) const;
  void append_head(framing f, std::optional<std::uint64_t> length);
  void emit(std::string_view more);
  bool send(std::span<const std::string_view> pieces);
  bool send_pending();
  std::error_code send_file(os::file& from, std::uint64_t count);

  // Deadlines. These functions avoid setting a deadline when the one in force will do.
  void refresh_now() noexcept { now_ = clock::now(); }
  void arm_read(clock::time_point when);
  void arm_write();
  // [HT1]
  service::phase phase() const noexcept { return service_.now.load(std::memory_order_seq_cst); }

  stream& stream_;
  const service& service_;
  const serve_options& options_;
  clock::time_point now_;  // of the last look
  clock::time_point read_deadline_{};
  clock::time_point write_deadline_{};
  std::atomic<bool> idle_{false};  // [HT1]

  input_buffer in_;
  request_parser parser_;
  request request_;
  std::size_t answered_ = 0;
  std::uint64_t body_bytes_read_ = 0;
  std::uint64_t body_bytes_timed_ = 0;  // how many of body_bytes_read_ are included in body_until_
  clock::time_point body_until_{};      // {}: no call has waited for the body yet
  clock::time_point given_{};           // when a streaming handler got its last piece
  bool continue_wanted_ = false;
  int input_status_ = 0;          // the answer to a request that cannot be read further, or 0
  std::error_code input_error_;   // why the request cannot be read further
  std::unique_ptr<watch> watch_;  // null, mostly

  std::string out_;   // to be sent: heads, and whole small answers
  std::string body_;  // of the answer, not yet sent
  headers fields_;
  int status_ = 200;
  framing framing_ = framing::open;
  std::optional<std::uint64_t> declared_;  // Content-Length by the handler
  std::uint64_t remaining_ = 0;
  bool keep_alive_ = true;
  bool has_date_ = false;
  bool has_type_ = false;
  bool linger_ = false;  // the peer may still send
  bool broken_off_ = false;
  std::error_code output_error_;
  date_cache date_;
};

}  // namespace weft::http::detail
