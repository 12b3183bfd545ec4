// stack_pool_test.cpp: address space, guards, free lists and caches of goroutine stacks.
#include "base/sanitizer.hpp"
#include "stack/cache.hpp"
#include "stack/pool.hpp"
#include "stack/reserve.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#if WEFT_ASAN
extern "C" void __asan_poison_memory_region(void const volatile* address, std::size_t size);
extern "C" int __asan_address_is_poisoned(void const volatile* address);
#endif

namespace {

using weft::base::guard_setting;
using weft::stack::advice;
using weft::stack::advice_calls;
using weft::stack::cache;
using weft::stack::extent;
using weft::stack::guard_kind;
using weft::stack::pool;
using weft::stack::statistics;

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = 1024 * kib;
constexpr std::size_t gib = 1024 * mib;
constexpr std::size_t default_bytes = 256 * kib;

// A pool of the test's own, unmapped at the end of it.
class own_pool {
 public:
  explicit own_pool(guard_setting guard = guard_setting::automatic, std::size_t map_limit = 0,
                    const advice_calls& calls = weft::stack::kernel_advice_calls)
      : pool_(std::make_unique<pool>(weft::stack::pool_options{.default_bytes = default_bytes,
                                                               .guard = guard,
                                                               .map_limit = map_limit,
                                                               .calls = &calls})) {}
  ~own_pool() { pool_->unmap_all(); }
  own_pool(const own_pool&) = delete;
  own_pool& operator=(const own_pool&) = delete;

  pool* operator->() { return pool_.get(); }
  pool& operator*() { return *pool_; }

  extent* take_one(std::size_t bytes = 0) {
    extent* e = nullptr;
    int error = 0;
    EXPECT_EQ(pool_->take(bytes, &e, 1, error), 1u) << "errno " << error;
    return e;
  }

  std::vector<extent*> take_many(std::size_t n, std::size_t bytes = 0) {
    std::vector<extent*> all(n);
    for (std::size_t got = 0; got < n;) {
      int error = 0;
      const std::size_t some = pool_->take(bytes, all.data() + got, n - got, error);
      if (some == 0) {
        ADD_FAILURE() << "only " << got << " stacks, errno " << error;
        all.resize(got);
        break;
      }
      got += some;
    }
    return all;
  }

 private:
  std::unique_ptr<pool> pool_;
};

std::byte* slot_end(const extent* e) {
  const auto pages = weft::stack::pages_of(*e);
  return pages.begin + pages.bytes;
}

std::byte* guard_of(const extent* e) { return e->low - weft::stack::page_bytes(); }

// Runs `f` in a child. Returns: its wait status.
template <class F>
int in_child(F f) {
  const pid_t child = ::fork();
  if (child == 0) {
    // The sanitizers catch this signal to report it; here it is what we wait for.
    struct sigaction plain{};
    plain.sa_handler = SIG_DFL;
    ::sigaction(SIGSEGV, &plain, nullptr);
    ::_exit(f());
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

bool writing_faults(std::byte* address) {
  const int status = in_child([address] {
    *static_cast<volatile std::byte*>(address) = std::byte{1};
    return 0;
  });
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

std::size_t count_mappings() {
  std::ifstream maps{"/proc/self/maps"};
  return static_cast<std::size_t>(std::count(std::istreambuf_iterator<char>{maps}, {}, '\n'));
}

// How many pages of [begin, begin + bytes) are in memory.
std::size_t resident_pages(std::byte* begin, std::size_t bytes) {
  std::vector<unsigned char> pages(bytes / weft::stack::page_bytes());
  EXPECT_EQ(::mincore(begin, bytes, pages.data()), 0);
  return static_cast<std::size_t>(
      std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1) != 0; }));
}

// Whether this kernel has MADV_GUARD_INSTALL, asked without the code under test.
bool kernel_has_guard_install() {
  const std::size_t page = weft::stack::page_bytes();
  void* p = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const bool has = ::madvise(p, page, 102) == 0 && writing_faults(static_cast<std::byte*>(p));
  ::munmap(p, page);
  return has;
}

guard_kind expected_from_madvise() {
  return kernel_has_guard_install() ? guard_kind::madvise : guard_kind::mprotect;
}

void expect_guards(own_pool& pool, guard_kind kind) {
  const auto all = pool.take_many(40);
  for (const std::size_t i : {0u, 1u, 15u, 16u, 39u}) {
    EXPECT_EQ(all[i]->guard.load(), kind);
    EXPECT_TRUE(writing_faults(guard_of(all[i])));
    EXPECT_TRUE(writing_faults(all[i]->low - 1));
    EXPECT_FALSE(writing_faults(all[i]->low));
    EXPECT_FALSE(writing_faults(all[i]->top - 1));
  }
}

// Kernels that are not the one we run on. What they are asked for is written down here.
struct kernel_log {
  std::vector<int> pidfds;                               // of each list call
  std::vector<std::pair<std::byte*, std::size_t>> done;  // what was advised, in order
  int calls = 0;
};
kernel_log kernel;

void advised(void* address, std::size_t bytes) {
  kernel.done.emplace_back(static_cast<std::byte*>(address), bytes);
}

int no_pidfd() noexcept {
  errno = ENOSYS;
  return -1;
}

int some_pidfd() noexcept { return ::dup(STDIN_FILENO); }

long list_refused(int pidfd, const iovec*, std::size_t, int) noexcept {
  kernel.pidfds.push_back(pidfd);
  errno = ENOSYS;
  return -1;
}

int one_done(void* address, std::size_t bytes, int) noexcept {
  advised(address, bytes);
  return 0;
}

int one_refused(void*, std::size_t, int) noexcept {
  errno = EINVAL;
  return -1;
}

// Does a page and a half of what it is asked for, every third time nothing.
long list_in_pieces(int, const iovec* ranges, std::size_t n, int) noexcept {
  if (++kernel.calls % 3 == 0) {
    errno = kernel.calls % 2 == 0 ? EINTR : EAGAIN;
    return -1;
  }
  std::size_t left = 6144;
  for (std::size_t i = 0; i < n && left > 0; ++i) {
    const std::size_t bytes = std::min(left, ranges[i].iov_len);
    advised(ranges[i].iov_base, bytes);
    left -= bytes;
  }
  return static_cast<long>(6144 - left);
}

long list_without_self(int pidfd, const iovec* ranges, std::size_t n, int value) noexcept {
  kernel.pidfds.push_back(pidfd);
  if (pidfd < 0) {
    errno = EBADF;
    return -1;
  }
  return list_in_pieces(pidfd, ranges, n, value);
}

long list_never_ready(int pidfd, const iovec*, std::size_t, int) noexcept {
  kernel.pidfds.push_back(pidfd);
  errno = EAGAIN;
  return -1;
}

// Claims to have done everything, as an emulator does with an advice that it does not know.
long list_lies(int, const iovec* ranges, std::size_t n, int) noexcept {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < n; ++i) bytes += ranges[i].iov_len;
  return static_cast<long>(bytes);
}

