// context_watcher.hpp: a part of the tree or of the program that is told when a context ends.
#pragma once

#include <cstdint>

namespace weft::detail {

struct context_watcher {
  enum class kind : std::uint8_t {
    child,         // a node of the tree below
    function,      // to be called
    interruption,  // ends waits for anything but channels (interruption.hpp)
    end,           // ends one wait for a channel (chan_core.hpp)
  };
  explicit context_watcher(kind k) noexcept : what(k) {}

  const kind what;
  // Both are guarded by the lock of the node that is watched. They form no linked_list, because a
  // wait with a context links and unlinks its watcher each time, and here needs no list for that.
  context_watcher** at = nullptr;  // the pointer that leads here; null: in no list
  context_watcher* next;           // in the list, or in the list of a cancel
};

}  // namespace weft::detail
