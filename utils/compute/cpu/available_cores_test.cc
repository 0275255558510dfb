#include "utils/compute/cpu/available_cores.h"

#include <sched.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace official::compute {
namespace {

// A mount of control groups, with some files.
class Mount {
 public:
  Mount() {
    std::string name = "/tmp/available_cores.XXXXXX";
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Mount() { std::filesystem::remove_all(path_); }
  Mount& Write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = path_ / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return *this;
  }
  std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST_CASE("A quota of control groups, version 2, of the group or of any around it") {
  Mount mount;
  CHECK(CoresOfQuotas("0::/\n", mount.path()) == 0);
  mount.Write("kubepods/cpu.max", "350000 100000\n").Write("kubepods/pod/cpu.max", "max 100000\n");
  CHECK(CoresOfQuotas("0::/kubepods/pod\n", mount.path()) == 4);
  CHECK(CoresOfQuotas("0::/other\n", mount.path()) == 0);
  mount.Write("kubepods/pod/cpu.max", "150000 100000\n");
  CHECK(CoresOfQuotas("0::/kubepods/pod\n", mount.path()) == 2);
  // In a container the root is the group.
  mount.Write("cpu.max", "50000 100000\n");
  CHECK(CoresOfQuotas("0::/kubepods/pod\n", mount.path()) == 1);
  CHECK(CoresOfQuotas("0::/\n", mount.path()) == 1);
}

TEST_CASE("A quota of control groups, version 1") {
  Mount mount;
  const std::string membership = "5:memory:/docker/a\n4:cpu,cpuacct:/docker/a\n1:name=systemd:/docker/a\n0::/\n";
  mount.Write("cpu,cpuacct/docker/a/cpu.cfs_quota_us", "-1\n")
      .Write("cpu,cpuacct/docker/a/cpu.cfs_period_us", "100000\n");
  CHECK(CoresOfQuotas(membership, mount.path()) == 0);
  mount.Write("cpu,cpuacct/docker/a/cpu.cfs_quota_us", "250000\n");
  CHECK(CoresOfQuotas(membership, mount.path()) == 3);
  mount.Write("cpu,cpuacct/cpu.cfs_quota_us", "100000\n").Write("cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  CHECK(CoresOfQuotas(membership, mount.path()) == 1);
}

TEST_CASE("What is not understood limits nothing") {
  Mount mount;
  mount.Write("cpu.max", "what is this");
  CHECK(CoresOfQuotas("0::/\n", mount.path()) == 0);
  CHECK(CoresOfQuotas("", mount.path()) == 0);
  CHECK(CoresOfQuotas("4:cpu\n:::\n", mount.path()) == 0);
}

TEST_CASE("AvailableCores knows the cores that a process may run on") {
  std::thread([] {
    cpu_set_t all, one;
    REQUIRE(sched_getaffinity(0, sizeof all, &all) == 0);
    CPU_ZERO(&one);
    for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core) {
      if (CPU_ISSET(core, &all)) CPU_SET(core, &one);
    }
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
    CHECK(AvailableCores() == 1);
  }).join();
  CHECK(AvailableCores() <= static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace official::compute
