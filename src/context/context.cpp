// context.cpp: the tree of contexts.
//
// A node has a reference to its parent. From its creation until it is cancelled or gone, it is
// linked into the list of children of the nearest ancestor that can be cancelled. The background,
// value nodes and nodes of without_cancel cannot be cancelled and use no list.
//
// cancel has four parts:
//   mark    gives err and cause to the node and everything below, not visible yet. A node that
//           another cancel marked first keeps the err and cause of that cancel; this cancel waits
//           for that one.
//   stop    stops the tokens of all nodes, without running a user's callback.
//   close   closes done of all nodes. This makes err and cause visible, so they cannot disagree.
//           It also interrupts the goroutines that wait.
//   tell    runs stop callbacks and the functions of after_func. This is the user's code, which may
//           cancel again, drop handles, or take its time.
// A second cancel() waits until all nodes are closed, so that the tree is cancelled when any
// cancel() returns. A call that makes a child of a marked node waits, too.
//
// std::stop_source sets a token and runs its callbacks in one call. But the callback that was
// registered last runs first (libstdc++). So cancel registers a callback of its own, in which it
// stops the next token. In the innermost of these nested calls all tokens are stopped, and cancel
// closes the nodes there. The user's callbacks run afterwards, as the nested calls return. The
// goroutine is locked to its thread meanwhile, because a stop_source tells by the thread whether a
// call comes from its own callbacks. With more than 16 tokens these calls are made by a goroutine
// whose stack is large enough. If a user registers a callback after cancel has registered its own,
// the user's runs before the nodes are closed. If it calls cancel() again, of this node or of any
// other, or makes a child, it must not wait for the cancel that runs it, nor for another cancel
// that waits for the one that runs it. So a goroutine knows the cancels whose tokens it is
// stopping, innermost first, and before it waits for any cancel it closes the nodes of these (I3).
//
// A node is kept by handles, by children, and by handles on its done(). If the node or one of its
// ancestors has a deadline, it is also kept by functions that are to be called at its end; and by
// itself once it has given out its stop token, because the last copy of a token goes without
// notice. The timer of a deadline does not keep the node: it asks for a reference when it fires. So
// a node that none of these keeps is destroyed at once, and its timer with it.
//
// Invariants:
//   I1  A node in a list of children is not marked, or the cancel that marked it has not finished
//       with it: close_all() closes the node, and then takes it out of the list.
//   I2  A node is taken out of the list by itself (when it ends or is destroyed) or by a cancel of
//       its parent, under the lock of the parent. A cancel of the parent also gets a reference to
//       the node, unless the last reference was already gone.
//   I3  A cancel that waits for another one has either closed its nodes, or still marks them and
//       waits for a cancel that has marked a node below. So no two cancels wait for each other.
//
// Memory order:
//   [N3] the closing of done_ also publishes err_ and cause_, which are written under lock_ before.
//
// Locks: a node's lock_ is a spin lock, held inside the runtime for a few instructions. A thread
// holds one of them at a time, except in is_heard_at_exit(), which tries the locks of children
// while it holds their parent's. Under lock_ a cancel ends the waits of goroutines: it fires an
// interruption (weft/detail/interruption.hpp), which takes the lock of a primitive; or it claims
// the wait_set of a wait for a channel (weft/detail/chan_core.hpp).
#include <weft/context.hpp>

#include "base/check.hpp"
#include "base/error_category.hpp"
#include "base/lock.hpp"
#include "sched/exit.hpp"
#include "sched/inside.hpp"
#include "sched/plain_thread.hpp"
#include "sched/scheduler.hpp"
#include "sched/simulation.hpp"

#include <weft/detail/one_shot.hpp>

#include <atomic>
#include <cstddef>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <utility>

namespace weft {
namespace {

constexpr base::error_row error_rows[] = {
    {errc::canceled, "context canceled", std::errc::operation_canceled},
    {errc::deadline_exceeded, "context deadline exceeded", std::errc::timed_out},
    {errc::closed, "closed", std::errc::bad_file_descriptor},
    {errc::timed_out, "timed out", std::errc::timed_out},
};

}  // namespace

const std::error_category& error_category() noexcept {
  static const base::error_category the_category("weft", error_rows);
  return the_category;
}

namespace detail {

struct context_function;

// A node in the list of its ancestor.
struct context_child : context_watcher {
  explicit context_child(context_core* c) noexcept : context_watcher(kind::child), core(c) {}
  context_core* const core;
};

class context_core final : public wait_ender {
 public:
  enum class kind : std::uint8_t { cancellable, value, without_cancel };

