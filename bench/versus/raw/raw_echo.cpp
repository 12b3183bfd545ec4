// raw_echo.cpp: how fast an echo server can be that is nothing else: one thread, one epoll
// instance, two system calls for each message, and no goroutines. Usage: raw_echo HOST:PORT (the
// host is 127.0.0.1)
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

int listen_on(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int one = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(port);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 ||
      ::listen(fd, 4096) != 0) {
    std::perror("raw_echo: listen");
    std::exit(1);
  }
  return fd;
}

void accept_all(int epoll, int listener) {
  for (;;) {
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    const int one = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    epoll_event e{};
    e.events = EPOLLIN;
    e.data.fd = fd;
    ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e);
  }
}

// Messages are far smaller than the kernel's buffers: a write that takes a part is a client that
// does not play by the rules.
void echo(int fd) {
  char buffer[4096];
  const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
  if (n < 0 && errno == EAGAIN) return;
  if (n <= 0 || ::send(fd, buffer, static_cast<std::size_t>(n), MSG_NOSIGNAL) != n) ::close(fd);
}

}  // namespace

int main(int argc, char** argv) {
  const char* const colon = argc == 2 ? std::strrchr(argv[1], ':') : nullptr;
  if (colon == nullptr) {
    std::fprintf(stderr, "usage: %s HOST:PORT\n", argv[0]);
    return 2;
  }
  const int listener = listen_on(static_cast<std::uint16_t>(std::atoi(colon + 1)));
  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  epoll_event e{};
  e.events = EPOLLIN;
  e.data.fd = listener;
  ::epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &e);
  for (;;) {
    epoll_event ready[256];
    const int n = ::epoll_wait(epoll, ready, 256, -1);
    for (int i = 0; i < n; ++i) {
      if (ready[i].data.fd == listener) {
        accept_all(epoll, listener);
      } else {
        echo(ready[i].data.fd);
      }
    }
  }
}
