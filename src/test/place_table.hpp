// place_table.hpp: what the engine knows about places in memory, by address.
//
// Entries are numbered in the order in which they were made, so that nothing depends on addresses.
// An entry hides older entries of the same place. clear() keeps the memory, because a run makes
// much the same entries as the run before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft::test {

// T has reset(), which restores its initial state.
template <class T>
class place_table {
 public:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  place_table() : slots_(64) {}

  T& operator[](std::uint32_t number) { return entries_[number]; }
  const T& operator[](std::uint32_t number) const { return entries_[number]; }
  // Returns: how many entries were made.
  std::uint32_t size() const { return used_; }

  // Returns: the number of the newest entry for the place, or none.
  std::uint32_t find(const void* place) const {
    const slot& s = slots_[slot_of(place)];
    return s.round == round_ ? s.number : none;
  }

  // Makes an entry, which invalidates references to others. Returns: its number.
  std::uint32_t add(const void* place) {
    if ((taken_ + 1) * 2 > slots_.size()) grow();
    slot& s = slots_[slot_of(place)];
    if (s.round != round_) ++taken_;
    s = {place, used_, round_};
    if (used_ == entries_.size()) {
      entries_.emplace_back();
    } else {
      entries_[used_].reset();
    }
    return used_++;
  }

  T& find_or_add(const void* place) {
    const std::uint32_t found = find(place);
    return entries_[found != none ? found : add(place)];
  }

  void clear() {
    ++round_;
    used_ = 0;
    taken_ = 0;
  }

 private:
  struct slot {
    const void* place = nullptr;
    std::uint32_t number = 0;
    std::uint32_t round = 0;  // empty unless it is the current one
  };

  std::size_t slot_of(const void* place) const {
    const std::uint64_t hash = reinterpret_cast<std::uintptr_t>(place) * 0x9e3779b97f4a7c15;
    std::size_t i = hash >> 32;
    for (;; ++i) {
      i &= slots_.size() - 1;
      if (slots_[i].round != round_ || slots_[i].place == place) return i;
    }
  }

  void grow() {
    std::vector<slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const slot& s : old) {
      if (s.round == round_) slots_[slot_of(s.place)] = s;
    }
  }

  std::vector<T> entries_;
  std::vector<slot> slots_;  // a power of two of them, at least half of them empty
  std::uint32_t used_ = 0;
  std::size_t taken_ = 0;  // slots
  std::uint32_t round_ = 1;
};

}  // namespace weft::test
