#include "utils/compute/pjrt/plugin.h"

#include <elf.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"

namespace official::compute {
namespace {

std::string FakePlugin(const std::string& kind) { return absl::StrCat("utils/compute/pjrt/lib", kind, "_plugin.so"); }

std::string WriteFile(const std::string& name, const std::string& content) {
  const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name);
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.good());
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("What is no PJRT plugin is refused with the reason") {
  struct Refused {
    std::string path;
    absl::StatusCode code;
    std::string message;
  };
  std::string for_arm = ReadFile(FakePlugin("no"));
  for_arm[offsetof(Elf64_Ehdr, e_machine)] = static_cast<char>(EM_AARCH64);
  const std::string arm = WriteFile("for_arm.so", for_arm), text = WriteFile("text.so", "no library\n");
  const auto [path, code, message] = GENERATE_COPY(
      Refused{"missing.so", absl::StatusCode::kNotFound,
              "there is no PJRT plugin missing.so: No such file or directory"},
      Refused{text, absl::StatusCode::kInvalidArgument, text + " is not a PJRT plugin: it is no shared object"},
      Refused{arm, absl::StatusCode::kFailedPrecondition,
              absl::StrCat("the PJRT plugin ", arm, " is for 64-bit ARM processors, this program for x86-64")},
      Refused{FakePlugin("no"), absl::StatusCode::kInvalidArgument,
              absl::StrCat(FakePlugin("no"), " is not a PJRT plugin: it has no function GetPjrtApi")},
      Refused{FakePlugin("old"), absl::StatusCode::kFailedPrecondition,
              absl::StrCat("the PJRT plugin ", FakePlugin("old"),
                           " has version 0.7 of PJRT's C interface; this program needs 0.40 or a later 0.x")},
      Refused{FakePlugin("short"), absl::StatusCode::kFailedPrecondition,
              absl::StrCat("the PJRT plugin ", FakePlugin("short"),
                           " says that it has version 0.81 of PJRT's C interface, but lacks functions of it")},
      Refused{FakePlugin("failing"), absl::StatusCode::kUnavailable,
              absl::StrCat("the PJRT plugin ", FakePlugin("failing"), ": the device is on fire")});
  const absl::Status status = PjrtPlugin::Load(path).status();
  CHECK(status.code() == code);
  CHECK(status.message() == message);
}

TEST_CASE("A plugin with a newer interface than the header's, which has more functions, is loaded") {
  const auto plugin = PjrtPlugin::Load(FakePlugin("newer"));
  INFO(plugin.status());
  REQUIRE(plugin.ok());
  CHECK((*plugin)->Version() == absl::StrCat("0.", PJRT_API_MINOR + 20));
  CHECK((*plugin)->api().struct_size > PJRT_Api_STRUCT_SIZE);
}

TEST_CASE("A plugin for TPUs is not initialized where there is no TPU") {
  if (access("/dev/accel0", F_OK) == 0 || access("/dev/vfio/0", F_OK) == 0) return;
  const absl::Status status = PjrtPlugin::Load(FakePlugin("tpu")).status();
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(status.message() == absl::StrCat("the PJRT plugin ", FakePlugin("tpu"),
                                         " is for TPUs, and this machine has none: there is neither /dev/accel0 nor "
                                         "/dev/vfio/0, or a later one"));
}

}  // namespace
}  // namespace official::compute
