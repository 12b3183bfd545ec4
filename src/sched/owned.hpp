// owned.hpp: fields that only class ownership (ownership.hpp) writes, and that others may read.
#pragma once

#include <atomic>

namespace weft::sched {

class ownership;

// A plain pointer. The comment at the field says who may read it.
template <class T>
class owned_pointer {
 public:
  operator T*() const noexcept { return value_; }
  T* operator->() const noexcept { return value_; }
  T* get() const noexcept { return value_; }

 private:
  friend class ownership;
  T* value_ = nullptr;
};

// A word that other threads read, too.
template <class T>
class owned_atomic {
 public:
  explicit constexpr owned_atomic(T value) noexcept : value_(value) {}
  T load(std::memory_order order) const noexcept { return value_.load(order); }

 private:
  friend class ownership;
  std::atomic<T> value_;
};

}  // namespace weft::sched
