#include "test/schedule.hpp"

#include <charconv>

namespace weft::test {
namespace {

std::string_view prefix_of(actor::kind k) {
  switch (k) {
    case actor::kind::goroutine:
      return "";
    case actor::kind::buffer:
      return "b";
    case actor::kind::timeout:
      return "w";
    case actor::kind::clock:
      return "t";
  }
  return "";
}

// Removes a number from the front. Returns: false if there is none.
bool take_number(std::string_view& text, std::uint32_t& n) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc{}) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

bool take_letter(std::string_view& text, char letter) {
  if (text.empty() || text.front() != letter) return false;
  text.remove_prefix(1);
  return true;
}

bool take_segment(std::string_view& text, schedule::segment& out) {
  out = {};
  out.steps = 1;
  if (take_letter(text, 't')) {
    out.who.what = actor::kind::clock;
  } else {
    if (take_letter(text, 'b')) {
      out.who.what = actor::kind::buffer;
    } else if (take_letter(text, 'w')) {
      out.who.what = actor::kind::timeout;
    }
    if (!take_number(text, out.who.index)) return false;
  }
  return !take_letter(text, 'x') || (take_number(text, out.steps) && out.steps > 0);
}

}  // namespace

void schedule::add(actor who) {
  if (!segments.empty() && segments.back().who == who) {
    ++segments.back().steps;
  } else {
    segments.push_back({who, 1});
  }
}

std::size_t schedule::switches() const {
  std::size_t n = 0;
  const segment* last = nullptr;
  for (const segment& s : segments) {
    if (s.who.what != actor::kind::goroutine) continue;
    if (last != nullptr && last->who != s.who) ++n;
    last = &s;
  }
  return n;
}

std::string schedule::print() const {
  std::string out;
  write([](void* text, std::string_view piece) { static_cast<std::string*>(text)->append(piece); },
        &out);
  return out;
}

namespace {

struct repeat {
  std::size_t length = 1;  // of the group, in segments
  std::size_t times = 1;
};

// The repetition from `at` on that saves most.
repeat repeat_at(const std::vector<schedule::segment>& all, std::size_t at) {
  constexpr std::size_t longest = 16;
  constexpr std::size_t worth_it = 3;
  repeat best;
  for (std::size_t length = 1; length <= longest && at + 2 * length <= all.size(); ++length) {
    std::size_t end = at + length;
    while (end < all.size() && all[end] == all[end - length]) ++end;
    const std::size_t times = (end - at) / length;
    if (times >= worth_it && times * length > best.times * best.length) best = {length, times};
  }
  return best;
}

}  // namespace

void schedule::write(void (*put)(void*, std::string_view), void* argument) const {
  const auto put_number = [&](std::size_t n) {
    char digits[20];
    const auto [end, error] = std::to_chars(digits, digits + sizeof digits, n);
    put(argument, {digits, static_cast<std::size_t>(end - digits)});
  };
  const auto put_times = [&](std::size_t n) {
    if (n == 1) return;
    put(argument, "x");
    put_number(n);
  };
  for (std::size_t i = 0; i < segments.size();) {
    const repeat r = repeat_at(segments, i);
    if (i != 0) put(argument, "-");
    if (r.times > 1) put(argument, "(");
    for (std::size_t k = 0; k < r.length; ++k) {
      const segment& s = segments[i + k];
      if (k != 0) put(argument, "-");
      put(argument, prefix_of(s.who.what));
      if (s.who.what != actor::kind::clock) put_number(s.who.index);
      put_times(s.steps);
    }
    if (r.times > 1) put(argument, ")");
    put_times(r.times);
    i += r.length * r.times;
  }
  for (std::size_t i = 0; i < values.size();) {
    std::size_t end = i + 1;
    while (end < values.size() && values[end] == values[i]) ++end;
    put(argument, i == 0 ? "_" : "-");
    put_number(values[i]);
    put_times(end - i);
    i = end;
  }
}

bool schedule::parse(std::string_view text, schedule& out) {
  constexpr std::size_t longest = 100'000'000;  // longer schedules are errors
  out.clear();
  bool first = true;
  while (!text.empty() && text.front() != '_') {
    if (!first && !take_letter(text, '-')) return false;
    first = false;
    if (!take_letter(text, '(')) {
      segment s;
      if (!take_segment(text, s)) return false;
      out.segments.push_back(s);
      continue;
    }
    std::vector<segment> group;
    do {
      segment s;
      if (!take_segment(text, s)) return false;
      group.push_back(s);
    } while (take_letter(text, '-'));
    std::uint32_t times = 0;
    if (!take_letter(text, ')') || !take_letter(text, 'x') || !take_number(text, times))
      return false;
    if (times == 0 || times > (longest - out.segments.size()) / group.size()) return false;
    for (; times != 0; --times) out.segments.insert(out.segments.end(), group.begin(), group.end());
  }
  for (first = true; !text.empty(); first = false) {
    std::uint32_t n = 0;
    std::uint32_t times = 1;
    if (!take_letter(text, first ? '_' : '-') || !take_number(text, n)) return false;
    if (take_letter(text, 'x') && (!take_number(text, times) || times == 0)) return false;
    if (times > longest - out.values.size()) return false;
    out.values.insert(out.values.end(), times, n);
  }
  return true;
}

}  // namespace weft::test
