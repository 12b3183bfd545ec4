#include "base/random.hpp"

#include "base/clock.hpp"
#include "base/env.hpp"

#include <cerrno>
#include <sys/random.h>

namespace weft::base {

std::uint64_t seed_for(std::uint32_t index) noexcept {
  if (env().seed) return random(*env().seed + index).next();
  std::uint64_t seed = 0;
  const int saved = errno;
  if (::getrandom(&seed, sizeof seed, GRND_NONBLOCK) != sizeof seed) {
    seed = static_cast<std::uint64_t>(now_ns()) + index;  // early boot: the kernel has none yet
  }
  errno = saved;
  return seed;
}

}  // namespace weft::base
