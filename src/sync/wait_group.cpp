// wait_group.cpp: the exception for a counter that would become negative.
#include <weft/wait_group.hpp>

#include <stdexcept>

namespace weft::detail {

void throw_negative_wait_group() {
  throw std::logic_error("weft::wait_group: the counter would become negative");
}

}  // namespace weft::detail
