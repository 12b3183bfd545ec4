// look_up_getaddrinfo.cpp: a look-up by getaddrinfo() of the C library, which blocks its thread
// until the answer comes.
//
// So the look-up is announced as a blocking call. At most 64 look-ups are in getaddrinfo() at a
// time; the others queue. getaddrinfo() cannot be interrupted. If a look-up is abandoned in the
// queue, it does not call getaddrinfo() when its turn comes. If it is abandoned later, the call
// goes on and its result is dropped.
#include "net/look_up.hpp"

#include <weft/go.hpp>
#include <weft/sync.hpp>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <utility>

#include <netdb.h>
#include <sys/socket.h>

namespace weft::net {
namespace {

constexpr std::ptrdiff_t at_once_max = 64;

counting_semaphore<at_once_max>& the_permits() {
  static auto& permits = *new counting_semaphore<at_once_max>(at_once_max);
  return permits;
}

class permit {
 public:
  permit() { the_permits().acquire(); }
  permit(const permit&) = delete;
  permit& operator=(const permit&) = delete;
  ~permit() { the_permits().release(); }
};

std::error_code error_of(int status, int error) {
  switch (status) {
    case EAI_NONAME:
      return resolve_errc::host_not_found;
    case EAI_NODATA:
    case EAI_ADDRFAMILY:
      return resolve_errc::no_address;
    case EAI_AGAIN:
      return resolve_errc::try_again;
    case EAI_MEMORY:
      return std::make_error_code(std::errc::not_enough_memory);
    case EAI_SYSTEM:
      return {error, std::generic_category()};
    default:
      return resolve_errc::failed;
  }
}

class blocking_look_up final : public look_up {
 public:
  blocking_look_up(std::string host, ip_family family) : host_(std::move(host)), family_(family) {}

  expected<std::vector<address>> run() override {
    // "localhost" itself is in the system's files. For a name that ends with ".localhost" the C
    // library would ask a server.
    if (is_localhost(host_) && host_ != "localhost") return loopback(family_);
    const permit one;
    // relaxed: if abandon() comes after this load, the result is dropped.
    if (is_abandoned_.load(std::memory_order_relaxed)) {
      return std::unexpected(make_error_code(errc::canceled));
    }
    return blocking([this] { return ask(); });
  }

  void abandon() noexcept override { is_abandoned_.store(true, std::memory_order_relaxed); }

 private:
  expected<std::vector<address>> ask() const {
    addrinfo hints{};
    hints.ai_family = native_of(family_);
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* all = nullptr;
    if (const int s = ::getaddrinfo(host_.c_str(), nullptr, &hints, &all); s != 0) {
      return std::unexpected(error_of(s, errno));
    }
    std::vector<address> found;
    for (const addrinfo* i = all; i != nullptr; i = i->ai_next) {
      add_found(found, i->ai_addr, i->ai_addrlen);
    }
    ::freeaddrinfo(all);
    if (found.empty()) return std::unexpected(make_error_code(resolve_errc::no_address));
    return found;
  }

  const std::string host_;
  const ip_family family_;
  std::atomic<bool> is_abandoned_{false};
};

}  // namespace

expected<std::unique_ptr<look_up>> make_look_up(std::string host, ip_family family) {
  return std::make_unique<blocking_look_up>(std::move(host), family);
}

bool use_name_servers(std::string /*servers*/) { return false; }

}  // namespace weft::net
