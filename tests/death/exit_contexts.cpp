// exit_contexts.cpp dropped|cancelled: goroutines wait with a context, by reference, when the
// process exits. They are stopped and never take back what they told the context. The status is 7.
//
// dropped    The context is destroyed, with the function of somebody else in the same list.
// cancelled  The context is cancelled after what the goroutines wait for has been destroyed.
#include <weft/weft.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

namespace {

using namespace std::chrono_literals;

// Destroyed last.
struct last_cancel {
  explicit last_cancel(weft::cancel_function c) : cancel(std::move(c)) {}
  last_cancel(const last_cancel&) = delete;
  last_cancel& operator=(const last_cancel&) = delete;
  ~last_cancel() {
    cancel();
    std::puts("cancelled");
  }
  weft::cancel_function cancel;
};
std::optional<last_cancel> the_end;
std::optional<weft::context> root;
struct work {
  weft::chan<int> jobs{1000};  // large, so that its memory is not kept for the next channel
  weft::chan<int> results;
  weft::mutex guard;
};
std::unique_ptr<work> all_work;

}  // namespace

int main(int count, char** arguments) {
  const bool cancels = count > 1 && std::string_view(arguments[1]) == "cancelled";
  weft::run([cancels] {
    auto made = weft::with_cancel(weft::context::background());
    if (cancels) the_end.emplace(std::move(made.cancel));
    root = std::move(made.ctx);
    all_work = std::make_unique<work>();
    all_work->guard.lock();
    weft::go([] { (void)all_work->jobs.recv(*root); });
    weft::go([] { (void)all_work->results.send(*root, 1); });
    weft::go([] { (void)all_work->guard.lock(*root); });
    weft::this_goroutine::sleep_for(50ms);
    if (!cancels) (void)weft::after_func(*root, [] { std::puts("called"); });
  });
  std::exit(7);
}
