// schedule.hpp: an order of steps, which is recorded, shrunk, printed and replayed.
//
// Each step of a run is made by an actor: a goroutine, the store buffer of one (its oldest store
// reaches memory), the timeout of a waiting one, or the clock. A schedule lists the actors and how
// many steps each makes before the next one's turn, and the numbers that were chosen.
//
// As text: "0x3-1x5-t-0x2_1-0". Goroutine 0 makes three steps, goroutine 1 five, the clock one,
// goroutine 0 two; after that the default order applies. The first chosen number is 1, the second
// 0. A repeated part is written once: "(0x2-t)x40_1x7".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::test {

struct actor {
  enum class kind : std::uint8_t { goroutine, buffer, timeout, clock };
  kind what = kind::goroutine;
  std::uint32_t index = 0;

  bool operator==(const actor&) const = default;
};

struct schedule {
  struct segment {
    actor who;
    std::uint32_t steps = 0;
    bool operator==(const segment&) const = default;
  };

  std::vector<segment> segments;
  std::vector<std::uint32_t> values;

  bool operator==(const schedule&) const = default;
  void add(actor who);
  void clear() {
    segments.clear();
    values.clear();
  }
  // Returns: how often another goroutine had its turn.
  std::size_t switches() const;

  std::string print() const;
  // Writes the text in pieces, without allocating.
  void write(void (*put)(void* argument, std::string_view piece), void* argument) const;
  // Returns: false if the text is no schedule.
  static bool parse(std::string_view text, schedule& out);
};

}  // namespace weft::test
