// libcurl's easy interface, which blocks: a goroutine per transfer.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "external_fixture.hpp"

#include <weft/sync.hpp>

#include <curl/curl.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace weft {
namespace {

using namespace std::chrono_literals;

// An HTTP server on loopback that thinks for 100 ms before it says hello, to everybody at the same
// time. It consists of plain threads, so that it is none of weft's doing when it is late.
class slow_server {
 public:
  slow_server() {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    over_ = ::eventfd(0, EFD_CLOEXEC);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (listener_ < 0 || over_ < 0 || ::bind(listener_, any, size) != 0 ||
        ::listen(listener_, 512) != 0 || ::getsockname(listener_, any, &size) != 0) {
      throw std::runtime_error("no server on loopback");
    }
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
  }
  slow_server(const slow_server&) = delete;
  slow_server& operator=(const slow_server&) = delete;
  ~slow_server() {
    const std::uint64_t one = 1;
    (void)!::write(over_, &one, sizeof one);
    acceptor_.join();
    ::close(listener_);
    ::close(over_);
  }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/"; }

 private:
  void accept_all() {
    std::vector<std::thread> threads;
    std::array<pollfd, 2> ends{pollfd{listener_, POLLIN, 0}, pollfd{over_, POLLIN, 0}};
    while (ends[1].revents == 0) {
      if (::poll(ends.data(), ends.size(), -1) < 0 || ends[0].revents == 0) continue;
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd >= 0) threads.emplace_back([fd] { answer(fd); });
    }
    for (std::thread& t : threads) t.join();
  }

  static void answer(int fd) {
    // A client that says nothing more does not keep us for ever.
    const timeval patience{.tv_sec = 10, .tv_usec = 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    std::string request;
    std::array<char, 1024> some;
    while (request.find("\r\n\r\n") == std::string::npos) {
      const ssize_t n = ::recv(fd, some.data(), some.size(), 0);
      if (n <= 0) break;
      request.append(some.data(), static_cast<std::size_t>(n));
    }
    std::this_thread::sleep_for(100ms);
    static constexpr std::string_view response =
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
    (void)::send(fd, response.data(), response.size(), MSG_NOSIGNAL);
    ::close(fd);
  }

  int listener_ = -1;
  int over_ = -1;
  std::uint16_t port_ = 0;
  std::thread acceptor_;
};

struct handle_closer {
  void operator()(CURL* c) const { curl_easy_cleanup(c); }
};

std::size_t append(char* data, std::size_t size, std::size_t n, void* body) {
  static_cast<std::string*>(body)->append(data, size * n);
  return size * n;
}

// Returns: the body of what is there, or curl's complaint.
std::string fetch(const std::string& url) {
  const std::unique_ptr<CURL, handle_closer> c(curl_easy_init());
  if (c == nullptr) return "curl_easy_init failed";
  std::string body;
  curl_easy_setopt(c.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(c.get(), CURLOPT_NOSIGNAL, 1L);  // its timeouts would use SIGALRM
  curl_easy_setopt(c.get(), CURLOPT_PROXY, "");     // whatever the environment says
  curl_easy_setopt(c.get(), CURLOPT_TIMEOUT, 60L);
  curl_easy_setopt(c.get(), CURLOPT_WRITEFUNCTION, &append);
  curl_easy_setopt(c.get(), CURLOPT_WRITEDATA, &body);
  const CURLcode code = curl_easy_perform(c.get());
  return code == CURLE_OK ? body : curl_easy_strerror(code);
}

class curl : public test::external_test {
 protected:
  static void SetUpTestSuite() { ASSERT_EQ(curl_global_init(CURL_GLOBAL_DEFAULT), CURLE_OK); }
  static void TearDownTestSuite() { curl_global_cleanup(); }
};

// A transfer is poll, send and recv in somebody else's code. If it kept the processor, a program
// would wait for one server at a time: 100 answers that take 0.1 s would take 10 s.
TEST_P(curl, a_hundred_transfers_wait_together) {
  constexpr int transfers = 100;
  const slow_server server;
  const std::string url = server.url();
  std::vector<std::string> bodies(transfers);

  const auto began = clock::now();
  wait_group all;
  for (std::string& body : bodies) {
    all.go([&] { body = fetch(url); });
  }
  all.wait();
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(clock::now() - began);

  std::printf("%d answers after 100 ms took %ld ms\n", transfers, static_cast<long>(took.count()));
  for (const std::string& body : bodies) EXPECT_EQ(body, "hello");
  EXPECT_GE(took, 100ms);
  EXPECT_LE(took, together);
  expect_detached();
}

INSTANTIATE_TEST_SUITE_P(on, curl, ::testing::Values(1, 2), test::processors_name);

}  // namespace
}  // namespace weft
