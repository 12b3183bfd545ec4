// Blocking system calls beside hogs. A goroutine may block in any call it likes, and the runtime
// takes its processor away; a hog is stopped by a signal. Neither may be seen by the program: no
// call returns EINTR, transfers less than it would otherwise, or comes back early, because there is
// code that checks for none of these. (A handler that is installed with SA_RESTART is not enough:
// nanosleep, poll, epoll_wait and a recv with a timeout are never restarted.)
//
// Hogs make such calls too, in between, because a signal that was meant for a thread that computes
// and reaches it a moment later, in a call, is what goes wrong.
//
// WEFT_CALLS_TARGET=1000000 has it go on until so many calls were made.
#include "stress_hog.hpp"

#include <weft/go.hpp>
#include <weft/sync.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <functional>
#include <mutex>
#include <netinet/in.h>
#include <poll.h>
#include <semaphore.h>
#include <string>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace weft {
namespace {

using namespace std::chrono_literals;
using microseconds = std::chrono::microseconds;

constexpr int procs = 4;
constexpr int hogs = 7;
constexpr int callers_of_each = 2;

void require(bool good, const char* what) {
  if (!good) throw std::system_error(errno, std::generic_category(), what);
}

class descriptor {
 public:
  explicit descriptor(int fd = -1) : fd_(fd) {}
  descriptor(descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  descriptor& operator=(descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

struct pipe_ends {
  pipe_ends() {
    int ends[2];
    require(::pipe2(ends, O_CLOEXEC) == 0, "pipe");
    reader = descriptor(ends[0]);
    writer = descriptor(ends[1]);
  }
  descriptor reader;
  descriptor writer;
};

timespec to_timespec(std::chrono::nanoseconds d) {
  return {static_cast<time_t>(d / 1s), static_cast<long>((d % 1s).count())};
}

// --------------------------------------------------------------------------------- what was seen

// relaxed, all: counts, read when all is over or for display.
class tally {
 public:
  void note_call() { calls_.fetch_add(1, std::memory_order_relaxed); }
  // A call failed, and was not to.
  void note_error(const char* call) {
    if (errno == EINTR) {
      note(interrupted_, call);
    } else {
      other_error_.store(errno, std::memory_order_relaxed);
      note(failed_, call);
    }
  }
  void note_short(const char* call) { note(short_, call); }
  void note_early(const char* call) { note(early_, call); }

  std::uint64_t calls() const { return calls_.load(std::memory_order_relaxed); }

  void expect_none() const {
    const char* const what = what_.load(std::memory_order_relaxed);
    const std::string last = what != nullptr ? std::string("the last one was ") + what : "";
    EXPECT_EQ(interrupted_.load(std::memory_order_relaxed), 0u) << "EINTR: " << last;
    EXPECT_EQ(short_.load(std::memory_order_relaxed), 0u) << "short transfers: " << last;
    EXPECT_EQ(early_.load(std::memory_order_relaxed), 0u) << "early returns: " << last;
    EXPECT_EQ(failed_.load(std::memory_order_relaxed), 0u)
        << std::strerror(other_error_.load(std::memory_order_relaxed)) << ": " << last;
  }

 private:
  void note(std::atomic<std::uint64_t>& n, const char* call) {
    n.fetch_add(1, std::memory_order_relaxed);
    what_.store(call, std::memory_order_relaxed);
  }

  std::atomic<std::uint64_t> calls_{0};
  std::atomic<std::uint64_t> interrupted_{0};
  std::atomic<std::uint64_t> short_{0};
  std::atomic<std::uint64_t> early_{0};
  std::atomic<std::uint64_t> failed_{0};
  std::atomic<int> other_error_{0};
  std::atomic<const char*> what_{nullptr};
};

// A call that waits for a time: it must not come back before.
class wait_for_time {
 public:
  wait_for_time(tally& t, const char* call, microseconds d) : tally_(&t), call_(call), wanted_(d) {}
  wait_for_time(const wait_for_time&) = delete;
  wait_for_time& operator=(const wait_for_time&) = delete;
  // `timed_out`: it says that the time is over. Otherwise errno says why it came back.
  void returned(bool timed_out) {
    tally_->note_call();
    if (!timed_out) {
      tally_->note_error(call_);
    } else if (test::steady::now() - began_ < wanted_) {
      tally_->note_early(call_);
    }
  }

 private:
  tally* tally_;
  const char* call_;
  microseconds wanted_;
  test::steady::time_point began_ = test::steady::now();
};

// --------------------------------------------------------------------------------- calls that wait

// What a goroutine needs for calls that involve no other. Each is made with descriptors of its
// own: the only threads that wait here are the caller's.
class calls {
 public:
  calls(tally& t, int port) : tally_(&t), port_(port), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    require(epoll_.get() >= 0, "epoll_create1");
    epoll_event event{.events = EPOLLIN, .data = {}};
    require(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, silent_.reader.get(), &event) == 0, "epoll");
    int pair[2];
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "socketpair");
    socket_ = descriptor(pair[0]);
    peer_ = descriptor(pair[1]);
    require(::sem_init(&semaphore_, 0, 0) == 0, "sem_init");
  }
  calls(const calls&) = delete;
  calls& operator=(const calls&) = delete;
  ~calls() { ::sem_destroy(&semaphore_); }

