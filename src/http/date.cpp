// date.cpp: the value of the Date field.
#include "http/date.hpp"

#include <chrono>
#include <cstddef>
#include <string_view>

namespace weft::http {

void date_cache::renew(clock::time_point now) noexcept {
  using namespace std::chrono;
  const auto wall = system_clock::now();
  const auto second = floor<seconds>(wall);
  stale_ = now + (second + seconds(1) - wall);

  const auto day = floor<days>(second);
  const year_month_day date(day);
  const hh_mm_ss time(second - day);
  char* to = text_;
  const auto put = [&to](std::string_view s) {
    for (const char c : s) *to++ = c;
  };
  const auto put_two = [&to](unsigned n) {
    *to++ = static_cast<char>('0' + n / 10 % 10);
    *to++ = static_cast<char>('0' + n % 10);
  };
  constexpr std::string_view weekdays = "SunMonTueWedThuFriSat";
  constexpr std::string_view months = "JanFebMarAprMayJunJulAugSepOctNovDec";
  put(weekdays.substr(std::size_t{3} * weekday(day).c_encoding(), 3));
  put(", ");
  put_two(static_cast<unsigned>(date.day()));
  put(" ");
  put(months.substr(std::size_t{3} * (static_cast<unsigned>(date.month()) - 1), 3));
  put(" ");
  const auto year_number = static_cast<unsigned>(static_cast<int>(date.year()));
  put_two(year_number / 100);
  put_two(year_number % 100);
  put(" ");
  put_two(static_cast<unsigned>(time.hours().count()));
  put(":");
  put_two(static_cast<unsigned>(time.minutes().count()));
  put(":");
  put_two(static_cast<unsigned>(time.seconds().count()));
  put(" GMT");
}

}  // namespace weft::http
