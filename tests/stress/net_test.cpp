// Sockets under load and in bad company: many connections, peers that vanish at any moment, and
// deadlines and closes that come from other goroutines while calls wait.
#include "bytes.hpp"
#include "open_descriptors.hpp"
#include "plain_socket.hpp"
#include "stress_fixture.hpp"

#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <weft/go.hpp>
#include <weft/net.hpp>
#include <weft/sync.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace weft {
namespace {

using namespace std::chrono_literals;
using test::bytes;
using test::is_lost;
using test::stream_of_bytes;

constexpr std::array procs_tried{1, 2, 4, 16};
const std::error_code closed = errc::closed;
const std::error_code timed_out = errc::timed_out;

template <class T>
std::error_code error_of(const expected<T>& e) {
  return e ? std::error_code() : e.error();
}

std::size_t resident_bytes() {
  std::size_t total = 0;
  std::size_t resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// Sends back what comes, a goroutine for each connection, until its clients are gone.
class echo_server {
 public:
  echo_server()
      : listener_(net::listen("tcp", "127.0.0.1:0").value()), address_(listener_.local_address()) {
    all_.go([this] { accept_all(); });
  }
  echo_server(const echo_server&) = delete;
  echo_server& operator=(const echo_server&) = delete;
  // Waits for the clients to go.
  ~echo_server() {
    EXPECT_FALSE(listener_.close());
    all_.wait();
    EXPECT_EQ(wrong_.load(std::memory_order_relaxed), 0u) << "the first: " << first_wrong_;
  }

  const net::address& address() const { return address_; }
  std::size_t held() const { return held_.load(std::memory_order_relaxed); }

 private:
  void accept_all() {
    for (;;) {
      auto c = listener_.accept();
      if (!c) {
        if (c.error() != closed) note_wrong("accept", c.error());
        return;
      }
      all_.go([this, c = std::move(*c)]() mutable { echo(c); });
    }
  }

  void echo(net::conn& c) {
    held_.fetch_add(1, std::memory_order_relaxed);
    char buffer[2048];
    for (;;) {
      const auto n = c.read(bytes(buffer, sizeof buffer));
      if (!n && !is_lost(n.error())) note_wrong("read", n.error());
      if (!n || *n == 0) break;
      const auto written = c.write(bytes(buffer, *n));
      if (!written && !is_lost(written.error())) note_wrong("write", written.error());
      if (!written) break;
    }
    held_.fetch_sub(1, std::memory_order_relaxed);
  }

  void note_wrong(const char* where, std::error_code e) {
    if (wrong_.fetch_add(1, std::memory_order_relaxed) == 0) {
      first_wrong_ = std::string(where) + ": " + e.message();
    }
  }

  net::listener listener_;
  const net::address address_;
  std::atomic<std::size_t> held_{0};   // relaxed: a number
  std::atomic<std::size_t> wrong_{0};  // relaxed: read when all is over
  std::string first_wrong_;            // by the goroutine that counted to 1
  wait_group all_;
};

// ---- many connections
// -----------------------------------------------------------------------------

// The clients of many connections: a process of its own, because client and server together need
// twice as many descriptors as one may have. It is forked from a process with threads and so makes
// nothing but system calls; what it has to say is in memory that both see.
class crowd {
 public:
  struct report {
    std::atomic<int> rounds{0};     // that all clients have been through
    std::atomic<int> failed_at{0};  // line of this file
    std::atomic<int> error{0};
  };

  crowd(const net::address& to, int clients, int rounds)
      : to_(to), clients_(clients), rounds_(rounds) {
    // The descriptors of the process that forks are closed, so theirs are below this.
    bytes_ = sizeof(report) + static_cast<std::size_t>(clients) * sizeof(int);
    void* const memory =
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    report_ = ::new (memory) report;
    sockets_ = reinterpret_cast<int*>(report_ + 1);
    child_ = ::fork();
    if (child_ == 0) {
      live();
      ::_exit(report_->failed_at.load() == 0 ? 0 : 1);
    }
  }
  crowd(const crowd&) = delete;
  crowd& operator=(const crowd&) = delete;
  ~crowd() {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      end();
    }
    ::munmap(report_, bytes_);
  }

  // Waits until all clients have been through so many rounds. Returns: false if they failed.
  bool until(int rounds) {
    while (report_->rounds.load(std::memory_order_acquire) < rounds) {
      if (report_->failed_at.load(std::memory_order_acquire) != 0) return false;
      std::this_thread::sleep_for(1ms);
    }
    return true;
  }
  // Waits until it has gone. Returns: its exit status.
  int end() {
    int status = 0;
    while (::waitpid(child_, &status, 0) < 0 && errno == EINTR) {
    }
    child_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string failure() const {
    return "net_test.cpp:" + std::to_string(report_->failed_at.load()) + ": " +
           std::generic_category().message(report_->error.load());
  }

 private:
  bool fail(int line) const {
    report_->error.store(errno, std::memory_order_relaxed);
    report_->failed_at.store(line, std::memory_order_release);
    return false;
  }

  void live() const {
    ::close_range(3, ~0U, 0);
    const int epoll = ::epoll_create1(0);
    if (epoll < 0) {
      fail(__LINE__);
      return;
    }
    if (!connect_all(epoll)) return;
    for (int round = 0; round < rounds_; ++round) {
      if (!talk(epoll, round)) return;
      report_->rounds.store(round + 1, std::memory_order_release);
    }
    // Half of them go without a word.
    for (int i = 0; i < clients_; i += 2) {
      const linger at_once{.l_onoff = 1, .l_linger = 0};
      ::setsockopt(sockets_[i], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    }
  }

  bool connect_all(int epoll) const {
    for (int i = 0; i < clients_; ++i) {
      const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
      if (fd < 0) return fail(__LINE__);
      sockets_[i] = fd;
      if (::connect(fd, static_cast<const sockaddr*>(to_.data()),
                    static_cast<socklen_t>(to_.size())) != 0) {
        return fail(__LINE__);
      }
      epoll_event e{};
      e.events = EPOLLIN;
      e.data.u32 = static_cast<std::uint32_t>(i);
      if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) != 0) return fail(__LINE__);
    }
    return true;
  }

  static std::int64_t now_ms() {
    timespec t{};
    ::clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1'000'000;
  }
  static char byte_of(int round, int i) { return static_cast<char>(round * 31 + i * 7 + 1); }

  // Each client sends one byte, spread over a second, and gets it back.
  bool talk(int epoll, int round) const {
    constexpr int round_ms = 1000;
    const std::int64_t began = now_ms();
    std::int64_t heard_at = began;
    for (int sent = 0, back = 0; back < clients_;) {
      const std::int64_t now = now_ms();
      const auto due = static_cast<int>(
          std::min<std::int64_t>(clients_, (now - began + 1) * clients_ / round_ms));
      for (; sent < due; ++sent) {
        const char c = byte_of(round, sent);
        if (::send(sockets_[sent], &c, 1, MSG_NOSIGNAL) != 1) return fail(__LINE__);
      }
      epoll_event events[256];
      const int n = ::epoll_wait(epoll, events, 256, sent < clients_ ? 1 : 1000);
      if (n < 0 && errno != EINTR) return fail(__LINE__);
      if (n > 0 || sent < clients_) heard_at = now_ms();
      errno = ETIMEDOUT;
      if (now_ms() - heard_at > 40'000) return fail(__LINE__);
      for (int k = 0; k < n; ++k) {
        const auto i = static_cast<int>(events[k].data.u32);
        char c[2];
        errno = EBADMSG;
        if (::recv(sockets_[i], c, 2, 0) != 1 || c[0] != byte_of(round, i)) return fail(__LINE__);
        ++back;
      }
    }
    return true;
  }

  const net::address to_;
  const int clients_;
  const int rounds_;
  std::size_t bytes_ = 0;
  report* report_ = nullptr;
  int* sockets_ = nullptr;
  pid_t child_ = -1;
};

// Raises the limit of descriptors as far as we may. Returns: how many sockets one may have then.
int socket_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  constexpr rlim_t others = 200;
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1'000'000)) - static_cast<int>(others);
}

