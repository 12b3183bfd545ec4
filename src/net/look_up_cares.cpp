// look_up_cares.cpp: a look-up by c-ares, which talks to the name servers itself without blocking.
//
// Each look-up has a c-ares channel of its own. Making one costs 20 us, half of it for reading the
// system's settings (resolv.conf, nsswitch.conf). So the settings are never stale, and nothing is
// shared. c-ares uses a few sockets. They are in an epoll instance that belongs to the look-up, and
// the poller watches the descriptor of that instance. So the goroutine waits for one descriptor
// until any of the sockets is ready, or until the time that c-ares named.
//
//   run()    sends the question; then, until c-ares has called back:
//              passes every ready socket to c-ares, until none is ready (the poller reports changes
//              only, so it would not report a socket that was left out again)
//              waits, with the deadline that c-ares named
//
// Calls that read files (the settings, the hosts file) are announced as short calls. c-ares calls
// back inside such calls as well, so the callbacks here do not enter the runtime.
//
// Names below "localhost" never leave the machine (RFC 6761): they come from the hosts file, or
// mean the loopback addresses.
//
// By default c-ares asks each server four times, with pauses that double: more than a minute in
// all. The system's default is two times (resolv.conf(5)), and so it is here.
//
// c-ares sorts as RFC 6724 says: by the source address that the kernel would use.
#include "io/descriptor.hpp"
#include "io/past.hpp"
#include "net/look_up.hpp"
#include "sched/call.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>
#include <utility>

#include <ares.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>

namespace weft::net {
namespace {

constexpr int attempts = 2;

// The servers that a test has set.
struct server_choice {
  std::mutex lock;
  std::string servers;  // guarded by lock; empty: the system's
};
server_choice& the_choice() {
  static server_choice& choice = *new server_choice;
  return choice;
}

std::error_code error_of(int status) {
  switch (status) {
    case ARES_ENOTFOUND:
    case ARES_EBADNAME:
      return resolve_errc::host_not_found;
    case ARES_ENODATA:
      return resolve_errc::no_address;
    case ARES_ESERVFAIL:
    case ARES_ECONNREFUSED:
      return resolve_errc::try_again;
    case ARES_ETIMEOUT:
      return resolve_errc::no_answer;
    case ARES_ENOMEM:
      return std::make_error_code(std::errc::not_enough_memory);
    case ARES_ECANCELLED:
    case ARES_EDESTRUCTION:
      return errc::canceled;
    default:
      return resolve_errc::failed;
  }
}

// Whether the system's settings say how often to ask.
bool has_attempts() {
  const auto says = [](std::string_view text) {
    return text.find("attempts:") != text.npos || text.find("retry:") != text.npos;
  };
  const char* const options = std::getenv("RES_OPTIONS");
  if (options != nullptr && says(options)) return true;
  std::ifstream file("/etc/resolv.conf");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("options") && says(line)) return true;
  }
  return false;
}

class cares_look_up final : public look_up {
 public:
  cares_look_up(std::string host, ip_family family, io::descriptor_ptr events)
      : host_(std::move(host)), family_(family), events_(std::move(events)) {}
  ~cares_look_up() override {
    if (channel_ != nullptr) ares_destroy(channel_);
  }

  expected<std::vector<address>> run() override {
    if (const std::error_code e = ask()) return std::unexpected(e);
    while (!is_over_) {
      if (attend_sockets()) continue;
      if (const std::error_code e = wait()) return std::unexpected(e);
    }
    if (is_localhost(host_) && found_.empty()) return loopback(family_);
    if (status_ != ARES_SUCCESS) return std::unexpected(error_of(status_));
    if (found_.empty()) return std::unexpected(make_error_code(resolve_errc::no_address));
    return std::move(found_);
  }

  void abandon() noexcept override {
    is_abandoned_.store(true, std::memory_order_relaxed);  // ordered by the deadline's lock
    events_->set_deadline(sched::poll_side::in, io::past);
  }

 private:
  // Makes the channel and asks it. Returns: why that cannot be.
  std::error_code ask() {
    std::string servers;
    {
      server_choice& choice = the_choice();
      const std::lock_guard hold(choice.lock);
      servers = choice.servers;
    }
    const sched::short_call announced;
    static const int library = ares_library_init(ARES_LIB_INIT_ALL);
    if (library != ARES_SUCCESS) return error_of(library);

    ares_options options{};
    int chosen = ARES_OPT_SOCK_STATE_CB;
    if (!has_attempts()) {
      options.tries = attempts;
      chosen |= ARES_OPT_TRIES;
    }
    options.sock_state_cb = &on_socket;
    options.sock_state_cb_data = this;
    char files_only[] = "f";
    if (is_localhost(host_)) {
      options.lookups = files_only;
      chosen |= ARES_OPT_LOOKUPS;
    }
    if (const int s = ares_init_options(&channel_, &options, chosen); s != ARES_SUCCESS) {
      channel_ = nullptr;
      return error_of(s);
    }
    if (!servers.empty()) {
      if (const int s = ares_set_servers_ports_csv(channel_, servers.c_str()); s != ARES_SUCCESS) {
        return error_of(s);
      }
    }
    ares_addrinfo_hints hints{};
    hints.ai_family = native_of(family_);
    ares_getaddrinfo(channel_, host_.c_str(), nullptr, &hints, &on_answer, this);
    return {};
  }

