// listing.cpp: prints a run for the reader of a failed test: one column per goroutine, one line per
// step, with its line of source.
#include "base/backtrace.hpp"
#include "base/fatal.hpp"
#include "base/symbolize.hpp"
#include "test/engine.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

namespace weft::test {
namespace {

constexpr std::size_t frames_max = 64;
constexpr std::size_t lines_shown = 200;  // of a long run only its beginning and its end are shown
constexpr std::size_t column_width_max = 60;
constexpr std::size_t round_length_max = 20;  // lines that repeat at the end are shown once
constexpr std::size_t rounds_min = 3;
constexpr int last_words_seconds = 20;

// This file's own path tells where the library's sources are.
std::string_view source_root() {
  const std::string_view here = __FILE__;
  const std::size_t end = here.rfind("src/test/");
  return end == std::string_view::npos ? std::string_view{} : here.substr(0, end);
}

// Whether a line of source is the user's own, rather than that of a library.
bool is_users(std::string_view file) {
  for (const std::string_view library : {"include/weft/", "/include/c++/", "/include/gtest/"}) {
    if (file.find(library) != std::string_view::npos) return false;
  }
  const std::string_view root = source_root();
  if (root.empty() || !file.starts_with(root)) return true;
  const std::string_view ours = file.substr(root.size());
  return !ours.starts_with("src/") && !ours.starts_with("tests/support/");
}

std::string_view base_name(std::string_view file) {
  const std::size_t slash = file.rfind('/');
  return slash == std::string_view::npos ? file : file.substr(slash + 1);
}

// Returns: "file:line" of the innermost frame in a file that `shows` accepts; empty if there is
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

// Returns: the file of "file:line" or "started at file:line".
std::string_view file_of(std::string_view where) {
  where = where.substr(0, where.rfind(':'));
  const std::size_t space = where.rfind(' ');
  return space == std::string_view::npos ? where : where.substr(space + 1);
}

// Eight characters wide; empty if there is no time.
std::string time_column(std::int64_t ns) {
  std::string out;
  if (ns >= 0) {
    const std::int64_t us = ns / 1'000;
    out = us % 1'000 != 0 ? std::to_string(us) + "us" : std::to_string(us / 1'000) + "ms";
  }
  out.resize(8, ' ');
  return out;
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

std::string engine::printable(std::string_view s) {
  constexpr std::size_t piece_bytes = 128;  // a base::text has room for them and their escapes
  std::string out;
  while (!s.empty()) {
    // Bytes of one character stay together.
    std::size_t n = std::min(s.size(), piece_bytes);
    while (n < s.size() && n < piece_bytes + 3 && (s[n] & '\xc0') == '\x80') ++n;
    base::text piece;
    out += piece.printable(s.substr(0, n)).view();
    s.remove_prefix(n);
  }
  return out;
}

std::string engine::name_of(const strand& s) const {
  if (s.title != nullptr) return s.title;
  if (!s.last_name.empty()) return s.last_name;
  const sched::goroutine_extra* const extra = s.extra.load(std::memory_order_relaxed);
  if (extra != nullptr && extra->name != nullptr) {
    return printable(extra->name) + "." + std::to_string(s.index);
  }
  return s.index == 0 ? "main" : "g" + std::to_string(s.index);
}

void engine::note(std::string text) { note_for(*current_, std::move(text), where_am_i()); }

void engine::note_for(const strand& s, std::string text, std::string where) {
  events_.push_back({s.index, now_ns_, std::move(text), std::move(where)});
}

std::string engine::where_am_i() const { return where_is(*current_); }

// Returns: the line that a goroutine has reached. If it is in its outermost function, which the
// compiler may have replaced by its last call: the line that started it.
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

// The goroutines that are left, and what each waits for. For a model, in which main joins them, in
// one line, because its table shows the rest.
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

void engine::set_replay_line(std::string before, std::string after) {
  replay_before_ = std::move(before);
  replay_after_ = std::move(after);
}

// Memory may be in any state, so the line that replays is printed first and without allocating. A
// table is printed only in a replay.
void engine::last_words() noexcept {
  if (replay_before_.empty() || std::exchange(said_last_words_, true)) return;
  base::write_stderr("\nweft::test: the process ends in the middle of this run\n");
  base::write_stderr(replay_before_);
  recorded_.write([](void*, std::string_view piece) { base::write_stderr(piece); }, nullptr);
  base::write_stderr(replay_after_);
  if (!tracing_) return;
  base::arm_deadline(last_words_seconds);
  base::write_stderr("\n" + table());
}

void engine::race(const char* name, detail::access mine, std::uint32_t other, detail::access theirs,
                  const void* their_from) {
  const auto verb = [](detail::access a) { return a == detail::access::write ? "write" : "read"; };
  void* pcs[] = {const_cast<void*>(their_from)};
  std::string their_line = line_of(pcs, their_from != nullptr ? 1 : 0, options_.shows);
  // If the access was made deep in a library, its address tells nothing; the table has the line.
  const std::string entry = verb(theirs) + (" " + std::string(name));
  for (std::size_t i = events_.size(); i-- > 0 && their_line.empty();) {
    const event& e = events_[i];
    if (e.strand == other && e.text.starts_with(entry)) their_line = e.where;
  }
  fail(fault::race, "race on " + std::string(name) + ": " + name_of(*current_) + " " + verb(mine) +
                        "s it" + in_parentheses(where_am_i()) + ", " + name_of(*strands_[other]) +
                        " " + verb(theirs) + "s it" + in_parentheses(their_line) +
                        ", and nothing orders the two");
}

// The file that most of the lines belong to.
std::string engine::usual_file() const {
  std::map<std::string_view, int> lines;
  std::string_view usual;
  for (const event& e : events_) {
    const std::string_view file = file_of(e.where);
    if (!file.empty() && (++lines[file] > lines[usual] || usual.empty())) usual = file;
  }
  return std::string(usual);
}

// An endless run repeats the same few lines.
engine::rounds engine::last_rounds() const {
  const auto same = [](const event& a, const event& b) {
    return a.strand == b.strand && a.text == b.text && a.where == b.where;
  };
  for (std::size_t length = 1; length <= round_length_max; ++length) {
    std::size_t begin = events_.size();
    while (begin > length && same(events_[begin - 1], events_[begin - 1 - length])) --begin;
    if (events_.size() - begin < length * rounds_min) continue;
    return {begin, events_.size() - begin, length};
  }
  return {events_.size(), 0, 1};
}

std::string engine::table() const {
  const std::string file = usual_file();
  const auto cell = [&file](const event& e) {
    std::string where = e.where;
    if (!file.empty() && file_of(where) == file) where.erase(where.rfind(file), file.size());
    return e.text + in_parentheses(where);
  };
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
  std::string out = file.empty() ? "" : "lines of " + file + "\n";
  out += trimmed(head);
  const rounds again = last_rounds();
  std::int64_t last_ns = 0;
  for (std::size_t i = 0; i < again.begin; ++i) {
    if (i >= lines_shown / 2 && i + lines_shown / 2 < again.begin) {
      if (i == lines_shown / 2) {
        out += " ... " + std::to_string(again.begin - lines_shown) + " more ...\n";
      }
      continue;
    }
    const event& e = events_[i];
    std::string line = std::to_string(i + 1);
    line.insert(0, line.size() < 4 ? 4 - line.size() : 0, ' ');
    line += "  ";
    if (time_passes) {
      line += e.at_ns != last_ns ? time_column(e.at_ns - events_.front().at_ns) : time_column(-1);
      last_ns = e.at_ns;
    }
    for (std::uint32_t s = 0; s < e.strand; ++s) {
      if (used[s]) line.append(width[s], ' ');
    }
    out += trimmed(line + cell(e));
  }
  if (again.events != 0) {
    out += " ... and so on: the last " + std::to_string(again.length) + " of these lines, " +
           std::to_string(again.events / again.length) + " times more\n";
  }
  return out;
}

}  // namespace weft::test
