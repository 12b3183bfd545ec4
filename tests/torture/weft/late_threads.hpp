// New threads that come late or not at all, as on a machine that is short of everything.
#pragma once

#include <cstdint>

namespace torture {

// From now on a new thread begins up to `late_us` late, and `fail_permille` of 1000 are refused
// with EAGAIN. Does nothing in a sanitizer's build, whose own pthread_create must not be replaced.
void make_threads_late(std::int64_t late_us, std::int64_t fail_permille, std::uint64_t seed);

}  // namespace torture
