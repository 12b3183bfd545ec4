// sigpipe.hpp: a peer that has gone away does not kill a server.
//
// Go's rule: a write to a pipe or socket that nobody reads fails with EPIPE, and only for standard
// output and standard error (`server | head`) is the process killed by SIGPIPE, too. send() can
// leave the signal out; write, writev, splice and sendfile cannot. So it gets a handler that does
// nothing, unless the program has decided otherwise.
#pragma once

namespace weft::io {

// Called before the first descriptor is used; later calls cost one load.
void ignore_sigpipe() noexcept;

// A write to `fd` has failed with EPIPE: dies of SIGPIPE if it was one of the two and the signal is
// ignored by us.
void after_broken_pipe(int fd) noexcept;

}  // namespace weft::io
