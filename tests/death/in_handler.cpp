// in_handler.cpp <sleep, lock, try_send, thread>: a signal handler calls weft, and finds it in the
// middle of something.
#include <weft/weft.hpp>

#include <chrono>
#include <csignal>
#include <string_view>
#include <sys/time.h>

namespace {

using namespace std::chrono_literals;

weft::chan<int> channel(4);
weft::mutex mutex;

void on_alarm(std::string_view how) {
  if (how == "lock") {
    mutex.lock();
    mutex.unlock();
  } else if (how == "try_send") {
    (void)channel.try_send(1);
  } else {
    weft::this_goroutine::sleep_for(1ms);
  }
}

std::string_view how = "sleep";

void use_weft() {
  weft::wait_group all;
  for (int i = 0; i < 4; ++i) {
    all.go([] {
      for (int k = 0; k < 1'000'000; ++k) {
        mutex.lock();
        (void)channel.try_recv();
        weft::this_goroutine::yield();
        mutex.unlock();
      }
    });
  }
  all.wait();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) how = argv[1];
  struct sigaction action{};
  action.sa_handler = [](int) { on_alarm(how); };
  ::sigaction(SIGALRM, &action, nullptr);
  if (how != "thread") {
    // Main's thread sleeps in weft, and would get them all.
    weft::run([] {});
    sigset_t alarms;
    ::sigemptyset(&alarms);
    ::sigaddset(&alarms, SIGALRM);
    ::pthread_sigmask(SIG_BLOCK, &alarms, nullptr);
  }
  const itimerval often{{0, 500}, {0, 500}};
  ::setitimer(ITIMER_REAL, &often, nullptr);
  for (int i = 0; i < 100; ++i) weft::run(&use_weft);
  return 0;
}
