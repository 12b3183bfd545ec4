// scarce_descriptors.cpp: an echo server that has fewer descriptors than clients. The clients, a
// process of their own, all connect and say one byte; those who were served leave a few at a time,
// and in the end all must have been served. Prints what became of them, and what the server's
// accept() cost while it could do nothing.
#include <weft/net.hpp>
#include <weft/weft.hpp>

#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

namespace {

constexpr int clients = 60;
constexpr int descriptors = 40;  // of the server, with all others it has
constexpr int patience_ms = 60'000;
constexpr int shortage_ms = 500;

void require(bool ok, const char* what) {
  if (ok) return;
  std::perror(what);
  std::_Exit(1);
}

// Takes the answers that come until none has come for so long. Returns: how many are in.
int collect(std::vector<pollfd>& sockets, int quiet_ms, int enough) {
  int served = 0;
  for (const pollfd& s : sockets) served += s.events == 0 ? 1 : 0;
  while (served < enough) {
    if (::poll(sockets.data(), sockets.size(), quiet_ms) == 0) break;
    for (pollfd& s : sockets) {
      if (s.fd < 0 || s.revents == 0) continue;
      char c = 0;
      require(::read(s.fd, &c, 1) == 1 && c == 'x', "read");
      s.events = 0;  // served
      ++served;
    }
  }
  return served;
}

int be_clients(int port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::vector<pollfd> sockets;
  for (int i = 0; i < clients; ++i) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    require(::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0, "connect");
    require(::write(fd, "x", 1) == 1, "write");
    sockets.push_back({fd, POLLIN, 0});
  }
  int served = 0;
  // At least one is served before the pause can mean anything.
  served = collect(sockets, patience_ms, 1);
  served = collect(sockets, shortage_ms, clients);
  std::printf("%s\n", served < clients ? "some wait" : "all are served at once");
  for (std::size_t left = 0; served < clients;) {
    for (int n = 0; n < 5 && left < sockets.size(); ++left) {
      if (sockets[left].events != 0 || sockets[left].fd < 0) continue;
      ::close(sockets[left].fd);
      sockets[left].fd = -1;
      ++n;
    }
    const int now = collect(sockets, patience_ms, std::min(served + 5, clients));
    require(now > served, "nobody is served any more");
    served = now;
    if (left == sockets.size()) left = 0;
  }
  std::printf("%d are served\n", served);
  std::fflush(stdout);
  return 0;
}

double cpu_ms() {
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) / 1e6;
}

}  // namespace

int main() {
  // Before there is a runtime, which does not survive a fork.
  int ends[2];
  require(::pipe(ends) == 0, "pipe");
  const pid_t child = ::fork();
  require(child >= 0, "fork");
  if (child == 0) {
    int port = 0;
    require(::read(ends[0], &port, sizeof port) == sizeof port, "port");
    return be_clients(port);
  }
  weft::max_procs(2);
  auto listener = weft::net::listen("tcp", "127.0.0.1:0").value();
  const rlimit few{descriptors, descriptors};
  require(::setrlimit(RLIMIT_NOFILE, &few) == 0, "setrlimit");
  const int port = listener.local_address().port();
  require(::write(ends[1], &port, sizeof port) == sizeof port, "port");

  weft::wait_group all;
  // Several, who must not get in each other's way while they wait for better times.
  for (int i = 0; i < 3; ++i) {
    all.go([&] {
      for (;;) {
        auto c = listener.accept();
        if (!c) {
          if (c.error() != weft::errc::closed) {
            std::printf("accept: %s\n", c.error().message().c_str());
          }
          return;
        }
        all.go([c = std::move(*c)]() mutable {
          std::byte some[16];
          for (;;) {
            const auto n = c.read(some);
            if (!n || *n == 0 || !c.write(std::span(some, *n))) return;
          }
        });
      }
    });
  }
  const double before = cpu_ms();
  int status = 0;
  weft::blocking([&] { return ::waitpid(child, &status, 0); });
  // It waits for at least shortage_ms in which it may do next to nothing.
  if (cpu_ms() - before > shortage_ms * 0.8) {
    std::printf("the server spun: %.0f ms of CPU time\n", cpu_ms() - before);
  }
  (void)listener.close();
  all.wait();
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
