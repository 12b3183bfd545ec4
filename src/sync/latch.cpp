// latch.cpp: ends a program that counts a latch down too often.
#include <weft/latch.hpp>

#include "base/fatal.hpp"

namespace weft::detail {

void die_of_latch() noexcept { base::fatal("a latch was counted down below 0"); }

}  // namespace weft::detail
