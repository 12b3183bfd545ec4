// signals.cpp: what becomes of a process by signals, as its first argument says.
#include "bytes.hpp"
#include "io/descriptor.hpp"
#include "net/socket_access.hpp"

#include <weft/weft.hpp>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <string_view>
#include <sys/mman.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace {

namespace os = weft::os;
using namespace std::chrono_literals;
using weft::test::bytes;

void send_self(int s) { ::kill(::getpid(), s); }

// A real fault, while a channel wants the signal.
int fault() {
  const weft::chan<int> c(1);
  os::notify(c, {SIGSEGV});
  return *static_cast<volatile int*>(
      ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

int around_stop() {
  for (int i = 0; i < 50; ++i) {
    const weft::chan<int> c(1);
    os::notify(c, {SIGINT});
    weft::go([] { send_self(SIGINT); });
    os::stop(c);
    if (c.size() == 1) continue;
    // Not delivered: it has killed us, or is about to.
    std::this_thread::sleep_for(30s);
    return 3;
  }
  return 0;
}

int by_default() {
  const weft::chan<int> c(1);
  os::notify(c, {SIGTERM});
  send_self(SIGTERM);
  if (c.recv() != SIGTERM) return 3;
  os::stop(c);
  send_self(SIGTERM);
  std::this_thread::sleep_for(30s);
  return 4;
}

// Puts the writing end of a pipe without a reader there.
void break_pipe_at(int fd, int flags) {
  int ends[2];
  if (::pipe2(ends, flags) != 0) ::_exit(5);
  ::dup2(ends[1], fd);
  ::close(ends[0]);
  ::close(ends[1]);
}

int standard(int fd, int flags) {
  break_pipe_at(fd, flags);
  auto f = os::file::adopt(fd);
  if (!f) return 3;
  const auto n = f->write(bytes("nobody reads this"));
  return n ? 4 : 5;
}

int peer() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) return 3;
  auto a = weft::io::descriptor::adopt(fds[0]);
  if (!a) return 4;
  weft::net::conn c = weft::net::socket_access::make_conn(std::move(*a));
  ::close(fds[1]);
  if (c.write(bytes("nobody reads this")) || c.write(bytes("nor this"))) return 5;
  auto ends = os::pipe();
  if (!ends || ends->first.close()) return 6;
  const auto n = ends->second.write(bytes("x"));
  if (n || n.error() != std::errc::broken_pipe) return 7;
  auto f = os::open("/proc/self/exe", O_RDONLY);
  if (!f || os::copy(c, *f)) return 8;
  return 0;
}

int exec() {
  auto ends = os::pipe();  // the handler is there
  if (!ends) return 3;
  break_pipe_at(STDOUT_FILENO, 0);
  ::execl("/bin/sh", "sh", "-c", "kill -PIPE $$; exit 4", static_cast<char*>(nullptr));
  return 5;
}

int notify_pipe() {
  const weft::chan<int> c(1);
  os::notify(c, {SIGPIPE});
  break_pipe_at(STDOUT_FILENO, O_NONBLOCK);
  auto f = os::file::adopt(STDOUT_FILENO);
  if (!f || f->write(bytes("x"))) return 3;
  return c.recv() == SIGPIPE ? 0 : 4;
}

}  // namespace

int main(int, char** arguments) {
  const std::string_view how = arguments[1];
  return weft::run([&] {
    if (how == "fault") return fault();
    if (how == "around_stop") return around_stop();
    if (how == "default") return by_default();
    if (how == "stdout") return standard(STDOUT_FILENO, O_NONBLOCK);
    if (how == "stdout_blocking") return standard(STDOUT_FILENO, 0);
    if (how == "stderr") return standard(STDERR_FILENO, O_NONBLOCK);
    if (how == "peer") return peer();
    if (how == "exec") return exec();
    if (how == "notify_pipe") return notify_pipe();
    return 100;
  });
}