  context_core(kind k, context_ref parent) : kind_(k), parent_(std::move(parent)) {
    if (kind_ == kind::cancellable) {
      done_ = chan_core::make_owned(0, chan_element<std::monostate>::shape, this);
    }
  }
  context_core(const context_core&) = delete;
  context_core& operator=(const context_core&) = delete;
  ~context_core() {
    if (done_ != nullptr) done_->destroy();
  }

  void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  bool try_retain() noexcept {
    std::uint32_t n = references_.load(std::memory_order_relaxed);  // re-checked by the exchange
    do {
      if (n == 0) return false;
    } while (!references_.compare_exchange_weak(n, n + 1, std::memory_order_relaxed));
    return true;
  }
  void release() noexcept {
    if (drop()) destroy();
  }
  // Like release(), for the stop callback of this node, which must not destroy the node that it is
  // a part of.
  void release_elsewhere() noexcept {
    if (!drop()) return;
    try {
      go([this] { destroy(); });
    } catch (...) {
      destroy();  // no goroutine can be made
    }
  }

  // Returns: the nearest node from `c` upwards that can be cancelled; null if there is none.
  static context_core* cancellable_from(context_core* c) noexcept {
    while (c != nullptr && c->kind_ == kind::value) c = c->parent_.get();
    return c == nullptr || c->kind_ == kind::without_cancel ? nullptr : c;
  }
  context_core* ancestor() const noexcept { return cancellable_from(parent_.get()); }

  // Links this new node to the node that can cancel it.
  void attach() {
    context_core* const p = ancestor();
    if (p == nullptr || p->add(as_child_)) return;
    p->await_end();
    cancel(p->error(), p->cause());
  }

  // Adds a watcher. Returns: false if this node is closed already; if the watcher is a child, also
  // if this node is marked.
  bool add(context_watcher& w) noexcept {
    const sched::locked_inside hold(lock_);
    return link(w);
  }
  // add() for a caller that is inside the runtime.
  bool add_inside(context_watcher& w) noexcept {
    const std::lock_guard hold(lock_);
    return link(w);
  }
  // Returns: false if `w` was not in the list any more.
  bool remove(context_watcher& w) noexcept {
    const sched::locked_inside hold(lock_);
    return unlink(w);
  }
  // If the lock is free, these two need no stack frame.
  bool watch(context_end& w) noexcept override {
    if (!lock_.try_lock()) [[unlikely]]
      return watch_slow(w);
    return watch_and_unlock(w);
  }
  void unwatch(context_end& w) noexcept override {
    if (!lock_.try_lock()) [[unlikely]]
      return unwatch_slow(w);
    unlink(w);
    lock_.unlock();
  }
  bool watch_slowly(context_end& w) noexcept override {
    const bool watches = watch(w);
    if (watches) note_watcher(w);
    return watches;
  }
  void unwatch_slowly(context_end& w) noexcept override {
    unwatch(w);
    drop_note(w);
  }
  // If the caller is a goroutine of a simulation, this node was made outside, and `w` lies on the
  // goroutine's stack: takes `w` out should the run be abandoned. To be called once `w` is in the
  // list, unless the caller is on a machine.
  void note_watcher(context_watcher& w) noexcept {
    if (sched::simulation* const s = simulation_of_caller()) {
      retain();
      s->remember(&w, [this_node = context_ref(this), &w] { this_node.get()->remove(w); });
    }
  }
  // The same for a function, which may refer to the goroutine's stack.
  void note_function(const std::shared_ptr<context_function>& f);
  // To be called once `w` is in no list any more.
  static void drop_note(const context_watcher& w) noexcept {
    if (sched::simulation* const s = sched::this_simulation()) s->forget(&w);
  }
  // Waits for a cancel that is firing an interruption.
  void settle() noexcept { const sched::locked_inside hold(lock_); }