  void nanosleep(microseconds d) {
    wait_for_time wait(*tally_, "nanosleep", d);
    const timespec time = to_timespec(d);
    wait.returned(::nanosleep(&time, nullptr) == 0);
  }

  void clock_nanosleep(microseconds d) {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    const timespec until =
        to_timespec(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec) + d);
    errno = ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
    if (errno != 0) tally_->note_error("clock_nanosleep");
    timespec then{};
    ::clock_gettime(CLOCK_MONOTONIC, &then);
    const bool early =
        std::pair(then.tv_sec, then.tv_nsec) < std::pair(until.tv_sec, until.tv_nsec);
    if (errno == 0 && early) tally_->note_early("clock_nanosleep");
    tally_->note_call();
  }

  void poll(microseconds d) {
    const int milliseconds = static_cast<int>(d / 1ms) + 1;
    wait_for_time wait(*tally_, "poll", milliseconds * 1ms);
    pollfd one{silent_.reader.get(), POLLIN, 0};
    wait.returned(::poll(&one, 1, milliseconds) == 0);
  }

  void epoll_wait(microseconds d) {
    const int milliseconds = static_cast<int>(d / 1ms) + 1;
    wait_for_time wait(*tally_, "epoll_wait", milliseconds * 1ms);
    epoll_event event{};
    wait.returned(::epoll_wait(epoll_.get(), &event, 1, milliseconds) == 0);
  }

  // Never restarted by the kernel, because of the timeout.
  void recv(microseconds d) {
    d = std::max<microseconds>(d, 1ms);
    const timeval timeout{0, static_cast<suseconds_t>(d.count())};
    require(::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) == 0,
            "setsockopt");
    tally_->note_call();
    char byte = 0;
    // The kernel counts this one in ticks of its own, and rounds them: not to be measured.
    if (::recv(socket_.get(), &byte, 1, 0) != -1 || errno != EAGAIN) tally_->note_error("recv");
  }

  void sem_timedwait(microseconds d) {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    const timespec until =
        to_timespec(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec) + d);
    tally_->note_call();
    if (::sem_timedwait(&semaphore_, &until) == 0) {
      tally_->note_early("sem_timedwait");
    } else if (errno != ETIMEDOUT) {
      tally_->note_error("sem_timedwait");
    }
  }

  void condition_variable(microseconds d) {
    wait_for_time wait(*tally_, "condition_variable", d);
    std::unique_lock hold(mutex_);
    wait.returned(!condition_.wait_for(hold, d, [] { return false; }));
  }

  // To a server that takes its time, on this machine.
  void connect(microseconds) {
    const descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    require(socket.get() >= 0, "socket");
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<std::uint16_t>(port_));
    tally_->note_call();
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
      tally_->note_error("connect");
      return;
    }
    // The server's answer: one byte, and the end.
    char byte = 0;
    tally_->note_call();
    const ssize_t n = ::recv(socket.get(), &byte, 1, 0);
    if (n < 0) tally_->note_error("recv from a server");
    if (n == 0) tally_->note_short("recv from a server");
    // So that the client's side is the one that does not wait for late packets: ports are few.
    const linger at_once{1, 0};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }

  // Any of those above.
  void any(base::random& random) {
    using call = void (calls::*)(microseconds);
    static constexpr call all[] = {
        &calls::nanosleep, &calls::clock_nanosleep,    &calls::poll,    &calls::epoll_wait,
        &calls::recv,      &calls::sem_timedwait,      &calls::connect, &calls::nanosleep,
        &calls::poll,      &calls::condition_variable,
    };
    (this->*all[random.below(std::size(all))])(microseconds(random.below(3000)));
  }

 private:
  tally* tally_;
  int port_;
  descriptor epoll_;
  pipe_ends silent_;  // no data ever comes
  descriptor socket_;
  descriptor peer_;
  sem_t semaphore_{};  // never posted
  std::mutex mutex_;
  std::condition_variable condition_;
};

// --------------------------------------------------------------------------------- partners
//
// Plain threads: what is looked at are the calls of goroutines, and these must not wait for a
// goroutine that gets no processor.

