// goroutine_list.hpp: a chain of goroutines linked through their own records, first in, first out.
// It belongs to one thread or is guarded by its owner's lock.
#pragma once

#include "sched/goroutine.hpp"

#include <cstddef>

namespace weft::sched {

class goroutine_list {
 public:
  bool empty() const noexcept { return head_ == nullptr; }
  std::size_t size() const noexcept { return size_; }

  void push_back(goroutine* g) noexcept {
    g->next = nullptr;
    (head_ == nullptr ? head_ : tail_->next) = g;
    tail_ = g;
    ++size_;
  }

  goroutine* front() const noexcept { return head_; }

  goroutine* pop_front() noexcept {
    goroutine* const g = head_;
    if (g != nullptr) {
      head_ = g->next;
      --size_;
    }
    return g;
  }

  // Moves everything from `other` to the end.
  void append(goroutine_list& other) noexcept {
    if (other.empty()) return;
    (head_ == nullptr ? head_ : tail_->next) = other.head_;
    tail_ = other.tail_;
    size_ += other.size_;
    other.head_ = nullptr;
    other.size_ = 0;
  }

 private:
  goroutine* head_ = nullptr;
  goroutine* tail_ = nullptr;  // meaningless while empty
  std::size_t size_ = 0;
};

}  // namespace weft::sched
