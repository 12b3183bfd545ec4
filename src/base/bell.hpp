// bell.hpp: an eventfd by which one thread of the runtime wakes another that sleeps in the kernel.
//
// The program may close descriptors that it did not open, by close_range() for example, and then
// open others under their numbers. Then a ring would be written into the program's file, and the
// sleeper would never wake. So a ring first checks that the number still leads to our eventfd
// (own_descriptor.hpp).
#pragma once

namespace weft::base {

class bell {
 public:
  // Makes the eventfd, with the flags of eventfd(2). Returns: the descriptor, or -1 with errno.
  int make(int flags) noexcept;
  void close() noexcept;
  int fd() const noexcept { return fd_; }

  // Ends the process if the descriptor is not ours any more. Keeps errno.
  void ring() const noexcept;

 private:
  int fd_ = -1;
};

}  // namespace weft::base
