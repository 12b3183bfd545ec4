#include "table.hpp"

#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace torture {
namespace {

std::vector<line> lines_of(const std::string& text) {
  std::vector<line> lines;
  std::istringstream in(text);
  for (std::string one; std::getline(in, one);) {
    if (!one.empty() && one.front() != '#') lines.emplace_back(one);
  }
  if (lines.size() < 2 || lines.front().word() != "program") {
    wrong_table("it takes a line 'program' and at least one group");
  }
  return lines;
}

}  // namespace

void wrong_table(std::string_view why) {
  std::fprintf(stderr, "wrong table: %.*s\n", static_cast<int>(why.size()), why.data());
  std::_Exit(3);
}

line::line(const std::string& text) {
  std::istringstream in(text);
  in >> word_;
  for (std::string pair; in >> pair;) {
    const std::size_t equals = pair.find('=');
    if (equals == std::string::npos) wrong_table(pair + " is not key=value");
    values_[pair.substr(0, equals)] = pair.substr(equals + 1);
  }
}

std::int64_t line::number(const std::string& key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) wrong_table(word_ + " has no " + key);
  return std::strtoll(found->second.c_str(), nullptr, 10);
}

std::int64_t line::number_or(const std::string& key, std::int64_t otherwise) const {
  return values_.contains(key) ? number(key) : otherwise;
}

std::vector<int> line::numbers(const std::string& key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) wrong_table(word_ + " has no " + key);
  std::vector<int> numbers;
  std::istringstream in(found->second);
  for (std::string one; std::getline(in, one, ',');) numbers.push_back(std::atoi(one.c_str()));
  return numbers;
}

table::table(const std::string& all) : text(all), head(lines_of(all).front()) {
  groups = lines_of(all);
  groups.erase(groups.begin());
}

}  // namespace torture