// Sends each client a byte and the end of the stream.
class server {
 public:
  server() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in here{};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof here;
    require(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&here), sizeof here) == 0,
            "bind");
    require(::listen(socket_.get(), 128) == 0, "listen");
    require(::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&here), &size) == 0,
            "getsockname");
    port_ = ntohs(here.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  server(const server&) = delete;
  server& operator=(const server&) = delete;
  ~server() {
    over_.store(true, std::memory_order_relaxed);
    ::shutdown(socket_.get(), SHUT_RDWR);  // wakes accept
    thread_.join();
  }
  int port() const { return port_; }

 private:
  void serve() const {
    for (int n = 0; !over_.load(std::memory_order_relaxed); ++n) {
      const descriptor client(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (client.get() < 0) continue;
      if (n % 16 == 0) std::this_thread::sleep_for(1ms);
      [[maybe_unused]] const ssize_t sent = ::send(client.get(), "x", 1, MSG_NOSIGNAL);
    }
  }

  descriptor socket_;
  int port_ = 0;
  std::atomic<bool> over_{false};  // relaxed: nothing else is passed along
  std::thread thread_;
};

// A goroutine that waits in `wait` for the signals of a thread that gives them in `give`, one each.
class signalled {
 public:
  using step = std::function<void()>;
  explicit signalled(step give) : thread_([this, give = std::move(give)] { work(give); }) {}
  signalled(const signalled&) = delete;
  signalled& operator=(const signalled&) = delete;
  ~signalled() {
    // One more, for a partner that ends the thread while it rests.
    over_.store(true, std::memory_order_relaxed);
    ask();
    thread_.join();
  }
  // The thread gives one more signal, a little later.
  void ask() {
    asked_.fetch_add(1, std::memory_order_release);  // a futex of std's
    asked_.notify_one();
  }

 private:
  void work(const step& give) {
    for (std::uint32_t done = 0;; ++done) {
      asked_.wait(done, std::memory_order_acquire);
      if (over_.load(std::memory_order_relaxed)) return;
      std::this_thread::sleep_for(microseconds(done % 7 * 200));
      give();
    }
  }

  std::atomic<std::uint32_t> asked_{0};
  std::atomic<bool> over_{false};  // relaxed: asked_ passes it along
  std::thread thread_;
};

// --------------------------------------------------------------------------------- the callers

class blocking_calls : public test::stress_test {
 protected:
  // No jitter: its signals do interrupt calls.
  blocking_calls() : stress_test(shaking::off, 4s) {
    target_ = test::number_in_environment("WEFT_CALLS_TARGET");
    if (target_ != 0) {
      set_run_time(std::max<std::chrono::milliseconds>(60s, target_ * 2ms));
    }
  }

  bool over() const { return over_.load(std::memory_order_relaxed); }

  // Computes, so long that it is stopped now and then, and calls.
  void hog(int number, int port) {
    base::random random = chance(static_cast<std::uint64_t>(number));
    calls all(tally_, port);
    do {
      test::compute_for(microseconds(random.below(random.below(4) == 0 ? 15'000 : 500)));
      all.any(random);
    } while (!over());
  }

  // Does nothing but call.
  void caller(int number, int port) {
    base::random random = chance(static_cast<std::uint64_t>(number));
    calls all(tally_, port);
    do all.any(random);
    while (!over());
  }

  void read_pipe() {
    pipe_ends ends;
    std::uint64_t sent = 0;  // the partner's
    signalled partner([&] {
      ++sent;
      require(::write(ends.writer.get(), &sent, sizeof sent) == sizeof sent, "write");
    });
    std::uint64_t expected = 0;
    do {
      ++expected;
      partner.ask();
      std::uint64_t got = 0;
      const ssize_t n = ::read(ends.reader.get(), &got, sizeof got);
      tally_.note_call();
      if (n < 0) tally_.note_error("read from a pipe");
      if (n >= 0 && (n != sizeof got || got != expected)) tally_.note_short("read from a pipe");
    } while (!over());
  }

  // A pipe takes 64 KiB at a time: the write is in the kernel for as long as the reader needs.
  void write_pipe() {
    constexpr std::size_t size = std::size_t{1} << 20;
    pipe_ends ends;
    std::atomic<std::uint64_t> received{0};
    std::thread reader([&] {
      std::vector<char> buffer(size);
      for (int turn = 0;; ++turn) {
        const ssize_t n = ::read(ends.reader.get(), buffer.data(), buffer.size());
        if (n <= 0) return;
        for (ssize_t i = 0; i < n; ++i) {
          if (buffer[static_cast<std::size_t>(i)] != 'w') tally_.note_short("contents of a pipe");
        }
        received.fetch_add(static_cast<std::uint64_t>(n), std::memory_order_relaxed);
        if (turn % 8 == 0) std::this_thread::sleep_for(1ms);
      }
    });
    const std::vector<char> data(size, 'w');
    std::uint64_t sent = 0;
    do {
      const ssize_t n = ::write(ends.writer.get(), data.data(), size);
      tally_.note_call();
      if (n < 0) tally_.note_error("write to a pipe");
      if (n >= 0 && static_cast<std::size_t>(n) != size) tally_.note_short("write to a pipe");
      sent += n > 0 ? static_cast<std::uint64_t>(n) : 0;
    } while (!over());
    ends.writer = descriptor();
    reader.join();
    if (received.load(std::memory_order_relaxed) != sent) tally_.note_short("all of a pipe");
  }

  void wait_for_semaphore() {
    sem_t semaphore;
    require(::sem_init(&semaphore, 0, 0) == 0, "sem_init");
    {
      signalled partner([&] { ::sem_post(&semaphore); });
      do {
        partner.ask();
        tally_.note_call();
        if (::sem_wait(&semaphore) != 0) tally_.note_error("sem_wait");
      } while (!over());
    }
    ::sem_destroy(&semaphore);
  }

  void wait_for_condition() {
    std::mutex mutex;
    std::condition_variable changed;
    std::uint64_t given = 0;
    signalled partner([&] {
      const std::lock_guard hold(mutex);
      ++given;
      changed.notify_one();
    });
    std::uint64_t taken = 0;
    do {
      partner.ask();
      tally_.note_call();
      std::unique_lock hold(mutex);
      changed.wait(hold, [&] { return given != taken; });
      if (given != ++taken) tally_.note_early("condition_variable::wait");
    } while (!over());
  }

  // Each has an open file of its own: they exclude each other, and the partner, a plain thread.
  void lock_file(const std::string& path, std::atomic<int>& holders) {
    const descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    require(file.get() >= 0, "open");
    do {
      tally_.note_call();
      if (::flock(file.get(), LOCK_EX) != 0) {
        tally_.note_error("flock");
        continue;
      }
      if (holders.fetch_add(1, std::memory_order_relaxed) != 0) tally_.note_early("flock");
      std::this_thread::sleep_for(200us);
      holders.fetch_sub(1, std::memory_order_relaxed);
      ::flock(file.get(), LOCK_UN);
    } while (!over());
  }

  // Until there were enough calls or the time is up.
  void wait_for_target() {
    while (!time_is_up() && (target_ == 0 || tally_.calls() < target_)) {
      std::this_thread::sleep_for(10ms);
    }
    over_.store(true, std::memory_order_relaxed);
  }

  tally tally_;

 private:
  std::uint64_t target_ = 0;
  std::atomic<bool> over_{false};  // relaxed: nothing else is passed along
};

class temporary_file {
 public:
  temporary_file() : path_(::testing::TempDir() + "weft_flock_XXXXXX") {
    file_ = descriptor(::mkostemp(path_.data(), O_CLOEXEC));
    require(file_.get() >= 0, "mkostemp");
  }
  temporary_file(const temporary_file&) = delete;
  temporary_file& operator=(const temporary_file&) = delete;
  ~temporary_file() { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  descriptor file_;
};

// A library that was written for threads, and checks for no EINTR, must work in goroutines.
TEST_F(blocking_calls, see_nothing_of_pauses_and_detaches) {
  max_procs(procs);
  const std::uint64_t pauses = test::pauses();
  const std::uint64_t detaches = test::detaches();
  const server there;
  const temporary_file file;
  std::atomic<int> holders{0};
  wait_group all;
  int number = 0;
  for (int i = 0; i < hogs; ++i) {
    all.go([this, n = number++, &there] { hog(n, there.port()); });
  }
  for (int i = 0; i < callers_of_each; ++i) {
    for (int k = 0; k < 4; ++k) {
      all.go([this, n = number++, &there] { caller(n, there.port()); });
    }
    all.go([this] { read_pipe(); });
    all.go([this] { write_pipe(); });
    all.go([this] { wait_for_semaphore(); });
    all.go([this] { wait_for_condition(); });
    all.go([this, &file, &holders] { lock_file(file.path(), holders); });
  }
  wait_for_target();
  all.wait();
  tally_.expect_none();
  const auto count = [](std::uint64_t n) { return static_cast<unsigned long long>(n); };
  const std::uint64_t paused = test::pauses() - pauses;
  const std::uint64_t detached = test::detaches() - detaches;
  std::printf("%llu calls, %llu pauses, %llu detaches\n", count(tally_.calls()), count(paused),
              count(detached));
  EXPECT_TRUE(paused != 0 || !test::can_pause) << "nobody was paused: this proves nothing";
  EXPECT_TRUE(detached != 0 || !test::can_pause)
      << "no processor was taken away: this proves nothing";
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::test::run_tests_with_short_slice(argc, argv); }
