// select_core.hpp: the untyped select. The typed one is weft/select.hpp. The protocol of waiting in
// several queues at once is in chan_core.hpp and src/chan/select.cpp.
#pragma once

#include <weft/detail/chan_core.hpp>
#include <weft/detail/config.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft::detail {

struct select_case {
  enum class kind : std::uint8_t { send, receive };

  chan_core* channel = nullptr;  // null: the nil channel, or no channel at all; never ready
  void* element = nullptr;       // what is sent, or room for what is received
  kind what = kind::receive;
  chan_outcome outcome = chan_outcome::would_wait;  // of the case that was taken
  std::uint32_t at = 0;          // the index of the case that enters its queue in this case's turn
  const void* source = nullptr;  // the object that is sent, if that is moved from,
  const void* type = nullptr;    // and what stands for its type
  void* holder = nullptr;        // its outgoing<T>, which other cases that send it share
  chan_waiter waiter;
};

class WEFT_API chan_select {
 public:
  static constexpr std::size_t none = ~std::size_t{0};  // no case was taken: the time was up
  static constexpr std::size_t few = 16;                // cases that need no allocation
  static constexpr std::int64_t no_deadline = INT64_MAX;

  // Takes one of the cases that are ready, each with the same chance, or waits until one is ready.
  // `scratch` has room for as many channels as there are cases. Returns: the index of the case, or
  // `none` if the deadline came first.
  static std::size_t wait(std::span<select_case* const> cases, chan_core** scratch,
                          std::int64_t deadline_ns);
  // Like wait(), without waiting. Returns: `none` if there was an instant at which no case was
  // ready.
  static std::size_t look(std::span<select_case* const> cases, chan_core** scratch);

 private:
  static chan_core::side side_of(const select_case& c) noexcept {
    return c.what == select_case::kind::send ? chan_core::side::senders
                                             : chan_core::side::receivers;
  }
  static bool perform_locked(select_case& c, chan_waiter*& served) noexcept;
  static std::size_t take_ready(sched::machine* m, std::span<select_case* const> cases) noexcept;
  static std::size_t lock_all(std::span<select_case* const> cases, chan_core** channels) noexcept;
  static void unlock_all(chan_core* const* channels, std::size_t n) noexcept;
  static std::size_t take_ready_locked(sched::machine* m, std::span<select_case* const> cases,
                                       chan_core* const* channels, std::size_t n) noexcept;
  static std::size_t wait_in_queues(sched::machine* m, std::span<select_case* const> cases,
                                    chan_core* const* channels, std::size_t n,
                                    std::int64_t deadline_ns);
  static void shuffle(sched::machine* m, std::span<select_case* const> cases) noexcept;
  static void leave_queues(std::span<select_case* const> cases, std::size_t taken) noexcept;
};

}  // namespace weft::detail
