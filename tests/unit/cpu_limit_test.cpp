// cpu_limit_test.cpp: quotas read out of made-up control groups, and the real affinity mask.
#include "base/cpu_limit.hpp"
#include "temporary_directory.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace {

namespace fs = std::filesystem;
using weft::base::cpu_limit;
using weft::base::read_cpu_limit;

// A root folder in which a test writes the files that the kernel would show.
class fake_system : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    const fs::path full = root_ + path;
    fs::create_directories(full.parent_path());
    std::ofstream out{full, std::ios::binary};
    out << text;
    ASSERT_TRUE(out.good()) << full;
  }
  void groups(const std::string& text) { write("/proc/self/cgroup", text); }
  void mounts(const std::string& text) { write("/proc/self/mountinfo", text); }

  // 0: none
  int quota() const { return read_cpu_limit(root_.c_str()).quota_cpus.value_or(0); }

  const weft::test::temporary_directory directory_;
  const std::string root_ = directory_.path().string();
};

const std::string v2_mount =
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
const std::string v1_mount =
    "31 23 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 master:2 - cgroup cgroup "
    "rw,cpu,cpuacct\n";

// A machine without control groups, or with an unreadable /proc, has no quota.
TEST_F(fake_system, without_files_there_is_no_quota) { EXPECT_EQ(quota(), 0); }

TEST_F(fake_system, v2_quota_of_the_own_group_is_rounded_up) {
  groups("0::/app\n");
  mounts(v2_mount);
  write("/sys/fs/cgroup/app/cpu.max", "250000 100000\n");
  EXPECT_EQ(quota(), 3);
  write("/sys/fs/cgroup/app/cpu.max", "200000 100000\n");
  EXPECT_EQ(quota(), 2);
  write("/sys/fs/cgroup/app/cpu.max", "200001 100000\n");
  EXPECT_EQ(quota(), 3);
  write("/sys/fs/cgroup/app/cpu.max", "1000 100000\n");
  EXPECT_EQ(quota(), 1);
  write("/sys/fs/cgroup/app/cpu.max", "9223372036854775807 1\n");
  EXPECT_EQ(quota(), 2147483647);
}

