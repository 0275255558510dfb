// The two tools for TFRecord files together: what one writes, the other finds good, until it is spoiled.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "official/resnet/imagenet/check_records.h"
#include "official/resnet/imagenet/convert.h"
#include "official/resnet/imagenet/dataset.h"
#include "utils/data/jpeg_encoder.h"

namespace official::resnet {
namespace {

using Catch::Contains;

class Fixture {
 public:
  Fixture() {
    static int number = 0;
    directory_ = absl::StrCat(std::getenv("TEST_TMPDIR"), "/tools", ++number);
    for (int i = 0; i < 6; ++i) AddImage(i < 2 ? "cat" : "dog", absl::StrCat(i, i % 2 ? ".jpg" : ".JPEG"), 20 + i);
    Write("images/README", "not a folder");
    Write("images/cat/note.txt", "not an image");
  }

 protected:
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  void Write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories(std::filesystem::path(Path(name)).parent_path());
    std::ofstream(Path(name), std::ios::binary) << bytes;
  }
  void AddImage(const std::string& folder, const std::string& name, int size) const {
    Write("images/" + folder + "/" + name, data::SmoothJpeg({.height = size, .width = size}));
  }
  absl::StatusOr<ConvertResult> Convert(int num_shards = 2) const {
    return ConvertToTFRecords({.images_dir = Path("images"),
                               .output_dir = Path("records"),
                               .split = "train",
                               .num_shards = num_shards,
                               .num_threads = 2});
  }
  absl::StatusOr<CheckResult> Check(const std::vector<std::string>& paths, int64_t num_classes = 1001) {
    lines_.clear();
    return CheckRecords({.paths = paths, .num_classes = num_classes, .num_threads = 2},
                        [this](const std::string& line) { lines_.push_back(line); });
  }

  std::string directory_;
  std::vector<std::string> lines_;  // of the last Check
};

TEST_CASE_METHOD(Fixture, "Folders become classes, and training reads what was written") {
  const ConvertResult result = Convert().value();
  CHECK(result.num_images == 6);
  CHECK(result.num_classes == 2);
  const data::DatasetPtr dataset =
      ImagenetDataset(OpenImagenet(Path("records"), ImagenetPart::kTrain).value(), {.augment = true});
  REQUIRE(dataset->num_examples() == 6);
  std::vector<int> labels;
  for (int i = 0; i < 6; ++i) {
    const data::Example example = data::MakeExample(dataset->spec());
    REQUIRE(dataset->Read(0, i, example).ok());
    labels.push_back(example.labels[0].scalar<int32_t>());
  }
  CHECK(std::count(labels.begin(), labels.end(), 1) == 2);
  CHECK(std::count(labels.begin(), labels.end(), 2) == 4);

  const CheckResult check = Check({Path("records")}).value();
  CHECK(check.num_files == 2);
  CHECK(check.num_records == 6);
  CHECK(check.num_bad == 0);
  CHECK(lines_.empty());
}

TEST_CASE_METHOD(Fixture, "An image that cannot be decoded is named, and its file of records not finished") {
  Write("images/dog/bad.jpg", "\xff\xd8\xff, but no more");
  const absl::Status status = Convert().status();
  CHECK(absl::IsDataLoss(status));
  CHECK_THAT(std::string(status.message()),
             Contains(Path("images/dog/bad.jpg") + ": the JPEG image cannot be decoded"));
  int finished = 0;
  for (const auto& entry : std::filesystem::directory_iterator(Path("records"))) {
    CHECK(entry.path().extension() != ".incomplete");
    ++finished;
  }
  CHECK(finished == 1);
}

TEST_CASE_METHOD(Fixture, "Nothing is written over, and nothing made from nothing") {
  REQUIRE(Convert(1).ok());
  CHECK(absl::IsFailedPrecondition(Convert(2).status()));
  CHECK(absl::IsInvalidArgument(Convert(7).status()));
  const auto from = [&](const std::string& images_dir) {
    return ConvertToTFRecords({.images_dir = images_dir, .output_dir = Path("other")}).status();
  };
  CHECK_THAT(std::string(from(Path("images/cat")).message()), Contains("holds no images: expected a folder for each"));
  CHECK(absl::IsNotFound(from(Path("none"))));
}

TEST_CASE_METHOD(Fixture, "Every bad record is told, and the good ones between them read") {
  REQUIRE(Convert(1).ok());
  const std::string path = Path("records/train-00000-of-00001");
  REQUIRE(Check({path}).value().num_bad == 0);
  const CheckResult few_classes = Check({path}, /*num_classes=*/2).value();
  CHECK(few_classes.num_records == 6);
  CHECK(few_classes.num_bad == 4);  // the dogs
  REQUIRE(lines_.size() == 4);
  CHECK_THAT(lines_[0], Contains(path + ": record ") &&
                            Contains(": feature image/class/label: expected a label from 0 to 1, found 2"));

  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(100);
  file.put('!');
  file.close();
  CHECK(Check({path}).value().num_bad == 1);
  CHECK_THAT(lines_.at(0), Contains(path + ": record 0 at offset 0: corrupted record: the checksum of its "));

  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  const CheckResult cut = Check({path}).value();
  CHECK(cut.num_records == 6);
  CHECK(cut.num_bad == 2);
  CHECK_THAT(lines_.at(1), Contains(path + ": record 5 at offset ") && Contains("truncated record") &&
                               Contains("what follows in the file cannot be read"));
}

TEST_CASE_METHOD(Fixture, "Where there is nothing to check, that is an error") {
  CHECK(absl::IsNotFound(Check({Path("images")}).status()));
  CHECK(absl::IsNotFound(Check({Path("none")}).status()));
}

}  // namespace
}  // namespace official::resnet
