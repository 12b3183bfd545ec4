// timer_spill.hpp: a heap of timers that needs no memory, for when there is none: a pairing heap
// whose nodes are the timers themselves.
//
// It is not used otherwise for two reasons. Each step to another timer is a step to another
// goroutine's stack. And to take the first of n timers out may cost n steps.
//
// A timer's `child` is its first child, `next` its next sibling, `previous` the sibling before it,
// or its parent if it is the first child. No child is due before its parent.
//
// Guarded by the heap's lock (timers.hpp).
#pragma once

#include "sched/timer.hpp"

namespace weft::sched {

class timer_spill {
 public:
  // The timer that is due first, or null.
  timer* first() const noexcept { return root_; }

  void insert(timer& t) noexcept {
    t.child = t.next = t.previous = nullptr;
    root_ = meld(root_, &t);
  }

  void remove(timer& t) noexcept {
    timer* const rest = meld_all(t.child);
    if (&t == root_) {
      root_ = rest;
      return;
    }
    (t.previous->child == &t ? t.previous->child : t.previous->next) = t.next;
    if (t.next != nullptr) t.next->previous = t.previous;
    root_ = meld(root_, rest);
  }

  void clear() noexcept { root_ = nullptr; }

  // Whether `is` holds for any timer.
  template <class F>
  bool any_of(F is) const noexcept {
    for (const timer* t = root_; t != nullptr; t = after(t)) {
      if (is(t)) return true;
    }
    return false;
  }

 private:
  // Makes one of two roots, which may be null, the first child of the other. Returns: the new root.
  static timer* meld(timer* a, timer* b) noexcept {
    if (a == nullptr) return b;
    if (b == nullptr) return a;
    timer* const parent = a->when_ns <= b->when_ns ? a : b;
    timer* const child = parent == a ? b : a;
    child->next = parent->child;
    child->previous = parent;
    if (parent->child != nullptr) parent->child->previous = child;
    parent->child = child;
    parent->next = parent->previous = nullptr;
    return parent;
  }

  // Melds siblings first two by two, then all: that keeps the heap flat.
  static timer* meld_all(timer* list) noexcept {
    timer* pairs = nullptr;
    while (list != nullptr) {
      timer* const a = list;
      timer* const b = a->next;
      list = b != nullptr ? b->next : nullptr;
      timer* const pair = meld(a, b);
      pair->next = pairs;
      pairs = pair;
    }
    timer* all = nullptr;
    while (pairs != nullptr) {
      timer* const pair = pairs;
      pairs = pair->next;
      all = meld(all, pair);
    }
    if (all != nullptr) all->next = all->previous = nullptr;
    return all;
  }

  // The timer after `t` in a walk in which a parent comes before its children.
  static const timer* after(const timer* t) noexcept {
    if (t->child != nullptr) return t->child;
    while (t != nullptr && t->next == nullptr) t = parent_of(t);
    return t != nullptr ? t->next : nullptr;
  }

  static const timer* parent_of(const timer* t) noexcept {
    while (t->previous != nullptr && t->previous->child != t) t = t->previous;
    return t->previous;
  }

  timer* root_ = nullptr;
};

}  // namespace weft::sched