// Ranges over memory that does not exist: the kernels above do not look.
std::vector<iovec> some_ranges(std::size_t n) {
  std::vector<iovec> ranges;
  for (std::size_t i = 1; i <= n; ++i) {
    ranges.push_back({reinterpret_cast<void*>(i << 20), i % 3 * 4096 + 4096});
  }
  return ranges;
}

// Every byte of every range was advised once, in order.
void expect_all_advised(std::size_t n) {
  std::size_t piece = 0;
  for (const iovec& range : some_ranges(n)) {
    auto* at = static_cast<std::byte*>(range.iov_base);
    std::byte* const end = at + range.iov_len;
    while (at < end) {
      ASSERT_LT(piece, kernel.done.size());
      ASSERT_EQ(kernel.done[piece].first, at);
      at += kernel.done[piece++].second;
    }
    ASSERT_EQ(at, end);
  }
  EXPECT_EQ(piece, kernel.done.size());
}

void apply_to_some(advice& a, std::size_t n) {
  kernel = {};
  auto ranges = some_ranges(n);
  int error = 0;
  EXPECT_EQ(a.apply(ranges.data(), n, error), n);
  EXPECT_EQ(error, 0);
}

// The kernel may do part of a list and stop, inside a range too. A page left out is a stack without
// its guard; one done twice shows that we count wrong.
TEST(stack_advice, a_list_done_in_pieces_is_done_whole) {
  const advice_calls calls{list_in_pieces, one_refused, no_pidfd};
  advice a{4, calls};
  apply_to_some(a, 50);
  expect_all_advised(50);
}

TEST(stack_advice, without_pidfd_self_a_pidfd_is_opened_and_closed) {
  const advice_calls calls{list_without_self, one_refused, some_pidfd};
  advice a{4, calls};
  apply_to_some(a, 50);
  expect_all_advised(50);
  EXPECT_EQ(std::count_if(kernel.pidfds.begin(), kernel.pidfds.end(), [](int f) { return f < 0; }),
            1);
  EXPECT_LE(
      *std::max_element(kernel.pidfds.begin(), kernel.pidfds.end()),
      *std::find_if(kernel.pidfds.begin(), kernel.pidfds.end(), [](int f) { return f >= 0; }));
  apply_to_some(a, 3);  // and the detour is not tried again
  EXPECT_EQ(std::count_if(kernel.pidfds.begin(), kernel.pidfds.end(), [](int f) { return f < 0; }),
            0);
}

TEST(stack_advice, without_process_madvise_the_ranges_go_one_by_one) {
  const advice_calls calls{list_refused, one_done, some_pidfd};
  advice a{4, calls};
  apply_to_some(a, 50);
  expect_all_advised(50);
  EXPECT_EQ(kernel.pidfds.size(), 2u);
  apply_to_some(a, 50);
  EXPECT_TRUE(kernel.pidfds.empty());
  const advice_calls older{list_refused, one_done, no_pidfd};
  advice b{4, older};
  apply_to_some(b, 50);
  expect_all_advised(50);
}

