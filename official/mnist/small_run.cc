#include "official/mnist/small_run.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/random.h"

namespace official::mnist {

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
  MnistConfig config{run::SmallRun(/*batch_size=*/100), {}, {}};
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

}  // namespace official::mnist
