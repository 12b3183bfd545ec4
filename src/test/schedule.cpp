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

// Takes a number off the front. Returns: false if there is none.
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
  for (const segment& s : segments) {
    if (!out.empty()) out += '-';
    out += prefix_of(s.who.what);
    if (s.who.what != actor::kind::clock) out += std::to_string(s.who.index);
    if (s.steps != 1) out += 'x' + std::to_string(s.steps);
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    out += i == 0 ? '_' : '-';
    out += std::to_string(values[i]);
  }
  return out;
}

bool schedule::parse(std::string_view text, schedule& out) {
  out.clear();
  while (!text.empty() && text.front() != '_') {
    segment s;
    if (!out.segments.empty() && !take_letter(text, '-')) return false;
    if (!take_segment(text, s)) return false;
    out.segments.push_back(s);
  }
  for (bool first = true; !text.empty(); first = false) {
    std::uint32_t n = 0;
    if (!take_letter(text, first ? '_' : '-') || !take_number(text, n)) return false;
    out.values.push_back(n);
  }
  return true;
}

}  // namespace weft::test
