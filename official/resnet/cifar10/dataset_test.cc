#include "official/resnet/cifar10/dataset.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"

namespace official::resnet {
namespace {

using Catch::Contains;
using compute::DType;
using compute::Shape;

std::string Record(char label, const std::string& planes) { return label + planes; }
std::string Planes(char red, char green, char blue) {
  return std::string(1024, red) + std::string(1024, green) + std::string(1024, blue);
}

// A directory with one record in each file, to be spoiled by the tests.
class Fixture {
 public:
  Fixture() {
    static int number = 0;
    directory_ = absl::StrCat(std::getenv("TEST_TMPDIR"), "/cifar", ++number);
    std::filesystem::create_directories(directory_ + "/" + kCifar10Folder);
    for (char i = 1; i <= 5; ++i) {
      Write(absl::StrCat("data_batch_", static_cast<int>(i), ".bin"), Record(i, Planes(i, 0, 0)));
    }
    Write("test_batch.bin", Record(7, Planes(0, 1, 2)));
  }

 protected:
  std::string Path(const std::string& name) const { return absl::StrCat(directory_, "/", kCifar10Folder, "/", name); }
  void Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(Path(name), std::ios::binary) << bytes;
  }
  Cifar10Split Load(Cifar10Part part) const { return LoadCifar10(directory_, part).value(); }

