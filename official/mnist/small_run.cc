#include "official/mnist/small_run.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "utils/compute/core/random.h"
#include "utils/files/files.h"
#include "utils/train/checkpoint/bundle.h"

namespace official::mnist {

using compute::Tensor;

std::string NewDirectory(const std::string& name) {
  static int counter = 0;
  const char* root = std::getenv("TEST_TMPDIR");
  return absl::StrCat(root ? root : "/tmp", "/", name, "-", getpid(), "-", ++counter);
}

namespace {

std::string BigEndian(uint32_t v) {
  return {static_cast<char>(v >> 24), static_cast<char>(v >> 16), static_cast<char>(v >> 8), static_cast<char>(v)};
}

// IDX files of n images: a bright bar whose column is the label's, in noise.
void WriteDigits(const std::string& directory, const std::string& prefix, int n) {
  std::filesystem::create_directories(directory);
  std::ofstream images(absl::StrCat(directory, "/", prefix, "-images-idx3-ubyte"), std::ios::binary);
  std::ofstream labels(absl::StrCat(directory, "/", prefix, "-labels-idx1-ubyte"), std::ios::binary);
  images << BigEndian(0x803) << BigEndian(n) << BigEndian(28) << BigEndian(28);
  labels << BigEndian(0x801) << BigEndian(n);
  for (int i = 0; i < n; ++i) {
    const int label = i % 10;
    labels.put(static_cast<char>(label));
    for (int p = 0; p < 28 * 28; ++p) {
      const bool bar = (p % 28) / 2 == label + 1;
      const uint32_t noise = compute::Philox(7, i, p)[0] % 64;
      images.put(static_cast<char>(bar ? 255 - noise : noise));
    }
  }
}

}  // namespace

MnistConfig SmallConfig(int train_examples, int test_examples) {
  MnistConfig config;
  config.base.data_dir = NewDirectory("data");
  config.base.data_dir_given = true;
  config.base.model_dir = NewDirectory("model");
  config.base.train_epochs = 1;
  config.base.epochs_between_evals = 1;
  config.base.batch_size = 100;
  config.base.num_gpus = 0;
  config.base.hooks = {"LoggingTensorHook"};
  config.base.seed = 1;
  config.base.resume = "auto";
  config.base.shuffle = true;
  config.base.save_checkpoints_secs = 600;
  config.base.keep_checkpoint_max = 5;
  config.base.log_every_n_steps = 100;
  config.base.log_format = "simple";
  config.base.output = "json";
  config.performance.num_parallel_calls = 1;
  WriteDigits(config.base.data_dir, "train", train_examples);
  WriteDigits(config.base.data_dir, "t10k", test_examples);
  return config;
}

std::string Run(const MnistConfig& config) {
  std::ostringstream out;
  const absl::Status status = RunMnist(config, out);
  INFO(status.ToString());
  REQUIRE(status.ok());
  return out.str();
}

absl::Status RunStatus(const MnistConfig& config) {
  std::ostringstream out;
  return RunMnist(config, out);
}

std::unique_ptr<train::BundleReader> Checkpoint(const MnistConfig& config) {
  return train::FindLatestCheckpoint(config.base.model_dir).value().reader;
}

void CheckSameBits(const MnistConfig& first, const MnistConfig& second) {
  const auto a = Checkpoint(first), b = Checkpoint(second);
  REQUIRE(a->ListTensors().size() == b->ListTensors().size());
  for (const train::BundleTensor& tensor : a->ListTensors()) {
    if (!tensor.dtype) continue;
    INFO(tensor.name);
    const Tensor x = a->Read(tensor.name).value(), y = b->Read(tensor.name).value();
    CHECK(x.type() == y.type());
    CHECK(std::memcmp(x.raw_data(), y.raw_data(), x.num_bytes()) == 0);
  }
}

std::vector<double> Losses(const MnistConfig& config) {
  std::vector<double> losses;
  const std::string log = files::ReadFile(config.base.model_dir + "/metric.log", 1 << 24).value();
  for (const absl::string_view line : absl::StrSplit(log, '\n', absl::SkipEmpty())) {
    const nlohmann::json entry = nlohmann::json::parse(line.begin(), line.end());
    if (entry["name"] == "loss") losses.push_back(entry["value"]);
  }
  return losses;
}

}  // namespace official::mnist
