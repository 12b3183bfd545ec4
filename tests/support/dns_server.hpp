// dns_server.hpp: a name server for tests, on loopback, UDP and TCP. It knows what it is told and
// counts what it is asked. A plain thread with blocking calls, so that it depends on nothing it
// helps to test.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

namespace weft::test {

class dns_server {
 public:
  enum class manner : std::uint8_t { answers, is_silent, truncates, fails };
  struct host {
    std::vector<std::string> addresses;
    manner how = manner::answers;
  };

  explicit dns_server(std::map<std::string, host> hosts) : hosts_(std::move(hosts)) {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof where;
    auto* const native = reinterpret_cast<sockaddr*>(&where);
    EXPECT_EQ(::bind(tcp_, native, sizeof where), 0);
    EXPECT_EQ(::listen(tcp_, 16), 0);
    EXPECT_EQ(::getsockname(tcp_, native, &size), 0);
    EXPECT_EQ(::bind(udp_, native, sizeof where), 0);
    port_ = ntohs(where.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  dns_server(const dns_server&) = delete;
  dns_server& operator=(const dns_server&) = delete;
  ~dns_server() {
    over_.store(true);
    knock();
    thread_.join();
    for (const int fd : {udp_, tcp_, knock_}) ::close(fd);
  }

  std::string where() const { return "127.0.0.1:" + std::to_string(port_); }

  // Keeps questions to itself until release().
  void hold() { holds_.store(true); }
  void release() {
    holds_.store(false);
    knock();
  }

  // How often it was asked for that name: addresses of one family, by UDP; all, by TCP.
  int asked_v4(const std::string& name) const { return count(name, type_a); }
  int asked_v6(const std::string& name) const { return count(name, type_aaaa); }
  int asked() const { return asked_.load(); }
  int asked_by_tcp() const { return asked_by_tcp_.load(); }

 private:
  static constexpr std::uint16_t type_a = 1;
  static constexpr std::uint16_t type_aaaa = 28;
  static constexpr std::size_t header_bytes = 12;
  using message = std::vector<std::uint8_t>;

  struct question {
    std::string name;
    std::uint16_t type = 0;
    std::size_t end = 0;
  };

  void knock() const {
    const std::uint64_t one = 1;
    EXPECT_EQ(::write(knock_, &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }

  int count(const std::string& name, std::uint16_t type) const {
    const std::lock_guard hold(lock_);
    const auto found = counts_.find({name, type});
    return found == counts_.end() ? 0 : found->second;
  }

  static question read_question(const message& m) {
    question q;
    std::size_t at = header_bytes;
    while (at < m.size() && m[at] != 0) {
      const std::size_t length = m[at];
      if (at + 1 + length > m.size()) return {};
      if (!q.name.empty()) q.name += '.';
      for (std::size_t i = 1; i <= length; ++i) {
        const auto c = static_cast<char>(m[at + i]);
        q.name += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
      }
      at += 1 + length;
    }
    if (at + 5 > m.size()) return {};
    q.type = static_cast<std::uint16_t>(m[at + 1] << 8 | m[at + 2]);
    q.end = at + 5;
    return q;
  }

  static void append(message& m, const void* bytes, std::size_t size) {
    const auto* const from = static_cast<const std::uint8_t*>(bytes);
    m.insert(m.end(), from, from + size);
  }

  // Returns: empty for no answer.
  message answer(const message& asked, bool by_tcp) {
    const question q = read_question(asked);
    if (q.end == 0) return {};
    const auto found = hosts_.find(q.name);
    const manner how = found == hosts_.end() ? manner::answers : found->second.how;
    if (how == manner::is_silent) return {};
    const bool truncates = how == manner::truncates && !by_tcp;
    message m(asked.begin(), asked.begin() + static_cast<std::ptrdiff_t>(q.end));
    const int code = how == manner::fails ? 2 : found == hosts_.end() ? 3 : 0;
    m[2] = static_cast<std::uint8_t>(0x81 | (truncates ? 0x02 : 0));
    m[3] = static_cast<std::uint8_t>(0x80 | code);
    std::uint8_t answers = 0;
    if (code == 0 && !truncates) {
      for (const std::string& text : found->second.addresses) {
        const bool is_v6 = text.find(':') != text.npos;
        if (q.type != (is_v6 ? type_aaaa : type_a)) continue;
        std::uint8_t ip[16];
        const std::uint8_t size = is_v6 ? 16 : 4;
        EXPECT_EQ(::inet_pton(is_v6 ? AF_INET6 : AF_INET, text.c_str(), ip), 1);
        // The name of the question, its type, the internet, a minute, the address.
        const std::uint8_t record[] = {
            0xc0, header_bytes, 0, static_cast<std::uint8_t>(q.type), 0, 1, 0, 0, 0, 60, 0, size};
        append(m, record, sizeof record);
        append(m, ip, size);
        ++answers;
      }
    }
    const std::uint8_t counts[] = {0, 1, 0, answers, 0, 0, 0, 0};
    std::memcpy(m.data() + 4, counts, sizeof counts);
    return m;
  }

  void serve() {
    std::vector<std::pair<message, sockaddr_in>> held;
    std::vector<int> callers;
    while (!over_.load()) {
      std::vector<pollfd> all = {{udp_, POLLIN, 0}, {tcp_, POLLIN, 0}, {knock_, POLLIN, 0}};
      for (const int c : callers) all.push_back({c, POLLIN, 0});
      ::poll(all.data(), all.size(), -1);
      if (all[0].revents != 0) {
        message m(512);
        sockaddr_in from{};
        socklen_t size = sizeof from;
        const ssize_t n =
            ::recvfrom(udp_, m.data(), m.size(), 0, reinterpret_cast<sockaddr*>(&from), &size);
        if (n > 0) {
          m.resize(static_cast<std::size_t>(n));
          note(m);
          held.emplace_back(std::move(m), from);
        }
      }
      for (std::size_t i = 3; i < all.size(); ++i) {
        if (all[i].revents == 0 || serve_tcp(all[i].fd)) continue;
        ::close(all[i].fd);
        std::erase(callers, all[i].fd);
      }
      if (all[1].revents != 0) callers.push_back(::accept4(tcp_, nullptr, nullptr, SOCK_CLOEXEC));
      if (all[2].revents != 0) {
        std::uint64_t knocks = 0;
        (void)!::read(knock_, &knocks, sizeof knocks);
      }
      if (holds_.load()) continue;
      for (const auto& [m, to] : held) {
        const message reply = answer(m, false);
        if (reply.empty()) continue;
        (void)::sendto(udp_, reply.data(), reply.size(), 0, reinterpret_cast<const sockaddr*>(&to),
                       sizeof to);
      }
      held.clear();
    }
    for (const int c : callers) ::close(c);
  }

  void note(const message& m) {
    const question q = read_question(m);
    const std::lock_guard hold(lock_);
    ++counts_[{q.name, q.type}];
    asked_.fetch_add(1);
  }

  // Answers one question. Returns: false at the end.
  bool serve_tcp(int c) {
    const timeval patience{10, 0};
    (void)::setsockopt(c, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    std::uint8_t prefix[2];
    if (::recv(c, prefix, 2, MSG_WAITALL) != 2) return false;
    message m(static_cast<std::size_t>(prefix[0] << 8 | prefix[1]));
    if (::recv(c, m.data(), m.size(), MSG_WAITALL) != static_cast<ssize_t>(m.size())) return false;
    asked_by_tcp_.fetch_add(1);
    const message reply = answer(m, true);
    message framed{static_cast<std::uint8_t>(reply.size() >> 8),
                   static_cast<std::uint8_t>(reply.size() & 0xff)};
    append(framed, reply.data(), reply.size());
    // In two pieces, so that the client must read twice.
    (void)::send(c, framed.data(), 3, MSG_NOSIGNAL);
    (void)::send(c, framed.data() + 3, framed.size() - 3, MSG_NOSIGNAL);
    return true;
  }

  const std::map<std::string, host> hosts_;
  const int udp_ = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const int tcp_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int knock_ = ::eventfd(0, EFD_CLOEXEC);
  std::uint16_t port_ = 0;
  std::atomic<bool> over_{false};
  std::atomic<bool> holds_{false};
  std::atomic<int> asked_{0};
  std::atomic<int> asked_by_tcp_{0};
  mutable std::mutex lock_;
  std::map<std::pair<std::string, std::uint16_t>, int> counts_;  // guarded by lock_
  std::thread thread_;
};

}  // namespace weft::test
