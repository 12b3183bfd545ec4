// exit_own_allocator.cpp: the process exits while goroutines allocate, and the allocator is a part
// of the program: a thread that was stopped in there would keep its lock for ever.
#include "base/sanitizer.hpp"

#include <weft/weft.hpp>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sched.h>
#include <sys/mman.h>

#if !WEFT_ASAN && !WEFT_TSAN  // they have allocators of their own

namespace {

// One lock, one free list per power of two.
class allocator {
 public:
  void* take(std::size_t bytes) noexcept {
    const unsigned c = class_of(bytes);
    lock();
    for (volatile int i = 0; i < 50;) i = i + 1;  // so that many are interrupted in here
    block* b = free_[c];
    if (b != nullptr) {
      free_[c] = b->next;
    } else {
      b = carve(std::size_t{1} << c);
    }
    unlock();
    if (b == nullptr) return nullptr;
    b->next = nullptr;
    b->bytes_class = c;
    return b + 1;
  }
  void put(void* p) noexcept {
    block* const b = static_cast<block*>(p) - 1;
    lock();
    b->next = free_[b->bytes_class];
    free_[b->bytes_class] = b;
    unlock();
  }
  static std::size_t size_of(void* p) noexcept {
    return (std::size_t{1} << (static_cast<block*>(p) - 1)->bytes_class) - sizeof(block);
  }

 private:
  struct alignas(16) block {
    block* next;
    std::size_t bytes_class;
  };

  static unsigned class_of(std::size_t bytes) noexcept {
    unsigned c = 5;
    while ((std::size_t{1} << c) < bytes + sizeof(block)) ++c;
    return c;
  }
  block* carve(std::size_t bytes) noexcept {
    if (left_ < bytes) {
      left_ = bytes > chunk ? bytes : chunk;
      void* const more = ::mmap(nullptr, left_, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (more == MAP_FAILED) return nullptr;
      at_ = static_cast<std::byte*>(more);
    }
    at_ += bytes;
    left_ -= bytes;
    return reinterpret_cast<block*>(at_ - bytes);
  }
  void lock() noexcept {
    for (int turn = 0; locked_.exchange(true, std::memory_order_acquire); ++turn) {
      if (turn > 100) ::sched_yield();  // the holder has lost its core
    }
  }
  void unlock() noexcept { locked_.store(false, std::memory_order_release); }

  static constexpr std::size_t chunk = std::size_t{64} << 20;
  std::atomic<bool> locked_{false};
  block* free_[64] = {};
  std::byte* at_ = nullptr;
  std::size_t left_ = 0;
};
constinit allocator the_allocator;

}  // namespace

extern "C" {
void* malloc(std::size_t bytes) { return the_allocator.take(bytes); }
void free(void* p) {
  if (p != nullptr) the_allocator.put(p);
}
void* calloc(std::size_t n, std::size_t each) {
  void* const p = the_allocator.take(n * each);
  return p != nullptr ? std::memset(p, 0, n * each) : nullptr;
}
void* realloc(void* p, std::size_t bytes) {
  void* const q = the_allocator.take(bytes);
  if (p == nullptr || q == nullptr) return q;
  const std::size_t old = allocator::size_of(p);
  std::memcpy(q, p, old < bytes ? old : bytes);
  the_allocator.put(p);
  return q;
}
// Blocks of all sizes have a header of 16 bytes, so larger alignments are not to be had.
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  if (alignment > 16) {
    errno = ENOMEM;
    return nullptr;
  }
  return the_allocator.take(bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) { return aligned_alloc(alignment, bytes); }
int posix_memalign(void** p, std::size_t alignment, std::size_t bytes) {
  *p = aligned_alloc(alignment, bytes);
  return *p != nullptr ? 0 : ENOMEM;
}
}

#endif

namespace {

struct last {
  ~last() {
    for (int i = 0; i < 100; ++i) (void)std::make_unique<char[]>(100);
    std::fputs("exited\n", stderr);
  }
};
const last the_last;

}  // namespace

int main() {
  weft::run([] {
    for (int i = 0; i < 4; ++i) {
      weft::go([] {
        for (;;) {
          void* volatile p = std::malloc(100);
          std::free(p);
        }
      });
    }
    weft::this_goroutine::sleep_for(std::chrono::milliseconds(5));
  });
  return 7;
}
