// shared_mutex.cpp: readers and writers; the essay is in weft/detail/shared_mutex_core.hpp.
#include <weft/detail/shared_mutex_core.hpp>

#include "sync/shared_mutex_slow.hpp"

namespace weft::detail {

template class basic_shared_mutex<seam>;

}  // namespace weft::detail
