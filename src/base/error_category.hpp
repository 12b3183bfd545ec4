// error_category.hpp: a std::error_category that is a table.
#pragma once

#include <span>
#include <string>
#include <system_error>

namespace weft::base {

struct error_row {
  template <class E>
  constexpr error_row(E e, const char* t, std::errc c = {}) noexcept
      : value(static_cast<int>(e)), text(t), condition(c) {}

  int value;
  const char* text;
  std::errc condition;  // a condition that the error equals as well; 0: none
};

class error_category final : public std::error_category {
 public:
  // Requires: `name` and the rows live as long as the process.
  constexpr error_category(const char* name, std::span<const error_row> rows) noexcept
      : name_(name), rows_(rows) {}

  const char* name() const noexcept override { return name_; }
  std::string message(int value) const override {
    const error_row* const row = find(value);
    return row != nullptr ? row->text : "unknown error " + std::to_string(value);
  }
  std::error_condition default_error_condition(int value) const noexcept override {
    const error_row* const row = find(value);
    if (row == nullptr || row->condition == std::errc()) return {value, *this};
    return row->condition;
  }

 private:
  const error_row* find(int value) const noexcept {
    for (const error_row& row : rows_) {
      if (row.value == value) return &row;
    }
    return nullptr;
  }

  const char* name_;
  std::span<const error_row> rows_;
};

}  // namespace weft::base