  bool ended() const noexcept { return done_->is_closed_now(); }  // [N3]
  // error() and cause() require: the node has ended.
  errc error() const noexcept { return err_; }
  std::exception_ptr cause() const { return cause_; }
  const chan_core* done_channel() const noexcept { return done_; }
  // Returns: done, with a new handle on it.
  chan_ref done() noexcept {
    if (done_->retain()) retain();
    return chan_ref(done_);
  }
  void channel_dropped() noexcept override { release(); }

  // Requires: the caller has a reference, during the call.
  void cancel(errc why, std::exception_ptr cause);
  std::stop_token stop_token();

  // Asked inside the runtime while the process exits. Returns: whether a goroutine that still runs
  // could learn of the end of this node. If another thread holds the lock, or the tree is deeper
  // than `depth`, the answer is yes.
  bool is_heard_at_exit(int depth = 32) noexcept;

  void set_deadline(std::int64_t deadline_ns) { deadline_ns_ = deadline_ns; }
  std::int64_t deadline_ns() const noexcept { return deadline_ns_; }
  // Returns: whether a deadline may end the node.
  bool is_timed() const noexcept { return deadline_ns_ != INT64_MAX; }
  void start_timer();

  void set_value(const void* key, std::shared_ptr<const void> value) {
    key_ = key;
    value_ = std::move(value);
  }
  const void* find(const void* key) const noexcept {
    for (const context_core* c = this; c != nullptr; c = c->parent_.get()) {
      if (c->kind_ == kind::value && c->key_ == key) return c->value_.get();
    }
    return nullptr;
  }
  void watch_stop(std::stop_token token) {
    stop_callback_.emplace(std::move(token), stopper{this});
  }

 private:
  // Returns: the simulation that the caller is in, unless this node was made there, too.
  sched::simulation* simulation_of_caller() const noexcept {
    sched::simulation* const s = sched::this_simulation();
    return s == nullptr || done_->is_simulated() ? nullptr : s;
  }

  struct stopper {
    context_core* core;
    void operator()() const {
      if (!core->try_retain()) return;  // the node is being destroyed, and waits for this callback
      core->cancel(errc::canceled, nullptr);
      core->release_elsewhere();
    }
  };

  // Returns: whether the dropped reference was the last one.
  bool drop() noexcept {
    // [CX1] drop() -> the last drop(): what all others did.
    return references_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }
  // Destroys the node, and its ancestors as far as only it refers to them. A loop, because there
  // may be many.
  void destroy() noexcept {
    context_core* last = this;
    do {
      context_core* const parent = last->parent_.get();
      last->timer_.stop();
      last->unlink_from_ancestor();
      last->drop_functions();
      last->parent_.detach();
      delete last;
      last = parent;
    } while (last != nullptr && last->drop());
  }
  void drop_functions() noexcept;
  void unlink_from_ancestor() noexcept {
    stop_callback_.reset();
    if (context_core* const p = ancestor()) p->remove(as_child_);
  }

  // The work of one cancel.
  struct operation;
  // Marks this node. Returns: false if it is marked already.
  bool mark(errc why, const std::exception_ptr& cause);
  // Waits for the end of this node, which is marked.
  void await_end();
  // Takes a child out of the list. Returns: false if there is none left. The child has been
  // retained; null if it is being destroyed.
  bool take_child(context_core*& child);
  void mark_below(operation& all);
  static void stop_and_close(operation& all);
  void close(operation& all) noexcept;
  std::optional<std::stop_source> stop_source() noexcept;

  bool is_marked() const noexcept { return err_ != errc{}; }  // under lock_
  context_watcher*& list_of(const context_watcher& w) noexcept {
    return w.what == context_watcher::kind::child ? children_ : watchers_;
  }
  bool link(context_watcher& w) noexcept {
    if (is_closed_ || (is_marked() && w.what == context_watcher::kind::child)) return false;
    push(list_of(w), w);
    return true;
  }
  bool watch_and_unlock(context_end& w) noexcept {
    const bool watches = !is_closed_;
    if (watches) push(watchers_, w);
    lock_.unlock();
    return watches;
  }
  [[gnu::noinline, gnu::cold]] bool watch_slow(context_end& w) noexcept {
    lock_.lock();
    return watch_and_unlock(w);
  }
  [[gnu::noinline, gnu::cold]] void unwatch_slow(context_end& w) noexcept {
    const std::lock_guard hold(lock_);
    unlink(w);
  }
  static void push(context_watcher*& list, context_watcher& w) noexcept {
    w.at = &list;
    w.next = list;
    if (list != nullptr) list->at = &w.next;
    list = &w;
  }
  static bool unlink(context_watcher& w) noexcept {
    if (w.at == nullptr) return false;
    *w.at = w.next;
    if (w.next != nullptr) w.next->at = w.at;
    w.at = nullptr;
    return true;
  }