TEST_F(fake_system, v2_max_is_no_quota) {
  groups("0::/app\n");
  mounts(v2_mount);
  write("/sys/fs/cgroup/app/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), 0);
}

// A pod limits its containers: the smallest quota on the way to the root binds, wherever it is.
TEST_F(fake_system, the_smallest_quota_of_all_ancestors_wins) {
  groups("0::/pod/container/worker\n");
  mounts(v2_mount);
  write("/sys/fs/cgroup/pod/container/worker/cpu.max", "800000 100000\n");
  EXPECT_EQ(quota(), 8);
  write("/sys/fs/cgroup/pod/cpu.max", "150000 50000\n");
  EXPECT_EQ(quota(), 3);
  write("/sys/fs/cgroup/pod/container/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), 3);
  write("/sys/fs/cgroup/cpu.max", "100000 100000\n");  // the root of the mount counts too
  EXPECT_EQ(quota(), 1);
}

TEST_F(fake_system, v1_quota_and_period_are_two_files) {
  groups("5:memory:/m\n4:cpu,cpuacct:/app/x\n1:name=systemd:/s\n");
  mounts(v1_mount);
  const std::string app = "/sys/fs/cgroup/cpu,cpuacct/app";
  write(app + "/x/cpu.cfs_quota_us", "-1\n");
  write(app + "/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 0);
  write(app + "/cpu.cfs_quota_us", "350000\n");
  write(app + "/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 4);
  write(app + "/x/cpu.cfs_quota_us", "150000\n");
  EXPECT_EQ(quota(), 2);
}

// cpuacct and cpuset are controllers of their own; a prefix match would read the wrong hierarchy.
TEST_F(fake_system, controllers_that_merely_sound_like_cpu_are_not_it) {
  groups("4:cpuacct:/app\n3:cpuset:/app\n");
  mounts("31 23 0:27 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n" + v1_mount);
  write("/sys/fs/cgroup/cpuacct/app/cpu.cfs_quota_us", "100000\n");
  write("/sys/fs/cgroup/cpuacct/app/cpu.cfs_period_us", "100000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_quota_us", "100000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 0);
}

TEST_F(fake_system, of_a_hybrid_both_hierarchies_count) {
  groups("4:cpu,cpuacct:/old\n0::/new\n");
  mounts(v1_mount + "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n");
  write("/sys/fs/cgroup/cpu,cpuacct/old/cpu.cfs_quota_us", "500000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/old/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 5);
  write("/sys/fs/cgroup/unified/new/cpu.max", "300000 100000\n");
  EXPECT_EQ(quota(), 3);
  write("/sys/fs/cgroup/unified/new/cpu.max", "700000 100000\n");
  EXPECT_EQ(quota(), 5);
}

// In a container the mount shows only the container's own group, under the mount point itself.
TEST_F(fake_system, a_mount_of_a_subgroup_is_read_relative_to_it) {
  groups("0::/docker/abc/inner\n");
  mounts("30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
  write("/sys/fs/cgroup/cpu.max", "400000 100000\n");
  EXPECT_EQ(quota(), 4);
  write("/sys/fs/cgroup/inner/cpu.max", "200000 100000\n");
  EXPECT_EQ(quota(), 2);
}

TEST_F(fake_system, a_mount_whose_root_is_exactly_our_group_is_read) {
  groups("0::/docker/abc\n");
  mounts("30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
  write("/sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(quota(), 2);
}

// Another process's group may be mounted as well; its limits are not ours.
TEST_F(fake_system, mounts_of_other_groups_are_passed_over) {
  groups("0::/docker/abcdef\n");
  mounts("30 23 0:26 /docker/abc /other rw - cgroup2 cgroup rw\n" +
         std::string{"31 23 0:26 /docker/abcdef/child /child rw - cgroup2 cgroup rw\n"} + v2_mount);
  write("/other/cpu.max", "100000 100000\n");
  write("/child/cpu.max", "100000 100000\n");
  EXPECT_EQ(quota(), 0);
  write("/sys/fs/cgroup/docker/abcdef/cpu.max", "600000 100000\n");
  EXPECT_EQ(quota(), 6);
}

// A group outside our namespace is shown with "..". Following it would leave the mount.
TEST_F(fake_system, paths_that_leave_the_mount_are_not_followed) {
  groups("0::/../secret\n");
  mounts(v2_mount);
  write("/sys/fs/secret/cpu.max", "100000 100000\n");
  write("/sys/fs/cgroup/here/cpu.max", "100000 100000\n");
  EXPECT_EQ(quota(), 0);
  groups("0::/..dots../x\n");  // a legal name
  write("/sys/fs/cgroup/..dots../x/cpu.max", "200000 100000\n");
  EXPECT_EQ(quota(), 2);
}

TEST_F(fake_system, escaped_paths_and_colons_are_understood) {
  groups("0::/a b:c/d\\e\n");
  mounts("30 23 0:26 /a\\040b:c /mnt/cg\\011roups\\134x rw - cgroup2 cgroup rw\n");
  write("/mnt/cg\troups\\x/d\\e/cpu.max", "300000 100000\n");
  EXPECT_EQ(quota(), 3);
}

// An overlay mount of many layers has a line of any length; what follows it must still be read.
TEST_F(fake_system, long_lines_before_and_after_do_not_matter) {
  groups("0::/app\n");
  for (const std::size_t length : {4000u, 8191u, 8192u, 8193u, 20000u, 100000u}) {
    const std::string overlay =
        "29 23 0:25 / / rw - overlay overlay rw,lowerdir=" + std::string(length, 'l') + "\n";
    mounts(overlay + v2_mount + overlay);
    write("/sys/fs/cgroup/app/cpu.max", "300000 100000\n");
    EXPECT_EQ(quota(), 3) << length;
  }
}

// A long line must be skipped as a whole: its tail may look like a line of its own.
TEST_F(fake_system, the_tail_of_a_long_line_is_not_a_line) {
  groups("0::/app\n");
  std::string line = "29 23 0:25 / /" + std::string(8192 - 14, 'x') + v2_mount;
  mounts(line);
  write("/sys/fs/cgroup/app/cpu.max", "300000 100000\n");
  EXPECT_EQ(quota(), 0);
}

TEST_F(fake_system, a_last_line_without_its_end_counts) {
  groups("0::/app");
  mounts(v2_mount.substr(0, v2_mount.size() - 1));
  write("/sys/fs/cgroup/app/cpu.max", "300000 100000");
  EXPECT_EQ(quota(), 3);
}

TEST_F(fake_system, malformed_files_are_ignored) {
  groups("garbage\n0\n0:\n0::\n0::relative\n:::::\n\n0::/app\n");
  mounts("\n30\n30 23 0:26 / /x\n - cgroup2\n1 2 3 / /y rw - \n" + v2_mount);
  for (const char* bad :
       {"", "\n", "100000\n", "100000 0\n", "0 100000\n", "-1 100000\n", "abc def\n",
        "100000x 100000\n", "100000 x\n", "99999999999999999999999 100000\n"}) {
    write("/sys/fs/cgroup/app/cpu.max", bad);
    EXPECT_EQ(quota(), 0) << bad;
  }
  fs::remove(root_ + "/sys/fs/cgroup/app/cpu.max");
  fs::create_directories(root_ + "/sys/fs/cgroup/app/cpu.max");  // not even a file
  EXPECT_EQ(quota(), 0);
}

TEST_F(fake_system, a_path_that_fits_no_buffer_is_ignored) {
  std::string deep;
  while (deep.size() < 5000) deep += "/" + std::string(200, 'd');
  groups("0::" + deep + "\n");
  mounts(v2_mount);
  write("/sys/fs/cgroup/cpu.max", "300000 100000\n");
  EXPECT_EQ(quota(), 0);
}

TEST(cpu_limit, procs_is_the_smaller_of_the_two) {
  EXPECT_EQ((cpu_limit{.affinity = 8, .quota_cpus = {}}.procs()), 8);
  EXPECT_EQ((cpu_limit{.affinity = 8, .quota_cpus = 3}.procs()), 3);
  EXPECT_EQ((cpu_limit{.affinity = 2, .quota_cpus = 3}.procs()), 2);
}

TEST(cpu_limit, affinity_follows_the_mask_of_the_calling_thread) {
  cpu_set_t all;
  ASSERT_EQ(::sched_getaffinity(0, sizeof all, &all), 0);
  EXPECT_EQ(read_cpu_limit("/nonexistent").affinity, CPU_COUNT(&all));

  std::thread narrowed{[&all] {
    int cpu = 0;
    while (!CPU_ISSET(cpu, &all)) ++cpu;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(read_cpu_limit("/nonexistent").affinity, 1);
    EXPECT_EQ(weft::base::default_procs(), 1);
  }};
  narrowed.join();
}

// The monitor asks once a second for ever: a descriptor left open would end the program in a day.
TEST(cpu_limit, the_running_system_can_be_asked_often_and_nothing_leaks) {
  const int before = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(before, 0);
  ::close(before);
  for (int i = 0; i < 200; ++i) {
    EXPECT_GE(weft::base::default_procs(), 1);
  }
  const int after = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(before, after);
  ::close(after);
}

}  // namespace
