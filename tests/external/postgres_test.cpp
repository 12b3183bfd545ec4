// PostgreSQL's own client library, used the way its manual shows: blocking calls, one connection
// per goroutine.
#include "beat.hpp"
#include "external_fixture.hpp"
#include "server_process.hpp"

#include <weft/sync.hpp>

#include <gtest/gtest.h>
#include <libpq-fe.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace weft {
namespace {

using namespace std::chrono_literals;

struct connection_closer {
  void operator()(PGconn* c) const { PQfinish(c); }
};
struct result_clearer {
  void operator()(PGresult* r) const { PQclear(r); }
};
using connection = std::unique_ptr<PGconn, connection_closer>;
using result = std::unique_ptr<PGresult, result_clearer>;

// A server with nothing in it. It listens on a socket in its directory and nowhere else.
class database {
 public:
  database() {
    const std::string data = directory_ / "data";
    test::server_process initdb(
        {.program = WEFT_POSTGRES_DIR "/initdb",
         .arguments = {"initdb", "--pgdata=" + data, "--username=weft", "--auth=trust",
                       "--no-locale", "--encoding=UTF8", "--no-sync"},
         .directory = directory_.path(),
         .run_as = account_});
    if (const int status = initdb.until_it_ends(60s); status != 0) {
      throw std::runtime_error("initdb ended with " + std::to_string(status) + ":\n" +
                               initdb.log());
    }
    server_.emplace(test::server_options{
        .program = WEFT_POSTGRES_DIR "/postgres",
        .arguments = {"postgres", "-D", data, "-c",
                      "unix_socket_directories=" + directory_.path().string(), "-c",
                      "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=300", "-c",
                      "autovacuum=off", "-c", "logging_collector=off"},
        .directory = directory_.path(),
        .run_as = account_,
        .stop_signal = SIGINT});  // its fast way: it does not wait for its clients
    if (!server_->until_it_says("ready to accept connections")) {
      throw std::runtime_error("PostgreSQL does not start:\n" + server_->log());
    }
  }

  std::string address() const {
    return "host=" + directory_.path().string() + " user=weft dbname=postgres";
  }
  std::string log() { return server_->log(); }

 private:
  // It refuses to run as root.
  std::optional<test::account> account_ = test::account::instead_of_root({"postgres", "nobody"});
  test::server_directory directory_{account_};
  std::optional<test::server_process> server_;
};

class postgres : public test::external_test {
 protected:
  static void SetUpTestSuite() { db_ = std::make_unique<database>(); }
  static void TearDownTestSuite() { db_.reset(); }

  void TearDown() override {
    if (HasFailure()) std::printf("--- the server's log\n%s---\n", db_->log().c_str());
    external_test::TearDown();
  }

  static inline std::unique_ptr<database> db_;
};

// If a query kept the processor of its goroutine, a program with a database would do one thing at a
// time: 200 queries of 0.2 s would take 40 s, and nobody else would run meanwhile.
TEST_P(postgres, hundreds_of_queries_wait_together_and_stop_nobody) {
  // Under a sanitizer it takes much longer until all of them have begun to wait, and the beat is to
  // be heard for as long again.
  constexpr int queries = test::scaled(200, 60);
  constexpr std::chrono::milliseconds each{test::scaled(200, 1000)};
  const std::string query =
      "select pg_sleep(" + std::to_string(std::chrono::duration<double>(each).count()) + ")";
  const std::string address = db_->address();
  std::vector<connection> connections(queries);
  {
    wait_group all;
    for (connection& c : connections) {
      all.go([&] { c.reset(PQconnectdb(address.c_str())); });
    }
    all.wait();
  }
  for (const connection& c : connections) {
    ASSERT_EQ(PQstatus(c.get()), CONNECTION_OK) << PQerrorMessage(c.get());
  }

  test::beat beat;
  std::atomic<int> answered{0};  // relaxed: read after wait()
  const auto began = clock::now();
  wait_group all;
  for (const connection& c : connections) {
    all.go([&] {
      const result r(PQexec(c.get(), query.c_str()));
      if (PQresultStatus(r.get()) == PGRES_TUPLES_OK) {
        answered.fetch_add(1, std::memory_order_relaxed);
      } else {
        ADD_FAILURE() << PQerrorMessage(c.get());
      }
    });
  }
  all.wait();
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(clock::now() - began);

  std::printf("%d queries of %ld ms took %ld ms\n", queries, static_cast<long>(each.count()),
              static_cast<long>(took.count()));
  EXPECT_EQ(answered.load(std::memory_order_relaxed), queries);
  EXPECT_GE(took, each);
  EXPECT_LE(took, together);
  // At the start all of them are runnable and the beat has its turn among them; on a busy machine
  // that lasts as long as the queries do. Had each of them kept its processor, half of the beats
  // would be late by ten seconds.
  beat.expect_kept({.median = 5ms, .p99 = 100ms});
  expect_detached();
}

INSTANTIATE_TEST_SUITE_P(on, postgres, ::testing::Values(1, 2), test::processors_name);

}  // namespace
}  // namespace weft
