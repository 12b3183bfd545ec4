// weft/pool.hpp: objects that are kept for the next goroutine that needs one. A part of
// weft/sync.hpp.
#pragma once

#include <weft/detail/config.hpp>
#include <weft/detail/park.hpp>

#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace weft {

// A pool of objects: for `pool<buffer> buffers(make_buffer)`, get() returns an object that was put
// back, or a new one. put() keeps at most 1024 objects and destroys the rest: a pool is
// no store.
template <class T>
class pool {
 public:
  explicit pool(std::function<T()> make) : make_(std::move(make)) {}
  pool(const pool&) = delete;
  pool& operator=(const pool&) = delete;

  T get() {
    detail::observe(detail::touch::arrive, this);
    {
      // No call into weft happens while the lock is held, so a goroutine holds it on one thread.
      const std::unique_lock hold(mutex_);
      if (!kept_.empty()) {
        detail::observe(detail::touch::acquire, this);
        T value(std::move(kept_.back()));
        kept_.pop_back();
        return value;
      }
    }
    return make_();
  }

  void put(T value) {
    detail::observe(detail::touch::release, this);
    std::optional<T> surplus;  // destroyed after the lock is gone
    const std::unique_lock hold(mutex_);
    if (kept_.size() < kept_max) {
      kept_.push_back(std::move(value));
    } else {
      surplus.emplace(std::move(value));
    }
  }

 private:
  static constexpr std::size_t kept_max = 1024;

  std::function<T()> make_;
  std::mutex mutex_;
  std::vector<T> kept_;  // guarded by mutex_
};

}  // namespace weft
