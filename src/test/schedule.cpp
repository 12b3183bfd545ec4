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
  write([](void* text, std::string_view piece) { static_cast<std::string*>(text)->append(piece); },
        &out);
  return out;
}

void schedule::write(void (*put)(void*, std::string_view), void* argument) const {
  const auto put_number = [&](std::uint32_t n) {
    char digits[10];
    const auto [end, error] = std::to_chars(digits, digits + sizeof digits, n);
    put(argument, {digits, static_cast<std::size_t>(end - digits)});
  };
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const segment& s = segments[i];
    if (i != 0) put(argument, "-");
    put(argument, prefix_of(s.who.what));
    if (s.who.what != actor::kind::clock) put_number(s.who.index);
    if (s.steps != 1) {
      put(argument, "x");
      put_number(s.steps);
    }
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    put(argument, i == 0 ? "_" : "-");
    put_number(values[i]);
  }
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