  // Lets c-ares read and write where it can. Returns: whether there was anything.
  bool attend_sockets() {
    std::array<epoll_event, 16> ready;
    const int n = ::epoll_wait(events_->fd(), ready.data(), static_cast<int>(ready.size()), 0);
    for (int i = 0; i < n && !is_over_; ++i) {
      const epoll_event& e = ready[static_cast<std::size_t>(i)];
      // Errors are found by reading and writing.
      const bool has_failed = (e.events & (EPOLLERR | EPOLLHUP)) != 0;
      const bool in = (e.events & EPOLLIN) != 0 || has_failed;
      const bool out = (e.events & EPOLLOUT) != 0 || has_failed;
      ares_process_fd(channel_, in ? e.data.fd : ARES_SOCKET_BAD,
                      out ? e.data.fd : ARES_SOCKET_BAD);
    }
    return n > 0;
  }

  // Waits until a socket is ready or c-ares wants to try again. Returns: an error if the look-up is
  // to end. Parks.
  std::error_code wait() {
    timeval left{};
    if (ares_timeout(channel_, nullptr, &left) == nullptr) {
      // It waits for nothing, and has not called back.
      return resolve_errc::failed;
    }
    const auto limit = std::chrono::seconds(left.tv_sec) + std::chrono::microseconds(left.tv_usec) +
                       std::chrono::microseconds(1);
    events_->set_deadline(sched::poll_side::in, clock::now() + limit);
    // Either abandon() sets its deadline after this one, and so ends the wait. Or it did so before,
    // and then the deadline's lock makes its flag visible. So relaxed is enough.
    if (is_abandoned_.load(std::memory_order_relaxed)) return errc::canceled;
    const std::error_code e = events_->wait(sched::poll_side::in);
    if (e != errc::timed_out) return e;
    ares_process_fd(channel_, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    return {};
  }

  // c-ares calls this when it has opened a socket, waits for other events of it, or is about to
  // close it.
  static void on_socket(void* self, ares_socket_t fd, int readable, int writable) {
    const int events = static_cast<cares_look_up*>(self)->events_->fd();
    epoll_event e{};
    e.events = (readable != 0 ? std::uint32_t{EPOLLIN} : 0) |
               (writable != 0 ? std::uint32_t{EPOLLOUT} : 0);
    e.data.fd = fd;
    if (e.events == 0) {
      (void)::epoll_ctl(events, EPOLL_CTL_DEL, fd, nullptr);
    } else if (::epoll_ctl(events, EPOLL_CTL_MOD, fd, &e) != 0) {
      // If this fails, c-ares still has its time-out.
      (void)::epoll_ctl(events, EPOLL_CTL_ADD, fd, &e);
    }
  }

  static void on_answer(void* argument, int status, int /*timeouts*/, ares_addrinfo* answer) {
    auto* const self = static_cast<cares_look_up*>(argument);
    self->is_over_ = true;
    self->status_ = status;
    if (answer == nullptr) return;
    for (const ares_addrinfo_node* node = answer->nodes; node != nullptr; node = node->ai_next) {
      add_found(self->found_, node->ai_addr, node->ai_addrlen);
    }
    ares_freeaddrinfo(answer);
  }

  const std::string host_;
  const ip_family family_;
  const io::descriptor_ptr events_;
  std::atomic<bool> is_abandoned_{false};
  // The rest belongs to run().
  ares_channel channel_ = nullptr;
  bool is_over_ = false;
  int status_ = ARES_SUCCESS;
  std::vector<address> found_;
};

}  // namespace

expected<std::unique_ptr<look_up>> make_look_up(std::string host, ip_family family) {
  const int events = ::epoll_create1(EPOLL_CLOEXEC);
  if (events == -1) return std::unexpected(io::last_error());
  auto adopted = io::descriptor::adopt(events);
  if (!adopted) return std::unexpected(adopted.error());
  return std::make_unique<cares_look_up>(std::move(host), family, std::move(*adopted));
}

bool use_name_servers(std::string servers) {
  server_choice& choice = the_choice();
  const std::lock_guard hold(choice.lock);
  choice.servers = std::move(servers);
  return true;
}

}  // namespace weft::net