TEST(stack_advice, a_kernel_that_is_always_busy_is_not_asked_for_ever) {
  const advice_calls calls{list_never_ready, one_done, some_pidfd};
  advice a{4, calls};
  apply_to_some(a, 50);
  expect_all_advised(50);
}

TEST(stack_advice, a_refusal_says_why_and_how_far_it_got) {
  const advice_calls calls{list_refused, one_refused, no_pidfd};
  advice a{4, calls};
  auto ranges = some_ranges(5);
  int error = 0;
  EXPECT_EQ(a.apply(ranges.data(), 5, error), 0u);
  EXPECT_EQ(error, EINVAL);
}

// Without its guard an overflowing goroutine silently writes over its neighbour's newest frames.
TEST(stack_guard, madvise_guards_fault_and_the_stack_above_does_not) {
  own_pool pool{guard_setting::madvise};
  expect_guards(pool, expected_from_madvise());
}

TEST(stack_guard, mprotect_guards_fault_and_the_stack_above_does_not) {
  own_pool pool{guard_setting::mprotect};
  expect_guards(pool, guard_kind::mprotect);
  const statistics s = pool->stats();
  EXPECT_EQ(s.guards_mprotect, s.stacks);
  EXPECT_EQ(s.guards_madvise, 0u);
}

// Kernels before 6.13 know neither the advice nor the list.
TEST(stack_guard, a_kernel_without_guard_install_gets_mprotect_and_one_warning) {
  const advice_calls calls{list_refused, one_refused, no_pidfd};
  kernel = {};
  own_pool pool{guard_setting::madvise, 0, calls};
  ::testing::internal::CaptureStderr();
  const auto all = pool.take_many(100);
  const std::string printed = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(printed, "weft: this kernel has no guard=madvise; stacks are guarded by mprotect\n");
  EXPECT_EQ(pool->stats().guards_mprotect, pool->stats().stacks);
  EXPECT_TRUE(writing_faults(guard_of(all[0])));
  EXPECT_TRUE(writing_faults(guard_of(all[99])));
}

// Under an emulator the advice succeeds and does nothing: only a look at the page tells.
TEST(stack_guard, a_kernel_that_only_pretends_gets_mprotect) {
  const advice_calls calls{list_lies, one_done, no_pidfd};
  kernel = {};
  own_pool pool{guard_setting::madvise, 0, calls};
  ::testing::internal::CaptureStderr();
  const auto all = pool.take_many(100);
  ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(pool->stats().guards_mprotect, pool->stats().stacks);
  EXPECT_TRUE(writing_faults(guard_of(all[0])));
  EXPECT_TRUE(writing_faults(guard_of(all[99])));
}

TEST(stack_guard, guard_none_leaves_ordinary_memory) {
  own_pool pool{guard_setting::none};
  extent* e = pool.take_one();
  EXPECT_EQ(e->guard.load(), guard_kind::none);
  EXPECT_FALSE(writing_faults(guard_of(e)));
  EXPECT_EQ(pool->find_guard(guard_of(e)), nullptr);
}

// The kernel's bound on mappings is for the whole process: we must stop before it, say so once, and
// go on without guards instead of failing the goroutine.
TEST(stack_guard, mprotect_stops_before_the_map_limit_with_one_warning) {
  constexpr std::size_t map_limit = 400;  // half of it is ours: 100 guards of two mappings
  own_pool pool{guard_setting::mprotect, map_limit};
  ::testing::internal::CaptureStderr();
  const auto all = pool.take_many(300);
  const std::string printed = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(printed.begin(), printed.end(), '\n'), 1) << printed;
  EXPECT_NE(printed.find("vm.max_map_count"), std::string::npos) << printed;

  const statistics s = pool->stats();
  EXPECT_EQ(s.guards_mprotect, 100u);
  EXPECT_EQ(s.guards_none, s.stacks - 100);
  EXPECT_TRUE(writing_faults(guard_of(all[99])));
  EXPECT_EQ(all[100]->guard.load(), guard_kind::none);
  EXPECT_FALSE(writing_faults(guard_of(all[100])));
}

// The overflow report needs the stack from the faulting address, and must not take a stray pointer
// for an overflow.
TEST(stack_guard, find_guard_knows_guards_and_nothing_else) {
  own_pool pool{guard_setting::mprotect};
  std::vector<extent*> all = pool.take_many(200);
  all.push_back(pool.take_one(16 * mib));
  for (const extent* e : all) {
    EXPECT_EQ(pool->find_guard(guard_of(e)), e);
    EXPECT_EQ(pool->find_guard(e->low - 1), e);
    EXPECT_EQ(pool->find_guard(e->low), nullptr);
    EXPECT_EQ(pool->find_guard(e->top - 1), nullptr);
  }
  int local = 0;
  EXPECT_EQ(pool->find_guard(&local), nullptr);
  EXPECT_EQ(pool->find_guard(nullptr), nullptr);
  EXPECT_EQ(pool->find_guard(reinterpret_cast<void*>(~std::uintptr_t{0})), nullptr);
}

