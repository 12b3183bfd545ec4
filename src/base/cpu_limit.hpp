// cpu_limit.hpp: how many CPUs this process may use, as the kernel sees it now.
//
// Two things bound it: the affinity mask (taskset, cpusets) and the CPU bandwidth quota of the
// control group the process lives in or of any group around that one (containers). A container with
// a quota of 2.5 CPUs on a machine of 64 is served badly by 64 processors: they use up the quota in
// the first milliseconds of every period and are all stopped for the rest of it.
//
// Nothing here allocates, locks or keeps state. A call opens a handful of files, takes some tens of
// microseconds and needs 32 KiB of stack, so it belongs on a thread's stack, not on a goroutine's.
#pragma once

#include <optional>

namespace weft::base {

struct cpu_limit {
  int affinity = 1;               // CPUs in the mask of the calling thread, at least 1
  std::optional<int> quota_cpus;  // the smallest quota, rounded up to whole CPUs; none: unlimited

  int procs() const noexcept {
    return quota_cpus && *quota_cpus < affinity ? *quota_cpus : affinity;
  }
};

// Reads both. Files are looked up below `root_prefix`, which is "" for the running system; tests
// pass a folder with a proc and a sys of their own.
cpu_limit read_cpu_limit(const char* root_prefix) noexcept;

// Returns: how many processors to run when the user does not say.
inline int default_procs() noexcept { return read_cpu_limit("").procs(); }

}  // namespace weft::base
