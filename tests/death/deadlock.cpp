// deadlock.cpp: programs in which no goroutine can go on, and some that only look so: these print
// "went on" and end with status 0.
#include <weft/net.hpp>
#include <weft/weft.hpp>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <string_view>
#include <thread>
#include <unistd.h>

namespace {

using namespace std::chrono_literals;

constexpr auto a_while = 300ms;  // long enough for every look of the monitor

void receive() { (void)weft::chan<int>().recv(); }
void send_to_nobody() { weft::chan<int>().send(1); }
void nil_channel() { (void)weft::chan<int>(nullptr).recv(); }
void empty_select() { weft::select(); }
void lock_twice() {
  weft::mutex m;
  m.lock();
  m.lock();
}
void wait_for_nobody() {
  weft::wait_group g;
  g.add(1);
  g.wait();
}
void notified_by_nobody() {
  weft::mutex m;
  weft::condition_variable c;
  std::unique_lock lock(m);
  c.wait(lock);
}
void each_other() {
  weft::chan<int> a;
  weft::chan<int> b;
  weft::go({.name = "left"}, [=] {
    (void)a.recv();
    b.send(1);
  });
  (void)b.recv();
  a.send(1);
}
void bound() {
  weft::this_goroutine::lock_thread();
  (void)weft::chan<int>().recv();
}
void after_a_timer() {
  weft::this_goroutine::sleep_for(50ms);
  (void)weft::chan<int>().recv();
}
void stopped_timer() {
  weft::timer t(1h);
  t.stop();
  (void)weft::chan<int>().recv();
}
void after_a_crowd() {
  weft::wait_group all;
  for (int i = 0; i < 1000; ++i) all.go([] { weft::this_goroutine::yield(); });
  all.wait();
  (void)weft::chan<int>().recv();
}
void with_a_thread_that_waits_too() {
  weft::chan<int> c;
  std::thread waits([=] { (void)c.recv(); });
  (void)c.recv();
  waits.join();
}
void after_a_thread_has_ended() {
  std::thread([] { std::this_thread::sleep_for(a_while); }).detach();
  (void)weft::chan<int>().recv();
}
// Another machine sleeps until a timer that is there no longer.
void after_a_long_timer_was_stopped() {
  weft::go([] {});
  auto [ctx, cancel] = weft::with_timeout(weft::context::background(), 1h);
  const auto end = std::chrono::steady_clock::now() + a_while;
  while (std::chrono::steady_clock::now() < end) {
  }
  cancel();
  (void)weft::chan<int>().recv();
}
// The last goroutine that ran ends its thread.
void after_a_bound_goroutine_has_ended() {
  weft::go([] {
    weft::this_goroutine::lock_thread();
    ::usleep(static_cast<useconds_t>(a_while / 1us));
  });
  (void)weft::chan<int>().recv();
}

// A descriptor without a waiter wakes no goroutine.
void with_an_open_socket() {
  auto l = weft::net::listen("tcp", "127.0.0.1:0");
  (void)weft::chan<int>().recv();
}
void after_a_socket_was_closed() {
  auto l = weft::net::listen("tcp", "127.0.0.1:0");
  weft::go([&] { (void)l->accept(); });
  weft::this_goroutine::sleep_for(a_while / 3);
  (void)l->close();
  (void)weft::chan<int>().recv();
}

// ---- No deadlocks. ----

void a_connection_may_come() {
  auto l = weft::net::listen("tcp", "127.0.0.1:0");
  std::thread calls([&] {
    std::this_thread::sleep_for(a_while);
    (void)weft::net::dial("tcp", l->local_address().to_string());
  });
  calls.detach();
  (void)l->accept();
}

void a_thread_sends() {
  weft::chan<int> c;
  std::thread sends([=] {
    std::this_thread::sleep_for(a_while);
    c.send(1);
  });
  (void)c.recv();
  sends.join();
}
void a_thread_comes_back_twice() {
  weft::chan<int> c;
  weft::chan<int> d;
  std::thread sends([=] {
    for (int i = 0; i < 2; ++i) {
      (void)d.recv();
      std::this_thread::sleep_for(a_while / 2);
      c.send(1);
    }
  });
  for (int i = 0; i < 2; ++i) {
    d.send(1);
    (void)c.recv();
  }
  sends.join();
}
void a_timer_is_set() { weft::this_goroutine::sleep_for(a_while); }
void a_timer_of_a_context() {
  auto [ctx, cancel] = weft::with_timeout(weft::context::background(), a_while);
  (void)ctx.done().recv();
}
void a_goroutine_blocks_in_the_kernel() {
  weft::chan<int> c;
  weft::go([=] {
    ::usleep(static_cast<useconds_t>(a_while / 1us));
    c.close();
  });
  (void)c.recv();
}
void a_bound_goroutine_blocks_in_the_kernel() {
  weft::chan<int> c;
  weft::go([=] {
    weft::this_goroutine::lock_thread();
    ::usleep(static_cast<useconds_t>(a_while / 1us));
    c.close();
  });
  (void)c.recv();
}
// All goroutines wait for ever, but there is a signal handler, which may do anything.
void a_signal_may_come() {
  struct sigaction action{};
  action.sa_handler = [](int) {
    constexpr std::string_view text = "went on\n";
    (void)!::write(1, text.data(), text.size());
    ::_exit(0);
  };
  ::sigaction(SIGALRM, &action, nullptr);
  ::ualarm(static_cast<useconds_t>(a_while / 1us), 0);
  (void)weft::chan<int>().recv();
}

struct program {
  std::string_view name;
  void (*main)();
};
constexpr program programs[] = {
    {"receive", &receive},
    {"send_to_nobody", &send_to_nobody},
    {"nil_channel", &nil_channel},
    {"empty_select", &empty_select},
    {"lock_twice", &lock_twice},
    {"wait_for_nobody", &wait_for_nobody},
    {"notified_by_nobody", &notified_by_nobody},
    {"each_other", &each_other},
    {"bound", &bound},
    {"after_a_timer", &after_a_timer},
    {"stopped_timer", &stopped_timer},
    {"after_a_crowd", &after_a_crowd},
    {"with_a_thread_that_waits_too", &with_a_thread_that_waits_too},
    {"after_a_thread_has_ended", &after_a_thread_has_ended},
    {"after_a_long_timer_was_stopped", &after_a_long_timer_was_stopped},
    {"after_a_bound_goroutine_has_ended", &after_a_bound_goroutine_has_ended},
    {"with_an_open_socket", &with_an_open_socket},
    {"after_a_socket_was_closed", &after_a_socket_was_closed},
    {"a_connection_may_come", &a_connection_may_come},
    {"a_thread_sends", &a_thread_sends},
    {"a_thread_comes_back_twice", &a_thread_comes_back_twice},
    {"a_timer_is_set", &a_timer_is_set},
    {"a_timer_of_a_context", &a_timer_of_a_context},
    {"a_goroutine_blocks_in_the_kernel", &a_goroutine_blocks_in_the_kernel},
    {"a_bound_goroutine_blocks_in_the_kernel", &a_bound_goroutine_blocks_in_the_kernel},
    {"a_signal_may_come", &a_signal_may_come},
};

}  // namespace

int main(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  for (const program& p : programs) {
    if (p.name != name) continue;
    weft::run(p.main);
    std::puts("went on");
    return 0;
  }
  return 1;
}
