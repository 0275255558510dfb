#include "official/mnist/dataset.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "utils/logs/captured_log.h"
#include "utils/logs/log.h"

namespace official::mnist {
namespace {

using Catch::Contains;
using compute::DType;
using compute::Shape;

std::string BigEndian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

std::string Idx(std::vector<uint32_t> dims, const std::string& data) {
  std::string bytes = BigEndian(0x800 + dims.size());
  for (uint32_t dim : dims) bytes += BigEndian(dim);
  return bytes + data;
}

// A directory with three training and two test images, to be spoiled by the tests.
class Fixture {
 public:
  Fixture() {
    static int number = 0;
    directory_ = absl::StrCat(std::getenv("TEST_TMPDIR"), "/mnist", ++number);
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
    Write("train-images-idx3-ubyte",
          Idx({3, 28, 28}, std::string(784, '\0') + std::string(784, '\x33') + std::string(783, '\xff') + '\x01'));
    Write("train-labels-idx1-ubyte", Idx({3}, {0, 9, 5}));
    Write("t10k-images-idx3-ubyte", Idx({2, 28, 28}, std::string(2 * 784, '\x07')));
    Write("t10k-labels-idx1-ubyte", Idx({2}, {1, 2}));
    logs::InitLogging({.format = logs::LogFormat::kNone});
  }

 protected:
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  void Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(Path(name), std::ios::binary) << bytes;
  }
  // No network: every mirror is a port where nobody listens.
  absl::StatusOr<MnistData> Load(bool data_dir_given = true) const {
    return LoadMnist(
        {.data_dir = directory_, .data_dir_given = data_dir_given, .mirrors = {"http://127.0.0.1:1/mnist"}});
  }
  std::string DataError() const {
    const absl::Status status = Load().status();
    CHECK(absl::IsDataLoss(status));
    return std::string(status.message());
  }

