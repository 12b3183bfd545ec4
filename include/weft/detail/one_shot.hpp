// one_shot.hpp: an event that happens once, between the goroutine that makes it happen and the
// waiters. Futures, single_flight, weft::run and contexts use it.
//
// One word:
//   pending    the event has not happened, and no waiter is in the list
//   a node     it has not happened; the node is the newest in a list of waiters, each of which lies
//              on the stack of its goroutine
//   happened   it has happened
//   abandoned  it has not happened, and no goroutine will ever ask (futures only)
//
//     the goroutine             a waiter                       the future's destructor
//     exchange -> happened      push a node, unless happened   exchange -> abandoned
//       was abandoned: frees    park                             was happened: frees
//       was a node: readies
//       the list
//
// The goroutine and the destructor each make one atomic exchange and touch the word no more. So a
// future needs no reference count: the later of the two sees the mark of the other and frees what
// they share.
//
// A waiter that gives up takes the whole list and puts every node but its own back. If the event
// happens meanwhile, that waiter readies the owners of the other nodes.
//
// Memory order:
//   [H1] set's release -> a waiter's acquire: what the goroutine did before set().
//   [H2] abandon's release -> set's acquire, and the other way round: the later of the two frees
//        the state.
//   [H3] a push's release -> the acquire of the thread that takes the list: the nodes.
#pragma once

#include <weft/detail/park.hpp>
#include <weft/detail/wait_limit.hpp>

#include <cstdint>

namespace weft::detail {

template <class Scheduler>
class one_shot {
 public:
  one_shot() = default;
  one_shot(const one_shot&) = delete;
  one_shot& operator=(const one_shot&) = delete;

  // Makes the event happen. Returns: false if the event was abandoned before; then the caller is
  // the last one to use this object. Requires: set() has not been called before.
  bool set() noexcept {
    // [H1] [H2] [H3]
    const std::uintptr_t before = word_.exchange(happened, std::memory_order_acq_rel);
    if (before == pending) return true;
    if (before == abandoned) return false;
    ready_all(as_node(before));
    return true;
  }

  // Says that no goroutine will ever ask for the event. Returns: true if the event has happened
  // already; then the caller is the last one to use this object. Requires: there is no waiter, and
  // will be none.
  bool abandon() noexcept {
    return word_.exchange(abandoned, std::memory_order_acq_rel) == happened;  // [H2]
  }

  bool is_set() const noexcept {
    return word_.load(std::memory_order_acquire) == happened;  // [H1]
  }

  // Blocks: the goroutine, until the event happens.
  void wait(wait_reason reason) {
    if (!is_set()) wait_slow(reason, no_deadline);
  }

  // Returns: false if the limit came first.
  bool wait_until(wait_reason reason, wait_limit limit) {
    return is_set() || wait_slow(reason, limit);
  }

 private:
  static constexpr std::uintptr_t pending = 0;
  static constexpr std::uintptr_t happened = 1;
  static constexpr std::uintptr_t abandoned = 2;

  struct node {
    node* next = nullptr;
    typename Scheduler::waiter who{};
    one_shot* event = nullptr;
  };

  static_assert(alignof(node) > abandoned, "a node's address is none of the marks");

  static node* as_node(std::uintptr_t word) noexcept { return reinterpret_cast<node*>(word); }

  // Puts a node into the list. Returns: false if the event has happened already.
  bool push(node* n) noexcept {
    std::uintptr_t word = word_.load(std::memory_order_acquire);  // [H1]
    do {
      if (word == happened) return false;
      n->next = as_node(word);
    } while (!word_.compare_exchange_weak(word, reinterpret_cast<std::uintptr_t>(n),
                                          std::memory_order_release,  // [H3]
                                          std::memory_order_acquire));  // [H1]
    return true;
  }

  bool wait_slow(wait_reason reason, wait_limit limit) {
    node self;
    self.who = Scheduler::prepare_park(reason);
    self.event = this;
    if (!push(&self)) {
      Scheduler::cancel_park();
      return true;
    }
    return limit.park<Scheduler>(self.who, &give_up, &self);
  }

  static void ready_all(node* list) noexcept {
    while (list != nullptr) {
      node* const n = list;
      list = n->next;  // n is gone once its owner runs
      Scheduler::ready(n->who);
    }
  }

  // Takes the waiter `argument` out of the list. Returns: false if it is readied instead. Runs
  // inside the runtime.
  static bool give_up(void* argument) noexcept {
    node* const self = static_cast<node*>(argument);
    one_shot* const event = self->event;
    std::uintptr_t word = event->word_.load(std::memory_order_relaxed);  // re-checked below
    for (int turn = 0;;) {
      if (word == happened) return false;  // set(), or a waiter that gives up, readies `self`
      if (word != pending &&
          event->word_.compare_exchange_weak(word, pending, std::memory_order_acquire,  // [H3]
                                             std::memory_order_relaxed)) {
        if (put_back_others(event, as_node(word), self)) return true;
        word = pending;
      }
      if (word == pending) {  // another waiter holds `self`, and puts it back or readies its owner
        Scheduler::relax(turn++);
        word = event->word_.load(std::memory_order_relaxed);
      }
    }
  }

  // Puts back every node of `list` but `self`. Returns: whether `self` was in the list.
  static bool put_back_others(one_shot* event, node* list, const node* self) noexcept {
    bool found = false;
    while (list != nullptr) {
      node* const n = list;
      list = n->next;
      if (n == self) {
        found = true;
      } else if (!event->push(n)) {
        Scheduler::ready_inside(n->who);
      }
    }
    return found;
  }

  typename Scheduler::template atomic<std::uintptr_t> word_{pending};
};

}  // namespace weft::detail
