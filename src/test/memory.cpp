// memory.cpp: atomics, vars and futexes as the engine sees them. The essay is in engine.hpp.
#include "base/fatal.hpp"
#include "test/engine.hpp"

#include <algorithm>

namespace weft::test {
namespace {

// Kinds of links in a chain.
constexpr std::uint64_t own_buffer = 0x11, a_store = 0x12, a_fence = 0x13, a_wake = 0x14,
                        a_pause = 0x15;

bool acquires(std::memory_order o) {
  return o == std::memory_order_acquire || o == std::memory_order_acq_rel ||
         o == std::memory_order_seq_cst || o == std::memory_order_consume;
}
bool releases(std::memory_order o) {
  return o == std::memory_order_release || o == std::memory_order_acq_rel ||
         o == std::memory_order_seq_cst;
}

}  // namespace

// ---- Locations ----

void engine::created(const void* place, const detail::cell& c) {
  location l;
  l.cell = &c;
  l.number = locations_made_++;
  // The order of construction by one goroutine is the same each time, that among several is not.
  l.key = current_ != nullptr ? mix(mix(4, current_->index), ++current_->locations_made)
                              : mix(1, l.number);
  locations_[place] = std::move(l);
}

void engine::destroyed(const void* place) {
  location* const l = find(place);
  if (l == nullptr) return;
  l->alive = false;
  if (current_ == nullptr) return;
  for (const strand* const s : alive_) {
    if (s == current_) continue;
    for (const strand::buffered_store& b : s->buffer) {
      if (b.place == place) {
        fail(fault::check, label(place) + " is destroyed before a store to it has landed");
      }
    }
  }
  // Its own stores have no place to go to.
  std::erase_if(current_->buffer,
                [place](const strand::buffered_store& b) { return b.place == place; });
  if (tracing_ && alive_.size() > 1) note("destroy " + label(place));
}

void engine::named(const void* place, const char* name) {
  if (location* const l = find(place)) {
    l->name = name;
  } else if (tracing_) {
    labels_[place] = name;
  }
}

engine::location* engine::find(const void* place) {
  const auto found = locations_.find(place);
  return found != locations_.end() && found->second.alive ? &found->second : nullptr;
}

engine::location& engine::where(const void* place, const detail::cell& c) {
  const auto found = locations_.find(place);
  if (found == locations_.end()) {  // made before the run
    created(place, c);
    return locations_[place];
  }
  if (!found->second.alive) {
    fail(fault::check, "an atomic is used after its destruction (" + label(place) + ")");
  }
  return found->second;
}

std::string engine::label(const void* place) const {
  const auto found = locations_.find(place);
  if (found == locations_.end()) return "an atomic";
  const location& l = found->second;
  return l.name != nullptr ? std::string(l.name) : "@" + std::to_string(l.number);
}

// Those that have no name are numbered as they turn up.
std::string engine::object_label(const void* object) {
  const auto [found, is_new] = labels_.try_emplace(object);
  if (is_new) found->second = "#" + std::to_string(++labels_numbered_);
  return found->second;
}

// ---- Accesses ----

std::uint64_t engine::load(const void* place, const detail::cell& c, std::memory_order order) {
  if (current_ == nullptr) return c.read(place);
  where(place, c);
  point(place);
  const location& l = where(place, c);
  strand& me = *current_;
  for (std::size_t i = me.buffer.size(); i-- > 0;) {
    if (me.buffer[i].place != place) continue;
    me.chain = mix(mix(me.chain, l.key), own_buffer);
    if (tracing_)
      note("load " + label(place) + " = " + c.show(me.buffer[i].bits) + " (own buffer)");
    return me.buffer[i].bits;
  }
  const std::uint64_t bits = c.read(place);
  remember_read(me, place, l);
  me.chain = mix(mix(me.chain, l.key), l.write_hash);
  receive(me, l.sync, order);
  if (tracing_) note("load " + label(place) + " = " + c.show(bits));
  return bits;
}

void engine::store(void* place, const detail::cell& c, std::uint64_t bits,
                   std::memory_order order) {
  if (current_ == nullptr) return c.write(place, bits);
  where(place, c);
  point(place);
  const bool direct = order == std::memory_order_seq_cst || options_.buffer_entries == 0;
  if (direct) {
    drain(*current_);
  } else if (current_->buffer.size() >= options_.buffer_entries) {
    flush_oldest(*current_);
  }
  location& l = where(place, c);
  strand& me = *current_;
  me.chain = mix(mix(me.chain, l.key), a_store);
  me.buffer.push_back({place, bits, me.chain, releases(order) ? me.clock : me.fence});
  me.clock.tick(me.index);
  if (tracing_) {
    note("store " + label(place) + " = " + c.show(bits) + (direct ? "" : " (buffered)"));
  }
  if (direct) write_oldest(me);
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
  where(place, c);
  point(place);
  drain(*current_);
  location& l = where(place, c);
  strand& me = *current_;
  const std::uint64_t found = c.read(place);
  const bool writes = m(argument, found, wanted);
  remember_read(me, place, l);
  me.chain = mix(mix(me.chain, l.key), l.write_hash);
  receive(me, l.sync, writes ? order : failure);
  if (tracing_) {
    note(std::string(what) + " " + label(place) + ": " + c.show(found) +
         (writes ? " -> " + c.show(wanted) : ", left"));
  }
  if (writes) {
    // A relaxed one continues the release sequence it stands in.
    l.sync.join(releases(order) ? me.clock : me.fence);
    l.write_hash = me.chain;
    set(place, l, wanted, me);
    me.clock.tick(me.index);
  }
  return found;
}

void engine::fence(std::memory_order order) {
  if (current_ == nullptr || order == std::memory_order_relaxed) return;
  if (order == std::memory_order_seq_cst) {
    point(nullptr);
    drain(*current_);
    current_->chain = mix(current_->chain, a_fence);
    if (tracing_) note("fence");
  }
  strand& me = *current_;
  if (acquires(order)) me.clock.join(me.seen);
  if (releases(order)) me.fence = me.clock;
  me.clock.tick(me.index);
}

void engine::heavy_barrier() {
  if (current_ == nullptr) return;
  point(nullptr);
  std::uint64_t hash = a_fence;
  vector_clock all;
  for (strand* const s : alive_) {
    drain(*s);
    hash = mix(mix(hash, s->chain), s->flush_chain);
    all.join(s->clock);
    all.join(s->seen);
  }
  for (strand* const s : alive_) {
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

void engine::set(void* place, location& l, std::uint64_t bits, strand& writer) {
  if (l.cell->read(place) == bits) return;
  l.cell->write(place, bits);
  // What a goroutine writes itself is no reason for it to look again.
  for (strand::read_mark& r : writer.reads) {
    if (r.place == place && r.version == l.version) ++r.version;
  }
  ++l.version;
  ++version_;
}

void engine::remember_read(strand& s, const void* place, const location& l) {
  for (const strand::read_mark& r : s.reads) {
    if (r.place == place) return;  // the earlier read decides
  }
  constexpr std::size_t most = 64;  // of one turn of a loop; goroutines that never pause keep few
  if (s.reads.size() == most) s.reads.erase(s.reads.begin());
  s.reads.push_back({place, l.version});
}

void engine::write_oldest(strand& s) {
  const strand::buffered_store b = std::move(s.buffer.front());
  s.buffer.pop_front();
  location* const l = find(b.place);
  if (l == nullptr) return;
  s.flush_chain = mix(mix(s.flush_chain, b.hash), l->write_hash);
  l->write_hash = s.flush_chain;
  l->sync = b.sync;
  set(b.place, *l, b.bits, s);
}

void engine::flush_oldest(strand& s) {
  const strand::buffered_store& b = s.buffer.front();
  if (tracing_) {
    if (const location* const l = find(b.place)) {
      note_for(s, "~ " + label(b.place) + " = " + l->cell->show(b.bits) + " lands", {});
    }
  }
  write_oldest(s);
}

void engine::drain(strand& s) {
  while (!s.buffer.empty()) flush_oldest(s);
}

void engine::collect_buffers() {
  const bool somebody = !offer_.actors.empty();
  bool first = true;
  for (const strand* const s : alive_) {
    if (s->buffer.empty()) continue;
    if (flush_matters(*s) || (!somebody && first)) {
      offer_.actors.push_back({actor::kind::buffer, s->index});
    }
    first = false;
  }
}

// Whether somebody else could notice that a store of `s` lands now.
bool engine::flush_matters(const strand& s) const {
  const auto holds = [&s](const void* place) {
    return std::any_of(s.buffer.begin(), s.buffer.end(),
                       [place](const strand::buffered_store& b) { return b.place == place; });
  };
  return std::any_of(alive_.begin(), alive_.end(), [&](const strand* o) {
    if (o == &s) return false;
    if (o->stands == standing::ready && o->pending != nullptr && holds(o->pending)) return true;
    if (o->stands == standing::spinning &&
        std::any_of(o->reads.begin(), o->reads.end(),
                    [&](const strand::read_mark& r) { return holds(r.place); })) {
      return true;
    }
    return std::any_of(o->buffer.begin(), o->buffer.end(),
                       [&](const strand::buffered_store& b) { return holds(b.place); });
  });
}

// ---- Futexes and spinning ----

bool engine::futex_wait(const void* place, std::uint64_t expected, patience p) {
  location* l = find(place);
  if (l == nullptr) base::fatal("weft::test: a futex is no atomic of this run");
  if (current_ == nullptr) return true;
  point(place);
  drain(*current_);
  l = &where(place, *l->cell);
  strand& me = *current_;
  me.chain = mix(mix(mix(me.chain, l->key), l->write_hash), l->queue_hash);
  const std::uint64_t bits = l->cell->read(place);
  const bool sleeps = bits == expected;
  if (tracing_) {
    note("futex_wait " + label(place) + " = " + l->cell->show(bits) + (sleeps ? ": sleeps" : ""));
  }
  if (!sleeps) {
    remember_read(me, place, *l);
    return true;
  }
  l->queue_hash = me.chain;
  me.stands = standing::asleep;
  me.timed = p == patience::timed;
  me.timed_out = false;
  me.sleeps_on = place;
  me.reads.clear();
  go_to_next();
  return !me.timed_out;
}

void engine::futex_wake(const void* place, int count) {
  if (current_ == nullptr) return;
  point(nullptr);
  drain(*current_);
  strand& waker = *current_;
  location* const l = find(place);
  waker.chain = mix(waker.chain, l != nullptr ? mix(l->key, l->queue_hash) : a_wake);
  if (l != nullptr) l->queue_hash = waker.chain;
  if (tracing_) note("futex_wake " + (l != nullptr ? label(place) : "of a word that is gone"));
  while (count-- > 0) {
    std::vector<strand*> sleepers;
    for (strand* const s : alive_) {
      if (s->stands == standing::asleep && s->sleeps_on == place) sleepers.push_back(s);
    }
    if (sleepers.empty()) break;
    // Which one wakes is the kernel's secret.
    strand& s = *sleepers[choose(static_cast<std::uint32_t>(sleepers.size()))];
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
  point(nullptr);
  me.stands = standing::ready;
  me.reads.clear();
}

bool engine::changed(const strand& s) const {
  for (const strand::read_mark& r : s.reads) {
    const auto found = locations_.find(r.place);
    if (found == locations_.end() || found->second.version != r.version) return true;
  }
  return false;
}

// ---- Vars ----

void engine::touch_var(const void* place, detail::access a, const char* name, const void* from,
                       detail::shown value) {
  if (current_ == nullptr) return;
  point(nullptr);
  check_var(place, a, name, from, value);
  link_rest(*current_, a == detail::access::write ? 0x31 : 0x32);
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
  var_state& v = vars_[place];
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

void engine::forget_var(const void* place) { vars_.erase(place); }

// ---- The doors of weft/test.hpp ----

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
