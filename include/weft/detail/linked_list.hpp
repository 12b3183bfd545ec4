// linked_list.hpp: a list of records that are linked through a member of their own. So a record can
// be taken out of the middle, and nothing is allocated. Guarded by whatever guards the list's
// owner.
#pragma once

#include <cstdint>

namespace weft::detail {

template <class T>
struct list_link {
  T* next = nullptr;
  T* previous = nullptr;
};

// The link of a record that is in no list has no meaning.
template <class T, list_link<T> T::* link>
class linked_list {
 public:
  constexpr linked_list() = default;
  linked_list(const linked_list&) = delete;
  linked_list& operator=(const linked_list&) = delete;

  bool empty() const noexcept { return head_ == nullptr; }
  T* front() const noexcept { return head_; }
  // The record after `t`, or null.
  static T* after(const T* t) noexcept { return (t->*link).next; }

  void push_front(T* t) noexcept { insert(t, nullptr, head_); }
  void push_back(T* t) noexcept { insert(t, tail_, nullptr); }

  // Requires: `t` is in this list.
  void remove(T* t) noexcept {
    const list_link<T>& at = t->*link;
    (at.previous != nullptr ? (at.previous->*link).next : head_) = at.next;
    (at.next != nullptr ? (at.next->*link).previous : tail_) = at.previous;
  }

  // Returns: null if the list is empty.
  T* pop_front() noexcept {
    T* const t = head_;
    if (t == nullptr) return nullptr;
    head_ = after(t);
    (head_ != nullptr ? (head_->*link).previous : tail_) = nullptr;
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
  }

  T* head_ = nullptr;
  T* tail_ = nullptr;
};

// A list that knows how many records it has.
template <class T, list_link<T> T::* link>
class counted_list {
 public:
  bool empty() const noexcept { return list_.empty(); }
  std::uint32_t size() const noexcept { return size_; }
  T* front() const noexcept { return list_.front(); }
  static T* after(const T* t) noexcept { return linked_list<T, link>::after(t); }
  bool contains(const T* t) const noexcept { return list_.contains(t); }

  void push_front(T* t) noexcept {
    list_.push_front(t);
    ++size_;
  }
  void push_back(T* t) noexcept {
    list_.push_back(t);
    ++size_;
  }
  // Requires: `t` is in this list.
  void remove(T* t) noexcept {
    list_.remove(t);
    --size_;
  }
  // Returns: null if the list is empty.
  T* pop_front() noexcept {
    T* const t = list_.pop_front();
    if (t != nullptr) --size_;
    return t;
  }

 private:
  linked_list<T, link> list_;
  std::uint32_t size_ = 0;
};

}  // namespace weft::detail
