// one_shot.hpp: an event that happens once, between the goroutine that makes it happen and those
// who wait for it; what a future is made of.
//
// One word:
//   pending    it has not happened, nobody waits
//   a node     it has not happened; this is the newest of a list of waiters, on their own stacks
//   happened   it has
//   abandoned  it has not, and nobody will ever ask
//
//     the goroutine             a waiter                       the future's destructor
//     exchange -> happened      push a node, unless happened   exchange -> abandoned
//       was abandoned: frees    park                             was happened: frees
//       was a node: readies
//       the list
//
// Each side makes one atomic exchange and touches the word no more, so there is no reference count:
// whoever of the two comes last sees the other's mark and frees what they share.
//
// A waiter that gives up takes the whole list, and puts everyone but itself back; those for whom
// the event happens meanwhile it readies itself.
//
// Memory order:
//   [H1] set's release -> a waiter's acquire: what the goroutine did before.
//   [H2] abandon's release -> set's acquire, and the other way round: the last one frees the state.
//   [H3] a push's release -> the acquire of whoever takes the list: the nodes.
#pragma once

#include <weft/detail/park.hpp>
#include <weft/detail/patience.hpp>

#include <cstdint>

namespace weft::detail {

template <class Seam>
class one_shot {
 public:
  one_shot() = default;
  one_shot(const one_shot&) = delete;
  one_shot& operator=(const one_shot&) = delete;

  // Makes it happen. Returns: false if it was abandoned: then nobody else knows of it any more.
  bool set() noexcept {
    const std::uintptr_t before = word_.exchange(happened, std::memory_order_acq_rel);  // [H1] [H2]
    if (before == pending) return true;
    if (before == abandoned) return false;
    ready_all(as_node(before));
    return true;
  }

  // Returns: true if it had happened before: then the caller is the last who knows of it.
  bool abandon() noexcept {
    return word_.exchange(abandoned, std::memory_order_acq_rel) == happened;  // [H2]
  }

  bool is_set() const noexcept {
    return word_.load(std::memory_order_acquire) == happened;  // [H1]
  }

  // Blocks: the goroutine, until it happens.
  void wait(wait_reason reason) {
    if (!is_set()) wait_slow(reason, no_deadline);
  }

  // Returns: false if the limit came first.
  bool wait_until(wait_reason reason, patience limit) {
    return is_set() || wait_slow(reason, limit);
  }

 private:
  static constexpr std::uintptr_t pending = 0;
  static constexpr std::uintptr_t happened = 1;
  static constexpr std::uintptr_t abandoned = 2;

  struct node {
    node* next = nullptr;
    typename Seam::waiter who{};
    one_shot* event = nullptr;
  };

  static_assert(alignof(node) > abandoned, "a node's address is none of the marks");

  static node* as_node(std::uintptr_t word) noexcept { return reinterpret_cast<node*>(word); }

  // Returns: false if it has happened already.
  bool push(node* n) noexcept {
    std::uintptr_t word = word_.load(std::memory_order_acquire);
    do {
      if (word == happened) return false;  // [H1]
      n->next = as_node(word);
    } while (!word_.compare_exchange_weak(word, reinterpret_cast<std::uintptr_t>(n),
                                          std::memory_order_release,  // [H3]
                                          std::memory_order_acquire));
    return true;
  }

  bool wait_slow(wait_reason reason, patience limit) {
    node self;
    self.who = Seam::prepare_park(reason);
    self.event = this;
    if (!push(&self)) {
      Seam::cancel_park();
      return true;
    }
    return limit.park<Seam>(self.who, &give_up, &self);
  }

  static void ready_all(node* list) noexcept {
    while (list != nullptr) {
      node* const n = list;
      list = n->next;  // n is gone once its owner runs
      Seam::ready(n->who);
    }
  }

  // Runs inside the runtime.
  static bool give_up(void* argument) noexcept {
    node* const self = static_cast<node*>(argument);
    one_shot* const event = self->event;
    std::uintptr_t word = event->word_.load(std::memory_order_relaxed);  // re-checked below
    for (int turn = 0;;) {
      if (word == happened) return false;  // set() has the list, or whoever had this one in hand
      if (word != pending &&
          event->word_.compare_exchange_weak(word, pending, std::memory_order_acquire,  // [H3]
                                             std::memory_order_relaxed)) {
        if (put_back_others(event, as_node(word), self)) return true;
        word = pending;
      }
      if (word == pending) {  // another waiter has this one in hand, and will put it back
        Seam::relax(turn++);
        word = event->word_.load(std::memory_order_relaxed);
      }
    }
  }

  // Returns: whether `self` was among them.
  static bool put_back_others(one_shot* event, node* list, const node* self) noexcept {
    bool found = false;
    while (list != nullptr) {
      node* const n = list;
      list = n->next;
      if (n == self) {
        found = true;
      } else if (!event->push(n)) {
        Seam::ready_inside(n->who);
      }
    }
    return found;
  }

  typename Seam::template atomic<std::uintptr_t> word_{pending};
};

}  // namespace weft::detail