  const kind kind_;
  context_ref parent_;  // immutable until it is destroyed
  std::atomic<std::uint32_t> references_{1};
  base::brief_lock lock_;
  bool is_closed_ = false;               // guarded by lock_; from then on no watcher is added
  bool keeps_itself_ = false;            // guarded by lock_; refers to itself until it is closed
  errc err_{};                           // written once, under lock_; immutable after [N3]
  std::exception_ptr cause_;             // like err_
  context_watcher* children_ = nullptr;  // guarded by lock_
  context_watcher* watchers_ = nullptr;  // guarded by lock_; functions and interruptions
  context_child as_child_{this};         // in the list of the ancestor
  chan_core* done_ = nullptr;            // closed once
  one_shot<seam> finished_;              // the whole subtree is closed
  // Used by the cancel that took this node out of its ancestor's list: the next one in
  // `passed_over`.
  context_core* passed_next_ = nullptr;
  // Used by the cancel that marked this node. While it walks the tree: the node to which it returns
  // from this one. Afterwards: the next node in `marked`.
  context_core* above_ = nullptr;
  std::optional<std::stop_source> stop_;  // guarded by lock_ until it is set
  std::optional<std::stop_callback<stopper>> stop_callback_;
  timer_ref timer_;  // guarded by lock_
  std::int64_t deadline_ns_ = INT64_MAX;
  const void* key_ = nullptr;
  std::shared_ptr<const void> value_;
};

// A function to be called when a context ends.
struct context_function : context_watcher {
  context_function() noexcept : context_watcher(kind::function) {}
  std::unique_ptr<timer_function> function;
  context_ref keep;  // the watched node, if a deadline may end that; else null
  bool is_set_at_exit = false;
  // The cancel that takes the function out hands this to the goroutine that calls it.
  std::shared_ptr<context_function> self;
};

// A function that is never called, and kept for ever, because what it refers to cannot be
// destroyed.
void never_call(context_function& f) noexcept {
  static constinit std::atomic<context_watcher*> never_called = nullptr;  // each is kept by `self`
  f.next = never_called.load(std::memory_order_relaxed);  // for leak checkers; no thread reads it
  while (!never_called.compare_exchange_weak(f.next, &f, std::memory_order_relaxed)) {
  }
}

void context_core::note_function(const std::shared_ptr<context_function>& f) {
  sched::simulation* const s = simulation_of_caller();
  if (s == nullptr) return;
  retain();
  s->remember(f.get(), [this_node = context_ref(this), set = std::weak_ptr(f)] {
    const std::shared_ptr<context_function> w = set.lock();
    if (w != nullptr && this_node.get()->remove(*w)) never_call(*w);
  });
}

void start_functions(context_watcher* list);
// For a deadline that passed while the process exits. Functions that were set before the exit are
// not called, because the objects that they use may have been destroyed (exit.cpp, E1).
void start_functions_at_exit(context_watcher* list);

// Called when no thread can cancel the node any more.
void context_core::drop_functions() noexcept {
  while (context_watcher* const w = watchers_) {
    unlink(*w);
    if (w->what != context_watcher::kind::function) {
      // A goroutine that the exit has stopped waits for this context, and never takes its watcher
      // back; its stack stays.
      WEFT_ASSERT(sched::the_scheduler.stopping.load(std::memory_order_relaxed));
      continue;
    }
    auto* const f = static_cast<context_function*>(w);
    const std::shared_ptr<context_function> last = std::exchange(f->self, nullptr);
  }
}

// A cancel that stops tokens, in the record of the goroutine that does so (goroutine::cancels).
struct stopping_cancel {
  // The cancel in one of whose stop callbacks this one was called, or null.
  stopping_cancel* outer = nullptr;
};

struct context_core::operation : stopping_cancel {
  context_core* marked = nullptr;  // retained; linked by above_, parents before children
  // Nodes that other cancels have marked, or whose test is over; retained; linked by passed_next_.
  context_core* passed_over = nullptr;
  context_watcher* functions = nullptr;  // linked by `next`; the one taken out last comes first
  std::size_t tokens = 0;                // how many of the marked nodes have a stop token
  context_core* to_stop = nullptr;       // the first marked node whose token is still to be stopped
  bool is_closed = false;  // used by the goroutine that stops the tokens, or waits for it