  std::string directory_;
};

// The pixels of example `index`, [32, 32, 3].
std::vector<float> Pixels(const data::DatasetPtr& dataset, int64_t epoch, int64_t index) {
  const data::Example example = data::MakeExample(dataset->spec());
  REQUIRE(dataset->Read(epoch, index, example).ok());
  const auto pixels = example.features[0].flat<float>();
  return {pixels.begin(), pixels.end()};
}

TEST_CASE_METHOD(Fixture, "Training reads the five batches in order, testing the test batch") {
  const Cifar10Split train = Load(Cifar10Part::kTrain);
  CHECK(train.images.type() == compute::TensorType{DType::kUInt8, Shape({5, 3, 32, 32})});
  CHECK(std::vector<int>(train.labels.data<int32_t>(), train.labels.data<int32_t>() + 5) ==
        std::vector<int>{1, 2, 3, 4, 5});
  CHECK(train.images.data<uint8_t>()[3 * 3072] == 4);
  CHECK(Load(Cifar10Part::kTest).labels.scalar<int32_t>() == 7);
}

// The expectation is that of the official models' own test.
TEST_CASE_METHOD(Fixture, "Evaluation standardizes each image and puts the channels last") {
  const data::DatasetPtr dataset = Cifar10Dataset(Load(Cifar10Part::kTest), /*augment=*/false, /*seed=*/1);
  CHECK(dataset->spec() == Cifar10Spec());
  CHECK(dataset->num_examples() == 1);
  const std::vector<float> pixels = Pixels(dataset, 0, 0);
  for (int i = 0; i < 1024; ++i) {
    CHECK(pixels[3 * i] == Approx(-1.2247449).epsilon(1e-6));
    CHECK(pixels[3 * i + 1] == Approx(0).margin(1e-6));
    CHECK(pixels[3 * i + 2] == Approx(1.2247449).epsilon(1e-6));
  }
}

TEST_CASE_METHOD(Fixture, "An image of one colour has the deviation 1 / sqrt(3072)") {
  Write("test_batch.bin", Record(0, Planes(9, 9, 9)));
  for (const float pixel : Pixels(Cifar10Dataset(Load(Cifar10Part::kTest), false, 1), 0, 0)) CHECK(pixel == 0);
  Write("test_batch.bin", Record(0, "\x0a" + std::string(3071, '\x09')));
  // numpy: mean 9.00032552, standard deviation 0.0180 < 1 / sqrt(3072) = 0.01804220
  const std::vector<float> pixels = Pixels(Cifar10Dataset(Load(Cifar10Part::kTest), false, 1), 0, 0);
  CHECK(pixels[0] == Approx((1 - 1 / 3072.0) * std::sqrt(3072.0)).epsilon(1e-4));
}

// A picture in which every pixel differs from its neighbours tells which window of it an output is.
TEST_CASE_METHOD(Fixture, "Training takes each shifted window, mirrored or not, with black around it") {
  std::string planes;
  for (int c = 0; c < 3; ++c) {
    for (int y = 0; y < 32; ++y) {
      for (int x = 0; x < 32; ++x) planes += static_cast<char>(40 + 60 * c + y + x % 7 + (c == 2 ? x : 0));
    }
  }
  const auto plane = [&](int c, int y, int x) {
    return y < 0 || y >= 32 || x < 0 || x >= 32 ? 0 : static_cast<uint8_t>(planes[(c * 32 + y) * 32 + x]);
  };
  // The standardized window, computed in the plain way.
  const auto expected = [&](int top, int left, bool flip) {
    std::vector<double> window;
    for (int y = 0; y < 32; ++y) {
      for (int x = 0; x < 32; ++x) {
        for (int c = 0; c < 3; ++c) window.push_back(plane(c, y + top, (flip ? 31 - x : x) + left));
      }
    }
    double mean = 0, variance = 0;
    for (const double value : window) mean += value / 3072;
    for (const double value : window) variance += (value - mean) * (value - mean) / 3072;
    for (double& value : window) value = (value - mean) / std::sqrt(variance);
    return window;
  };
  const auto matches = [](const std::vector<float>& pixels, const std::vector<double>& window) {
    for (int i = 0; i < 3072; ++i) {
      if (std::abs(pixels[i] - window[i]) > 1e-4) return false;
    }
    return true;
  };

  Write("test_batch.bin", Record(0, planes));
  const data::DatasetPtr dataset = Cifar10Dataset(Load(Cifar10Part::kTest), /*augment=*/true, /*seed=*/1);
  std::set<std::tuple<int, int, bool>> seen;
  for (int64_t epoch = 0; epoch < 300; ++epoch) {
    const std::vector<float> pixels = Pixels(dataset, epoch, 0);
    int found = 0;
    for (int window = 0; window < 162; ++window) {
      const int top = window / 18 - 4, left = window / 2 % 9 - 4;
      const bool flip = window % 2;
      if (!matches(pixels, expected(top, left, flip))) continue;
      seen.emplace(top, left, flip);
      ++found;
    }
    REQUIRE(found == 1);
  }
  // Of 162 equally likely windows 300 draws see 137 on average, with a standard deviation of 4.
  CHECK(seen.size() > 117);
}

TEST_CASE_METHOD(Fixture, "What training draws depends on seed, epoch and index alone") {
  const Cifar10Split train = Load(Cifar10Part::kTrain);
  const data::DatasetPtr one = Cifar10Dataset(train, true, 1), other = Cifar10Dataset(train, true, 1);
  Pixels(one, 3, 2);  // what was read before does not matter
  CHECK(Pixels(one, 7, 4) == Pixels(other, 7, 4));
  const data::DatasetPtr another_seed = Cifar10Dataset(train, true, 2);
  int differing = 0;
  for (int64_t epoch = 0; epoch < 20; ++epoch) differing += Pixels(one, epoch, 4) != Pixels(another_seed, epoch, 4);
  CHECK(differing > 10);
}

TEST_CASE_METHOD(Fixture, "A missing file or directory says how to get the data, or to do without") {
  std::filesystem::remove(Path("data_batch_4.bin"));
  const absl::Status status = LoadCifar10(directory_, Cifar10Part::kTrain).status();
  CHECK(absl::IsNotFound(status));
  CHECK_THAT(std::string(status.message()),
             Contains(Path("data_batch_4.bin")) &&
                 Contains("`download_cifar10_main " + directory_ + "` downloads CIFAR-10") &&
                 Contains("--use_synthetic_data"));
  CHECK(absl::IsNotFound(LoadCifar10(directory_ + "/none", Cifar10Part::kTest).status()));
}

TEST_CASE_METHOD(Fixture, "Cut and empty files are refused with the bytes found and wanted") {
  const auto [bytes, found] = GENERATE(
      table<std::string, std::string>({{"", "found 0"}, {Record(1, std::string(3071, 'a')) + "", "found 3072"}}));
  Write("data_batch_2.bin", bytes);
  const absl::Status status = LoadCifar10(directory_, Cifar10Part::kTrain).status();
  CHECK(absl::IsDataLoss(status));
  CHECK_THAT(std::string(status.message()),
             Contains(Path("data_batch_2.bin")) && Contains("multiple of 3073 bytes") && Contains(found));
}

TEST_CASE_METHOD(Fixture, "A label above nine is refused with its record") {
  Write("test_batch.bin", Record(3, Planes(1, 2, 3)) + Record(10, Planes(1, 2, 3)));
  const absl::Status status = LoadCifar10(directory_, Cifar10Part::kTest).status();
  CHECK(absl::IsDataLoss(status));
  CHECK(status.message() == Path("test_batch.bin") + ": record 1: expected a label from 0 to 9, found 10");
}

TEST_CASE("The real files, where there are some") {
  const char* directory = std::getenv("OFFICIAL_CIFAR10_DIR");
  if (directory == nullptr) return;
  const Cifar10Split test = LoadCifar10(directory, Cifar10Part::kTest).value();
  CHECK(test.images.shape() == Shape({10000, 3, 32, 32}));
  CHECK(LoadCifar10(directory, Cifar10Part::kTrain).value().labels.num_elements() == 50000);
  // A thousand of each class.
  std::array<int, 10> counts = {};
  for (const int32_t label : test.labels.flat<int32_t>()) ++counts[label];
  for (const int count : counts) CHECK(count == 1000);
}

}  // namespace
}  // namespace official::resnet
