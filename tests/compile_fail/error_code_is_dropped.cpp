// expect: (nodiscard|ignoring return)
//
// Who overlooks that an operation failed goes on without a lock, a permit or a file on the disk.
#pragma GCC diagnostic error "-Wunused-result"
#include <weft/http.hpp>
#include <weft/weft.hpp>

#include <chrono>
#include <mutex>

void use(const weft::context& ctx, weft::net::conn& c, weft::os::file& f, weft::net::listener& l,
         weft::http::handler h, weft::http::streaming_handler s, weft::http::response& out) {
  weft::mutex m;
  m.lock(ctx);  // refused
  weft::shared_mutex shared;
  shared.lock(ctx);         // refused
  shared.lock_shared(ctx);  // refused
  weft::counting_semaphore<> permits(1);
  permits.acquire(ctx);  // refused
  weft::condition_variable cv;
  std::unique_lock lock(m);
  cv.wait(ctx, lock);  // refused
  weft::latch done(1);
  done.wait(ctx);  // refused
  weft::barrier<> phase(1);
  phase.arrive_and_wait(ctx);       // refused
  phase.wait(ctx, phase.arrive());  // refused
  weft::wait_group all;
  all.wait(ctx);  // refused
  weft::once_flag once;
  weft::call_once(ctx, once, [] {});                              // refused
  weft::async([] {}).wait(ctx);                                   // refused
  weft::this_goroutine::sleep_for(ctx, std::chrono::seconds(1));  // refused

  const weft::chan<int> numbers(1);
  numbers.send(ctx, 1);                     // refused
  weft::sender<int>(numbers).send(ctx, 1);  // refused
  ctx.err();                                // refused

  c.close_write();                          // refused
  c.set_no_delay(true);                     // refused
  f.fsync();                                // refused
  f.truncate(0);                            // refused
  f.set_deadline(std::chrono::seconds(1));  // refused
  f.close();                                // refused
  weft::http::serve(l, h);                  // refused
  weft::http::serve(ctx, l, h);             // refused
  weft::http::serve_streaming(ctx, l, s);   // refused
  out.flush();                              // refused
}
