// fork_in_goroutine.cpp <what the child does>: the status is the child's. Goroutines are busy while
// it forks.
#include <weft/weft.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

namespace {

[[noreturn]] void be_the_child(std::string_view what) {
  if (what == "exec") {
    ::execl("/bin/sh", "sh", "-c", "exit 17", nullptr);
    ::_exit(127);
  }
  if (what == "_exit") ::_exit(18);
  if (what == "exit") std::exit(19);  // runs the atexit handlers of a runtime that is not there
  if (what == "go") weft::go([] {});
  if (what == "yield") weft::this_goroutine::yield();
  if (what == "wait") {
    weft::wait_group g;
    g.add(1);
    g.wait();
  }
  if (what == "run") weft::run([] {});
  if (what == "max_procs") weft::max_procs(2);
  if (what == "sleep") weft::this_goroutine::sleep_for(std::chrono::milliseconds(1));
  std::fputs("weft works in the child\n", stderr);
  ::_exit(1);
}

int status_of_child(std::string_view what) {
  const pid_t child = ::fork();
  if (child == 0) be_the_child(what);
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) return 100;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 101;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view where = argc > 1 ? argv[1] : "goroutine";
  const std::string_view what = argc > 2 ? argv[2] : "exec";
  if (where == "before") {  // nothing of weft has been used yet: the child is as good as any
    const pid_t child = ::fork();
    if (child == 0) ::_exit(weft::run([] { return weft::async([] { return 21; }).get(); }));
    int status = 0;
    ::waitpid(child, &status, 0);
    return weft::run([&] { return WEXITSTATUS(status); });
  }
  int result = 0;
  std::atomic<bool> stop{false};
  if (where == "thread") {
    for (int i = 0; i < 4; ++i) {
      weft::go([&] {
        while (!stop) weft::this_goroutine::yield();
      });
    }
    result = status_of_child(what);
    stop = true;
    while (weft::num_goroutine() != 0) std::this_thread::yield();
    return result;
  }
  weft::run([&] {
    weft::wait_group all;
    for (int i = 0; i < 4; ++i) {
      all.go([&] {
        while (!stop) {
          weft::wait_group g;
          g.go([] {});
          g.wait();
        }
      });
    }
    for (int i = 0; i < 10; ++i) weft::this_goroutine::yield();
    result = status_of_child(what);
    stop = true;
    all.wait();  // the parent goes on as if nothing had happened
  });
  return result;
}
