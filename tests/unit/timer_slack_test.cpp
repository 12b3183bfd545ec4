// The kernel lets a thread sleep for a little longer than it asked, unless the thread asks it not
// to; and threads and processes inherit that. The runtime's threads are to wake up on time, but
// what a goroutine starts must find the setting that the process had.
#include <weft/weft.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace weft {
namespace {

using namespace std::chrono_literals;

int slack() { return ::prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0); }

// Returns: 0 if a child process has that slack, too. An exit status is too small for the slack.
int compare_in_child(int expected) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(slack() == expected ? 0 : 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(timer_slack, is_not_inherited_from_the_runtimes_threads) {
  const int before = slack();
  ASSERT_GT(before, 1);
  run([before] {
    for (int i = 0; i < 10; ++i) {
      this_goroutine::sleep_for(1ms);
      EXPECT_EQ(slack(), before);
      int in_thread = 0;
      std::thread([&] { in_thread = slack(); }).join();
      EXPECT_EQ(in_thread, before);
      EXPECT_EQ(compare_in_child(before), 0);
    }
  });
}

}  // namespace
}  // namespace weft
