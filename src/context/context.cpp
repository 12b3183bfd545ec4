// context.cpp: the tree of contexts.
//
// A node has a reference to its parent and is linked into the parent's list of children, from its
// making until it is cancelled or gone. Background and value nodes that nothing can cancel have no
// list: a child registers with the nearest ancestor that can be.
//
// cancel: the first caller sets err and cause, closes done, interrupts who waits, and then does the
// same to the children, each of which keeps its own cause if it was first elsewhere. Others wait
// until it is through, so that the tree is cancelled when any cancel() returns. Only then come stop
// tokens and functions, for theirs is code of others, and may cancel again.
//
// Invariants:
//   I1  A node in a list of children has not been cancelled, or is being so right now.
//   I2  A node is taken out of the list by itself (when it ends or is destroyed) or by the cancel
//       of its parent, under the parent's lock; whoever takes it out of there to cancel it gets a
//       reference, unless the last one was gone already.
//
// Memory order:
//   [F1] the canceller's release of err_ -> acquire of whoever reads it: the cause.
//
// Locks: a node's lock_ is a spin lock, held inside the runtime for a few instructions; one at a
// time. An interruption (weft/detail/interruption.hpp) is fired under it, which takes the lock of a
// primitive.
#include <weft/context.hpp>

#include "base/check.hpp"
#include "base/lock.hpp"
#include "sched/inside.hpp"

#include <weft/detail/one_shot.hpp>

#include <atomic>
#include <mutex>
#include <utility>

namespace weft {
namespace {

class category final : public std::error_category {
 public:
  const char* name() const noexcept override { return "weft"; }
  std::string message(int value) const override {
    switch (static_cast<errc>(value)) {
      case errc::canceled:
        return "context canceled";
      case errc::deadline_exceeded:
        return "context deadline exceeded";
      case errc::closed:
        return "closed";
      case errc::timed_out:
        return "timed out";
    }
    return "unknown error " + std::to_string(value);
  }
  std::error_condition default_error_condition(int value) const noexcept override {
    switch (static_cast<errc>(value)) {
      case errc::canceled:
        return std::errc::operation_canceled;
      case errc::deadline_exceeded:
      case errc::timed_out:
        return std::errc::timed_out;
      case errc::closed:
        return std::errc::bad_file_descriptor;
    }
    return {value, *this};
  }
};

}  // namespace

const std::error_category& error_category() noexcept {
  static const category the_category;
  return the_category;
}

namespace detail {
namespace {

// Holds a spin lock inside the runtime.
class locked {
 public:
  explicit locked(base::spin_lock& l) noexcept : lock_(l) { lock_.lock(); }
  locked(const locked&) = delete;
  locked& operator=(const locked&) = delete;
  ~locked() {
    lock_.unlock();
    in_.leave();
  }

 private:
  sched::inside in_;
  base::spin_lock& lock_;
};

}  // namespace

// A node in the list of its ancestor.
struct context_child : context_watcher {
  explicit context_child(context_core* c) noexcept : context_watcher(kind::child), core(c) {}
  context_core* const core;
};

class context_core {
 public:
  enum class kind : std::uint8_t { cancellable, value, without_cancel };

