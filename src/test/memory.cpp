// memory.cpp: atomics, vars and futexes as the engine sees them. The essay is in engine.hpp.
#include "base/fatal.hpp"
#include "test/engine.hpp"

#include <algorithm>

namespace weft::test {
namespace {

bool acquires(std::memory_order o) {
  return o == std::memory_order_acquire || o == std::memory_order_acq_rel ||
         o == std::memory_order_seq_cst || o == std::memory_order_consume;
}
bool releases(std::memory_order o) {
  return o == std::memory_order_release || o == std::memory_order_acq_rel ||
         o == std::memory_order_seq_cst;
}

std::uint64_t bit(std::uint32_t where) { return std::uint64_t{1} << (where & 63); }

}  // namespace

// ---- Locations ----

void engine::created(const void* place, const detail::cell& c) {
  const std::uint32_t where = locations_.add(place);
  location& l = locations_[where];
  l.cell = &c;
  // The order in which one goroutine constructs objects is the same in each run; the order among
  // several goroutines is not.
  l.key = current_ != nullptr ? mix(mix(4, current_->index), ++current_->locations_made)
                              : mix(1, where);
}

void engine::destroyed(const void* place) {
  const std::uint32_t where = locations_.find(place);
  if (where == nowhere || !locations_[where].alive) return;
  locations_[where].alive = false;  // stores that its own goroutine has buffered are dropped
  if (current_ == nullptr) return;
  for (const strand* const s : alive_) {
    if (s == current_) continue;
    for (const strand::buffered_store& b : s->buffer) {
      if (b.where == where) {
        fail(fault::check, label(where) + " is destroyed before a store to it has landed");
      }
    }
  }
  if (tracing_ && alive_.size() > 1) note("destroy " + label(where));
}

void engine::named(const void* place, const char* name) {
  const std::uint32_t where = locations_.find(place);
  if (where != nowhere && locations_[where].alive) {
    locations_[where].name = name;
  } else if (tracing_) {
    labels_[place] = name;
  }
}

std::uint32_t engine::number_of(const void* place, const detail::cell& c) {
  const std::uint32_t found = locations_.find(place);
  if (found != nowhere) return found;
  const std::uint32_t where = locations_.add(place);
  locations_[where].cell = &c;
  // Made before the run, so its address is the same in all runs.
  locations_[where].key = mix(5, reinterpret_cast<std::uintptr_t>(place));
  return where;
}

// The point before an access. Returns: the location, which still exists.
engine::location& engine::come_to(std::uint32_t where) {
  check_alive(where);
  point(where);
  check_alive(where);
  return locations_[where];
}

void engine::check_alive(std::uint32_t where) {
  if (locations_[where].alive) return;
  fail(fault::check, "an atomic is used after its destruction (" + label(where) + ")");
}

std::string engine::label(std::uint32_t where) const {
  const char* const name = locations_[where].name;
  return name != nullptr ? std::string(name) : "@" + std::to_string(where);
}

// Locations without a name are numbered in the order in which they appear.
std::string engine::object_label(const void* object) {
  const auto [found, is_new] = labels_.try_emplace(object);
  if (is_new) found->second = "#" + std::to_string(++labels_numbered_);
  return found->second;
}

// ---- Accesses ----

std::uint64_t engine::load(const void* place, const detail::cell& c, std::memory_order order) {
  if (current_ == nullptr) return c.read(place);
  const std::uint32_t where = number_of(place, c);
  const location& l = come_to(where);
  strand& me = *current_;
  for (std::size_t i = me.buffer.size(); i-- > 0;) {
    if (me.buffer[i].where != where) continue;
    me.chain = mix(mix(me.chain, l.key), own_buffer);
    if (tracing_) {
      note("load " + label(where) + " = " + c.show(me.buffer[i].bits) + " (own buffer)");
    }
    return me.buffer[i].bits;
  }
  const std::uint64_t bits = c.read(place);
  remember_read(me, where);
  me.chain = mix(mix(me.chain, l.key), l.write_hash);
  receive(me, l.sync, order);
  if (tracing_) note("load " + label(where) + " = " + c.show(bits));
  return bits;
}

void engine::store(void* place, const detail::cell& c, std::uint64_t bits,
                   std::memory_order order) {
  if (current_ == nullptr) return c.write(place, bits);
  const std::uint32_t where = number_of(place, c);
  const location& l = come_to(where);
  strand& me = *current_;
  const bool direct = order == std::memory_order_seq_cst || options_.buffer_entries == 0;
  if (direct) {
    drain(me);
  } else if (me.buffer.size() >= options_.buffer_entries) {
    flush_oldest(me);
  }
  me.chain = mix(mix(me.chain, l.key), a_store);
  if (tracing_) {
    note("store " + label(where) + " = " + c.show(bits) + (direct ? "" : " (buffered)"));
  }
  strand::buffered_store s{place, where, bits, me.chain, releases(order) ? me.clock : me.fence};
  me.clock.tick(me.index);
  if (direct) {
    land(me, s);
  } else {
    me.buffer.push_back(std::move(s));
    ++buffered_;
  }
}

std::uint64_t engine::modify(void* place, const detail::cell& c, const char* what,
                             std::memory_order order, std::memory_order failure, detail::modifier m,
                             void* argument) {
  std::uint64_t wanted = 0;
  if (current_ == nullptr) {
    const std::uint64_t found = c.read(place);
    if (m(argument, found, wanted)) c.write(place, wanted);
    return found;
  }
  const std::uint32_t where = number_of(place, c);
  location& l = come_to(where);
  strand& me = *current_;
  drain(me);
  const std::uint64_t found = c.read(place);
  const bool writes = m(argument, found, wanted);
  remember_read(me, where);
  me.chain = mix(mix(me.chain, l.key), l.write_hash);
  receive(me, l.sync, writes ? order : failure);
  if (tracing_) {
    note(std::string(what) + " " + label(where) + ": " + c.show(found) +
         (writes ? " -> " + c.show(wanted) : ", left"));
  }
  if (writes) {
    // A relaxed read-modify-write continues the release sequence to which it belongs.
    l.sync.join(releases(order) ? me.clock : me.fence);
    l.write_hash = me.chain;
    set(place, where, wanted, me);
    me.clock.tick(me.index);
  }
  return found;
}

void engine::fence(std::memory_order order) {
  if (current_ == nullptr || order == std::memory_order_relaxed) return;
  if (order == std::memory_order_seq_cst) {
    point();
    drain(*current_);
    current_->chain = mix(current_->chain, a_fence);
    if (tracing_) note("fence");
  }
  strand& me = *current_;
  if (acquires(order)) me.clock.join(me.seen);
  if (releases(order)) me.fence = me.clock;
  me.clock.tick(me.index);
}

// Goroutines that have ended take part, too: what they did is visible afterwards.
void engine::heavy_barrier() {
  if (current_ == nullptr) return;
  point();
  std::uint64_t hash = a_fence;
  vector_clock all;
  for (const auto& s : strands_) {
    drain(*s);
    hash = mix(mix(hash, s->chain), s->flush_chain);
    all.join(s->clock);
    all.join(s->seen);
  }
  for (const auto& s : strands_) {
    s->chain = mix(s->chain, hash);
    s->clock = all;
    s->fence = all;
    s->clock.tick(s->index);
  }
  if (tracing_) note("heavy barrier");
}

void engine::receive(strand& s, const vector_clock& sync, std::memory_order order) {
  s.seen.join(sync);
  if (acquires(order)) s.clock.join(sync);
}

void engine::set(void* place, std::uint32_t where, std::uint64_t bits, strand& writer) {
  location& l = locations_[where];
  if (l.cell->read(place) == bits) return;
  l.cell->write(place, bits);
  // A goroutine's own writes are no reason for it to read again.
  for (std::size_t i = 0; i < writer.read_count; ++i) {
    strand::read_mark& r = writer.reads[i];
    if (r.where == where && r.version == l.version) ++r.version;
  }
  ++l.version;
  ++version_;
}

void engine::remember_read(strand& s, std::uint32_t where) {
  for (std::size_t i = 0; i < s.read_count; ++i) {
    if (s.reads[i].where == where) return;  // the earlier read decides
  }
  if (s.read_count == s.reads.size()) {
    s.read_overflow = true;
    return;
  }
  s.reads[s.read_count++] = {where, locations_[where].version};
}

void engine::forget_reads(strand& s) {
  s.read_count = 0;
  s.read_overflow = false;
  s.start_version = version_;
}

bool engine::changed(const strand& s) const {
  for (std::size_t i = 0; i < s.read_count; ++i) {
    if (locations_[s.reads[i].where].version != s.reads[i].version) return true;
  }
  return s.read_overflow && version_ != s.start_version;
}

// A store of `s` reaches memory.
void engine::land(strand& s, const strand::buffered_store& b) {
  location& l = locations_[b.where];
  if (!l.alive) return;  // `s` has destroyed the location since
  s.flush_chain = mix(mix(s.flush_chain, b.hash), l.write_hash);
  l.write_hash = s.flush_chain;
  l.sync = b.sync;
  set(b.place, b.where, b.bits, s);
}

void engine::flush_oldest(strand& s) {
  const strand::buffered_store b = std::move(s.buffer.front());
  s.buffer.erase(s.buffer.begin());
  --buffered_;
  if (tracing_ && locations_[b.where].alive) {
    note_for(s, "~ " + label(b.where) + " = " + locations_[b.where].cell->show(b.bits) + " lands",
             {});
  }
  land(s, b);
  if (s.stands == standing::done && s.buffer.empty()) retire(s);
}

void engine::drain(strand& s) {
  while (!s.buffer.empty()) flush_oldest(s);
}

// The locations for which a flush by another goroutine could matter to `s`. Bits may collide; then
// a flush is offered needlessly.
std::uint64_t engine::interest(const strand& s) const {
  std::uint64_t mask = 0;
  for (const strand::buffered_store& b : s.buffer) mask |= bit(b.where);
  if (s.stands == standing::ready && s.pending != nowhere) mask |= bit(s.pending);
  if (s.stands == standing::spinning) {
    if (s.read_overflow) return ~std::uint64_t{0};
    for (std::size_t i = 0; i < s.read_count; ++i) mask |= bit(s.reads[i].where);
  }
  return mask;
}

void engine::collect_buffers() {
  const bool somebody = !offer_.actors.empty();
  std::uint64_t anybodys = 0;
  std::uint64_t shared = 0;  // locations in which more than one is interested
  for (const strand* const s : alive_) {
    const std::uint64_t mine = interest(*s);
    shared |= anybodys & mine;
    anybodys |= mine;
  }
  bool first = true;
  for (const strand* const s : alive_) {
    if (s->buffer.empty()) continue;
    std::uint64_t mine = 0;
    for (const strand::buffered_store& b : s->buffer) mine |= bit(b.where);
    if ((mine & shared) != 0 || !options_.late_flushes || (!somebody && first)) {
      offer_.actors.push_back({actor::kind::buffer, s->index});
    }
    first = false;
  }
}

// ---- Futexes and spinning ----

bool engine::futex_wait(const void* place, std::uint64_t expected, wait_kind kind) {
  const std::uint32_t where = locations_.find(place);
  if (where == nowhere) base::fatal("weft::test: a futex is not an atomic of this run");
  if (current_ == nullptr) return true;
  location& l = come_to(where);
  strand& me = *current_;
  drain(me);
  me.chain = mix(mix(mix(me.chain, l.key), l.write_hash), l.queue_hash);
  const std::uint64_t bits = l.cell->read(place);
  const bool sleeps = bits == expected;
  if (tracing_) {
    note("futex_wait " + label(where) + " = " + l.cell->show(bits) + (sleeps ? ": sleeps" : ""));
  }
  if (!sleeps) {
    remember_read(me, where);
    return true;
  }
  l.queue_hash = me.chain;
  me.stands = standing::asleep;
  me.timed = kind == wait_kind::timed;
  me.timed_out = false;
  me.sleeps_on = place;
  forget_reads(me);
  point();
  return !me.timed_out;
}

void engine::futex_wake(const void* place, int count) {
  if (current_ == nullptr) return;
  point();
  drain(*current_);
  strand& waker = *current_;
  const std::uint32_t where = locations_.find(place);
  location* const l = where != nowhere && locations_[where].alive ? &locations_[where] : nullptr;
  waker.chain = mix(waker.chain, l != nullptr ? mix(l->key, l->queue_hash) : a_wake);
  if (l != nullptr) l->queue_hash = waker.chain;
  if (tracing_) note("futex_wake " + (l != nullptr ? label(where) : "of a word that is gone"));
  while (count-- > 0) {
    std::vector<strand*> sleepers;
    for (strand* const s : alive_) {
      if (s->stands == standing::asleep && s->sleeps_on == place) sleepers.push_back(s);
    }
    if (sleepers.empty()) break;
    // The kernel does not say which one it wakes.
    strand& s = *sleepers[draw(static_cast<std::uint32_t>(sleepers.size()))];
    s.stands = standing::ready;
    s.chain = mix(s.chain, waker.chain);
    s.clock.join(waker.clock);
    if (tracing_) note_for(s, "woken", {});
  }
  waker.clock.tick(waker.index);
}

void engine::pause() {
  if (current_ == nullptr) return;
  strand& me = *current_;
  if (me.spin_version != version_) me.fruitless = 0;
  me.spin_version = version_;
  me.chain = mix(me.chain, a_pause);
  me.stands = standing::spinning;
  me.released = false;
  if (tracing_) note("pause");
  point();
  me.stands = standing::ready;
  forget_reads(me);
}

// ---- Vars ----

void engine::touch_var(const void* place, detail::access a, const char* name, const void* from,
                       detail::shown value) {
  if (current_ == nullptr) return;
  point();
  check_var(place, a, name, from, value);
  link_rest(*current_, a == detail::access::write ? a_write : a_read);
}

void engine::check_var(const void* place, detail::access a, const char* name, const void* from,
                       detail::shown value) {
  if (current_ == nullptr) return;
  strand& me = *current_;
  const bool writes = a == detail::access::write;
  if (tracing_) {
    note((writes ? "write " : "read ") + std::string(name) +
         (value.show != nullptr ? " = " + value.show(value.place) : ""));
  }
  var_state& v = vars_.find_or_add(place);
  if (v.written.time > me.clock[v.writer] && v.writer != me.index) {
    race(name, a, v.writer, detail::access::write, v.written.from);
  }
  const var_access mine{me.clock[me.index], from};
  const auto own = std::find_if(v.reads.begin(), v.reads.end(),
                                [&](const auto& r) { return r.first == me.index; });
  if (!writes) {
    if (own == v.reads.end()) {
      v.reads.emplace_back(me.index, mine);
    } else {
      own->second = mine;
    }
    return;
  }
  for (const auto& [reader, access] : v.reads) {
    if (reader != me.index && access.time > me.clock[reader]) {
      race(name, a, reader, detail::access::read, access.from);
    }
  }
  v.reads.clear();
  v.writer = me.index;
  v.written = mine;
}

void engine::forget_var(const void* place) {
  const std::uint32_t found = vars_.find(place);
  if (found != place_table<var_state>::none) vars_[found].reset();
}

// ---- The functions of weft/test.hpp ----

namespace detail {

bool in_simulation() noexcept { return engine::current() != nullptr; }

void created(const void* place, const cell& c) { engine::current()->created(place, c); }
void destroyed(const void* place) noexcept { engine::current()->destroyed(place); }
void named(const void* place, const char* name) { engine::current()->named(place, name); }

std::uint64_t load(const void* place, const cell& c, std::memory_order order) {
  return engine::current()->load(place, c, order);
}
void store(void* place, const cell& c, std::uint64_t bits, std::memory_order order) {
  engine::current()->store(place, c, bits, order);
}
std::uint64_t modify(void* place, const cell& c, const char* what, std::memory_order order,
                     std::memory_order failure, modifier m, void* argument) {
  return engine::current()->modify(place, c, what, order, failure, m, argument);
}
void fence(std::memory_order order) { engine::current()->fence(order); }

[[gnu::noinline]] void touch_var(const void* place, access a, const char* name, shown value) {
  engine::current()->touch_var(place, a, name, __builtin_return_address(0), value);
}
void forget_var(const void* place) noexcept { engine::current()->forget_var(place); }

std::string show_number(std::int64_t value) { return std::to_string(value); }
std::string show_unsigned(std::uint64_t value) { return std::to_string(value); }
std::string show_bits(std::uint64_t bits) {
  std::string digits;
  do {
    digits.insert(digits.begin(), "0123456789abcdef"[bits % 16]);
    bits /= 16;
  } while (bits != 0);
  return "0x" + digits;
}

}  // namespace detail

void name(const void* object, const char* text) {
  if (engine* const e = engine::current()) e->named(object, text);
}

void check(bool condition, const char* text) {
  if (condition) return;
  if (engine* const e = engine::current()) return e->fail(fault::check, text);
  throw std::logic_error(std::string("weft::test::check: ") + text);
}

void wait() {
  engine* const e = engine::current();
  if (e == nullptr) {
    throw std::logic_error("weft::test::wait: not in a bubble or an exploration");
  }
  e->rest();
}

}  // namespace weft::test
