// A random program as text: ../table.md describes the format. A mistake in a table ends the process
// with status 3, because every later result would be about another program.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace torture {

// One line: a word and its key=value pairs.
class line {
 public:
  explicit line(const std::string& text);

  const std::string& word() const noexcept { return word_; }
  // Returns: the number of a key; the table is wrong if it is not there.
  std::int64_t number(const std::string& key) const;
  std::int64_t number_or(const std::string& key, std::int64_t otherwise) const;
  // Of a list like 1,2,4.
  std::vector<int> numbers(const std::string& key) const;

 private:
  std::string word_;
  std::map<std::string, std::string> values_;
};

struct table {
  explicit table(const std::string& text);

  std::string text;
  line head;
  std::vector<line> groups;
};

[[noreturn]] void wrong_table(std::string_view why);

}  // namespace torture
