#include "utils/distribute/cluster/hostlist.h"

#include <catch2/catch.hpp>

namespace official::distribute {
namespace {

using Catch::Matchers::Contains;
using Names = std::vector<std::string>;

// As `scontrol show hostnames` expands them.
TEST_CASE("Brackets stand for numbers") {
  CHECK(ExpandHostlist("node").value() == Names{"node"});
  CHECK(ExpandHostlist("a,b").value() == Names{"a", "b"});
  CHECK(ExpandHostlist("node[8-10,12],login").value() == Names{"node8", "node9", "node10", "node12", "login"});
  CHECK(ExpandHostlist("n[08-10]").value() == Names{"n08", "n09", "n10"});
  CHECK(ExpandHostlist("n[098-101]").value() == Names{"n098", "n099", "n100", "n101"});
  CHECK(ExpandHostlist("r[1-2]n[0,3]x").value() == Names{"r1n0x", "r1n3x", "r2n0x", "r2n3x"});
}

TEST_CASE("Addresses have ranges, too, and IPv6 addresses keep their brackets") {
  CHECK(ExpandHostlist("job-[0-1].job:2222").value() == Names{"job-0.job:2222", "job-1.job:2222"});
  CHECK(ExpandHostlist("[::1]:2222,[fe80::2]:1").value() == Names{"[::1]:2222", "[fe80::2]:1"});
}

TEST_CASE("What is no list of hosts is refused") {
  for (const auto& [list, why] :
       std::vector<std::pair<std::string, std::string>>{{"", "is an empty name"},
                                                        {"a,,b", "is an empty name"},
                                                        {"a,", "is an empty name"},
                                                        {"a[1", "'a[1' has a bracket that is not closed"},
                                                        {"a[]", "'' is no range"},
                                                        {"a[1,]", "'' is no range"},
                                                        {"a[3-1]", "'3-1' is no range; write one such as [0-3]"},
                                                        {"a[1-]", "'1-' is no range"},
                                                        {"a[-1]", "'-1' is no range"},
                                                        {"a[1-2-3]", "'1-2-3' is no range"},
                                                        {"a[x]", "'x' is no range"},
                                                        {"a[[1]]", "'[1' is no range"},
                                                        {"a[1-9999999999]", "'1-9999999999' is no range"},
                                                        {"a[0-99999999]", "is too long a range"},
                                                        {"a[0-99][0-99]", "stand for too many hosts"},
                                                        {"a[0-8191],b", "stands for too many hosts"}}) {
    CAPTURE(list);
    const absl::Status status = ExpandHostlist(list).status();
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()), Contains(why));
  }
}

}  // namespace
}  // namespace official::distribute
