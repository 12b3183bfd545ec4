// sigpipe.hpp: keeps SIGPIPE from killing a server whose peer has gone away.
//
// Go's rule: a write to a pipe or socket that nobody reads fails with EPIPE, and only for standard
// output and standard error (`server | head`) does SIGPIPE kill the process as well. send() can
// suppress the signal; write, writev, splice and sendfile cannot. So weft installs a handler for
// SIGPIPE that does nothing, unless the program has set an action of its own.
#pragma once

namespace weft::io {

// Called before the first descriptor is used; later calls cost one load.
void ignore_sigpipe() noexcept;

// To be called when a write to `fd` has failed with EPIPE. Lets SIGPIPE kill the process if `fd` is
// standard output or standard error and the signal has weft's handler.
void after_broken_pipe(int fd) noexcept;

}  // namespace weft::io