  context_core(kind k, context_ref parent) : kind_(k), parent_(std::move(parent)) {
    if (kind_ == kind::cancellable) {
      done_ = chan_core::make(0, chan_element<std::monostate>::shape);
    }
  }
  context_core(const context_core&) = delete;
  context_core& operator=(const context_core&) = delete;
  ~context_core() {
    if (done_ != nullptr) done_->release();
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
  // The same where this may be in the way of its own destruction: in its stop callback.
  void release_elsewhere() noexcept {
    if (!drop()) return;
    try {
      go([this] { destroy(); });
    } catch (...) {
      destroy();  // there is no goroutine to be had
    }
  }

  // The nearest node from here upwards that can be cancelled; null: the background.
  static context_core* cancellable_from(context_core* c) noexcept {
    while (c != nullptr && c->kind_ == kind::value) c = c->parent_.get();
    return c == nullptr || c->kind_ == kind::without_cancel ? nullptr : c;
  }
  context_core* ancestor() const noexcept { return cancellable_from(parent_.get()); }

  // Links this new node to what can cancel it.
  void attach() {
    context_core* const p = ancestor();
    if (p == nullptr || p->add(as_child_)) return;
    cancel(p->error(), p->cause());
  }

  // Returns: false if the node has ended already.
  bool add(context_watcher& w) noexcept {
    const locked hold(lock_);
    return link(w);
  }
  // The same for a caller that is inside the runtime.
  bool add_inside(context_watcher& w) noexcept {
    const std::lock_guard hold(lock_);
    return link(w);
  }
  // Returns: false if it was not in the list any more.
  bool remove(context_watcher& w) noexcept {
    const locked hold(lock_);
    return unlink(w);
  }
  // Waits for a cancel that fires an interruption right now.
  void settle() noexcept { const locked hold(lock_); }

  errc error() const noexcept {
    return static_cast<errc>(err_.load(std::memory_order_acquire));  // [F1]
  }
  bool ended() const noexcept { return err_.load(std::memory_order_acquire) != 0; }  // [F1]
  std::exception_ptr cause() const { return cause_; }  // ordered by [F1]
  chan_core* done() const noexcept { return done_; }

  // Requires: a reference, for as long as it takes.
  void cancel(errc why, std::exception_ptr cause);
  std::stop_token stop_token();

  void set_deadline(std::int64_t deadline_ns) { deadline_ns_ = deadline_ns; }
  std::int64_t deadline_ns() const noexcept { return deadline_ns_; }
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
  struct stopper {
    context_core* core;
    void operator()() const {
      if (!core->try_retain()) return;  // it is being destroyed, and waits for this
      core->cancel(errc::canceled, nullptr);
      core->release_elsewhere();
    }
  };

  // Returns: whether that was the last reference.
  bool drop() noexcept {
    // acq_rel: the last one sees what all others did.
    return references_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }
  // And its parents, as far as nobody else refers to them: in a loop, for there may be many.
  void destroy() noexcept {
    context_core* last = this;
    do {
      context_core* const parent = last->parent_.get();
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

  // What a cancel has found and leaves for the end: user's code.
  struct aftermath;
  // The steps of cancel for one node. Returns: false if somebody else is, or was, at it.
  bool begin_cancel(errc why, const std::exception_ptr& cause);
  // Returns: false if there is none left. A child that comes out has been retained.
  bool take_watcher(context_core*& child, aftermath& later);
  void end_cancel() noexcept;
  std::optional<std::stop_source> stop_source() noexcept;

  bool link(context_watcher& w) noexcept {
    if (err_.load(std::memory_order_relaxed) != 0) return false;
    w.previous = nullptr;
    w.next = watchers_;
    if (watchers_ != nullptr) watchers_->previous = &w;
    watchers_ = &w;
    w.linked = true;
    return true;
  }
  bool unlink(context_watcher& w) noexcept {
    if (!w.linked) return false;
    (w.previous != nullptr ? w.previous->next : watchers_) = w.next;
    if (w.next != nullptr) w.next->previous = w.previous;
    w.linked = false;
    return true;
  }

  const kind kind_;
  context_ref parent_;  // immutable until it is destroyed
  std::atomic<std::uint32_t> references_{1};
  base::spin_lock lock_;
  std::atomic<int> err_{0};              // [F1] written once, under lock_
  std::exception_ptr cause_;             // immutable after [F1]
  context_watcher* watchers_ = nullptr;  // guarded by lock_
  context_child as_child_{this};         // in the list of the ancestor
  chan_core* done_ = nullptr;            // closed once
  one_shot<seam> finished_;              // the whole subtree is cancelled
  context_core* passed_next_ = nullptr;  // of whoever took it out of its ancestor's list
  context_core* above_ = nullptr;  // its canceller's: where it goes on after this one; then, what
                                   // is next of those it has cancelled
  std::optional<std::stop_source> stop_;  // guarded by lock_ until it is there
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
  // Handed to the goroutine that calls it, by the cancel that took it out.
  std::shared_ptr<context_function> self;
};

void start_functions(context_watcher* list);

// Nobody can cancel it any more.
void context_core::drop_functions() noexcept {
  while (watchers_ != nullptr) {
    auto* const f = static_cast<context_function*>(watchers_);
    WEFT_ASSERT(f->what == context_watcher::kind::function);
    unlink(*f);
    const std::shared_ptr<context_function> last = std::exchange(f->self, nullptr);
  }
}

struct context_core::aftermath {
  context_core* passed_over =
      nullptr;  // that others have cancelled; retained; linked by passed_next_
  context_core* cancelled = nullptr;     // retained; linked by above_
  context_watcher* functions = nullptr;  // linked by next, in the opposite order
};

bool context_core::begin_cancel(errc why, const std::exception_ptr& cause) {
  std::exception_ptr mine = cause;
  observe(touch::release, this);
  {
    const locked hold(lock_);
    if (err_.load(std::memory_order_relaxed) != 0) return false;
    std::swap(cause_, mine);                                       // nothing is freed in here
    err_.store(static_cast<int>(why), std::memory_order_release);  // [F1]
  }
  done_->close();
  return true;
}

bool context_core::take_watcher(context_core*& child, aftermath& later) {
  goroutine* interrupted = nullptr;
  {
    const locked hold(lock_);
    context_watcher* const w = watchers_;
    if (w == nullptr) return false;
    unlink(*w);
    switch (w->what) {
      case context_watcher::kind::child:
        child = static_cast<context_child*>(w)->core;
        if (!child->try_retain()) child = nullptr;
        break;
      case context_watcher::kind::function:
        w->next = std::exchange(later.functions, w);  // its `self` keeps it
        break;
      case context_watcher::kind::interruption:
        interrupted = static_cast<context_interruption*>(w)->fire();
        break;
    }
  }
  if (interrupted != nullptr) ready(interrupted);
  return true;
}

void context_core::end_cancel() noexcept {
  timer_ref timer;
  {
    const locked hold(lock_);
    std::swap(timer, timer_);
  }
  if (timer) timer.stop();
  finished_.set();
  // Not before: a cancel of the parent that does not find it here would not wait for it.
  if (context_core* const p = ancestor()) p->remove(as_child_);
}

std::optional<std::stop_source> context_core::stop_source() noexcept {
  const locked hold(lock_);
  return stop_;
}

void context_core::cancel(errc why, std::exception_ptr cause) {
  if (kind_ != kind::cancellable) return;
  done_->require_home();
  if (cause == nullptr) cause = std::make_exception_ptr(std::system_error(make_error_code(why)));
  if (!begin_cancel(why, cause)) {
    finished_.wait(wait_reason::none);
    if (const auto stop = stop_source()) stop->request_stop();
    return;
  }
  // Depth first, in a loop: a tree may be deeper than a stack. Whoever waits here waits for a part
  // of the tree below it, where nobody waits for one above: so everybody gets on.
  aftermath later;
  for (context_core* node = this; node != nullptr;) {
    context_core* child = nullptr;
    if (!node->take_watcher(child, later)) {
      node->end_cancel();
      context_core* const above = node->above_;
      node->retain();
      node->above_ = std::exchange(later.cancelled, node);
      if (node != this) node->release();
      node = above;
    } else if (child == nullptr) {
      continue;
    } else if (child->done_->is_away()) {
      child->release();  // of a test that is over
    } else if (child->begin_cancel(why, node->cause_)) {
      child->above_ = node;
      node = child;
    } else {
      child->finished_.wait(wait_reason::none);
      child->passed_next_ =
          std::exchange(later.passed_over, child);  // releasing may run user's code
    }
  }
  // Now code of others, which may cancel again, drop what there is, or take its time.
  start_functions(later.functions);
  while (context_core* const node = later.cancelled) {
    later.cancelled = node->above_;
    if (const auto stop = node->stop_source()) stop->request_stop();
    node->release();
  }
  while (context_core* const node = later.passed_over) {
    later.passed_over = node->passed_next_;
    node->release();
  }
}

void start_functions(context_watcher* list) {
  while (auto* const w = static_cast<context_function*>(list)) {
    list = w->next;
    const std::shared_ptr<context_function> f = std::exchange(w->self, nullptr);
    try {
      go([f] { f->function->call(); });
    } catch (...) {
      [&]() noexcept { f->function->call(); }();  // there is no goroutine to be had
    }
  }
}

std::stop_token context_core::stop_token() {
  std::stop_source fresh;
  bool stopped = false;
  std::optional<std::stop_source> source;
  {
    const locked hold(lock_);
    if (!stop_) stop_ = fresh;
    source = stop_;
    stopped = err_.load(std::memory_order_relaxed) != 0;
  }
  if (stopped) source->request_stop();
  return source->get_token();
}

void context_core::start_timer() {
  struct expire final : timer_function {
    context_ref core;
    explicit expire(context_ref c) : core(std::move(c)) {}
    void call() override { core.get()->cancel(errc::deadline_exceeded, nullptr); }
  };
  if (ended()) return;
  retain();
  timer_ref timer =
      timer_ref::make(deadline_ns_ - clock_now_ns(), std::make_unique<expire>(context_ref(this)));
  bool late = false;
  {
    const locked hold(lock_);
    late = err_.load(std::memory_order_relaxed) != 0;
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
  if (c.deadline_ns() <= deadline_ns) return ref;  // the parent ends it
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
  const context_ref keep = c;  // whoever is woken may drop all others
  if (keep.get() != nullptr) keep.get()->cancel(why, std::move(cause));
}

const void* find_value(const context_ref& c, const void* key) noexcept {
  return c.get() != nullptr ? c.get()->find(key) : nullptr;
}

namespace {

// What after_func returns. It keeps the context, not the other way round: a context that nobody can
// end any more goes, and its functions with it.
struct watch {
  context_ref watched;  // null: nothing can end it
  std::shared_ptr<context_function> function;
  std::atomic<bool> stopped{false};  // relaxed: only who was first; for what nothing can end
};

}  // namespace

std::shared_ptr<void> watch_context(const context_ref& c, std::unique_ptr<timer_function> f) {
  auto result = std::make_shared<watch>();
  result->function = std::make_shared<context_function>();
  context_function& w = *result->function;
  w.function = std::move(f);
  if (context_core* const core = context_core::cancellable_from(c.get())) {
    core->retain();
    result->watched = context_ref(core);
    w.self = result->function;
    w.next = nullptr;
    if (!core->add(w)) start_functions(&w);
  }
  return result;
}

bool unwatch_context(void* handle) {
  auto* const h = static_cast<watch*>(handle);
  if (h->watched.get() == nullptr) return !h->stopped.exchange(true, std::memory_order_relaxed);
  if (!h->watched.get()->remove(*h->function)) return false;
  const std::shared_ptr<context_function> last = std::exchange(h->function->self, nullptr);
  return true;
}

context_interruption::context_interruption(const context& c) noexcept
    : basic_interruption(context_core::cancellable_from(c.ref().get())),
      context_watcher(kind::interruption),
      watched_(context_core::cancellable_from(c.ref().get())) {}

context_interruption::~context_interruption() {
  if (watching_) watched_->remove(*this);
}

bool context_interruption::park(void* who, bool (*give_up)(void*), void* argument) noexcept {
  if (watched_ == nullptr) {
    detail::park();
    return true;
  }
  if (!watching_) {
    watching_ = true;
    if (!watched_->add_inside(*this)) (void)fire();  // idle still: there is nobody to ready
  }
  return basic_interruption::park(who, give_up, argument);
}

}  // namespace detail

using detail::context_core;

receiver<std::monostate> context::done() const {
  const context_core* const c = context_core::cancellable_from(ref_.get());
  if (c == nullptr) return nullptr;
  c->done()->retain();
  return receiver<std::monostate>(detail::chan_ref(c->done()));
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