// A slot that is mapped but not yet a stack has no guard to report.
TEST(stack_guard, find_guard_passes_over_slots_that_are_not_stacks_yet) {
  own_pool pool{guard_setting::mprotect};
  const extent* e = pool.take_one();
  const std::size_t stride = default_bytes + weft::stack::page_bytes();
  const std::size_t last_of_arena = 63;
  ASSERT_LT(pool->stats().stacks, last_of_arena);
  EXPECT_EQ(pool->find_guard(guard_of(e) + last_of_arena * stride), nullptr);
}

TEST(stack_arena, neighbours_do_not_overlap_and_are_large_enough) {
  own_pool pool;
  auto all = pool.take_many(1000);
  std::sort(all.begin(), all.end(), [](auto* a, auto* b) { return a->low < b->low; });
  const std::size_t page = weft::stack::page_bytes();
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(all[i]->low) % page, 0u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(all[i]->top) % 16, 0u);
    EXPECT_EQ(weft::stack::pages_of(*all[i]).begin, all[i]->low);
    EXPECT_EQ(slot_end(all[i]) - all[i]->low, static_cast<std::ptrdiff_t>(default_bytes));
    EXPECT_GE(all[i]->bytes(), default_bytes - 2 * kib);
    if (i > 0) {
      EXPECT_GE(guard_of(all[i]), slot_end(all[i - 1]));
    }
  }
  // Each can be filled to the brim without a trace in the others.
  for (std::size_t i = 0; i < 20; ++i) {
    std::memset(all[i]->low, static_cast<int>(i + 1), all[i]->bytes());
  }
  for (std::size_t i = 0; i < 20; ++i) {
    const auto mark = static_cast<std::byte>(i + 1);
    EXPECT_EQ(std::count(all[i]->low, all[i]->top, mark),
              static_cast<std::ptrdiff_t>(all[i]->bytes()));
  }
}

// Parked goroutines whose hot frames share a few cache sets switch at half the speed; frames spread
// over two pages double the memory of a million of them.
TEST(stack_arena, colours_differ_and_keep_the_first_kilobyte_in_one_page) {
  own_pool pool;
  const std::size_t page = weft::stack::page_bytes();
  std::set<std::size_t> offsets;
  for (const extent* e : pool.take_many(256)) {
    const auto top = reinterpret_cast<std::uintptr_t>(e->top);
    offsets.insert(top % page);
    EXPECT_EQ((top - 1) / page, (top - kib) / page);
    EXPECT_LE(slot_end(e) - e->top, 2048);
  }
  EXPECT_GE(offsets.size(), 8u);
}