  std::string directory_;
};

TEST_CASE_METHOD(Fixture, "LoadMnist reads both splits") {
  const MnistData data = Load().value();
  CHECK(data.train->images.shape() == Shape({3, 28, 28}));
  CHECK(data.train->labels.dtype() == DType::kInt32);
  CHECK(data.train->labels.data<int32_t>()[1] == 9);
  CHECK(data.test.images.data<uint8_t>()[784] == 7);
  CHECK(data.test.labels.data<int32_t>()[1] == 2);
  CHECK_FALSE(data.drawn);
  CHECK(data.note.empty());
}

TEST_CASE_METHOD(Fixture, "Where the training set is not read, its files need not be there") {
  for (const char* file : {"images-idx3", "labels-idx1"}) {
    REQUIRE(std::filesystem::remove(Path(std::string("train-") + file + "-ubyte")));
  }
  CHECK(absl::IsUnavailable(Load().status()));
  MnistOptions options = {.data_dir = directory_, .data_dir_given = true, .reads_train = false};
  options.mirrors = {"http://127.0.0.1:1/mnist"};
  const MnistData data = LoadMnist(options).value();
  CHECK_FALSE(data.train);
  CHECK(data.test.images.shape() == Shape({2, 28, 28}));
  std::filesystem::remove(Path("t10k-labels-idx1-ubyte"));
  options.data_dir_given = false;
  const MnistData drawn = LoadMnist(options).value();
  CHECK_FALSE(drawn.train);
  CHECK(drawn.test.labels.shape() == Shape({10000}));
  CHECK_THAT(drawn.note, Contains("evaluating on digits drawn"));
}

TEST_CASE_METHOD(Fixture, "Examples are pixels divided by 255 as float32, and an int32 label") {
  const data::DatasetPtr dataset = MnistDataset(*Load().value().train);
  CHECK(dataset->num_examples() == 3);
  CHECK(dataset->spec().features == std::vector<data::Leaf>{{"", {DType::kFloat32, {784}}}});
  CHECK(dataset->spec().labels == std::vector<data::Leaf>{{"", {DType::kInt32, {}}}});
  const data::Example example = data::MakeExample(dataset->spec());
  REQUIRE(dataset->Read(0, 1, example).ok());
  CHECK(example.features[0].data<float>()[300] == 0.2f);  // 0x33 = 51
  REQUIRE(dataset->Read(0, 2, example).ok());
  CHECK(example.features[0].data<float>()[0] == 1);
  CHECK(example.features[0].data<float>()[783] == 0.00392156885936856f);  // numpy: float32(1) / 255
  CHECK(example.labels[0].scalar<int32_t>() == 5);
}

TEST_CASE_METHOD(Fixture, "A wrong magic number gives upstream's message") {
  Write("train-images-idx3-ubyte", Idx({3}, {0, 9, 5}));
  CHECK(DataError() == "Invalid magic number 2049 in MNIST file " + Path("train-images-idx3-ubyte"));
}

TEST_CASE_METHOD(Fixture, "So it does in a label file, and where the file is not IDX at all") {
  Write("t10k-labels-idx1-ubyte", "<html><body>");
  CHECK(DataError() == "Invalid magic number 1013478509 in MNIST file " + Path("t10k-labels-idx1-ubyte") +
                           " (the file is an HTML page)");
}

TEST_CASE_METHOD(Fixture, "Images of another size give upstream's message") {
  Write("train-images-idx3-ubyte", Idx({1, 28, 27}, std::string(28 * 27, 'a')));
  CHECK(DataError() ==
        "Invalid MNIST file " + Path("train-images-idx3-ubyte") + ": Expected 28x28 images, found 28x27");
}

TEST_CASE_METHOD(Fixture, "Cut, empty and overlong files are refused with both sizes") {
  const auto [bytes, message] = GENERATE(table<std::string, std::string>({
      {"", "is empty"},
      {Idx({3, 28, 28}, std::string(100, 'a')), "expected 2368 bytes (3 x 28 x 28), found 116"},
      {Idx({4000000000u, 28, 28}, std::string(100, 'a')),
       "expected 3136000000016 bytes (4000000000 x 28 x 28), found 116"},
      {Idx({1, 28, 28}, std::string(785, 'a')), "expected 800 bytes (1 x 28 x 28), found 801"},
  }));
  Write("train-images-idx3-ubyte", bytes);
  CHECK_THAT(DataError(), Contains(Path("train-images-idx3-ubyte")) && Contains(message));
}

TEST_CASE_METHOD(Fixture, "Images and labels that differ in number are refused") {
  Write("train-labels-idx1-ubyte", Idx({2}, {0, 9}));
  CHECK(DataError() ==
        Path("train-images-idx3-ubyte") + " has 3 images, but " + Path("train-labels-idx1-ubyte") + " has 2 labels");
}

TEST_CASE_METHOD(Fixture, "Labels above nine are refused") {
  Write("train-labels-idx1-ubyte", Idx({3}, {0, 10, 5}));
  CHECK_THAT(DataError(), Contains("train-labels-idx1-ubyte") && Contains("found 10 at index 1"));
}

TEST_CASE_METHOD(Fixture, "A data set without examples is refused") {
  Write("t10k-images-idx3-ubyte", Idx({0, 28, 28}, ""));
  Write("t10k-labels-idx1-ubyte", Idx({0}, ""));
  CHECK_THAT(DataError(), Contains("has no images"));
}

TEST_CASE_METHOD(Fixture, "Missing files in a directory that was asked for are an error with names and reason") {
  std::filesystem::remove(Path("t10k-labels-idx1-ubyte"));
  std::filesystem::remove(Path("train-labels-idx1-ubyte"));
  const absl::Status status = Load().status();
  CHECK(absl::IsUnavailable(status));
  CHECK_THAT(std::string(status.message()),
             Contains(directory_ + " is missing train-labels-idx1-ubyte and t10k-labels-idx1-ubyte of MNIST: cannot "
                                   "download ") &&
                 Contains("/train-labels-idx1-ubyte: 127.0.0.1:1: ") && Contains("connect") &&
                 Contains("; `download_mnist_main " + directory_ +
                          "` downloads them on a machine with a network, and "
                          "--use_synthetic_data trains without them"));
}

TEST_CASE_METHOD(Fixture, "A mistyped directory is called missing, and is not made") {
  std::filesystem::remove_all(directory_);
  directory_ += "/mistyped";
  const absl::Status status = Load().status();
  CHECK(absl::IsUnavailable(status));
  CHECK_THAT(std::string(status.message()),
             Contains("there is no directory " + directory_ +
                      " with the files train-images-idx3-ubyte and 3 more files of MNIST: cannot download "));
  CHECK_FALSE(std::filesystem::exists(std::filesystem::path(directory_).parent_path()));
}

TEST_CASE_METHOD(Fixture, "Without a directory that was asked for, digits are drawn and a note says why") {
  std::filesystem::remove(Path("t10k-labels-idx1-ubyte"));
  logs::CapturedTasks log;
  const MnistData data = Load(/*data_dir_given=*/false).value();
  CHECK_THAT(log.Text(), Contains("drawing digits"));
  CHECK(data.drawn);
  CHECK_THAT(data.note, Contains("drawn") && Contains("is missing t10k-labels-idx1-ubyte"));
  CHECK_THAT(data.note, !Contains("\n"));
  CHECK(data.train->images.shape() == Shape({60000, 28, 28}));
  CHECK(data.test.labels.shape() == Shape({10000}));
}

TEST_CASE_METHOD(Fixture, "A damaged file is an error even where digits could be drawn") {
  Write("t10k-labels-idx1-ubyte", "");
  CHECK(absl::IsDataLoss(Load(/*data_dir_given=*/false).status()));
}

TEST_CASE("The real files, where there are some", "[mnist]") {
  const char* directory = std::getenv("OFFICIAL_MNIST_DIR");
  if (directory == nullptr) return;
  const MnistData data = LoadMnist({.data_dir = directory, .data_dir_given = true}).value();
  const auto pixels = data.train->images.flat<uint8_t>();
  // The well-known mean of the training images is 0.1307.
  CHECK(std::accumulate(pixels.begin(), pixels.end(), int64_t{0}) / 255.0 / pixels.size() ==
        Approx(0.1307).margin(1e-4));
  CHECK(data.train->labels.data<int32_t>()[0] == 5);
  CHECK(data.test.labels.data<int32_t>()[0] == 7);
  CHECK(data.test.images.shape() == Shape({10000, 28, 28}));
}

}  // namespace
}  // namespace official::mnist
