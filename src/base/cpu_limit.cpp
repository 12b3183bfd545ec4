// cpu_limit.cpp: affinity masks and the quotas of control groups.
//
// Where the quota is written down:
//
//   /proc/self/cgroup     names the process's group in each hierarchy:  "4:cpu,cpuacct:/a/b"  in
//                         version 1, "0::/a/b" in version 2. Both may be there at once.
//   /proc/self/mountinfo  says where a hierarchy is mounted, and which of its groups is the root of
//                         that mount. In a container this is often the container's own group, so
//                         "/docker/1/x" under a mount of "/docker/1" is the folder "x".
//   <folder>/cpu.max                                "quota period" or "max period", version 2
//   <folder>/cpu.cfs_quota_us, cpu.cfs_period_us    -1 is no quota, version 1
//
// Every group from the process's own up to the root of the mount may have a quota; the smallest one
// binds. Groups above the mount's root are out of sight. When a hierarchy is mounted more than once
// every mount that shows our group is read: each shows true limits of ours, so the minimum is
// right.
//
// Files and lines that are missing or malformed are skipped: wrongly assuming "unlimited" costs
// speed, never correctness.
//
// Invariants:
//   I1  Nothing outside a hierarchy's mount is read: a group path with ".." in it is not followed.
//   I2  Lines longer than the buffer are skipped as a whole. No line that matters is that long,
//       because the kernel does not build paths of more than PATH_MAX bytes.
#include "base/cpu_limit.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace weft::base {

