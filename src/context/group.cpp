// group.cpp: weft::group. It is in the layer of contexts because a group uses them.
#include <weft/group.hpp>

#include <stdexcept>

namespace weft {

group::group(context parent) : ctx_(context::background()), cancel_(detail::context_ref()) {
  cancellable both = with_cancel(parent);
  ctx_ = std::move(both.ctx);
  cancel_ = std::move(both.cancel);
}

group::~group() {
  cancel_();
  detail::observe(detail::touch::arrive, this, "end of the group");
  running_.wait(detail::wait_reason::wait_group);
  detail::observe(detail::touch::acquire, this);
}

void group::set_limit(std::size_t n) {
  if (count_.load(std::memory_order_relaxed) != 0) {
    throw std::logic_error("weft::group::set_limit: goroutines of the group are running");
  }
  places_ = n != no_limit ? chan<std::monostate>(n) : nullptr;
}

void group::enter() {
  if (places_) places_.send({});
  count_.fetch_add(1, std::memory_order_relaxed);
  running_.add(1);
}

bool group::try_enter() {
  if (places_ && places_.try_send(std::monostate{}) != chan_status::ok) return false;
  count_.fetch_add(1, std::memory_order_relaxed);
  running_.add(1);
  return true;
}

void group::leave() noexcept {
  if (places_) (void)places_.try_recv();
  count_.fetch_sub(1, std::memory_order_relaxed);
  detail::observe(detail::touch::release, this, "done");
  running_.sub(1);
}

void group::fail(std::exception_ptr thrown) noexcept {
  // relaxed: wait() is ordered by running_.
  if (failed_.exchange(true, std::memory_order_relaxed)) return;
  thrown_ = thrown;
  cancel_(std::move(thrown));
}

void group::wait() {
  detail::observe(detail::touch::arrive, this, "wait");
  running_.wait(detail::wait_reason::wait_group);
  detail::observe(detail::touch::acquire, this);
  cancel_();
  if (thrown_ != nullptr) std::rethrow_exception(thrown_);
}

}  // namespace weft
