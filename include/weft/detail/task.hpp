// task.hpp: a callable with its arguments on its way to a new goroutine.
//
// The record of a goroutine has room for a callable of 128 bytes, so starting a goroutine allocates
// nothing; a larger callable goes to the heap. One call into the runtime takes a record, another
// one publishes it. Between the two, outside the runtime, the callable is built in place, and may
// throw.
#pragma once

#include <weft/detail/config.hpp>
#include <weft/detail/park.hpp>
#include <weft/go_options.hpp>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <tuple>
#include <type_traits>
#include <utility>

namespace weft::detail {

inline constexpr std::size_t task_bytes = 128;
inline constexpr std::size_t task_align = 16;

enum class start_as : unsigned char { child, main };

// Takes an unused record. Throws: std::system_error if there is none, std::bad_alloc.
WEFT_API goroutine* begin_start(start_as who);
WEFT_API goroutine* begin_start(const go_options& options);
// begin_start for a caller that is inside the runtime: a timer. Returns: null if there is no unused
// record.
WEFT_API goroutine* begin_start_inside() noexcept;
// Returns: the room for the callable in the record.
WEFT_API void* task_storage(goroutine* g) noexcept;
// commit_start lets the goroutine run invoke(storage); abort_start gives the record back.
WEFT_API void commit_start(goroutine* g, void (*invoke)(void* storage)) noexcept;
WEFT_API void abort_start(goroutine* g) noexcept;
// commit_start for a caller that is inside the runtime.
WEFT_API void commit_start_inside(goroutine* g, void (*invoke)(void* storage)) noexcept;

template <class F, class... Args>
class task {
 public:
  template <class G, class... A>
  explicit task(G&& f, A&&... args) : call_(std::forward<G>(f), std::forward<A>(args)...) {}

  void run() {
    std::apply([](auto&&... parts) { std::invoke(std::move(parts)...); }, std::move(call_));
  }

  decltype(auto) result() {
    return std::apply(
        [](auto&&... parts) -> decltype(auto) { return std::invoke(std::move(parts)...); },
        std::move(call_));
  }

  static constexpr bool fits =
      sizeof(std::tuple<F, Args...>) <= task_bytes && alignof(std::tuple<F, Args...>) <= task_align;

 private:
  std::tuple<F, Args...> call_;
};

// Runs and destroys a task in its record. The destructor also runs when the goroutine is unwound.
template <class Task>
void invoke_in_place(void* storage) {
  struct destroyer {
    Task* task;
    ~destroyer() { std::destroy_at(task); }
  };
  const destroyer d{std::launder(static_cast<Task*>(storage))};
  d.task->run();
}

template <class Task>
void invoke_from_heap(void* storage) {
  const std::unique_ptr<Task> owned(*static_cast<Task**>(storage));
  owned->run();
}

// Inlined all the way, so that the return address that commit_start() keeps lies in the code of the
// user.
template <class Options, class F, class... Args>
[[gnu::always_inline]] inline void start(const Options& options, F&& f, Args&&... args) {
  using task_type = task<std::decay_t<F>, std::decay_t<Args>...>;
  goroutine* const g = begin_start(options);
  if constexpr (task_type::fits && std::is_nothrow_constructible_v<std::decay_t<F>, F> &&
                (std::is_nothrow_constructible_v<std::decay_t<Args>, Args> && ...)) {
    ::new (task_storage(g)) task_type(std::forward<F>(f), std::forward<Args>(args)...);
    commit_start(g, &invoke_in_place<task_type>);
  } else {
    try {
      if constexpr (task_type::fits) {
        ::new (task_storage(g)) task_type(std::forward<F>(f), std::forward<Args>(args)...);
      } else {
        *static_cast<task_type**>(task_storage(g)) =
            new task_type(std::forward<F>(f), std::forward<Args>(args)...);
      }
    } catch (...) {
      abort_start(g);
      throw;
    }
    commit_start(g, task_type::fits ? &invoke_in_place<task_type> : &invoke_from_heap<task_type>);
  }
  // Generates no code, but keeps the call above from being a tail call: its return address has to
  // lie here, in the code of the user.
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

}  // namespace weft::detail
