// expect: (nodiscard|ignoring return)
//
// What says no instead of waiting is no use to a caller who does not listen.
#pragma GCC diagnostic error "-Wunused-result"
#include <weft/weft.hpp>

#include <chrono>
#include <mutex>

using namespace std::chrono_literals;

void use(const weft::context& ctx) {
  weft::mutex m;
  m.try_lock();                          // refused
  m.try_lock_for(1s);                    // refused
  m.try_lock_until(weft::clock::now());  // refused
  weft::shared_mutex shared;
  shared.try_lock();               // refused
  shared.try_lock_for(1s);         // refused
  shared.try_lock_shared();        // refused
  shared.try_lock_shared_for(1s);  // refused
  weft::binary_semaphore permit(1);
  permit.try_acquire();        // refused
  permit.try_acquire_for(1s);  // refused
  weft::latch done(1);
  done.try_wait();  // refused
  weft::group g;
  g.try_go([] {});  // refused

  weft::condition_variable cv;
  std::unique_lock lock(m);
  const auto holds = [] { return true; };
  cv.wait(ctx, lock, holds);                       // refused
  cv.wait_for(lock, 1s, holds);                    // refused
  cv.wait_until(lock, weft::clock::now(), holds);  // refused

  const weft::chan<int> numbers(1);
  numbers.try_send(1);                     // refused
  weft::sender<int>(numbers).try_send(1);  // refused
}
