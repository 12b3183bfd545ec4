// Redis through hiredis: a goroutine per connection, in commands that wait for others.
#include "beat.hpp"
#include "external_fixture.hpp"
#include "server_process.hpp"

#include <weft/sync.hpp>

#include <gtest/gtest.h>
#include <hiredis/hiredis.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace weft {
namespace {

using namespace std::chrono_literals;

struct connection_closer {
  void operator()(redisContext* c) const { redisFree(c); }
};
struct reply_freer {
  void operator()(void* r) const { freeReplyObject(r); }
};
using connection = std::unique_ptr<redisContext, connection_closer>;
using reply = std::unique_ptr<redisReply, reply_freer>;

template <class... Args>
reply command(const connection& c, const char* format, Args... args) {
  return reply(static_cast<redisReply*>(redisCommand(c.get(), format, args...)));
}

// A server that keeps nothing, on a socket in its directory and nowhere else.
class store {
 public:
  store() {
    // The name decides what the program is: Debian has redis-server as a second name of
    // redis-check-rdb, and the package with the first one would start a service.
    server_.emplace(
        test::server_options{.program = WEFT_REDIS_SERVER,
                             .arguments = {"redis-server", "--port", "0", "--unixsocket", socket(),
                                           "--save", "", "--appendonly", "no", "--daemonize", "no"},
                             .directory = directory_.path()});
    if (!server_->until_it_says("ready to accept connections")) {
      throw std::runtime_error("Redis does not start:\n" + server_->log());
    }
  }

  connection connect() const { return connection(redisConnectUnix(socket().c_str())); }
  std::string log() { return server_->log(); }

 private:
  std::string socket() const { return directory_ / "socket"; }

  test::temporary_directory directory_;
  std::optional<test::server_process> server_;
};

class redis : public test::external_test {
 protected:
  void TearDown() override {
    if (HasFailure()) std::printf("--- the server's log\n%s---\n", store_.log().c_str());
    external_test::TearDown();
  }

  // Whether that many connections wait in a command.
  static bool blocked_are(const connection& c, int n) {
    const reply r = command(c, "INFO clients");
    return r != nullptr && r->type != REDIS_REPLY_ERROR &&
           std::string(r->str, r->len).find("blocked_clients:" + std::to_string(n) + "\r\n") !=
               std::string::npos;
  }

  store store_;
};

// Consumers that wait in the kernel for a producer which needs a processor: with the processors in
// their hands it would never come to produce anything.
TEST_P(redis, a_hundred_consumers_wait_and_the_producer_still_runs) {
  constexpr int consumers = 100;
  std::optional<test::beat> beat;
  std::vector<std::string> got(consumers);
  std::atomic<bool> too_late{false};  // relaxed: nothing else is passed along
  wait_group all;
  for (std::string& element : got) {
    all.go([&] {
      // One wait in vain is enough; without this all of them would wait, one after the other.
      if (too_late.load(std::memory_order_relaxed)) return;
      const connection c = store_.connect();
      ASSERT_TRUE(c != nullptr && c->err == 0) << (c != nullptr ? c->errstr : "no memory");
      const reply r = command(c, "BLPOP queue 30");
      if (r == nullptr || r->type != REDIS_REPLY_ARRAY || r->elements != 2) {
        too_late.store(true, std::memory_order_relaxed);
        ADD_FAILURE() << "no element but " << (c->err != 0 ? c->errstr : "nothing in 30 s");
        return;
      }
      element.assign(r->element[1]->str, r->element[1]->len);
    });
  }
  all.go([&] {
    const connection c = store_.connect();
    ASSERT_TRUE(c != nullptr && c->err == 0) << (c != nullptr ? c->errstr : "no memory");
    EXPECT_TRUE(test::eventually([&] {
      this_goroutine::sleep_for(1ms);  // or the server would do nothing but answer this
      return blocked_are(c, consumers) || too_late.load(std::memory_order_relaxed);
    })) << "the consumers do not all wait";
    // From here on every consumer sits in the kernel, and others must not notice.
    beat.emplace();
    this_goroutine::sleep_for(500ms);
    for (int i = 0; i < consumers; ++i) {
      const reply r = command(c, "LPUSH queue element-%d", i);
      EXPECT_TRUE(r != nullptr && r->type == REDIS_REPLY_INTEGER);
    }
  });
  all.wait();

  std::set<std::string> pushed;
  for (int i = 0; i < consumers; ++i) pushed.insert("element-" + std::to_string(i));
  EXPECT_EQ(std::set<std::string>(got.begin(), got.end()), pushed);
  ASSERT_TRUE(beat.has_value());
  beat->expect_kept({.median = 1ms, .p99 = 50ms});
  expect_detached();
}

INSTANTIATE_TEST_SUITE_P(on, redis, ::testing::Values(1, 2), test::processors_name);

}  // namespace
}  // namespace weft
