// slow_clock.c: a clock that goes 40 times slower, for programs that callgrind slows down as much.
//
// What the runtime does by time (a look every 50 us) happens as often per goroutine then as it does
// without callgrind. Sleeps stay as long as they are. Preloaded by bench/instructions.
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { slowness = 40, ns_per_s = 1000000000 };

int clock_gettime(clockid_t id, struct timespec* t) {
  static long first_ns;  // threads that race for it write nearly equal times
  const int result = (int)syscall(SYS_clock_gettime, id, t);
  if (result != 0 || id != CLOCK_MONOTONIC) return result;
  long now_ns = t->tv_sec * ns_per_s + t->tv_nsec;
  if (first_ns == 0) first_ns = now_ns;
  now_ns = first_ns + (now_ns - first_ns) / slowness;
  t->tv_sec = now_ns / ns_per_s;
  t->tv_nsec = now_ns % ns_per_s;
  return 0;
}