class net_stress : public test::stress_test {
 protected:
  net_stress() : net_stress(shaking::on) {}
  explicit net_stress(shaking s) : stress_test(s, 5s) {
    // The poller's own descriptors are made when there is a socket, and stay.
    (void)net::listen("tcp", "127.0.0.1:0").value();
    sockets_before_ = test::count_sockets();
  }

  void TearDown() override {
    EXPECT_EQ(test::count_sockets(), sockets_before_);
    stress_test::TearDown();
  }

 private:
  std::ptrdiff_t sockets_before_ = 0;
};

// A connection costs a goroutine, and nothing while it is silent. Each client has something to say
// once a second, and is heard, whichever thread polls, while the number of processors changes.
TEST_F(net_stress, ten_thousand_connections_are_held_and_served) {
  const int wanted = test::scaled(10'000, 1000);
  const int clients = std::min(wanted, socket_limit());
  if (clients < wanted) {
    std::printf("RLIMIT_NOFILE allows no more than %d connections instead of %d\n", clients,
                wanted);
  }
  echo_server server;
  {
    crowd all(server.address(), clients, static_cast<int>(procs_tried.size()));
    int rounds = 0;
    for (const int procs : procs_tried) {
      max_procs(procs);
      if (!all.until(++rounds)) {
        ADD_FAILURE() << all.failure() << " on " << procs << " processors, with " << server.held()
                      << " connections";
        break;
      }
      if (rounds < static_cast<int>(procs_tried.size())) {  // then they leave
        EXPECT_EQ(server.held(), static_cast<std::size_t>(clients));
      }
    }
    if (!HasFailure()) {
      EXPECT_EQ(all.end(), 0) << all.failure();
    }
  }
}

// ---- clients that vanish
// --------------------------------------------------------------------------

// A client that does anything a client can do, one small step at a time, and knows what it has to
// get back.
class wild_client {
 public:
  wild_client(const net::address& to, base::random chance) : to_(to), chance_(chance) {}

  // Returns: false if it got something wrong.
  bool step() {
    if (!socket_.is_open()) {
      connect();
      return true;
    }
    const std::uint32_t what = chance_.below(64);
    if (what < 30) return speak();
    if (what < 58) return listen();
    if (what < 60) return end_properly();
    if (what == 60) {
      socket_.reset();
    } else if (what == 61) {
      socket_.close();  // what was not read makes it a reset, too
    } else if (what == 62) {
      socket_.close_write();
      is_silent_ = true;
    }
    return true;
  }
  // As it ought to be done: says that it is through, takes all that is due, and goes.
  bool end_properly() {
    socket_.close_write();
    for (;;) {
      char buffer[4096];
      pollfd ready{socket_.fd(), POLLIN, 0};
      if (::poll(&ready, 1, 40'000) == 0) return complain("is not answered");
      const ssize_t n = socket_.receive(buffer, sizeof buffer);
      if (n < 0 && errno == EAGAIN) continue;
      if (n < 0) return complain("was cut off while it waited for the rest");
      if (n == 0) break;
      if (!due_.matches(buffer, static_cast<std::size_t>(n))) return complain("got wrong bytes");
    }
    if (due_.position() != sent_.position()) return complain("did not get all");
    ++ended_;
    socket_.close();
    return true;
  }
  void stop() { socket_.close(); }

  std::uint64_t connections() const { return connections_; }
  std::uint64_t ended() const { return ended_; }
  const std::string& complaint() const { return complaint_; }

 private:
  void connect() {
    socket_ = test::plain_socket(to_, test::plain_socket::mode::non_blocking);
    const std::uint64_t number = chance_.next();
    sent_ = due_ = stream_of_bytes(number);
    is_silent_ = false;
    ++connections_;
  }
  bool speak() {
    if (is_silent_) return true;
    char buffer[6000];
    const std::size_t n = 1 + chance_.below(chance_.below(8) == 0 ? sizeof buffer : 64);
    stream_of_bytes ahead = sent_;
    ahead.fill(buffer, n);
    const ssize_t done = socket_.send(buffer, n);
    if (done < 0) return errno == EAGAIN || complain("cannot send");
    sent_.fill(buffer, static_cast<std::size_t>(done));
    return true;
  }
  bool listen() {
    char buffer[4096];
    const ssize_t n = socket_.receive(buffer, 1 + chance_.below(sizeof buffer));
    if (n < 0) return errno == EAGAIN || complain("cannot receive");
    if (n == 0) {
      if (!is_silent_) return complain("was left");
      if (due_.position() != sent_.position()) return complain("was left early");
      socket_.close();
      return true;
    }
    return due_.matches(buffer, static_cast<std::size_t>(n)) || complain("got wrong bytes");
  }
  bool complain(const char* what) {
    complaint_ = std::string("a client ") + what + ": errno " + std::to_string(errno) + ", " +
                 std::to_string(due_.position()) + " of " + std::to_string(sent_.position()) +
                 " bytes came back";
    return false;
  }

  const net::address to_;
  base::random chance_;
  test::plain_socket socket_;
  stream_of_bytes sent_{0};
  stream_of_bytes due_{0};
  bool is_silent_ = false;  // has said that it sends no more
  std::uint64_t connections_ = 0;
  std::uint64_t ended_ = 0;
  std::string complaint_;
};

// Whatever the moment at which a client goes, and however, its goroutine and its descriptor go with
// it, and the others get their bytes.
TEST_F(net_stress, clients_that_vanish_leave_nothing_behind) {
  constexpr int clients = 48;
  std::size_t resident_before = 0;
  std::size_t allocated_before = 0;
  std::uint64_t connections = 0;
  std::uint64_t ended = 0;
  int turns = 0;
  base::random seeds = chance();
  // What the first turn takes, the later ones have.
  for (; turns < 2 || !time_is_up(); ++turns) {
    for (const int procs : procs_tried) {
      max_procs(procs);
      const echo_server server;
      std::vector<std::thread> threads;
      std::array<std::string, 2> complaints;
      std::array<std::uint64_t, 2> counts{};
      std::array<std::uint64_t, 2> ends{};
      for (std::size_t t = 0; t < complaints.size(); ++t) {
        threads.emplace_back([&, t, random = base::random(seeds.next())]() mutable {
          std::vector<wild_client> crowd;
          for (int i = 0; i < clients / 2; ++i) {
            crowd.emplace_back(server.address(), base::random(random.next()));
          }
          const auto end = test::steady::now() + 200ms;
          while (test::steady::now() < end && complaints[t].empty()) {
            for (int i = 0; i < 100; ++i) {
              wild_client& c = crowd[random.below(static_cast<std::uint32_t>(crowd.size()))];
              if (!c.step()) complaints[t] = c.complaint();
            }
          }
          for (wild_client& c : crowd) {
            c.stop();
            counts[t] += c.connections();
            ends[t] += c.ended();
          }
        });
      }
      for (std::thread& t : threads) t.join();
      for (const std::string& complaint : complaints) EXPECT_EQ(complaint, "");
      for (const std::uint64_t n : counts) connections += n;
      for (const std::uint64_t n : ends) ended += n;
    }
    if (HasFailure()) return;
    if (turns == 0) {
      resident_before = resident_bytes();
      allocated_before = ::mallinfo2().uordblks;
    }
  }
  EXPECT_GT(ended, 0u);
  const std::size_t resident = resident_bytes();
  const std::size_t allocated = ::mallinfo2().uordblks;
  std::printf("%lu connections, %lu of them ended properly\n", connections, ended);
  std::printf("resident: %zu KiB, then %zu KiB; allocated: %zu KiB, then %zu KiB\n",
              resident_before >> 10, resident >> 10, allocated_before >> 10, allocated >> 10);
  // Sanitizers keep memory that was freed.
  if (!test::slow_build) {
    EXPECT_LE(resident, resident_before + (std::size_t{16} << 20));
    EXPECT_LE(allocated, allocated_before + (std::size_t{1} << 20));
  }
}

// ---- deadlines and closes by others
// ---------------------------------------------------------------

// One connection, written at one end and read at the other, and what others do to it meanwhile.
// Whatever the deadlines: the bytes that come are the ones that were sent, in order, and each call
// returns what it may.
class plagued_pair {
 public:
  plagued_pair(net::conn a, net::conn b, std::uint64_t number, base::random chance)
      : a_(std::move(a)), b_(std::move(b)), number_(number), has_deadlines_(chance.below(4) != 0) {
    all_.go([this, r = base::random(chance.next())]() mutable { write(r); });
    all_.go([this, r = base::random(chance.next())]() mutable { read(r); });
    for (int i = 0; i < 2 && has_deadlines_; ++i) {
      all_.go([this, r = base::random(chance.next())]() mutable { plague(r); });
    }
    all_.go([this, r = base::random(chance.next())]() mutable { end(r); });
  }
  plagued_pair(const plagued_pair&) = delete;
  plagued_pair& operator=(const plagued_pair&) = delete;
  // Waits for everybody. Returns: what went wrong, or nothing.
  std::string outcome() {
    all_.wait();
    // Nothing comes that was not sent; and if nobody broke the connection, all that was sent comes.
    if (read_ > sent_most_) complain("more came than was sent", {});
    if (saw_end_ && read_ < sent_least_) complain("the end came early", {});
    return complaint_;
  }

 private:
  void write(base::random& chance) {
    stream_of_bytes out(number_);
    std::vector<char> buffer(200'000);
    for (;;) {
      const std::size_t n = 1 + chance.below(chance.below(4) == 0 ? 200'000 : 2000);
      out.fill(buffer.data(), n);
      sent_most_ += n;
      const auto done = a_.write(bytes(buffer.data(), n));
      if (done) {
        if (*done != n) complain("a write took a part", {});
        sent_least_ += n;
        continue;
      }
      // A part may have been written, so the stream cannot go on.
      if (done.error() == timed_out) {
        if (!has_deadlines_) complain("a write timed out without a deadline", done.error());
        (void)a_.close_write();
      } else if (done.error() == closed) {
        if (!a_closing_.load(std::memory_order_acquire)) complain("a write found it closed", {});
      } else if (done.error() == std::errc::broken_pipe && shut_.load(std::memory_order_acquire)) {
        // close_write() by the side that ends the connection.
      } else if (!is_lost(done.error()) || !b_closing_.load(std::memory_order_acquire)) {
        complain("a write failed", done.error());
      }
      return;
    }
  }

  void read(base::random& chance) {
    stream_of_bytes in(number_);
    std::vector<char> buffer(100'000);
    for (;;) {
      const std::size_t most = 1 + chance.below(chance.below(4) == 0 ? 100'000 : 3000);
      const auto n = b_.read(bytes(buffer.data(), most));
      if (n && *n != 0) {
        if (!in.matches(buffer.data(), *n)) complain("wrong bytes came", {});
        read_ += *n;
        if (*n > most) complain("a read took too much", {});
        if (chance.below(16) == 0)
          this_goroutine::sleep_for(std::chrono::microseconds(chance.below(300)));
        continue;
      }
      if (n) {
        saw_end_ = true;
      } else if (n.error() == timed_out) {
        if (!has_deadlines_) complain("a read timed out without a deadline", n.error());
        b_.set_read_deadline({});
        continue;
      } else if (n.error() == closed) {
        if (!b_closing_.load(std::memory_order_acquire)) complain("a read found it closed", {});
      } else {
        complain("a read failed", n.error());
      }
      break;
    }
    over_.store(true, std::memory_order_release);
    // The peer no longer reads: the writer must not wait for that.
    b_closing_.store(true, std::memory_order_release);
    (void)b_.close();
  }

  void plague(base::random& chance) {
    const auto when = [&]() -> clock::time_point {
      switch (chance.below(4)) {
        case 0:
          return {};
        case 1:
          return clock::now() - 1s;
        case 2:
          return clock::now() + std::chrono::microseconds(chance.below(500));
        default:
          return clock::now() + 1h;
      }
    };
    while (!over_.load(std::memory_order_acquire)) {
      switch (chance.below(32)) {
        case 0:
          a_.set_write_deadline(when());
          break;
        case 1:
          a_.set_deadline(when());
          break;
        case 2:
          b_.set_deadline(when());
          break;
        default:
          b_.set_read_deadline(when());
      }
      if (chance.below(4) == 0) {
        this_goroutine::sleep_for(std::chrono::microseconds(chance.below(200)));
      } else {
        this_goroutine::yield();
      }
    }
  }

  void end(base::random& chance) {
    if (chance.below(4) != 0) {
      this_goroutine::sleep_for(std::chrono::microseconds(chance.below(4000)));
    }
    switch (chance.below(3)) {
      case 0:
        a_closing_.store(true, std::memory_order_release);
        if (const auto e = a_.close()) complain("close failed", e);
        if (a_.close() != closed) complain("closed twice", {});
        break;
      case 1:
        // False: the reader was first.
        b_closing_.store(true, std::memory_order_release);
        (void)b_.close();
        break;
      default:
        shut_.store(true, std::memory_order_release);
        (void)a_.close_write();
    }
  }

  void complain(const char* what, std::error_code e) {
    const std::lock_guard hold(lock_);
    if (complaint_.empty()) complaint_ = what + (e ? ": " + e.message() : std::string());
  }

  net::conn a_;
  net::conn b_;
  const std::uint64_t number_;
  const bool has_deadlines_;
  std::atomic<bool> a_closing_{false};
  std::atomic<bool> b_closing_{false};
  std::atomic<bool> shut_{false};
  std::atomic<bool> over_{false};
  std::uint64_t sent_least_ = 0;  // the writer's, like the next; read when all is over
  std::uint64_t sent_most_ = 0;
  std::uint64_t read_ = 0;  // the reader's, like the next
  bool saw_end_ = false;
  mutex lock_;
  std::string complaint_;  // guarded by lock_
  wait_group all_;
};

// Returns: both ends of a connection.
std::pair<net::conn, net::conn> connect(net::listener& l, const char* network) {
  auto near = net::dial(network, l.local_address().to_string()).value();
  return {std::move(near), l.accept().value()};
}

// A deadline or a close that misses who waits leaves it waiting for ever; one that reaches somebody
// else, or comes between the bytes, spoils what it has nothing to do with.
TEST_F(net_stress, deadlines_and_closes_by_others_reach_who_waits_and_harm_nobody) {
  base::random seeds = chance();
  const std::string path =
      (std::filesystem::temp_directory_path() / ("weft-net-stress-" + std::to_string(::getpid())))
          .string();
  std::uint64_t number = 0;
  do {
    for (const int procs : procs_tried) {
      max_procs(procs);
      const int exit = run([&] {
        auto tcp = net::listen("tcp", "127.0.0.1:0").value();
        auto local = net::listen("unix", path).value();
        for (int round = 0; round < test::scaled(8, 3); ++round) {
          std::vector<std::unique_ptr<plagued_pair>> pairs;
          for (int i = 0; i < 12; ++i) {
            auto [a, b] = i % 3 == 0 ? connect(local, "unix") : connect(tcp, "tcp");
            pairs.push_back(std::make_unique<plagued_pair>(std::move(a), std::move(b), ++number,
                                                           base::random(seeds.next())));
          }
          for (const auto& p : pairs) EXPECT_EQ(p->outcome(), "") << procs << " processors";
        }
      });
      EXPECT_EQ(exit, 0);
    }
  } while (!time_is_up() && !HasFailure());
  std::printf("%lu connections\n", number);
}

// Many wait on one that is silent, readers on a connection and acceptors on a listener: each of
// them has its turn with the deadlines, and all learn that it was closed.
TEST_F(net_stress, all_who_wait_learn_that_it_was_closed) {
  base::random seeds = chance();
  std::atomic<std::uint64_t> late{0};
  do {
    for (const int procs : procs_tried) {
      max_procs(procs);
      for (int round = 0; round < test::scaled(20, 5); ++round) {
        run([&, random = base::random(seeds.next())]() mutable {
          auto l = net::listen("tcp", "127.0.0.1:0").value();
          auto [a, b] = connect(l, "tcp");
          std::atomic<bool> closing{false};
          std::atomic<int> told{0};
          wait_group all;
          const auto wait_for_the_end = [&](auto call, auto clear) {
            for (;;) {
              const std::error_code e = call();
              if (e == timed_out) {
                late.fetch_add(1, std::memory_order_relaxed);
                clear();
                continue;
              }
              EXPECT_EQ(e, closed) << e.message();
              EXPECT_TRUE(closing.load(std::memory_order_acquire));
              told.fetch_add(1, std::memory_order_relaxed);
              return;
            }
          };
          for (int i = 0; i < 3; ++i) {
            all.go([&] {
              char c;
              wait_for_the_end([&] { return error_of(b.read(bytes(&c, 1))); },
                               [&] { b.set_read_deadline({}); });
            });
            all.go([&] {
              wait_for_the_end([&] { return error_of(l.accept()); }, [&] { l.set_deadline({}); });
            });
          }
          const std::uint32_t changes = random.below(30);
          for (std::uint32_t i = 0; i < changes; ++i) {
            const auto when = clock::now() + std::chrono::microseconds(random.below(200)) - 50us;
            random.below(2) == 0 ? b.set_deadline(when) : l.set_deadline(when);
            this_goroutine::sleep_for(std::chrono::microseconds(random.below(100)));
          }
          closing.store(true, std::memory_order_release);
          all.go([&] { EXPECT_FALSE(l.close()); });
          EXPECT_FALSE(b.close());
          all.wait();
          EXPECT_EQ(told.load(std::memory_order_relaxed), 6);
        });
      }
    }
  } while (!time_is_up() && !HasFailure());
  EXPECT_GT(late.load(std::memory_order_relaxed), 0u);
}

}  // namespace
}  // namespace weft
