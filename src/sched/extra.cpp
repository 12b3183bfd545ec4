// extra.cpp: what only few goroutines have; extra.hpp says what that is.
//
// Memory order:
//   [G1] making of a goroutine's extras -> a report that loads `extra`: name and place.
#include "sched/extra.hpp"

#include <cstring>
#include <memory>

namespace weft::sched {

// Requires: `g` has no extras yet, and has not started.
void set_name(goroutine* g, std::string_view name, const std::source_location& where) {
  auto extra = std::make_unique<goroutine_extra>();
  if (!name.empty()) {
    extra->name = new char[name.size() + 1];
    std::memcpy(extra->name, name.data(), name.size());
    extra->name[name.size()] = '\0';
  }
  extra->file = where.file_name();
  extra->function = where.function_name();
  extra->line = where.line();
  g->extra.store(extra.release(), std::memory_order_release);  // [G1]
}

void destroy_extra(goroutine* g) {
  // relaxed: only the goroutine itself writes it.
  goroutine_extra* const extra = g->extra.load(std::memory_order_relaxed);
  while (extra->locals != nullptr) {
    const std::unique_ptr<local_value> last(extra->locals);
    extra->locals = last->next;
    last->destroy(last->value);
  }
  g->extra.store(nullptr, std::memory_order_release);  // [G1]
  delete[] extra->name;
  delete extra;
}

void* find_local(const goroutine* g, std::uint64_t key) noexcept {
  // relaxed: only the goroutine itself writes it.
  const goroutine_extra* const extra = g->extra.load(std::memory_order_relaxed);
  if (extra == nullptr) return nullptr;
  for (const local_value* v = extra->locals; v != nullptr; v = v->next) {
    if (v->key == key) return v->value;
  }
  return nullptr;
}

void add_local(goroutine* g, std::uint64_t key, void* value, void (*destroy)(void*)) {
  // relaxed: only the goroutine itself writes it.
  goroutine_extra* extra = g->extra.load(std::memory_order_relaxed);
  if (extra == nullptr) {
    extra = new goroutine_extra;
    g->extra.store(extra, std::memory_order_release);  // [G1]
  }
  extra->locals = new local_value{key, value, destroy, extra->locals};
}

}  // namespace weft::sched
