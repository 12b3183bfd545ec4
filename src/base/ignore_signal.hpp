// ignore_signal.hpp: a signal handler that does nothing.
//
// Not SIG_IGN, which the programs that this process executes would inherit: they get the default
// back. Its address tells a handler of ours from one of the program's.
#pragma once

namespace weft::base {

inline void ignore_signal(int) noexcept {}

}  // namespace weft::base
