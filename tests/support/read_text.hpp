// read_text.hpp: what comes from a file or a connection, as text. An error fails the test.
#pragma once

#include "bytes.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>

namespace weft::test {

// By one call.
template <class Source>
std::string read_some(Source& from, std::size_t most = 4096) {
  std::string text(most, '\0');
  const auto n = from.read(bytes(text.data(), text.size()));
  EXPECT_TRUE(n.has_value()) << n.error().message();
  text.resize(n.value_or(0));
  return text;
}

// Up to the end.
template <class Source>
std::string read_all(Source& from, std::size_t piece = 4096) {
  std::string all;
  for (std::string more = read_some(from, piece); !more.empty(); more = read_some(from, piece)) {
    all += more;
  }
  return all;
}

}  // namespace weft::test