// The kernel gives a process 65,530 mappings; a stack must not cost one.
TEST(stack_arena, a_hundred_thousand_stacks_need_few_mappings) {
  if constexpr (weft::base::sanitizer::active) {
    // Arenas are kept small here, and the shadow of a hundred thousand stacks is not.
    own_pool pool{guard_setting::none};
    const auto all = pool.take_many(2000);
    EXPECT_EQ(pool->stats().arenas, (all.size() + 63) / 64);
  } else {
    own_pool pool{kernel_has_guard_install() ? guard_setting::madvise : guard_setting::none};
    const std::size_t before = count_mappings();
    const auto all = pool.take_many(100'000);
    EXPECT_LT(count_mappings() - before, 200u);
    EXPECT_LT(pool->stats().arenas, 20u);
    const std::set<extent*> distinct(all.begin(), all.end());
    EXPECT_EQ(distinct.size(), 100'000u);
    EXPECT_EQ(pool->stats().guards_none, kernel_has_guard_install() ? 0u : pool->stats().stacks);
    if (kernel_has_guard_install()) {
      EXPECT_TRUE(writing_faults(guard_of(all.back())));
    }
  }
}

// A program with three goroutines must not look like one with a million.
TEST(stack_arena, the_first_stack_costs_little) {
  own_pool pool;
  pool.take_one();
  const statistics s = pool->stats();
  EXPECT_EQ(s.arenas, 1u);
  EXPECT_LE(s.stacks, 64u);
}

TEST(stack_reserve, sizes_are_rounded_up_to_classes) {
  own_pool pool;
  EXPECT_EQ(pool->round_reserve(0), default_bytes);
  EXPECT_EQ(pool->round_reserve(1), 16 * kib);
  EXPECT_EQ(pool->round_reserve(16 * kib), 16 * kib);
  EXPECT_EQ(pool->round_reserve(16 * kib + 1), 32 * kib);
  EXPECT_EQ(pool->round_reserve(200 * kib), default_bytes);
  EXPECT_EQ(pool->round_reserve(default_bytes), default_bytes);
  EXPECT_EQ(pool->round_reserve(default_bytes + 1), 512 * kib);
  EXPECT_EQ(pool->round_reserve(gib - 1), gib);
  EXPECT_EQ(pool->round_reserve(gib), gib);
}

// WEFT_STACK need not be a power of two; requests near it should share its stacks.
TEST(stack_reserve, an_odd_default_serves_requests_up_to_it) {
  constexpr std::size_t odd = 300 * kib;
  using weft::stack::class_bytes;
  using weft::stack::class_of;
  const auto rounded = [](std::size_t bytes) { return class_bytes(class_of(bytes, odd), odd); };
  EXPECT_EQ(rounded(0), odd);
  EXPECT_EQ(rounded(256 * kib), 256 * kib);
  EXPECT_EQ(rounded(256 * kib + 1), odd);
  EXPECT_EQ(rounded(odd), odd);
  EXPECT_EQ(rounded(odd + 1), 512 * kib);
}

TEST(stack_reserve, the_built_in_default_is_what_the_manual_says) {
  EXPECT_EQ(weft::stack::default_reserve(), weft::base::sanitizer::active ? 512 * kib : 256 * kib);
  EXPECT_EQ(weft::stack::round_reserve(0), weft::stack::default_reserve());
}

TEST(stack_pool, every_size_from_a_byte_to_a_gibibyte_can_be_used) {
  own_pool pool;
  for (const std::size_t bytes : {std::size_t{1}, 4 * kib, 16 * kib, 17 * kib, 100 * kib, 256 * kib,
                                  1 * mib, 3 * mib, 8 * mib, 9 * mib, 64 * mib, 512 * mib, gib}) {
    extent* e = pool.take_one(bytes);
    ASSERT_NE(e, nullptr) << bytes;
    EXPECT_GE(e->bytes() + 2 * kib, bytes);
    EXPECT_EQ(static_cast<std::size_t>(slot_end(e) - e->low), pool->round_reserve(bytes));
    *e->low = std::byte{1};
    *(e->top - 1) = std::byte{2};
    EXPECT_EQ(pool->find_guard(e->low - 1), e);
    pool->put(&e, 1);
  }
}

TEST(stack_pool, more_than_the_maximum_is_refused) {
  own_pool pool;
  extent* e = nullptr;
  int error = 0;
  EXPECT_EQ(pool->take(gib + 1, &e, 1, error), 0u);
  EXPECT_EQ(error, EINVAL);
}

TEST(stack_pool, a_stack_put_back_is_the_next_one_taken) {
  own_pool pool;
  const auto all = pool.take_many(10);
  for (extent* e : {all[3], all[7]}) pool->put(&e, 1);
  EXPECT_EQ(pool.take_one(), all[7]);
  EXPECT_EQ(pool.take_one(), all[3]);
}

// A goroutine that asked for a small stack must not get a default one of the same pool, and back.
TEST(stack_pool, classes_do_not_mix) {
  own_pool pool;
  extent* small = pool.take_one(16 * kib);
  extent* large = pool.take_one(2 * mib);
  extent* usual = pool.take_one();
  extent* const all[] = {small, large, usual};
  pool->put(all, 3);
  EXPECT_EQ(pool.take_one(2 * mib), large);
  EXPECT_EQ(pool.take_one(), usual);
  EXPECT_EQ(pool.take_one(16 * kib), small);
}

// A thousand goroutines with 64 MiB each, ended, must not keep 64 GiB of address space.
TEST(stack_pool, large_stacks_beyond_a_few_are_unmapped) {
  own_pool pool;
  std::vector<extent*> all;
  for (int i = 0; i < 20; ++i) all.push_back(pool.take_one(64 * mib));
  EXPECT_EQ(pool->stats().arenas, 20u);
  std::byte* const gone = all[19]->low;
  pool->put(all.data(), all.size());
  const statistics s = pool->stats();
  EXPECT_EQ(s.arenas, 4u);
  EXPECT_EQ(s.stacks, 4u);
  EXPECT_EQ(s.warm, 4u);
  EXPECT_EQ(s.guards_madvise + s.guards_mprotect, 4u);
  EXPECT_EQ(pool->find_guard(gone - 1), nullptr);
  unsigned char page;
  EXPECT_EQ(::mincore(gone, weft::stack::page_bytes(), &page), -1);
  // The table's entries are used again.
  for (int i = 0; i < 20; ++i) {
    extent* e = pool.take_one(64 * mib);
    EXPECT_EQ(pool->find_guard(e->low - 1), e);
  }
  EXPECT_EQ(pool->stats().arenas, 20u);
}

// Address space may be bounded from outside. Then `go` throws, and what exists goes on.
TEST(stack_pool, a_bounded_address_space_ends_in_enomem_not_in_a_crash) {
  if constexpr (weft::base::sanitizer::active) {
    // The shadow alone is terabytes, so the bound is met where no reserve of ours can fit instead.
    own_pool pool{guard_setting::none};
    std::size_t got = 0;
    extent* e = nullptr;
    int error = 0;
    while (got < 200'000 && pool->take(gib, &e, 1, error) == 1) ++got;
    EXPECT_GT(got, 0u);
    EXPECT_EQ(error, ENOMEM);
    EXPECT_EQ(pool->stats().stacks, got);
  } else {
    constexpr int unbounded = 77;
    const int status = in_child([] {
      own_pool pool;
      int error = 0;
      extent* first = nullptr;
      if (pool->take(0, &first, 1, error) != 1) return 1;
      std::ifstream statm{"/proc/self/statm"};
      std::size_t pages = 0;
      statm >> pages;
      const rlim_t bound = pages * weft::stack::page_bytes() + 90 * mib;
      const rlimit limit{bound, bound};
      if (::setrlimit(RLIMIT_AS, &limit) != 0) return 2;
      // An emulator takes the limit and does not keep it.
      void* const too_much =
          ::mmap(nullptr, 100 * mib, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (too_much != MAP_FAILED) return unbounded;
      std::size_t got = 0;
      extent* e = nullptr;
      while (pool->take(0, &e, 1, error) == 1) {
        *(e->top - 1) = std::byte{1};
        if (++got > 1000) return 3;
      }
      if (error != ENOMEM) return 4;
      // Halving must have used the room up: 90 MiB hold some 350 stacks beside the first 64.
      if (got < 390) return 5;
      // It is a state, not a verdict: what is put back can be taken again.
      pool->put(&first, 1);
      if (pool->take(0, &e, 1, error) != 1 || e != first) return 6;
      return 0;
    });
    ASSERT_TRUE(WIFEXITED(status)) << "status " << status;
    if (WEXITSTATUS(status) == unbounded)
      GTEST_SKIP() << "qemu-user takes RLIMIT_AS and does not enforce it: no allocation can fail";
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
}

// Touches the top `pages` pages of a stack.
void touch(extent* e, std::size_t pages) {
  for (std::size_t i = 0; i < pages; ++i) {
    *(e->top - 1 - i * weft::stack::page_bytes()) = std::byte{42};
  }
}

std::size_t resident(const extent* e) {
  const auto pages = weft::stack::pages_of(*e);
  return resident_pages(pages.begin, pages.bytes);
}

void expect_give_back_works(guard_setting guard) {
  own_pool pool{guard};
  const auto all = pool.take_many(300);
  for (extent* e : all) touch(e, 4);
  extent* const kept = all[0];
  pool->put(all.data() + 1, all.size() - 1);
  constexpr std::int64_t idle = 1'000'000;

  EXPECT_EQ(pool->give_back(5 * idle, idle), 0u);  // starts the clock
  EXPECT_EQ(pool->give_back(5 * idle + 1, idle), 0u);
  EXPECT_EQ(pool->give_back(6 * idle, idle), 0u);  // they grow old
  EXPECT_EQ(pool->give_back(7 * idle - 1, idle), 0u);
  EXPECT_GE(resident(all[1]), 4u);
  EXPECT_EQ(pool->give_back(7 * idle, idle), all.size() - 1);
  EXPECT_EQ(pool->stats().warm, 0u);
  EXPECT_EQ(pool->stats().given_back, all.size() - 1);
  for (std::size_t i = 1; i < all.size(); ++i) EXPECT_EQ(resident(all[i]), 0u) << i;
  EXPECT_EQ(*(kept->top - 1), std::byte{42});  // in use: not to be touched

  for (const std::size_t i : {1u, 128u, 299u}) EXPECT_TRUE(writing_faults(guard_of(all[i])));
  EXPECT_EQ(pool->give_back(9 * idle, idle), 0u);  // once is enough

  extent* again = pool.take_one();
  EXPECT_EQ(*(again->top - 1), std::byte{0});
  touch(again, 2);
  EXPECT_EQ(*(again->top - 1), std::byte{42});
}

// A server that once had a million connections must not keep their stacks' memory for ever, and the
// guards must still be there for those who use the stacks next.
TEST(stack_pool, give_back_frees_pages_of_idle_stacks_and_leaves_madvise_guards) {
  expect_give_back_works(guard_setting::madvise);
}

TEST(stack_pool, give_back_frees_pages_of_idle_stacks_and_leaves_mprotect_guards) {
  expect_give_back_works(guard_setting::mprotect);
}

// Stacks in steady use must keep their pages: a first touch costs twenty switches.
TEST(stack_pool, stacks_that_are_used_again_keep_their_pages) {
  own_pool pool;
  extent* e = pool.take_one();
  touch(e, 1);
  for (std::int64_t now = 0; now < 20; ++now) {
    pool->put(&e, 1);
    EXPECT_EQ(pool->give_back(now, 1), 0u);
    ASSERT_EQ(pool.take_one(), e);
  }
  EXPECT_EQ(*(e->top - 1), std::byte{42});
}

// Cold stacks cost a fault each: as long as there is a warm one it goes first.
TEST(stack_pool, warm_stacks_are_taken_before_cold_ones) {
  own_pool pool;
  const auto all = pool.take_many(3);
  pool->put(all.data(), 2);
  for (std::int64_t now = 0; now < 4; ++now) pool->give_back(now, 1);
  ASSERT_EQ(pool->stats().given_back, 2u);
  pool->put(all.data() + 2, 1);
  EXPECT_EQ(pool.take_one(), all[2]);
  const std::set<extent*> rest{pool.take_one(), pool.take_one()};
  EXPECT_EQ(rest, (std::set<extent*>{all[0], all[1]}));
}

// The monitor has other things to do: one call does a bounded amount of work and says so.
TEST(stack_pool, give_back_is_bounded_and_continues_at_the_next_call) {
  own_pool pool{guard_setting::none};
  constexpr std::size_t n = pool::give_back_max + 500;
  const auto all = pool.take_many(n);
  pool->put(all.data(), n);
  pool->give_back(0, 10);
  pool->give_back(10, 10);
  EXPECT_EQ(pool->give_back(20, 10), pool::give_back_max);
  EXPECT_EQ(pool->give_back(20, 10), 500u);  // without waiting for another period
  EXPECT_EQ(pool->give_back(20, 10), 0u);
}

// A period that ends while some are still retiring must neither lose those nor hurry the others:
// I3.
TEST(stack_pool, the_next_period_waits_until_all_that_retire_have_retired) {
  own_pool pool{guard_setting::none};
  constexpr std::size_t n = pool::give_back_max + 500;
  const auto all = pool.take_many(n + 7);
  pool->put(all.data(), n);
  pool->give_back(0, 10);
  pool->give_back(10, 10);
  EXPECT_EQ(pool->give_back(20, 10), pool::give_back_max);
  pool->put(all.data() + n, 7);
  EXPECT_EQ(pool->give_back(30, 10), 500u);
  EXPECT_EQ(pool->stats().warm, 7u);
  EXPECT_EQ(pool->stats().warm + pool->stats().cold, pool->stats().stacks);
  EXPECT_EQ(pool->give_back(31, 10), 0u);
  EXPECT_EQ(pool->give_back(41, 10), 7u);
}

// Retiring stacks are there to be taken; when they all are, the next period must still begin.
TEST(stack_pool, retiring_stacks_can_be_taken_and_ageing_goes_on) {
  own_pool pool{guard_setting::none};
  constexpr std::size_t n = pool::give_back_max + 500;
  const auto all = pool.take_many(n);
  pool->put(all.data(), n);
  pool->give_back(0, 10);
  pool->give_back(10, 10);
  EXPECT_EQ(pool->give_back(20, 10), pool::give_back_max);
  const std::size_t cold_before = pool->stats().cold;
  const auto taken = pool.take_many(500);
  EXPECT_EQ(pool->stats().cold, cold_before);  // they came from the retiring ones
  EXPECT_EQ(pool->stats().warm, 0u);
  pool->put(taken.data(), 500);
  EXPECT_EQ(pool->give_back(30, 10), 0u);
  EXPECT_EQ(pool->give_back(40, 10), 500u);
}

TEST(stack_cache, is_last_in_first_out) {
  own_pool pool;
  cache c{*pool};
  int error = 0;
  extent* a = c.take(error);
  extent* b = c.take(error);
  ASSERT_NE(a, nullptr);
  ASSERT_NE(a, b);
  c.put(a);
  c.put(b);
  EXPECT_EQ(c.take(error), b);
  EXPECT_EQ(c.take(error), a);
  c.put(a);
  c.put(b);
  c.drain();
}

// The first goroutines of a small program must not fetch 32 stacks each processor.
TEST(stack_cache, refills_double_up_to_half_its_capacity) {
  own_pool pool;
  cache c{*pool};
  int error = 0;
  std::vector<extent*> all;
  std::vector<std::uint32_t> refills;
  while (all.size() < 200) {
    const bool empty = c.size() == 0;
    all.push_back(c.take(error));
    ASSERT_NE(all.back(), nullptr);
    if (empty) refills.push_back(c.size() + 1);
  }
  const std::set<extent*> distinct(all.begin(), all.end());
  EXPECT_EQ(distinct.size(), all.size());
  EXPECT_EQ(refills[0], 1u);
  EXPECT_EQ(refills[1], 2u);
  EXPECT_EQ(refills[2], 4u);
  EXPECT_EQ(*std::max_element(refills.begin(), refills.end()), cache::transfer_max);
  for (extent* e : all) c.put(e);
  c.drain();
  EXPECT_EQ(c.size(), 0u);
  const statistics s = pool->stats();
  EXPECT_EQ(s.warm + s.cold, s.stacks);
}

TEST(stack_cache, when_full_the_coldest_half_goes_to_the_pool) {
  own_pool pool;
  const auto all = pool.take_many(cache::capacity + 1);
  cache c{*pool};
  for (std::size_t i = 0; i < cache::capacity; ++i) c.put(all[i]);
  const std::size_t warm_before = pool->stats().warm;
  EXPECT_EQ(warm_before, 0u);
  c.put(all[cache::capacity]);
  EXPECT_EQ(pool->stats().warm, cache::transfer_max);
  EXPECT_EQ(c.size(), cache::capacity - cache::transfer_max + 1);
  int error = 0;
  for (std::size_t i = cache::capacity + 1; i-- > cache::transfer_max;) {
    EXPECT_EQ(c.take(error), all[i]);
  }
  // What went over comes back in the order that fits: the warmest of the cold first.
  for (std::size_t i = cache::transfer_max; i-- > 0;) EXPECT_EQ(c.take(error), all[i]);
}

TEST(stack_cache, other_sizes_go_straight_to_the_pool) {
  own_pool pool;
  cache c{*pool};
  extent* e = pool.take_one(1 * mib);
  c.put(e);
  EXPECT_EQ(c.size(), 0u);
  EXPECT_EQ(pool.take_one(1 * mib), e);
}

TEST(stack_cache, the_process_has_a_pool_of_its_own) {
  cache c;
  int error = 0;
  extent* e = c.take(error);
  ASSERT_NE(e, nullptr);
  EXPECT_EQ(static_cast<std::size_t>(slot_end(e) - e->low), weft::stack::default_reserve());
  EXPECT_EQ(weft::stack::find_guard(e->low - 1), e);
  c.put(e);
  c.drain();
}

// A leak checker that cannot see a parked goroutine's stack reports what only that goroutine holds.
// (It runs at the end of the process; a stack lost from its view makes this program fail there.)
TEST(stack_sanitizer, memory_reachable_only_from_a_stack_is_no_leak) {
  int error = 0;
  extent* e = nullptr;
  ASSERT_EQ(weft::stack::central().take(0, &e, 1, error), 1u);
  auto* slot = reinterpret_cast<int**>(e->top) - 1;
  *slot = new int{42};
  EXPECT_EQ(**slot, 42);
}

// Red zones of a dead goroutine's frames would be reported as overflows in the next one's.
TEST(stack_sanitizer, a_stack_put_back_is_not_poisoned) {
#if WEFT_ASAN
  own_pool pool;
  extent* e = pool.take_one();
  __asan_poison_memory_region(e->top - 256, 256);
  pool->put(&e, 1);
  EXPECT_FALSE(__asan_address_is_poisoned(e->top - 1));
  ASSERT_EQ(pool.take_one(), e);
  cache c{*pool};
  __asan_poison_memory_region(e->top - 256, 256);
  c.put(e);
  EXPECT_FALSE(__asan_address_is_poisoned(e->top - 1));
  c.drain();
#else
  own_pool pool;
  extent* e = pool.take_one();
  pool->put(&e, 1);
  *(e->top - 1) = std::byte{1};
  EXPECT_EQ(*(e->top - 1), std::byte{1});
#endif
}

// Two goroutines on one stack is the worst that can happen here (I1). Each thread signs the stacks
// it holds and looks for its signature before it gives them back; meanwhile idle ones lose their
// pages, which must never happen to one that is held.
TEST(stack_pool, four_threads_never_hold_the_same_stack) {
  own_pool pool;
  constexpr std::uint64_t threads = 4;
  const int rounds = weft::base::sanitizer::active ? 300 : 2000;
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<std::uint64_t> running{threads};

  const auto signature = [](extent* e) { return reinterpret_cast<std::uint64_t*>(e->top) - 1; };
  std::vector<std::thread> workers;
  for (std::uint64_t id = 1; id <= threads; ++id) {
    workers.emplace_back([&, id] {
      cache c{*pool};
      std::uint64_t random = id * 0x9e3779b97f4a7c15;
      std::vector<extent*> held;
      for (int round = 0; round < rounds; ++round) {
        random = random * 6364136223846793005 + 1442695040888963407;
        const std::size_t want = (random >> 33) % 120;
        while (held.size() < want) {
          int error = 0;
          extent* e = nullptr;
          if ((random >> held.size() % 60 & 7) == 0) {
            pool->take(held.size() % 2 == 0 ? 16 * kib : 16 * mib, &e, 1, error);
          } else {
            e = c.take(error);
          }
          ASSERT_NE(e, nullptr) << error;
          *signature(e) = id;
          held.push_back(e);
        }
        while (held.size() > want) {
          extent* e = held.back();
          held.pop_back();
          // relaxed: read after join.
          if (*signature(e) != id) wrong.fetch_add(1, std::memory_order_relaxed);
          c.put(e);
        }
      }
      for (extent* e : held) c.put(e);
      c.drain();
      running.fetch_sub(1, std::memory_order_relaxed);  // only ends the loop below
    });
  }
  std::int64_t now = 0;
  while (running.load(std::memory_order_relaxed) > 0) {
    pool->give_back(++now, 1);
    std::this_thread::yield();
  }
  for (std::thread& worker : workers) worker.join();

  EXPECT_EQ(wrong.load(std::memory_order_relaxed), 0u);
  const statistics s = pool->stats();
  EXPECT_EQ(s.warm + s.cold, s.stacks);  // all came back, none twice
  EXPECT_EQ(s.guards_madvise + s.guards_mprotect + s.guards_none, s.stacks);
}

}  // namespace
