// expect: (nodiscard|ignoring return)
//
// Without its handle nothing can be stopped, cancelled or undone any more.
#pragma GCC diagnostic error "-Wunused-result"
#pragma GCC diagnostic error "-Wunused-value"
#include <weft/weft.hpp>

#include <chrono>
#include <csignal>
#include <stop_token>

void use(const weft::context& ctx, std::stop_token token) {
  weft::with_cancel(ctx);                            // refused
  weft::with_timeout(ctx, std::chrono::seconds(1));  // refused
  weft::with_deadline(ctx, weft::clock::now());      // refused
  weft::without_cancel(ctx);                         // refused
  weft::with_stop(ctx, token);                       // refused
  weft::after_func(ctx, [] {});                      // refused
  weft::os::notify_context(ctx, {SIGTERM});          // refused
  weft::timer(std::chrono::seconds(1));              // refused
  weft::ticker(std::chrono::seconds(1));             // refused
}
