// weft/single_flight.hpp: many goroutines want the same result, and one of them computes it. A part
// of weft/sync.hpp.
#pragma once

#include <weft/detail/config.hpp>
#include <weft/detail/future_state.hpp>
#include <weft/detail/one_shot.hpp>

#include <exception>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace weft {

// run(key, f) calls f, unless a call for the same key is under way. In that case run() waits for
// that call, and returns or throws what the call does. Requires: copying, comparing and destroying
// a K does not call into weft; comparing two K throws nothing.
template <class K, class V>
class single_flight {
 public:
  single_flight() = default;
  single_flight(const single_flight&) = delete;
  single_flight& operator=(const single_flight&) = delete;

  // Returns: the value, and whether other goroutines got it, too. Throws: what the call of f
  // throws; std::future_error (broken_promise) if that call ended its goroutine by exit(); what
  // copying a K or a V throws; std::bad_alloc. Blocks: the goroutine.
  template <class F>
  std::pair<V, bool> run(const K& key, F&& f) {
    detail::observe(detail::touch::arrive, this);
    std::shared_ptr<flight> mine;
    std::shared_ptr<flight> theirs;
    {
      // While the lock is held, only K's own functions could call into weft, and they must not. So
      // the goroutine is still on the same thread when it unlocks.
      const std::lock_guard hold(mutex_);
      std::shared_ptr<flight>& slot = flights_[key];
      if (slot != nullptr) {
        theirs = slot;
        theirs->shared = true;
      } else {
        mine = slot = std::make_shared<flight>();
      }
    }
    if (theirs != nullptr) {
      theirs->landed.wait(detail::wait_reason::future);
      detail::observe(detail::touch::acquire, theirs.get());
      if (theirs->thrown != nullptr) std::rethrow_exception(theirs->thrown);
      return {*theirs->value, true};
    }
    struct lander {
      single_flight* self;
      const K& key;
      std::shared_ptr<flight> flight_;
      ~lander() {  // runs also if f ends the goroutine by exit()
        if (!flight_->value && flight_->thrown == nullptr) {
          flight_->thrown = detail::make_broken_promise();
        }
        self->erase(key, flight_);
        detail::observe(detail::touch::release, flight_.get());
        flight_->landed.set();
      }
    };
    {
      const lander last{this, key, mine};
      using call_type = std::remove_reference_t<F>;
      struct call {
        call_type* f;
        flight* into;
      } c{std::addressof(f), mine.get()};
      detail::call_capturing(
          [](void* argument) {
            auto* const self = static_cast<call*>(argument);
            self->into->value.emplace(std::invoke(*self->f));
          },
          &c, mine->thrown);
    }
    if (mine->thrown != nullptr) std::rethrow_exception(mine->thrown);
    bool shared = false;
    {
      const std::lock_guard hold(mutex_);
      shared = mine->shared;
    }
    return {*mine->value, shared};
  }

  // Makes the next run of `key` call its function, even if a call is under way.
  void forget(const K& key) {
    detail::observe(detail::touch::arrive, this);
    const std::lock_guard hold(mutex_);
    flights_.erase(key);
  }

 private:
  struct flight {
    detail::one_shot<detail::seam> landed;
    std::optional<V> value;     // written by the goroutine that calls f; read after `landed`
    std::exception_ptr thrown;  // like value
    bool shared = false;        // guarded by mutex_
  };

  void erase(const K& key, const std::shared_ptr<flight>& f) {
    const std::lock_guard hold(mutex_);
    const auto found = flights_.find(key);
    if (found != flights_.end() && found->second == f) flights_.erase(found);
  }

  std::mutex mutex_;
  std::map<K, std::shared_ptr<flight>> flights_;  // guarded by mutex_
};

}  // namespace weft
