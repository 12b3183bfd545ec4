// listing.cpp: what a run looked like, for the reader of a failed test: one column per goroutine,
// one line per step, with the line of source it was made on.
#include "base/backtrace.hpp"
#include "base/symbolize.hpp"
#include "test/engine.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

namespace weft::test {
namespace {

constexpr std::size_t frames_max = 64;
constexpr std::size_t lines_shown = 200;  // of a long run the beginning and the end
constexpr std::size_t column_width_max = 60;

// This file's own path tells where the library's sources lie.
std::string_view source_root() {
  const std::string_view here = __FILE__;
  const std::size_t end = here.rfind("src/test/");
  return end == std::string_view::npos ? std::string_view{} : here.substr(0, end);
}

// Whether a line of source is the user's own, rather than ours or the standard library's.
bool is_users(std::string_view file) {
  if (file.find("include/weft/") != std::string_view::npos) return false;
  if (file.find("/include/c++/") != std::string_view::npos) return false;
  const std::string_view root = source_root();
  return root.empty() || !file.starts_with(root) || !file.substr(root.size()).starts_with("src/");
}

std::string_view base_name(std::string_view file) {
  const std::size_t slash = file.rfind('/');
  return slash == std::string_view::npos ? file : file.substr(slash + 1);
}

// Returns: "file:line" of the innermost frame in a file that `shows` says yes to; empty if there is
// none.
std::string line_of(void* const* pcs, std::size_t n, bool (*shows)(std::string_view)) {
  struct search {
    bool (*shows)(std::string_view);
    std::string found;
  } s{shows != nullptr ? shows : &is_users, {}};
  for (std::size_t i = 0; i < n && s.found.empty(); ++i) {
    base::symbolize(
        pcs[i],
        [](void* argument, const base::frame& f) {
          auto& self = *static_cast<search*>(argument);
          if (!self.found.empty() || f.line == 0 || f.file == nullptr) return;
          if (!self.shows(f.file)) return;
          self.found = std::string(base_name(f.file)) + ":" + std::to_string(f.line);
        },
        &s);
  }
  return std::move(s.found);
}

std::string trimmed(const std::string& line) {
  return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

std::string doing(const strand& s) {
  switch (s.stands) {
    case standing::parked:
      return std::string(to_string(s.reason.load(std::memory_order_relaxed)));
    case standing::asleep:
      return "sleeps";
    case standing::spinning:
      return "spins";
    case standing::resting:
      return "waits for the others to rest";
    default:
      return "runnable";
  }
}

std::string in_parentheses(const std::string& where) {
  return where.empty() ? where : " (" + where + ")";
}

}  // namespace

std::string engine::name_of(const strand& s) const {
  if (s.title != nullptr) return s.title;
  const sched::goroutine_extra* const extra = s.extra.load(std::memory_order_relaxed);
  if (extra != nullptr && extra->name != nullptr) {
    return std::string(extra->name) + "." + std::to_string(s.index);
  }
  return s.index == 0 ? "main" : "g" + std::to_string(s.index);
}

void engine::note(std::string text) { note_for(*current_, std::move(text), where_am_i()); }

void engine::note_for(const strand& s, std::string text, std::string where) {
  events_.push_back({s.index, now_ns_, std::move(text), std::move(where)});
}

std::string engine::where_am_i() const { return where_is(*current_); }

// Where a goroutine stands. If that is in its outermost function, which the compiler may have
// replaced by its last call, then where it was started.
std::string engine::where_is(const strand& s) const {
  void* pcs[frames_max];
  std::size_t n = 0;
  if (&s == current_) {
    n = base::capture(pcs, frames_max, 1);
  } else if (s.begun) {
    const base::saved_frame at{s.context.pc, s.context.sp, s.context.fp, nullptr};
    n = base::capture_from(at, pcs, frames_max);
  }
  std::string line = line_of(pcs, n, options_.shows);
  if (!line.empty() || s.created_at == nullptr) return line;
  pcs[0] = const_cast<void*>(s.created_at);
  line = line_of(pcs, 1, options_.shows);
  return line.empty() ? line : "started at " + line;
}

// Everybody who is left and what it waits for. Of a model, in which main joins them, in one line:
// its table says where they stand.
std::string engine::roll_call() const {
  const bool of_model = main_->stands == standing::joining;
  std::string out;
  for (const strand* const s : alive_) {
    if (s->stands == standing::joining) continue;
    if (of_model) {
      out += (out.empty() ? " " : ", ") + name_of(*s) + " " + doing(*s);
    } else {
      out += "\n  " + name_of(*s) + ": " + doing(*s) + in_parentheses(where_is(*s));
    }
  }
  return out;
}

void engine::race(const char* name, detail::access mine, const void* from, std::uint32_t other,
                  detail::access theirs, const void* their_from) {
  const auto verb = [](detail::access a) {
    return a == detail::access::write ? "writes" : "reads";
  };
  const auto place = [this](const void* pc) {
    void* pcs[] = {const_cast<void*>(pc)};
    return in_parentheses(line_of(pcs, pc != nullptr ? 1 : 0, options_.shows));
  };
  fail(fault::race, "race on " + std::string(name) + ": " + name_of(*current_) + " " + verb(mine) +
                        " it" + place(from) + ", " + name_of(*strands_[other]) + " " +
                        verb(theirs) + " it" + place(their_from) + ", and nothing orders the two");
}

std::string engine::table() const {
  const auto cell = [](const event& e) { return e.text + in_parentheses(e.where); };
  std::vector<std::size_t> width(strands_.size(), 0);
  std::vector<bool> used(strands_.size(), false);
  bool time_passes = false;
  for (const event& e : events_) {
    used[e.strand] = true;
    width[e.strand] = std::max(width[e.strand], std::min(cell(e).size() + 2, column_width_max));
    time_passes = time_passes || e.at_ns != events_.front().at_ns;
  }
  std::string head = time_passes ? "              " : "      ";
  for (const auto& s : strands_) {
    if (!used[s->index]) continue;
    width[s->index] = std::max(width[s->index], name_of(*s).size() + 2);
    head += name_of(*s);
    head.append(width[s->index] - name_of(*s).size(), ' ');
  }
  std::string out = trimmed(head);
  std::size_t number = 0;
  std::int64_t last_ns = 0;
  for (const event& e : events_) {
    ++number;
    if (number > lines_shown / 2 && number + lines_shown / 2 <= events_.size()) {
      if (number == lines_shown / 2 + 1) {
        out += " ... " + std::to_string(events_.size() - lines_shown) + " more ...\n";
      }
      continue;
    }
    std::string line = std::to_string(number);
    line.insert(0, line.size() < 4 ? 4 - line.size() : 0, ' ');
    line += "  ";
    if (time_passes) {
      std::string time;
      if (e.at_ns != last_ns) {
        const std::int64_t us = (e.at_ns - events_.front().at_ns) / 1000;
        time = us < 10'000 ? std::to_string(us) + "us" : std::to_string(us / 1000) + "ms";
      }
      time.resize(8, ' ');
      line += time;
      last_ns = e.at_ns;
    }
    for (std::uint32_t s = 0; s < e.strand; ++s) {
      if (used[s]) line.append(width[s], ' ');
    }
    out += trimmed(line + cell(e));
  }
  return out;
}

}  // namespace weft::test