  // Stops the next token; closes all nodes if there is none.
  void stop_next() {
    std::optional<std::stop_source> source;
    while (to_stop != nullptr && !source) {
      source = to_stop->stop_source();
      to_stop = to_stop->above_;
      if (source && source->stop_requested()) source.reset();  // made meanwhile, already stopped
    }
    if (!source) return close_all();
    const std::stop_callback first(source->get_token(), [this] { stop_next(); });
    observe(touch::arrive, nullptr, "stop token");  // a user may register a callback here
    source->request_stop();
  }
  void close_all() noexcept {
    if (std::exchange(is_closed, true)) return;
    for (context_core* c = marked; c != nullptr; c = c->above_) c->close(*this);
    for (context_core* c = marked; c != nullptr; c = c->above_) {
      c->finished_.set();
      // Not earlier: a cancel of the parent that does not find the node in the list does not wait
      // for it.
      if (context_core* const p = c->ancestor()) p->remove(c->as_child_);
    }
  }
};

bool context_core::mark(errc why, const std::exception_ptr& cause) {
  std::exception_ptr mine = cause;
  observe(touch::release, this);
  const sched::locked_inside hold(lock_);
  if (is_marked()) return false;
  std::swap(cause_, mine);  // no exception object is freed under the lock
  err_ = why;
  return true;
}

namespace {

// The record of the calling goroutine or thread.
goroutine* this_record() noexcept {
  if (const sched::machine* const m = sched::this_machine()) return m->g;
  if (sched::simulation* const s = sched::this_simulation()) return s->self();
  return sched::this_thread_record();
}

// Notes in the record of the caller that it stops tokens.
class stopping {
 public:
  // `outer`: the innermost cancel whose stop callbacks wait for this one, or null.
  stopping(stopping_cancel& cancel, stopping_cancel* outer) noexcept
      : record_(*this_record()), before_(std::exchange(record_.cancels, &cancel)) {
    cancel.outer = outer;
  }
  stopping(const stopping&) = delete;
  stopping& operator=(const stopping&) = delete;
  ~stopping() { record_.cancels = before_; }

