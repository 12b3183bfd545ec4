// future_state.hpp: what a future and its goroutine share: a result, an exception, or nothing yet.
#pragma once

#include <weft/detail/one_shot.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

namespace weft::detail {

// Calls call(argument). If the call throws an exception, keeps it in `thrown`; the unwinding of
// this_goroutine::exit() passes through.
WEFT_API void call_capturing(void (*call)(void*), void* argument, std::exception_ptr& thrown);

// Throws: std::future_error(why).
[[noreturn]] WEFT_API void throw_future_error(std::future_errc why);
// Returns: what waiters throw if this_goroutine::exit() has ended the call that they wait for.
WEFT_API std::exception_ptr make_broken_promise();

// Owned by a future and its goroutine together: the one of the two that lets go last destroys it.
class future_state_base {
 public:
  future_state_base() = default;
  future_state_base(const future_state_base&) = delete;
  future_state_base& operator=(const future_state_base&) = delete;
  virtual ~future_state_base() = default;

  void wait() {
    observe(touch::arrive, this, "wait");
    done_.wait(wait_reason::future);
    observe(touch::acquire, this);
  }
  bool wait_until(wait_limit limit) {
    observe(touch::arrive, this, "wait with timeout");
    const bool happened = done_.wait_until(wait_reason::future, limit);
    if (happened) observe(touch::acquire, this);
    return happened;
  }

  // For the future: lets go of the state. Requires: no other goroutine waits.
  void abandon() noexcept {
    observe(touch::release, this, "drop");
    if (done_.abandon()) delete this;
  }

  static void* operator new(std::size_t bytes) {
    return bytes <= block_bytes ? allocate_block() : ::operator new(bytes);
  }
  static void* operator new(std::size_t bytes, std::align_val_t align) {
    return ::operator new(bytes, align);
  }
  static void operator delete(void* memory, std::size_t bytes) noexcept {
    bytes <= block_bytes ? free_block(memory) : ::operator delete(memory, bytes);
  }
  static void operator delete(void* memory, std::size_t bytes, std::align_val_t align) noexcept {
    ::operator delete(memory, bytes, align);
  }

 protected:
  // For the goroutine: the result is there. Lets go of the state.
  void finish() noexcept {
    observe(touch::release, this, "result");
    if (!done_.set()) delete this;
  }
  std::exception_ptr thrown_;  // the goroutine's before finish(), the future's after wait()

 private:
  one_shot<seam> done_;
};

template <class R>
class future_state : public future_state_base {
 public:
  using value_type =
      std::conditional_t<std::is_void_v<R>, std::monostate,
                         std::conditional_t<std::is_reference_v<R>,
                                            std::add_pointer_t<std::remove_reference_t<R>>, R>>;

  R take() {
    if (thrown_ != nullptr) std::rethrow_exception(std::move(thrown_));
    if constexpr (std::is_void_v<R>) {
      return;
    } else if constexpr (std::is_reference_v<R>) {
      return static_cast<R>(**value_);
    } else {
      return std::move(*value_);
    }
  }

 protected:
  std::optional<value_type> value_;
};

// The state of a future together with the callable that makes the result.
template <class R, class Task>
class async_state final : public future_state<R> {
 public:
  template <class... A>
  explicit async_state(A&&... args) : call_(std::in_place, std::forward<A>(args)...) {}

  // Runs on the goroutine.
  static void run(async_state* state) {
    struct finisher {
      async_state* state;
      ~finisher() {
        // If there is neither value nor exception, this_goroutine::exit() has ended the call.
        if (!state->value_ && state->thrown_ == nullptr) state->thrown_ = make_broken_promise();
        state->call_.reset();  // what the callable holds is destroyed before the future is ready
        state->finish();
      }
    };
    const finisher f{state};
    call_capturing(
        [](void* argument) {
          auto* const self = static_cast<async_state*>(argument);
          if constexpr (std::is_void_v<R>) {
            self->call_->result();
            self->value_.emplace();
          } else if constexpr (std::is_reference_v<R>) {
            self->value_.emplace(std::addressof(self->call_->result()));
          } else {
            self->value_.emplace(self->call_->result());
          }
        },
        state, state->thrown_);
  }

 private:
  std::optional<Task> call_;
};

}  // namespace weft::detail