namespace {

constexpr std::size_t path_max = 4096;
constexpr std::size_t line_max = 8192;
constexpr std::size_t mask_bytes = 8192;  // 65,536 CPUs; the largest kernels count to 8,192

int open_read(const char* path) noexcept {
  int fd;
  do {
    fd = ::open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

std::size_t read_some(int fd, char* into, std::size_t n) noexcept {
  ssize_t got;
  do {
    got = ::read(fd, into, n);
  } while (got < 0 && errno == EINTR);
  return got < 0 ? 0 : static_cast<std::size_t>(got);
}

// A path under construction. It becomes invalid when a part does not fit.
class path_buffer {
 public:
  bool append(std::string_view s) noexcept {
    if (s.size() >= path_max - size_) return false;
    std::memcpy(text_ + size_, s.data(), s.size());
    size_ += s.size();
    text_[size_] = '\0';
    return true;
  }

  void truncate(std::size_t size) noexcept {
    size_ = size;
    text_[size_] = '\0';
  }

  std::size_t size() const noexcept { return size_; }
  char operator[](std::size_t i) const noexcept { return text_[i]; }
  const char* c_str() const noexcept { return text_; }
  std::string_view view() const noexcept { return {text_, size_}; }

 private:
  char text_[path_max] = {};
  std::size_t size_ = 0;
};

// The lines of a file, one after the other, out of a fixed buffer.
class line_reader {
 public:
  explicit line_reader(int fd) noexcept : fd_(fd) {}
  line_reader(const line_reader&) = delete;
  line_reader& operator=(const line_reader&) = delete;
  ~line_reader() {
    if (fd_ >= 0) ::close(fd_);
  }

  // Returns: false at the end of the file. `line` has no line end. The caller may change it; it is
  // valid until the next call.
  bool next(char*& line, std::size_t& size) noexcept {
    if (fd_ < 0) return false;
    bool skipping = false;  // inside a line that was too long
    for (;;) {
      if (char* newline = find_newline()) {
        line = buffer_ + begin_;
        size = static_cast<std::size_t>(newline - line);
        begin_ += size + 1;
        if (!skipping) return true;
        skipping = false;
        continue;
      }
      if (begin_ == 0 && end_ == line_max) {
        skipping = true;
        end_ = 0;
      }
      if (begin_ > 0) {
        std::memmove(buffer_, buffer_ + begin_, end_ - begin_);
        end_ -= begin_;
        begin_ = 0;
      }
      const std::size_t got = read_some(fd_, buffer_ + end_, line_max - end_);
      if (got == 0) {
        // The last line may lack its end.
        line = buffer_;
        size = end_;
        end_ = 0;
        return size > 0 && !skipping;
      }
      end_ += got;
    }
  }

 private:
  char* find_newline() noexcept {
    return static_cast<char*>(std::memchr(buffer_ + begin_, '\n', end_ - begin_));
  }

  int fd_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  char buffer_[line_max];
};

// Removes the part of `s` up to `separator` and returns that part; the whole of `s` if there is no
// separator.
std::string_view take_field(std::string_view& s, char separator) noexcept {
  const std::size_t at = s.find(separator);
  const std::string_view field = s.substr(0, at);
  s = at == std::string_view::npos ? std::string_view{} : s.substr(at + 1);
  return field;
}

bool list_contains(std::string_view list, std::string_view wanted) noexcept {
  while (!list.empty()) {
    if (take_field(list, ',') == wanted) return true;
  }
  return false;
}

bool is_octal(char c) noexcept { return c >= '0' && c <= '7'; }

// Undoes mountinfo's escapes (\040 for a space) in place. Returns: the new size.
std::size_t unescape(char* s, std::size_t size) noexcept {
  std::size_t out = 0;
  for (std::size_t in = 0; in < size; ++out) {
    if (s[in] == '\\' && size - in >= 4 && is_octal(s[in + 1]) && is_octal(s[in + 2]) &&
        is_octal(s[in + 3])) {
      s[out] =
          static_cast<char>((s[in + 1] - '0') << 6 | (s[in + 2] - '0') << 3 | (s[in + 3] - '0'));
      in += 4;
    } else {
      s[out] = s[in];
      ++in;
    }
  }
  return out;
}

bool has_dot_dot(std::string_view path) noexcept {
  while (!path.empty()) {
    if (take_field(path, '/') == "..") return true;
  }
  return false;
}

// Removes a positive number from the front of `s`, and the blanks behind it. Returns: the number,
// or 0 if there is none.
std::uint64_t take_positive(std::string_view& s) noexcept {
  std::uint64_t n = 0;
  std::size_t i = 0;
  for (; i < s.size() && s[i] >= '0' && s[i] <= '9'; ++i) {
    const auto digit = static_cast<std::uint64_t>(s[i] - '0');
    if (__builtin_mul_overflow(n, std::uint64_t{10}, &n) || __builtin_add_overflow(n, digit, &n)) {
      return 0;
    }
  }
  if (i < s.size() && s[i] != ' ' && s[i] != '\n') return 0;
  while (i < s.size() && (s[i] == ' ' || s[i] == '\n')) ++i;
  s.remove_prefix(i);
  return n;
}

class quota_finder {
 public:
  explicit quota_finder(const char* root_prefix) noexcept : prefix_(root_prefix) {}

  std::optional<int> find() noexcept {
    read_groups();
    if (group_v1_.size() > 0 || group_v2_.size() > 0) read_mounts();
    return smallest_;
  }

 private:
  enum class version { v1, v2 };

  int open_below_prefix(std::string_view path) noexcept {
    path_.truncate(0);
    if (!path_.append(prefix_) || !path_.append(path)) return -1;
    return open_read(path_.c_str());
  }

  void read_groups() noexcept {
    line_reader lines{open_below_prefix("/proc/self/cgroup")};
    char* line;
    std::size_t size;
    while (lines.next(line, size)) {
      std::string_view rest{line, size};
      const std::string_view id = take_field(rest, ':');
      const std::string_view controllers = take_field(rest, ':');
      if (rest.empty() || rest.front() != '/') continue;  // rest: the path, colons and all
      if (id == "0" && controllers.empty()) {
        group_v2_.truncate(0);
        group_v2_.append(rest);
      } else if (list_contains(controllers, "cpu")) {
        group_v1_.truncate(0);
        group_v1_.append(rest);
      }
    }
  }

  void read_mounts() noexcept {
    line_reader lines{open_below_prefix("/proc/self/mountinfo")};
    char* line;
    std::size_t size;
    while (lines.next(line, size)) {
      std::string_view rest{line, size};
      take_field(rest, ' ');  // mount id
      take_field(rest, ' ');  // parent id
      take_field(rest, ' ');  // device
      const std::string_view root = take_field(rest, ' ');
      const std::string_view point = take_field(rest, ' ');
      take_field(rest, ' ');  // mount options
      while (!rest.empty() && take_field(rest, ' ') != "-") {
      }
      const std::string_view type = take_field(rest, ' ');
      take_field(rest, ' ');  // source
      const std::string_view options = take_field(rest, ' ');

      if (type == "cgroup2") {
        read_mount(version::v2, group_v2_.view(), line, root, point);
      } else if (type == "cgroup" && list_contains(options, "cpu")) {
        read_mount(version::v1, group_v1_.view(), line, root, point);
      }
    }
  }

  // Reads the quotas of `group` and of every group around it that this mount shows. `root` and
  // `point` lie in `line`, still escaped.
  void read_mount(version v, std::string_view group, char* line, std::string_view root,
                  std::string_view point) noexcept {
    if (group.empty() || root.empty() || point.empty()) return;
    char* const root_text = line + (root.data() - line);
    char* const point_text = line + (point.data() - line);
    root = {root_text, unescape(root_text, root.size())};
    point = {point_text, unescape(point_text, point.size())};

    std::string_view below = group;  // our group's path as seen from the mount point
    if (root != "/") {
      if (!group.starts_with(root)) return;
      below = group.substr(root.size());
      if (!below.empty() && below.front() != '/') return;  // "/a" does not contain "/ab"
    }
    if (has_dot_dot(below)) return;  // I1
    while (!below.empty() && below.back() == '/') below.remove_suffix(1);

    path_.truncate(0);
    if (!path_.append(prefix_) || !path_.append(point)) return;
    const std::size_t top = path_.size();
    if (!path_.append(below)) return;
    for (;;) {
      read_quota(v);
      if (path_.size() <= top) return;
      std::size_t parent = path_.size() - 1;
      while (parent > top && path_[parent] != '/') --parent;
      path_.truncate(parent);
    }
  }

  void read_quota(version v) noexcept {
    if (v == version::v2) {
      std::string_view text = read_value("/cpu.max");
      const std::uint64_t quota = take_positive(text);  // "max" is no number: no quota
      if (quota == 0) return;
      consider(quota, take_positive(text));
    } else {
      std::string_view text = read_value("/cpu.cfs_quota_us");
      const std::uint64_t quota = take_positive(text);  // nor is -1
      if (quota == 0) return;
      text = read_value("/cpu.cfs_period_us");
      consider(quota, take_positive(text));
    }
  }

  // Returns: the start of the file `name` in the folder that path_ names; nothing if it cannot be
  // read. The result is valid until the next call.
  std::string_view read_value(std::string_view name) noexcept {
    const std::size_t folder = path_.size();
    int fd = -1;
    if (path_.append(name)) fd = open_read(path_.c_str());
    path_.truncate(folder);
    if (fd < 0) return {};
    const std::size_t size = read_some(fd, value_, sizeof value_);
    ::close(fd);
    return {value_, size};
  }

  void consider(std::uint64_t quota, std::uint64_t period) noexcept {
    if (period == 0) return;
    const std::uint64_t whole = quota / period + (quota % period != 0 ? 1 : 0);
    const auto cpus = static_cast<int>(std::min<std::uint64_t>(whole, INT_MAX));
    if (!smallest_ || cpus < *smallest_) smallest_ = cpus;
  }

  const char* const prefix_;
  std::optional<int> smallest_;
  path_buffer group_v1_;  // empty: the process is in no such hierarchy
  path_buffer group_v2_;
  path_buffer path_;
  char value_[64];
};

// The raw call, because the C library's function requires the size of the kernel's mask.
int affinity_cpus() noexcept {
  unsigned long mask[mask_bytes / sizeof(unsigned long)];
  const long bytes = ::syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
  int count = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(std::max(bytes, 0L)) / sizeof mask[0]; ++i) {
    count += std::popcount(mask[i]);
  }
  return std::max(count, 1);
}

}  // namespace

cpu_limit read_cpu_limit(const char* root_prefix) noexcept {
  cpu_limit limit;
  limit.affinity = affinity_cpus();
  limit.quota_cpus = quota_finder{root_prefix}.find();
  return limit;
}

}  // namespace weft::base
