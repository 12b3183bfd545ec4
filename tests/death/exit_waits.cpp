// exit_waits.cpp <what> <how>: code that runs while the process exits uses weft. The status is 7,
// whatever happens.
//
// what: run go async sleep after ticker deadline yield accept: ends by itself, or by goroutines
//       that are started then. group wait_group future receive lock select: only goroutines that
//       were there before could end it.
// how:  return  in the destructor of a static object, when main returns
//       atexit  in a handler of atexit's
//       inside  in the destructor, when exit is called in a goroutine
//       bound   in the destructor, when exit is called in a goroutine bound to its thread
//       thread  in the destructor, when exit is called by a second thread
//       nested  in the destructor, in a goroutine of weft::run that calls exit itself
#include <weft/weft.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace {

using namespace std::chrono_literals;

constexpr int status = 7;

std::string what;
std::string how;

// What is destroyed last, if anything stays as it should be.
struct rest {
  ~rest() {
    std::puts("the rest");
    weft::run([] { std::puts("and once more"); });
  }
};
const rest the_rest;

bool has_begun_to_exit = false;
void live_on() {
  if (has_begun_to_exit) std::puts("ran after the stop");
}

struct things {
  weft::group group;
  weft::wait_group wait_group;
  weft::chan<int> never;
  weft::chan<int> never_too{1};
  weft::mutex mutex;
  std::optional<weft::future<int>> future;
  weft::context deadline = weft::context::background();
};

void start(things& t) {
  // Heeds its context at once, if it can.
  t.group.go([&t] {
    t.group.ctx().done().recv();
    live_on();
  });
  t.wait_group.go([&t] {
    t.never.recv();
    live_on();
  });
  t.future = weft::async([&t] { return t.never.recv().value_or(0); });
  const weft::chan<int> locked;
  weft::go([&t, locked] {
    const std::lock_guard hold(t.mutex);
    locked.close();
    t.never.recv();
  });
  locked.recv();
  // Long sleeps of other goroutines, and what these wait for, do not prolong the exit.
  weft::go([] { weft::this_goroutine::sleep_for(1h); });
  weft::go([] { weft::after(1h).recv(); });
  weft::go([] {
    for (;;) {
      weft::this_goroutine::sleep_for(1ms);
      live_on();
    }
  });
  // Never destroyed: what was made in here would be before the others are stopped.
  static auto& again = *new std::optional<weft::timer>;
  again = weft::after_func(1h, [] {
    live_on();
    again->reset(1ms);
  });
  again->reset(1ms);
  static auto& ticks = *new weft::ticker(1ms);
  weft::go([] {
    for (;;) {
      ticks.c().recv();
      live_on();
    }
  });
  static auto& l = *new auto(weft::net::listen("tcp", "127.0.0.1:0"));
  if (l) {
    weft::go([] { (void)l->accept(); });
  }
  t.deadline = weft::with_timeout(weft::context::background(), 100ms).ctx;
  weft::this_goroutine::sleep_for(10ms);
}

int count_to_ten() {
  weft::chan<int> c;
  weft::wait_group all;
  for (int i = 0; i < 10; ++i) {
    all.go([c] {
      weft::this_goroutine::sleep_for(1ms);
      c.send(1);
    });
  }
  int n = 0;
  while (n < 10) n += c.recv().value_or(0);
  all.wait();
  return n;
}

bool accept_here() {
  auto l = weft::net::listen("tcp", "127.0.0.1:0");
  if (!l) return false;
  weft::go([to = l->local_address().to_string()] {
    auto c = weft::net::dial("tcp", to);
    if (c) (void)c->write("x");
  });
  auto c = l->accept();
  char byte = 0;
  return c && c->read(std::span<char>(&byte, 1)).value_or(0) == 1 && byte == 'x';
}

void use(things& t) {
  has_begun_to_exit = true;
  if (what == "run") {
    if (weft::run([] { return count_to_ten(); }) != 10) std::puts("wrong");
  } else if (what == "go") {
    if (count_to_ten() != 10) std::puts("wrong");
  } else if (what == "async") {
    if (weft::async([] { return 3; }).get() != 3) std::puts("wrong");
  } else if (what == "sleep") {
    const auto begin = std::chrono::steady_clock::now();
    weft::this_goroutine::sleep_for(5ms);
    if (std::chrono::steady_clock::now() - begin < 5ms) std::puts("wrong");
  } else if (what == "after") {
    weft::after(5ms).recv();
    weft::wait_group called;
    called.add(1);
    const weft::timer f = weft::after_func(1ms, [&] { called.done(); });
    called.wait();
  } else if (what == "ticker") {
    weft::ticker ticks(1ms);
    for (int i = 0; i < 3; ++i) ticks.c().recv();
  } else if (what == "deadline") {
    t.deadline.done().recv();
  } else if (what == "yield") {
    weft::run([] {
      for (int i = 0; i < 3; ++i) {
        weft::go([] {
          for (;;) weft::this_goroutine::yield();
        });
      }
      weft::this_goroutine::sleep_for(2ms);
    });
    std::atomic<bool> told{false};
    weft::go([&] { told = true; });
    while (!told) weft::this_goroutine::yield();
  } else if (what == "accept") {
    if (!accept_here()) std::puts("wrong");
  } else if (what == "group") {
    t.group.wait();
  } else if (what == "wait_group") {
    t.wait_group.wait();
  } else if (what == "future") {
    (void)t.future->get();
  } else if (what == "receive") {
    t.never.recv();
  } else if (what == "lock") {
    t.mutex.lock();
  } else if (what == "select") {
    weft::select(recv(t.never), recv(t.never_too));
  }
}

void use_and_say(things& t) {
  if (how == "nested") {
    weft::run([] { std::exit(status); });
  }
  use(t);
  std::puts("done");
}

things* the_things = nullptr;
struct user {
  ~user() {
    if (how != "atexit") use_and_say(*the_things);
  }
};
const user the_user;

}  // namespace

int main(int argc, char** argv) {
  what = argc > 1 ? argv[1] : "group";
  how = argc > 2 ? argv[2] : "return";
  the_things = new things;
  if (how == "atexit") std::atexit([] { use_and_say(*the_things); });
  if (how == "thread") {
    weft::run([] { start(*the_things); });
    std::thread([] { std::exit(status); }).join();
  }
  weft::run([] {
    start(*the_things);
    if (how == "bound") weft::this_goroutine::lock_thread();
    if (how == "inside" || how == "bound") std::exit(status);
  });
  return status;
}
