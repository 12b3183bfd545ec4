// echo_load.cpp: the client that every echo server faces. Each connection has one message of 64
// bytes under way: what comes back is checked and the next one sent at once. One thread, epoll.
// Usage: echo_load PORT CONNECTIONS SECONDS. Prints requests per second, and the median and the
// 99th percentile of the time from a message to its echo.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

using steady = std::chrono::steady_clock;

constexpr std::size_t message_bytes = 64;
constexpr int stall_ms = 5000;

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "echo_load: %s: %s\n", what, std::strerror(errno));
  std::_Exit(1);
}

class connection {
 public:
  explicit connection(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd_ < 0 || ::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
      give_up("connect");
    }
    const int one = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  }

  int fd() const { return fd_; }

  // Each message is another: its number, and the connection it belongs to.
  void send() {
    ++number_;
    std::memcpy(message_, &number_, sizeof number_);
    std::memcpy(message_ + sizeof number_, &fd_, sizeof fd_);
    got_ = 0;
    sent_at_ = steady::now();
    if (::send(fd_, message_, message_bytes, MSG_NOSIGNAL) != message_bytes) give_up("send");
  }
  // Takes what has come. Returns: whether the echo is complete.
  bool receive() {
    char buffer[4096];
    const ssize_t n = ::recv(fd_, buffer, sizeof buffer, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n == 0) errno = ECONNRESET;
    if (n <= 0) give_up("receive");
    const auto came = static_cast<std::size_t>(n);
    errno = EBADMSG;
    if (came > message_bytes - got_ || std::memcmp(buffer, message_ + got_, came) != 0) {
      give_up("the echo");
    }
    got_ += came;
    return got_ == message_bytes;
  }
  float us_since_sent() const {
    return std::chrono::duration<float, std::micro>(steady::now() - sent_at_).count();
  }

 private:
  int fd_;
  char message_[message_bytes] = {};
  std::uint64_t number_ = 0;
  std::size_t got_ = 0;  // of the message under way
  steady::time_point sent_at_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s PORT CONNECTIONS SECONDS\n", argv[0]);
    return 2;
  }
  const auto port = static_cast<std::uint16_t>(std::atoi(argv[1]));
  const int count = std::atoi(argv[2]);
  const std::chrono::duration<double> time(std::atof(argv[3]));

  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  if (epoll < 0) give_up("epoll_create1");
  std::vector<connection> connections;
  connections.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    const connection& c = connections.emplace_back(port);
    epoll_event e{};
    e.events = EPOLLIN;
    e.data.u32 = static_cast<std::uint32_t>(i);
    if (::epoll_ctl(epoll, EPOLL_CTL_ADD, c.fd(), &e) != 0) give_up("epoll_ctl");
  }

  // Large enough not to grow, and so to copy, while it is measured.
  std::vector<float> latencies;
  latencies.reserve(std::size_t{1} << 24);
  const auto began = steady::now();
  for (connection& c : connections) c.send();
  while (steady::now() - began < time) {
    epoll_event events[256];
    const int n = ::epoll_wait(epoll, events, 256, stall_ms);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = ETIMEDOUT;
    if (n <= 0) give_up("wait");
    for (int i = 0; i < n; ++i) {
      connection& c = connections[events[i].data.u32];
      if (!c.receive()) continue;
      latencies.push_back(c.us_since_sent());
      c.send();
    }
  }
  const std::chrono::duration<double> took = steady::now() - began;
  if (latencies.empty()) give_up("nothing came back");
  std::sort(latencies.begin(), latencies.end());
  const std::size_t n = latencies.size();
  std::printf("%.0f req/s p50 %.0f us p99 %.0f us\n", static_cast<double>(n) / took.count(),
              static_cast<double>(latencies[n / 2]), static_cast<double>(latencies[n * 99 / 100]));
}
