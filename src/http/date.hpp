// date.hpp: the value of the Date field, made once a second.
#pragma once

#include <weft/time.hpp>

#include <string_view>

namespace weft::http {

class date_cache {
 public:
  // "Sun, 06 Nov 1994 08:49:37 GMT", for a time that is about now.
  std::string_view at(clock::time_point now) noexcept {
    if (now >= stale_) [[unlikely]]
      renew(now);
    return {text_, sizeof text_};
  }

 private:
  void renew(clock::time_point now) noexcept;

  clock::time_point stale_{};
  char text_[29] = {};
};

}  // namespace weft::http
