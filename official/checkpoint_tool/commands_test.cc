// What the commands show while they read checkpoints; checkpoint_tool_test.py tests all else.

#include "official/checkpoint_tool/commands.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/tensor.h"
#include "utils/files/files.h"
#include "utils/logs/captured_log.h"
#include "utils/train/checkpoint/bundle.h"
#include "utils/train/checkpoint/safetensors.h"

namespace official::checkpoint_tool {
namespace {

using Catch::Contains;
using compute::Tensor;

const std::string kDirectory = std::getenv("TEST_TMPDIR");

// Writes a checkpoint of two variables, of a megabyte each.
std::string WriteCheckpointOf(const std::string& name, float value) {
  const std::string path = absl::StrCat(kDirectory, "/", name, ".safetensors");
  const Tensor tensor(compute::DType::kFloat32, {250'000});
  std::fill_n(tensor.data<float>(), tensor.num_elements(), value);
  const train::SafetensorsTensor written = {tensor.type(), [tensor]() -> absl::StatusOr<Tensor> { return tensor; }};
  REQUIRE(train::WriteSafetensors(path, {{"a", written}, {"b", written}}, {}, {}).ok());
  return path;
}

TEST_CASE("Commands that read checkpoints show how much they have read") {
  const std::string one = WriteCheckpointOf("one", 1), two = WriteCheckpointOf("two", 2);
  logs::CapturedTasks log;
  std::ostringstream out;
  CHECK(absl::IsUnknown(Diff({one, two}, {}, out)));
  CHECK_THAT(log.Text(), Contains("comparing   0% [") && Contains("comparing 100% [") && Contains("4.0/4.0 MB"));
  REQUIRE(Convert({one, kDirectory + "/converted/model.ckpt-0"}, {}, out).ok());
  CHECK_THAT(log.Text(), Contains("copying the variables   0% [") && Contains("copying the variables 100% ["));
  REQUIRE(Average({kDirectory + "/average", one, two}, {}, out).ok());
  CHECK_THAT(log.Text(), Contains("averaging   0% [") && Contains("averaging 100% ["));
  REQUIRE(Verify({two}, {}, out).ok());
  CHECK_THAT(log.Text(), Contains("verifying two.safetensors 100% ["));
}

// A directory with a checkpoint of each of these names, all of one variable.
std::string WriteRun(const std::string& name, const std::vector<std::string>& checkpoints) {
  const std::string directory = absl::StrCat(kDirectory, "/", name);
  REQUIRE(files::MakeDirectories(directory).ok());
  for (const std::string& checkpoint : checkpoints) {
    auto writer = train::BundleWriter::Create(files::JoinPath(directory, checkpoint)).value();
    REQUIRE(writer->Add("v", Tensor::Scalar<float>(1)).ok());
    REQUIRE(writer->Finish().ok());
  }
  return directory;
}

// Text that calls a function before the first line is shown.
class FirstLine : public std::stringbuf {
 public:
  explicit FirstLine(std::function<void()> call) : call_(std::move(call)) {}
  int sync() override {
    if (call_ != nullptr) std::exchange(call_, nullptr)();
    return 0;
  }

 private:
  std::function<void()> call_;
};

TEST_CASE("A checkpoint that a training removes while others are verified is not bad") {
  const std::string directory = WriteRun("removing", {"model.ckpt-1", "model.ckpt-2", "model.ckpt-3"});
  REQUIRE(files::WriteFileAtomically(directory + "/model.ckpt-1.index", "").ok());
  FirstLine text([&] {
    for (const char* suffix : {".index", ".data-00000-of-00001"}) {
      REQUIRE(files::RemoveFile(absl::StrCat(directory, "/model.ckpt-2", suffix)).ok());
    }
  });
  std::ostream out(&text);
  CHECK(Verify({directory}, {}, out) == absl::DataLossError("1 errors in 1 variables in 2 checkpoints"));
  CHECK_THAT(text.str(), Contains("model.ckpt-1.index: holds 0 bytes") && !Contains("model.ckpt-2"));
  // Without its data alone it is.
  REQUIRE(files::RemoveFile(directory + "/model.ckpt-3.data-00000-of-00001").ok());
  CHECK(Verify({directory}, {}, out) == absl::DataLossError("2 errors in 0 variables in 2 checkpoints"));
}

TEST_CASE("A latest checkpoint that was not among those listed is verified, not missing") {
  const std::string directory = WriteRun("moved", {"ckpt-6"});
  REQUIRE(files::WriteFileAtomically(directory + "/checkpoint", "model_checkpoint_path: \"/elsewhere/ckpt-6\"").ok());
  std::ostringstream out;
  REQUIRE(Verify({directory}, {}, out).ok());
  CHECK(out.str() == "1 variables in 1 checkpoint are good\n");
}

TEST_CASE("The average has the last checkpoint's strings, of any shape") {
  const auto write = [](const std::string& name, const std::vector<std::string>& texts) {
    const std::string prefix = absl::StrCat(kDirectory, "/", name);
    auto writer = train::BundleWriter::Create(prefix).value();
    REQUIRE(writer->AddStrings("s", {2}, texts).ok());
    REQUIRE(writer->Finish().ok());
    return prefix;
  };
  std::ostringstream out;
  const std::string directory = kDirectory + "/average-of-strings";
  REQUIRE(Average({directory, write("strings-1", {"a", "b"}), write("strings-2", {"c", "d"})}, {}, out).ok());
  const auto reader = train::BundleReader::Open(directory + "/model.ckpt-0").value();
  CHECK(reader->Find("s")->shape == compute::Shape({2}));
  CHECK(reader->ReadStrings("s").value() == std::vector<std::string>{"c", "d"});
}

TEST_CASE("All variables are shown but those that cannot be read; one of these that is named is an error") {
  const std::string prefix = kDirectory + "/many-strings";
  auto writer = train::BundleWriter::Create(prefix).value();
  constexpr size_t kTooMany = (1 << 20) + 1;
  REQUIRE(writer->AddStrings("many", {kTooMany}, std::vector<std::string>(kTooMany)).ok());
  REQUIRE(writer->AddStrings("text", {}, {"shown"}).ok());
  REQUIRE(writer->Finish().ok());
  std::ostringstream out;
  REQUIRE(Show({prefix}, {}, out).ok());
  CHECK_THAT(out.str(), Contains("text") && !Contains("many"));
  CHECK(absl::IsUnimplemented(Show({prefix, "many"}, {}, out)));
}

}  // namespace
}  // namespace official::checkpoint_tool
