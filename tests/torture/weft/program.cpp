#include "program.hpp"

#include <algorithm>
#include <cstdio>
#include <sys/resource.h>

namespace torture {
namespace {

constexpr std::int64_t ns_per_us = 1000;
constexpr std::int64_t ns_per_ms = 1'000'000;

// A goroutine could run for so long and the process used less than this part of one core: it slept
// on the job.
constexpr std::int64_t stall_wait_ns = 150 * ns_per_ms;
constexpr double stall_share = 0.4;

double to_ms(std::int64_t ns) { return static_cast<double>(ns) / 1e6; }
double to_us(std::int64_t ns) { return static_cast<double>(ns) / 1e3; }

std::int64_t to_ns(const timeval& t) {
  return std::int64_t{t.tv_sec} * 1'000'000'000 + std::int64_t{t.tv_usec} * ns_per_us;
}

std::int64_t used_cpu_ns() {
  rusage r;
  ::getrusage(RUSAGE_SELF, &r);
  return to_ns(r.ru_utime) + to_ns(r.ru_stime);
}

}  // namespace

group::group(program& all, const line& parameters)
    : all_(all),
      parameters_(parameters),
      size_(static_cast<std::size_t>(parameters.number("n"))),
      rounds_(parameters.number_or("rounds", 0)),
      progress_(size_) {}

bool group::more(std::int64_t rounds) const noexcept {
  return (rounds_ == 0 || rounds < rounds_) && !all_.is_over(now_ns());
}

void group::waited(wait kind, std::int64_t since_ns) noexcept {
  const std::int64_t now = now_ns();
  meters_[static_cast<std::size_t>(kind)].add(now - since_ns, now - all_.start_ns_);
  if (now - since_ns > stall_wait_ns) all_.check_stall(since_ns, now);
}

void group::was_due(wait kind, std::int64_t due_ns) noexcept {
  if (now_ns() < due_ns) all_.early_.fetch_add(1, std::memory_order_relaxed);
  waited(kind, due_ns);
}

void group::sleep(std::int64_t us) {
  const std::int64_t due = now_ns() + us * ns_per_us;
  weft::this_goroutine::sleep_for(std::chrono::microseconds(us));
  was_due(wait::timer, due);
}

program::program(const table& t) : table_(t), steps_per_us_(measure_steps_per_us()) {
  for (const line& l : t.groups) {
    const group& g = groups_.emplace_back(*this, l);
    has_finite_ = has_finite_ || g.is_finite();
  }
  start_ns_ = now_ns();
  deadline_ns_ = start_ns_ + t.head.number("ms") * ns_per_ms;
  cap_ns_ = start_ns_ + cap_after_ns;
}

void program::run() {
  // Before any of them can end: the last to end is the end of the finite work.
  for (const group& g : groups_) {
    if (g.is_finite()) {
      finite_left_.fetch_add(static_cast<std::int64_t>(g.size()), std::memory_order_relaxed);
    }
  }
  for (group& g : groups_) start_group(*this, g);
  started_ns_ = now_ns();
  alive_.wait();
}

void program::compute(std::int64_t us) const noexcept {
  constexpr std::int64_t piece_us = 1000;
  for (std::int64_t left = us; left > 0; left -= piece_us) {
    spin(std::min(left, piece_us) * steps_per_us_);
    if (left > piece_us && is_over(now_ns())) return;
  }
}

void program::finite_ended() noexcept {
  finite_end_ns_.store(now_ns(), std::memory_order_relaxed);
  finite_left_.fetch_sub(1, std::memory_order_relaxed);
}

void program::sample_cpu() noexcept {
  const std::int64_t used = used_cpu_ns();
  const auto now = static_cast<std::size_t>((now_ns() - start_ns_) / sample_ns);
  std::size_t i = samples_.load(std::memory_order_relaxed);
  // The watch may have been late. For what it missed it takes what it knew before: a stall is then
  // overlooked rather than invented.
  const std::int64_t before = i == 0 ? 0 : cpu_ns_[i - 1].load(std::memory_order_relaxed);
  for (; i <= now && i < samples_max; ++i) {
    cpu_ns_[i].store(i == now ? used : before, std::memory_order_relaxed);
  }
  samples_.store(i, std::memory_order_release);
}

void program::check_stall(std::int64_t since_ns, std::int64_t now) noexcept {
  const std::size_t known = samples_.load(std::memory_order_acquire);
  const auto since =
      static_cast<std::size_t>(std::max<std::int64_t>(0, since_ns - start_ns_) / sample_ns);
  if (since >= known) return;
  const std::int64_t used = used_cpu_ns() - cpu_ns_[since].load(std::memory_order_relaxed);
  const std::int64_t waited = now - since_ns;
  if (static_cast<double>(used) >= stall_share * static_cast<double>(waited)) return;
  stalls_.fetch_add(1, std::memory_order_relaxed);
  stall_ns_.store(waited, std::memory_order_relaxed);
  stall_cpu_ns_.store(used, std::memory_order_relaxed);
}

void program::print_json() const {
  const std::int64_t end = now_ns();
  const bool stuck = finite_left_.load() != 0 || (has_finite_ && finite_end_ns_.load() >= cap_ns_);
  const std::int64_t total = has_finite_ ? finite_end_ns_.load() : end;
  std::printf("{\"contender\": \"weft\", \"total_ms\": %.3f, \"finite\": %s, \"stuck\": %s, ",
              to_ms((stuck ? cap_ns_ : total) - start_ns_), has_finite_ ? "true" : "false",
              stuck ? "true" : "false");
  std::printf("\"started_ms\": %.3f, \"wall_ms\": %.3f, \"cpu_ms\": %.3f, \"steps_per_us\": %lld, ",
              to_ms(started_ns_ - start_ns_), to_ms(end - start_ns_), to_ms(used_cpu_ns()),
              static_cast<long long>(steps_per_us_));
  std::printf("\"never_ran\": %d, \"early\": %d, ", never_ran_.load(), early_.load());
  std::printf("\"stalls\": %d, \"stall_ms\": %.1f, \"stall_cpu_ms\": %.1f,\n \"groups\": [",
              stalls_.load(), to_ms(stall_ns_.load()), to_ms(stall_cpu_ns_.load()));
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const group& g = groups_[i];
    std::int64_t turns = 0;
    for (const std::int64_t p : g.progress()) turns += p;
    std::printf("%s\n  {\"kind\": \"%s\", \"turns\": %lld, \"jain\": %.4f, \"waits\": {",
                i == 0 ? "" : ",", g.parameters().word().c_str(), static_cast<long long>(turns),
                jain(g.progress()));
    const char* comma = "";
    for (std::size_t w = 0; w < wait_names.size(); ++w) {
      const meter& m = g.of(static_cast<wait>(w));
      if (m.count() == 0) continue;
      std::printf(
          "%s\n   \"%s\": {\"count\": %llu, \"p50_us\": %.1f, \"p99_us\": %.1f, "
          "\"worst_us\": %.1f, \"worst_at_ms\": %.1f}",
          comma, wait_names[w], static_cast<unsigned long long>(m.count()),
          to_us(m.percentile(0.5)), to_us(m.percentile(0.99)), to_us(m.worst_ns()),
          to_ms(m.worst_at_ns()));
      comma = ",";
    }
    std::printf("}}");
  }
  std::printf("]}\n");
  std::fflush(stdout);
}

}  // namespace torture
