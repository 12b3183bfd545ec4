// linked_list.hpp: a list of records that are linked through a member of their own. So a record can
// be taken out of the middle, and nothing is allocated. Guarded by whatever guards the list's
// owner.
#pragma once

#include <cstdint>

namespace weft::sched {

template <class T>
struct list_link {
  T* next = nullptr;
  T* previous = nullptr;
};

template <class T, list_link<T> T::* link>
class linked_list {
 public:
  bool empty() const noexcept { return head_ == nullptr; }
  std::uint32_t size() const noexcept { return size_; }
  T* front() const noexcept { return head_; }
  // The record after `t`, or null.
  static T* after(const T* t) noexcept { return (t->*link).next; }

  void push_front(T* t) noexcept { insert(t, nullptr, head_); }
  void push_back(T* t) noexcept { insert(t, tail_, nullptr); }

  // Requires: `t` is in this list.
  void remove(T* t) noexcept {
    list_link<T>& at = t->*link;
    (at.previous != nullptr ? (at.previous->*link).next : head_) = at.next;
    (at.next != nullptr ? (at.next->*link).previous : tail_) = at.previous;
    at = {};
    --size_;
  }

  // Returns: null if the list is empty.
  T* pop_front() noexcept {
    T* const t = head_;
    if (t != nullptr) remove(t);
    return t;
  }

  bool contains(const T* t) const noexcept {
    const T* at = head_;
    while (at != nullptr && at != t) at = after(at);
    return at != nullptr;
  }

 private:
  void insert(T* t, T* previous, T* next) noexcept {
    t->*link = {.next = next, .previous = previous};
    (previous != nullptr ? (previous->*link).next : head_) = t;
    (next != nullptr ? (next->*link).previous : tail_) = t;
    ++size_;
  }

  T* head_ = nullptr;
  T* tail_ = nullptr;
  std::uint32_t size_ = 0;
};

}  // namespace weft::sched
