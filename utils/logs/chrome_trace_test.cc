#include "utils/logs/chrome_trace.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace official::logs {
namespace {

std::string TestPath(const std::string& name) { return std::string(std::getenv("TEST_TMPDIR")) + "/" + name; }

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

TEST_CASE("A timeline is what TensorFlow's timeline.Timeline writes for the same ops") {
  const std::string path = TestPath("timeline-1.json");
  const DeviceTrace cpu = {
      .device = "/device:CPU:0",
      .events = {{.name = "x", .op = "Const", .start_us = 100, .duration_us = 17},
                 {.name = "MatMul", .op = "MatMul", .inputs = {"x", "x"}, .start_us = 117, .duration_us = 4}}};
  REQUIRE(WriteChromeTrace(path, {cpu}).ok());
  CHECK(ReadFile(path) == R"({
    "traceEvents": [
        {
            "name": "process_name",
            "ph": "M",
            "pid": 0,
            "args": {
                "name": "Allocators"
            }
        },
        {
            "name": "process_name",
            "ph": "M",
            "pid": 1,
            "args": {
                "name": "/device:CPU:0 Compute"
            }
        },
        {
            "name": "process_name",
            "ph": "M",
            "pid": 2,
            "args": {
                "name": "/device:CPU:0 Tensors"
            }
        },
        {
            "ph": "X",
            "cat": "Op",
            "name": "Const",
            "pid": 1,
            "tid": 0,
            "ts": 100,
            "dur": 17,
            "args": {
                "name": "x",
                "op": "Const"
            }
        },
        {
            "ph": "X",
            "cat": "Op",
            "name": "MatMul",
            "pid": 1,
            "tid": 0,
            "ts": 117,
            "dur": 4,
            "args": {
                "name": "MatMul",
                "op": "MatMul",
                "input0": "x",
                "input1": "x"
            }
        }
    ]
})");
}

// The "pid" and "tid" of every op, in the order of the file.
std::vector<std::pair<int, int>> PidsAndTids(const std::string& text) {
  std::vector<std::pair<int, int>> result;
  for (size_t at = text.find("\"ph\": \"X\""); at != std::string::npos; at = text.find("\"ph\": \"X\"", at + 1)) {
    const auto number = [&](const std::string& key) { return std::stoi(text.substr(text.find(key, at) + key.size())); };
    result.emplace_back(number("\"pid\": "), number("\"tid\": "));
  }
  return result;
}

TEST_CASE("Ops of one lane do not overlap, whatever the order they come in") {
  const std::string path = TestPath("lanes.json");
  const DeviceTrace cpu = {.device = "/device:CPU:0",
                           .events = {{.op = "C", .start_us = 20, .duration_us = 10},
                                      {.op = "A", .start_us = 0, .duration_us = 15},
                                      {.op = "B", .start_us = 10, .duration_us = 10},
                                      {.op = "D", .thread = 1, .start_us = 100, .duration_us = 1}}};
  const DeviceTrace other = {.device = "/device:CPU:1", .events = {{.op = "E", .start_us = 0, .duration_us = 1}}};
  REQUIRE(WriteChromeTrace(path, {cpu, other}).ok());
  CHECK(PidsAndTids(ReadFile(path)) == std::vector<std::pair<int, int>>{{1, 0}, {1, 1}, {1, 0}, {1, 2}, {3, 0}});
}

TEST_CASE("A timeline that cannot be written is an error with its path") {
  const std::string path = TestPath("no_such_dir/timeline-1.json");
  const absl::Status status = WriteChromeTrace(path, {});
  CHECK(absl::IsFailedPrecondition(status));
  CHECK_THAT(std::string(status.message()), Catch::Contains("cannot create " + path));
}

TEST_CASE("A timeline replaces a symbolic link and leaves its target alone") {
  const std::string path = TestPath("link.json"), target = TestPath("precious");
  std::ofstream(target) << "precious";
  std::filesystem::create_symlink(target, path);
  REQUIRE(WriteChromeTrace(path, {}).ok());
  CHECK(ReadFile(target) == "precious");
  CHECK_FALSE(std::filesystem::is_symlink(path));
}

}  // namespace
}  // namespace official::logs
