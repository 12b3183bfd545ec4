// mutex.cpp: the slow ways of weft::mutex. The essay is in weft/detail/mutex_core.hpp.
#include <weft/detail/mutex_core.hpp>

#include "base/fatal.hpp"
#include "sync/mutex_slow.hpp"

namespace weft::detail {

template class basic_mutex<seam>;

void die_of_unlock(const char* what) noexcept {
  base::text message;
  message << "unlock of " << what;
  base::fatal(message.view());
}

void die_of_destruction(const char* what) noexcept {
  base::text message;
  message << "somebody waits for a " << what << " that is destroyed";
  base::fatal(message.view());
}

}  // namespace weft::detail