 private:
  goroutine& record_;
  stopping_cancel* const before_;
};

}  // namespace

void context_core::await_end() {
  if (finished_.is_set()) return;
  for (stopping_cancel* c = this_record()->cancels; c != nullptr; c = c->outer) {
    static_cast<operation*>(c)->close_all();
  }
  finished_.wait(wait_reason::none);
}

bool context_core::take_child(context_core*& child) {
  const sched::locked_inside hold(lock_);
  if (children_ == nullptr) return false;
  child = static_cast<context_child*>(children_)->core;
  unlink(*children_);
  if (!child->try_retain()) child = nullptr;
  return true;
}

// Marks all nodes below this one, depth first, in a loop, because a tree may be deeper than a
// stack. A cancel that waits here waits for a cancel of a part of the tree below, which does not
// wait for one above (I3). So both make progress. Requires: this node is marked.
void context_core::mark_below(operation& all) {
  for (context_core* node = this; node != nullptr;) {
    context_core* child = nullptr;
    if (!node->take_child(child)) {
      context_core* const above = node->above_;
      if (node == this) node->retain();
      if (node->stop_source()) ++all.tokens;
      node->above_ = std::exchange(all.marked, node);
      node = above;
    } else if (child == nullptr) {
      continue;
    } else if (child->done_->is_away()) {
      // The child was made in a test's simulation, which is over.
      child->passed_next_ = std::exchange(all.passed_over, child);
    } else if (child->mark(err_, node->cause_)) {
      child->above_ = node;
      node = child;
    } else {
      child->await_end();
      // Released later, because that may run code of the user.
      child->passed_next_ = std::exchange(all.passed_over, child);
    }
  }
}

void context_core::stop_and_close(operation& all) {
  constexpr std::size_t tokens_here = 16;
  constexpr std::size_t bytes_per_token = 2048;
  if (all.tokens == 0) return all.close_all();
  stopping_cancel* const outer = this_record()->cancels;
  const auto stop = [&all, outer] {
    struct thread_lock {
      thread_lock() { this_goroutine::lock_thread(); }
      ~thread_lock() { this_goroutine::unlock_thread(); }
    };
    const thread_lock stay;
    const stopping mark(all, outer);
    all.to_stop = all.marked;
    all.stop_next();
  };
  if (all.tokens <= tokens_here) return stop();
  one_shot<seam> over;
  bool has_begun = false;
  // While the process ends, a new goroutine would never run.
  if (!sched::the_scheduler.stopping.load(std::memory_order_relaxed)) {
    try {
      go({.name = "cancel", .stack_size = (tokens_here + all.tokens) * bytes_per_token}, [&] {
        stop();
        over.set();
      });
      has_begun = true;
    } catch (...) {
      // No goroutine can be made.
    }
  }
  if (has_begun) return over.wait(wait_reason::none);
  // Without such a goroutine: one token after the other, once all nodes are closed.
  all.close_all();
  for (context_core* c = all.marked; c != nullptr; c = c->above_) {
    if (const auto source = c->stop_source()) source->request_stop();
  }
}

namespace {

// Returns: the goroutine whose wait `w` may end, or null. Requires: `w` is no child or function.
const goroutine* waits_by(const context_watcher& w) noexcept {
  return w.what == context_watcher::kind::end
             ? static_cast<const context_end&>(w).who
             : static_cast<const context_interruption&>(w).armed_for();
}

// Whether the exit has stopped the goroutine that waits: what it waits for may be gone.
bool never_goes_on(const context_watcher& w) noexcept {
  // Before the exit, the goroutine's machine may be writing `how`.
  if (!sched::the_scheduler.stopping.load(std::memory_order_relaxed)) return false;
  const goroutine* const who = waits_by(w);
  return who != nullptr && who->how == sched::mode::stopped;
}

// Ends the wait. Returns: the goroutine to ready, or null.
goroutine* end_wait(context_watcher& w) noexcept {
  return w.what == context_watcher::kind::end ? static_cast<context_end&>(w).claim()
                                              : static_cast<context_interruption&>(w).fire();
}

}  // namespace

void context_core::close(operation& all) noexcept {
  observe(touch::release, this);
  done_->close();
  timer_ref timer;
  for (bool more = true; more;) {
    goroutine* interrupted = nullptr;
    {
      const sched::locked_inside hold(lock_);
      is_closed_ = true;
      if (!timer) std::swap(timer, timer_);
      context_watcher* const w = watchers_;
      more = w != nullptr;
      if (more) unlink(*w);
      if (more && w->what == context_watcher::kind::function) {
        w->next = std::exchange(all.functions, w);  // w is kept by its `self`
      } else if (more && !never_goes_on(*w)) {
        interrupted = end_wait(*w);
      }
    }
    if (interrupted != nullptr) ready(interrupted);
  }
  timer.stop();
}

std::optional<std::stop_source> context_core::stop_source() noexcept {
  const sched::locked_inside hold(lock_);
  return stop_;
}

void context_core::cancel(errc why, std::exception_ptr cause) {
  if (kind_ != kind::cancellable) return;
  done_->require_home();
  if (cause == nullptr) cause = std::make_exception_ptr(std::system_error(make_error_code(why)));
  operation all;
  if (!mark(why, cause)) return await_end();
  mark_below(all);
  stop_and_close(all);
  const bool by_time_at_exit = why == errc::deadline_exceeded && sched::runs_at_exit();
  by_time_at_exit ? start_functions_at_exit(all.functions) : start_functions(all.functions);
  while (context_core* const node = all.marked) {
    all.marked = node->above_;
    if (node->keeps_itself_) node->release();
    node->release();
  }
  while (context_core* const node = all.passed_over) {
    all.passed_over = node->passed_next_;
    node->release();
  }
}

void start_functions(context_watcher* list) {
  while (auto* const w = static_cast<context_function*>(list)) {
    list = w->next;
    const std::shared_ptr<context_function> f = std::exchange(w->self, nullptr);
    f->keep = context_ref();
    try {
      go([f] { f->function->call(); });
    } catch (...) {
      [&]() noexcept { f->function->call(); }();  // no goroutine can be made
    }
  }
}

void start_functions_at_exit(context_watcher* list) {
  while (auto* const w = static_cast<context_function*>(list)) {
    list = w->next;
    if (w->is_set_at_exit) {
      w->next = nullptr;
      start_functions(w);
    } else {
      never_call(*w);
    }
  }
}

bool context_core::is_heard_at_exit(int depth) noexcept {
  if (depth == 0 || !lock_.try_lock()) return true;
  const std::lock_guard hold(lock_, std::adopt_lock);
  if (done_->is_received_from_inside() || stop_) return true;
  for (const context_watcher* w = watchers_; w != nullptr; w = w->next) {
    if (w->what == context_watcher::kind::function) {
      if (static_cast<const context_function*>(w)->is_set_at_exit) return true;
    } else if (const goroutine* const g = waits_by(*w);
               g != nullptr && g->how != sched::mode::stopped) {
      return true;
    }
  }
  for (context_watcher* w = children_; w != nullptr; w = w->next) {
    if (static_cast<context_child*>(w)->core->is_heard_at_exit(depth - 1)) return true;
  }
  return false;
}

std::stop_token context_core::stop_token() {
  std::stop_source fresh;
  const sched::locked_inside hold(lock_);
  if (!stop_) {
    // If the node is marked, its cancel may have passed the tokens already. `fresh` has no callback
    // yet.
    if (is_marked()) fresh.request_stop();
    stop_ = fresh;
    if (!is_marked() && is_timed()) {
      keeps_itself_ = true;
      retain();
    }
  }
  return stop_->get_token();
}

void context_core::start_timer() {
  struct expire final : timer_function {
    context_core* core;
    explicit expire(context_core* c) : core(c) {}
    bool claim() noexcept override { return core->try_retain(); }
    void call() override {
      const context_ref claimed(core);
      core->cancel(errc::deadline_exceeded, nullptr);
    }
    bool may_outlive_statics() const noexcept override { return true; }
    bool is_heard() noexcept override { return core->is_heard_at_exit(); }
  };
  if (ended()) return;
  timer_ref timer = timer_ref::make(deadline_ns_ - clock_now_ns(), std::make_unique<expire>(this));
  bool late = false;
  {
    const sched::locked_inside hold(lock_);
    late = is_closed_;
    if (!late) std::swap(timer, timer_);
  }
  if (late) timer.stop();
}

context_ref::context_ref(const context_ref& other) noexcept : core_(other.core_) {
  if (core_ != nullptr) core_->retain();
}

context_ref::~context_ref() {
  if (core_ != nullptr) core_->release();
}

context_ref make_cancellable(const context_ref& parent) {
  context_ref ref(new context_core(context_core::kind::cancellable, parent));
  if (const context_core* const p = context_core::cancellable_from(parent.get())) {
    ref.get()->set_deadline(p->deadline_ns());
  }
  ref.get()->attach();
  return ref;
}

context_ref make_with_deadline(const context_ref& parent, std::int64_t deadline_ns) {
  context_ref ref = make_cancellable(parent);
  context_core& c = *ref.get();
  if (c.deadline_ns() <= deadline_ns) return ref;  // the parent's deadline comes first
  c.set_deadline(deadline_ns);
  if (deadline_ns <= clock_now_ns()) {
    c.cancel(errc::deadline_exceeded, nullptr);
  } else {
    c.start_timer();
  }
  return ref;
}

context_ref make_with_value(const context_ref& parent, const void* key,
                            std::shared_ptr<const void> value) {
  context_ref ref(new context_core(context_core::kind::value, parent));
  ref.get()->set_value(key, std::move(value));
  return ref;
}

context_ref make_without_cancel(const context_ref& parent) {
  return context_ref(new context_core(context_core::kind::without_cancel, parent));
}

context_ref make_with_stop(const context_ref& parent, std::stop_token token) {
  context_ref ref = make_cancellable(parent);
  ref.get()->watch_stop(std::move(token));
  return ref;
}

void cancel_context(const context_ref& c, errc why, std::exception_ptr cause) {
  const context_ref keep = c;  // the woken goroutines may drop all other handles
  if (keep.get() != nullptr) keep.get()->cancel(why, std::move(cause));
}

const void* find_value(const context_ref& c, const void* key) noexcept {
  return c.get() != nullptr ? c.get()->find(key) : nullptr;
}

namespace {

// What after_func returns. It refers to the context; the context does not refer to it. So a context
// that no thread can end any more is destroyed, and its functions with it.
struct watch {
  context_ref watched;  // null: nothing can end it
  std::shared_ptr<context_function> function;
  // Used if `watched` is null: whether unwatch_context() was called. relaxed: it only decides which
  // call was the first.
  std::atomic<bool> stopped{false};
};

}  // namespace

std::shared_ptr<void> watch_context(const context_ref& c, std::unique_ptr<timer_function> f) {
  auto result = std::make_shared<watch>();
  result->function = std::make_shared<context_function>();
  context_function& w = *result->function;
  w.function = std::move(f);
  w.is_set_at_exit = sched::runs_at_exit();
  if (context_core* const core = context_core::cancellable_from(c.get())) {
    core->retain();
    result->watched = context_ref(core);
    w.self = result->function;
    w.next = nullptr;
    if (core->is_timed()) w.keep = result->watched;
    if (core->add(w)) {
      core->note_function(result->function);
    } else {
      start_functions(&w);
    }
  }
  return result;
}

bool unwatch_context(void* handle) {
  if (handle == nullptr) {
    throw std::logic_error("weft::after_func: its function was called that had been moved from");
  }
  auto* const h = static_cast<watch*>(handle);
  if (h->watched.get() == nullptr) return !h->stopped.exchange(true, std::memory_order_relaxed);
  if (!h->watched.get()->remove(*h->function)) return false;
  context_core::drop_note(*h->function);
  h->function->keep = context_ref();  // not the last reference: `watched` has one, too
  const std::shared_ptr<context_function> last = std::exchange(h->function->self, nullptr);
  return true;
}

std::error_code error_of(const context& c) noexcept { return c.err(); }

const chan_core* find_done(context_core* c) noexcept {
  const context_core* const core = context_core::cancellable_from(c);
  return core != nullptr ? core->done_channel() : nullptr;
}

std::error_code wait_for_end(const context& c, wait_reason reason) {
  const receiver<std::monostate> done = c.done();
  if (!done) wait_for_ever(reason);
  (void)done.recv();
  return c.err();
}

context_interruption::context_interruption(const context& c) noexcept
    : basic_interruption(context_core::cancellable_from(c.ref().get())),
      context_watcher(kind::interruption),
      watched_(context_core::cancellable_from(c.ref().get())) {}

context_interruption::~context_interruption() {
  if (!watching_) return;
  watched_->remove(*this);
  context_core::drop_note(*this);
}

bool context_interruption::park(void* who, bool (*give_up)(void*), void* argument) noexcept {
  if (watched_ == nullptr) {
    detail::park();
    return true;
  }
  if (!watching_) {
    watching_ = true;
    if (!watched_->add_inside(*this)) {
      (void)fire();  // still idle: there is no waiter to ready
    } else if (sched::this_machine() == nullptr) {
      watched_->note_watcher(*this);
    }
  }
  return basic_interruption::park(who, give_up, argument);
}

}  // namespace detail

using detail::context_core;

receiver<std::monostate> context::done() const {
  context_core* const c = context_core::cancellable_from(ref_.get());
  return receiver<std::monostate>(c != nullptr ? c->done() : detail::chan_ref());
}

std::error_code context::err() const noexcept {
  const context_core* const c = context_core::cancellable_from(ref_.get());
  if (c == nullptr || !c->ended()) return {};
  detail::observe(detail::touch::acquire, c);
  return make_error_code(c->error());
}

std::exception_ptr context::cause() const {
  const context_core* const c = context_core::cancellable_from(ref_.get());
  return c != nullptr && c->ended() ? c->cause() : nullptr;
}

std::optional<clock::time_point> context::deadline() const noexcept {
  const context_core* const c = context_core::cancellable_from(ref_.get());
  if (c == nullptr || c->deadline_ns() == INT64_MAX) return std::nullopt;
  return clock::time_point(std::chrono::nanoseconds(c->deadline_ns()));
}

std::stop_token context::stop_token() const {
  context_core* const c = context_core::cancellable_from(ref_.get());
  return c != nullptr ? c->stop_token() : std::stop_token();
}

}  // namespace weft
