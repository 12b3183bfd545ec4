// server.cpp: accepts connections, and lets them end.
//
// serve accepts in its caller's goroutine (or thread) and gives each connection one of its own.
// When the context ends, it calls a function of ours. That function tells the connections and
// closes the listener, which wakes accept. From then on the kernel refuses new clients; they do not
// wait in its queue in vain. What follows is the same after an error of the listener: the phase is
// stopping, and serve waits for the last connection. If that takes longer than `drain`, the
// contexts of the requests end. Handlers that notice this have the time last_words to answer their
// clients. Then deadlines in the past end every wait for a peer, and only handlers can keep serve
// from returning.
//
// Locks: lock_ guards the list of connections. Deadlines of sockets are set under it; nothing under
// it parks.
#include <weft/http.hpp>

#include "http/connection.hpp"
#include "http/socket_stream.hpp"

#include <weft/detail/linked_list.hpp>
#include <weft/go.hpp>
#include <weft/sync.hpp>

#include <algorithm>
#include <atomic>
#include <cxxabi.h>
#include <memory>
#include <mutex>
#include <utility>

namespace weft::http {
namespace {

using detail::connection;
using detail::service;

constexpr auto look_every = std::chrono::milliseconds(100);  // at the listener, while it is full
constexpr auto last_words = std::chrono::milliseconds(500);  // for handlers whose context has ended

class server : public std::enable_shared_from_this<server> {
 public:
  server(service& s, cancellable requests)
      : service_(s), requests_(std::move(requests)), seats_(seats(s.options.connections)) {
    service_.requests = requests_.ctx;
  }

  std::error_code accept_all(net::listener& l, const context& ctx) {
    for (;;) {
      while (!seats_.try_acquire()) {
        // Closing a listener wakes only goroutines that wait in accept.
        const cancellable a_while = with_timeout(ctx, look_every);
        const bool seated = !seats_.acquire(a_while.ctx);
        a_while.cancel();
        if (seated) break;
        if (ctx.err()) return {};
        if (!l.is_open()) return errc::closed;
      }
      expected<net::conn> c = l.accept();
      if (ctx.err()) return {};
      if (c) {
        start(*std::move(c));
        continue;
      }
      seats_.release();
      if (!passes(c.error())) return c.error();
    }
  }

  void stop() { change(service::phase::stopping); }
  void end_requests() { requests_.cancel(); }
  void give_up() { change(service::phase::over); }
  // Waits for all connections.
  void wait() { running_.wait(); }
  // Returns: whether all connections ended in time.
  bool wait_for(serve_options::duration d) {
    const cancellable limit = with_timeout(context::background(), d);
    const bool in_time = !running_.wait(limit.ctx);
    limit.cancel();
    return in_time;
  }

 private:
  // One running connection. This object is in the list while it exists.
  struct member {
    member(server& of, net::conn c) : owner(of), stream(std::move(c)), core(stream, of.service_) {
      const std::lock_guard hold(owner.lock_);
      owner.members_.push_front(this);
    }
    member(const member&) = delete;
    member& operator=(const member&) = delete;
    ~member() {
      const std::lock_guard hold(owner.lock_);
      owner.members_.remove(this);
    }

    server& owner;
    socket_stream stream;
    connection core;
    weft::detail::list_link<member> link;  // guarded by owner.lock_
  };
  using member_list = weft::detail::linked_list<member, &member::link>;

  static std::ptrdiff_t seats(std::size_t n) {
    return static_cast<std::ptrdiff_t>(
        std::clamp<std::size_t>(n, 1, static_cast<std::size_t>(counting_semaphore<>::max())));
  }

  // Whether the error concerns only this connection and not the next.
  static bool passes(const std::error_code& e) {
    return e == std::errc::connection_aborted || e == std::errc::connection_reset ||
           e == std::errc::protocol_error || e == std::errc::network_down ||
           e == std::errc::network_unreachable || e == std::errc::host_unreachable ||
           e == std::errc::interrupted;
  }

  void start(net::conn c) {
    running_.add(1);
    try {
      go({.name = "http"}, [self = shared_from_this(), mine = std::move(c)]() mutable {
        // However the connection ends, even by exit().
        struct leave {
          server& of;
          ~leave() {
            of.seats_.release();
            of.running_.done();
          }
        } const on_return{*self};
        self->run(std::move(mine));
      });
    } catch (const std::exception&) {  // no goroutine can be started: the connection is dropped
      seats_.release();
      running_.done();
    }
  }

  // catch (...) also catches a forced unwinding, which has no exception object.
  __attribute__((noinline, no_sanitize("undefined"))) void run(net::conn c) {
    try {
      const auto m = std::make_unique<member>(*this, std::move(c));
      m->core.run();
    } catch (const abi::__forced_unwind&) {
      throw;
    } catch (...) {  // no memory: only this connection is lost
    }
  }

  void change(service::phase p) {
    service_.now.store(p, std::memory_order_seq_cst);  // [HT1] in connection.cpp
    const std::lock_guard hold(lock_);
    for (member* m = members_.front(); m != nullptr; m = member_list::after(m)) m->core.notice();
  }

  service& service_;
  const cancellable requests_;
  counting_semaphore<> seats_;
  wait_group running_;
  mutex lock_;
  member_list members_;  // guarded by lock_
};

std::error_code serve_with(net::listener& l, service& s, const context& ctx) {
  const auto owner = std::make_shared<server>(s, with_cancel(without_cancel(ctx)));
  latch told{1};
  const auto unwatch = after_func(ctx, [&] {
    owner->stop();
    (void)l.close();
    told.count_down();
  });
  const std::error_code why = owner->accept_all(l, ctx);
  if (!unwatch()) told.wait();
  owner->stop();
  (void)l.close();  // in any case: nothing will accept connections any more

  const bool drained = owner->wait_for(s.options.drain);
  owner->end_requests();
  if (!drained && !owner->wait_for(last_words)) owner->give_up();
  owner->wait();
  return why;
}

}  // namespace

std::error_code serve(const context& ctx, net::listener& l, handler h, serve_options options) {
  service s;
  s.whole = std::move(h);
  s.options = std::move(options);
  return serve_with(l, s, ctx);
}

std::error_code serve_streaming(const context& ctx, net::listener& l, streaming_handler h,
                                serve_options options) {
  service s;
  s.by_piece = std::move(h);
  s.options = std::move(options);
  return serve_with(l, s, ctx);
}

}  // namespace weft::http
