// mutants.hpp: variants of model::platform, for tests of protocols.
//
// First the other two forms in which the real platform exists (src/base/membarrier.hpp), under
// which a protocol must be right as well. Then platforms with a defect each, under which a test
// must fail, or it would not notice the mistake that the defect stands for.
#pragma once

#include "model/explore.hpp"

#include <atomic>
#include <cstdint>

namespace weft::model {

// A kernel without membarrier: both barriers are fences.
struct fenced_platform : platform {
  static void light_barrier() noexcept { fence(std::memory_order_seq_cst); }
  static void heavy_barrier() noexcept { fence(std::memory_order_seq_cst); }
};

// A build for TSan: no barriers at all, the hot accesses are seq_cst.
struct sequential_platform : platform {
  static constexpr std::memory_order hot_store = std::memory_order_seq_cst;
  static constexpr std::memory_order hot_load = std::memory_order_seq_cst;
  static void light_barrier() noexcept {}
  static void heavy_barrier() noexcept {}
};

namespace mutant {

struct no_heavy_barrier : platform {
  static void heavy_barrier() noexcept {}
};

// The cold side fences itself and forgets the others.
struct local_heavy_barrier : platform {
  static void heavy_barrier() noexcept { fence(std::memory_order_seq_cst); }
};

struct no_wake : platform {
  static void futex_wake(const atomic<std::uint32_t>&, int) noexcept {}
};

// Falls asleep whatever the word holds.
struct blind_wait : platform {
  static void futex_wait(const atomic<std::uint32_t>& word, std::uint32_t) noexcept {
    platform::futex_wait(word, word.load(std::memory_order_relaxed));
  }
};

// Looks at the word that it wakes.
struct curious_wake : platform {
  static void futex_wake(const atomic<std::uint32_t>& word, int count) noexcept {
    word.load(std::memory_order_relaxed);
    platform::futex_wake(word, count);
  }
};

// An exchange that others may come between.
struct torn_exchange : platform {
  template <class T>
  struct atomic : model::atomic<T> {
    using model::atomic<T>::atomic;
    T exchange(T value, std::memory_order) noexcept {
      const T old = this->load(std::memory_order_seq_cst);
      this->store(value, std::memory_order_seq_cst);
      return old;
    }
  };
};

struct torn_compare_exchange : platform {
  template <class T>
  struct atomic : model::atomic<T> {
    using model::atomic<T>::atomic;
    bool compare_exchange_strong(T& expected, T desired, std::memory_order,
                                 std::memory_order = std::memory_order_seq_cst) noexcept {
      const T old = this->load(std::memory_order_seq_cst);
      if (old != expected) {
        expected = old;
        return false;
      }
      this->store(desired, std::memory_order_seq_cst);
      return true;
    }
  };
};

// Orders weaker than written. `weaken` must leave seq_cst alone, which does more than order.
template <std::memory_order (*weaken)(std::memory_order)>
struct weaker_orders : platform {
  template <class T>
  struct atomic : model::atomic<T> {
    using base = model::atomic<T>;
    using base::base;

    T load(std::memory_order o) const noexcept { return base::load(weaken(o)); }
    void store(T value, std::memory_order o) noexcept { base::store(value, weaken(o)); }
    T exchange(T value, std::memory_order o) noexcept { return base::exchange(value, weaken(o)); }
    bool compare_exchange_strong(T& expected, T desired, std::memory_order success,
                                 std::memory_order failure) noexcept {
      return base::compare_exchange_strong(expected, desired, weaken(success), weaken(failure));
    }
    bool compare_exchange_strong(T& expected, T desired, std::memory_order o) noexcept {
      return base::compare_exchange_strong(expected, desired, weaken(o));
    }
    bool compare_exchange_weak(T& expected, T desired, std::memory_order success,
                               std::memory_order failure) noexcept {
      return base::compare_exchange_weak(expected, desired, weaken(success), weaken(failure));
    }
    bool compare_exchange_weak(T& expected, T desired, std::memory_order o) noexcept {
      return base::compare_exchange_weak(expected, desired, weaken(o));
    }
    template <class D>
    T fetch_add(D n, std::memory_order o) noexcept {
      return base::fetch_add(n, weaken(o));
    }
    template <class D>
    T fetch_sub(D n, std::memory_order o) noexcept {
      return base::fetch_sub(n, weaken(o));
    }
    T fetch_or(T n, std::memory_order o) noexcept { return base::fetch_or(n, weaken(o)); }
    T fetch_and(T n, std::memory_order o) noexcept { return base::fetch_and(n, weaken(o)); }
  };
};

// noinline: GCC 12 warns where it sees a failure order that is stronger than the order of success.
[[gnu::noinline]] inline std::memory_order without_release(std::memory_order o) {
  if (o == std::memory_order_release) return std::memory_order_relaxed;
  return o == std::memory_order_acq_rel ? std::memory_order_acquire : o;
}
[[gnu::noinline]] inline std::memory_order without_acquire(std::memory_order o) {
  if (o == std::memory_order_acquire) return std::memory_order_relaxed;
  return o == std::memory_order_acq_rel ? std::memory_order_release : o;
}

using no_release = weaker_orders<&without_release>;
using no_acquire = weaker_orders<&without_acquire>;

}  // namespace mutant
}  // namespace weft::model
