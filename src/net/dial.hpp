// dial.hpp: makes a connection to the first of several addresses that answers.
#pragma once

#include <weft/net.hpp>

#include <chrono>
#include <cstddef>
#include <span>

namespace weft::net {

// Happy eyeballs: dial.cpp says how. Parks.
expected<conn> dial_addresses(std::span<const address> addresses, const context& ctx);

// Returns: how much of the time that is `left` the first of the addresses may use.
std::chrono::nanoseconds share_of(std::chrono::nanoseconds left, std::size_t addresses);

}  // namespace weft::net
