#include "utils/misc/available_memory.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"

namespace official::misc {
namespace {

// Files of a system, below a directory of the test's own; removed at the end.
class System {
 public:
  System() : root_(absl::StrCat(std::filesystem::temp_directory_path().string(), "/available_memory_test.", getpid())) {
    Write("meminfo", "MemTotal:       8000 kB\nMemAvailable:   7000 kB\n");
  }
  ~System() { std::filesystem::remove_all(root_); }

  void Write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = absl::StrCat(root_, "/", name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  int64_t Available() const { return AvailableMemory(Files()); }
  std::optional<int64_t> Limit() const { return MemoryLimit(Files()); }

 private:
  MemoryFiles Files() const {
    return {.meminfo = root_ + "/meminfo", .membership = root_ + "/cgroup", .groups = root_ + "/groups"};
  }

  const std::string root_;
};

TEST_CASE("Without a control group, what the host has is available") {
  System system;
  CHECK(system.Available() == 7000 * 1024);
  system.Write("cgroup", "0::/\n");
  CHECK(system.Available() == 7000 * 1024);
  system.Write("groups/memory.max", "max\n");
  system.Write("groups/memory.current", "5000\n");
  CHECK(system.Available() == 7000 * 1024);
}

TEST_CASE("A control group leaves its limit without what it uses, but for page cache") {
  System system;
  system.Write("cgroup", "0::/job/task\n");
  system.Write("groups/job/task/memory.max", "1000000\n");
  system.Write("groups/job/task/memory.current", "700000\n");
  CHECK(system.Available() == 300000);
  system.Write("groups/job/task/memory.stat", "anon 1\nfile 3\ninactive_file 200000\nactive_file 90000\n");
  CHECK(system.Available() == 590000);
  // That of the group around it is smaller.
  system.Write("groups/job/memory.max", "900000\n");
  system.Write("groups/job/memory.current", "800000\n");
  CHECK(system.Available() == 100000);
  system.Write("groups/job/memory.current", "950000\n");
  CHECK(system.Available() == 0);
}

TEST_CASE("Control groups of version 1 have other files") {
  System system;
  system.Write("cgroup", "12:cpu,cpuacct:/other\n4:memory:/docker/abc\n0::/\n");
  system.Write("groups/memory/memory.limit_in_bytes", "2000000\n");  // the container sees its own group as the root
  system.Write("groups/memory/memory.usage_in_bytes", "1500000\n");
  system.Write("groups/memory/memory.stat",
               "cache 9\ninactive_file 7\ntotal_inactive_file 100000\ntotal_active_file 50000\n");
  CHECK(system.Available() == 650000);
}

TEST_CASE("The limit is the least of the group's own and of those around it") {
  System system;
  CHECK(system.Limit() == std::nullopt);
  system.Write("cgroup", "0::/job/task\n");
  system.Write("groups/job/task/memory.max", "max\n");
  CHECK(system.Limit() == std::nullopt);
  system.Write("groups/job/memory.max", "900000\n");
  CHECK(system.Limit() == 900000);
  system.Write("groups/job/task/memory.max", "1000000\n");
  CHECK(system.Limit() == 900000);
  system.Write("groups/job/task/memory.max", "800000\n");
  CHECK(system.Limit() == 800000);
}

TEST_CASE("Limits of version 1 are those of the process's groups, and none near 2^63") {
  System system;
  system.Write("cgroup", "4:memory:/user/task\n0::/\n");
  system.Write("groups/memory/memory.limit_in_bytes", "9223372036854771712\n");
  CHECK(system.Limit() == std::nullopt);
  system.Write("groups/memory/user/memory.limit_in_bytes", "2000000\n");
  system.Write("groups/memory/user/task/memory.limit_in_bytes", "9223372036854771712\n");
  CHECK(system.Limit() == 2000000);
}

TEST_CASE("The most memory that was resident is told when it is free again, too") {
  constexpr int64_t kMore = 256 << 20;
  const int64_t before = PeakMemory();
  {
    std::vector<char> bytes(kMore, 'a');
    const volatile char* const seen = bytes.data();
    REQUIRE(seen[kMore - 1] == 'a');
  }
  const int64_t after = PeakMemory();
  CHECK(after >= kMore);
  CHECK(after - before <= kMore + (64 << 20));
}

TEST_CASE("A system that tells nothing") {
  CHECK(AvailableMemory({.meminfo = "/nowhere", .membership = "/nowhere", .groups = "/nowhere"}) == -1);
}

}  // namespace
}  // namespace official::misc
