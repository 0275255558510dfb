#include "official/resnet/imagenet/dataset.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include "absl/strings/str_cat.h"
#include "utils/data/batch.h"
#include "utils/data/jpeg_encoder.h"
#include "utils/data/records/tf_record.h"
#include "utils/data/records/tf_record_index.h"
#include "utils/protos/example.pb.h"

namespace official::resnet {
namespace {

using Catch::Contains;
using Features = google::protobuf::Map<std::string, tensorflow::Feature>;

// A record with the features that ImageNet's have, changed by `spoil`.
std::string Record(
    int label, const std::function<void(Features&)>& spoil = [](Features&) {}) {
  tensorflow::Example example;
  Features& features = *example.mutable_features()->mutable_feature();
  features["image/encoded"].mutable_bytes_list()->add_value(data::SmoothJpeg({.height = 60 + label % 40, .width = 80}));
  features["image/class/label"].mutable_int64_list()->add_value(label);
  features["image/class/text"].mutable_bytes_list()->add_value("a picture");
  features["image/height"].mutable_int64_list()->add_value(60 + label);
  for (const char* edge : {"ymin", "xmin", "ymax", "xmax"}) {
    features[absl::StrCat("image/object/bbox/", edge)].mutable_float_list()->add_value(edge[2] == 'i' ? 0.25f : 0.5f);
  }
  spoil(features);
  return example.SerializeAsString();
}

class Fixture {
 public:
  Fixture() {
    static int number = 0;
    directory_ = absl::StrCat(std::getenv("TEST_TMPDIR"), "/imagenet", ++number);
    std::filesystem::create_directories(directory_);
  }

 protected:
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  void Write(const std::string& name, const std::vector<std::string>& records) const {
    auto writer = data::TFRecordWriter::Open(Path(name)).value();
    for (const std::string& record : records) REQUIRE(writer->Write(record).ok());
    REQUIRE(writer->Close().ok());
  }
  data::DatasetPtr Open(bool training) const {
    const ImagenetPart part = training ? ImagenetPart::kTrain : ImagenetPart::kValidation;
    return ImagenetDataset(OpenImagenet(directory_, part).value(), {.augment = training, .seed = 1});
  }
  // Of reading a validation set with this one record, or a training set.
  std::string ErrorOf(const std::string& record, bool training = false) const {
    const std::string name = training ? "train-00000-of-00001" : "validation-00000-of-00001";
    Write(name, {record});
    const data::DatasetPtr dataset = Open(training);
    const absl::Status status = dataset->Read(0, 0, data::MakeExample(dataset->spec()));
    CHECK(absl::IsDataLoss(status));
    const std::string place = Path(name) + ": record 0 at offset 0: ";
    CHECK_THAT(std::string(status.message()), Catch::StartsWith(place));
    return std::string(status.message()).substr(place.size());
  }

  std::string directory_;
};

TEST_CASE_METHOD(Fixture, "Examples come in the order of files and records, with pixels and label") {
  Write("train-00000-of-00002", {Record(1), Record(2)});
  Write("train-00001-of-00002", {Record(1000)});
  const data::DatasetPtr dataset = Open(/*training=*/true);
  CHECK(dataset->spec() == ImagenetSpec());
  CHECK(dataset->num_examples() == 3);
  const data::Example example = data::MakeExample(dataset->spec());
  for (const auto& [index, label] : {std::pair{0, 1}, std::pair{2, 1000}, std::pair{1, 2}}) {
    REQUIRE(dataset->Read(0, index, example).ok());
    CHECK(example.labels[0].scalar<int32_t>() == label);
  }
}

TEST_CASE_METHOD(Fixture, "Batches are the same for any number of threads and any place to begin") {
  std::vector<std::string> records;
  for (int label = 0; label < 30; ++label) records.push_back(Record(label));
  Write("train-00000-of-00002", {records.begin(), records.begin() + 11});
  Write("train-00001-of-00002", {records.begin() + 11, records.end()});
  using Bytes = std::vector<float>;
  const auto read = [&](int num_threads, data::Position start) {
    auto batches = data::Batches(data::Shuffle(Open(true), /*seed=*/5),
                                 {.batch_size = 7, .start = start, .end_epoch = 2, .num_threads = num_threads})
                       .value();
    Bytes all;
    for (auto batch = batches->Next().value(); batch.has_value(); batch = batches->Next().value()) {
      for (const int32_t label : batch->labels[0].flat<int32_t>()) all.push_back(label);
      const auto pixels = batch->features[0].flat<float>();
      all.insert(all.end(), pixels.begin(), pixels.end());
    }
    return all;
  };
  const Bytes whole = read(1, {});
  CHECK(whole.size() == 2 * 30 * (1 + 224 * 224 * 3));
  CHECK(read(4, {}) == whole);
  const Bytes rest = read(2, {.epoch = 1, .index = 14});
  CHECK(rest == Bytes(whole.end() - rest.size(), whole.end()));
}

TEST_CASE_METHOD(Fixture, "A bad record that may be left out is replaced by the next good one, always the same") {
  std::vector<std::string> records;
  for (int label = 1; label <= 6; ++label) records.push_back(Record(label));
  records[2] = Record(3, [](Features& f) { f["image/encoded"].mutable_bytes_list()->set_value(0, "no image"); });
  records[5] = Record(2000);
  Write("train-00000-of-00001", records);
  const auto open = [&](int limit, BadRecordsPtr* bad) {
    *bad = std::make_shared<data::BadRecords>(limit);
    return ImagenetDataset(OpenImagenet(directory_, ImagenetPart::kTrain, "", *bad).value(),
                           {.augment = true, .seed = 1, .bad = *bad});
  };
  BadRecordsPtr bad;
  const auto read = [](const data::DatasetPtr& dataset, int64_t epoch, int64_t index) {
    const data::Example example = data::MakeExample(dataset->spec());
    REQUIRE(dataset->Read(epoch, index, example).ok());
    const auto pixels = example.features[0].flat<float>();
    return std::pair(example.labels[0].scalar<int32_t>(), std::vector<float>(pixels.begin(), pixels.end()));
  };
  const data::DatasetPtr dataset = open(2, &bad);
  CHECK(dataset->num_examples() == 6);
  std::vector<int> labels;
  for (int i = 0; i < 6; ++i) labels.push_back(read(dataset, 0, i).first);
  CHECK(labels == std::vector<int>{1, 2, 4, 4, 5, 1});
  CHECK(read(dataset, 1, 2).first == 4);
  CHECK(bad->count() == 2);
  // Whatever was read before; but two examples are no two copies.
  const auto replaced = read(dataset, 3, 2);
  CHECK(replaced == read(open(2, &bad), 3, 2));
  CHECK(replaced.second != read(dataset, 3, 3).second);

  const data::DatasetPtr one = open(1, &bad);
  CHECK(read(one, 0, 2).first == 4);
  const absl::Status status = one->Read(0, 5, data::MakeExample(one->spec()));
  CHECK(absl::IsDataLoss(status));
  CHECK_THAT(std::string(status.message()),
             Contains("record 5 at offset ") && Contains("found 2000; more than --skip_bad_records=1 records"));

  // Where all are bad nothing is good.
  Write("train-00000-of-00001", {records[2], records[5]});
  const data::DatasetPtr none = open(9, &bad);
  CHECK(absl::IsDataLoss(none->Read(0, 0, data::MakeExample(none->spec()))));
}

TEST_CASE_METHOD(Fixture, "An evaluation leaves a bad record out, and reads each good one once") {
  Write("validation-00000-of-00002", {Record(1), Record(2000), Record(3)});
  Write("validation-00001-of-00002", {Record(4), "no record"});
  const ImagenetRecords records = OpenImagenet(directory_, ImagenetPart::kValidation).value();
  const int num_threads = GENERATE(1, 3);
  const auto good = [&](int limit) {
    return GoodRecords(records, {.bad = std::make_shared<data::BadRecords>(limit)}, num_threads);
  };
  const data::DatasetPtr dataset = good(2).value();
  REQUIRE(dataset->num_examples() == 3);
  const data::Example example = data::MakeExample(dataset->spec());
  for (const auto& [index, label] : {std::pair{0, 1}, std::pair{1, 3}, std::pair{2, 4}}) {
    REQUIRE(dataset->Read(0, index, example).ok());
    CHECK(example.labels[0].scalar<int32_t>() == label);
  }
  const absl::Status status = good(1).status();
  CHECK(absl::IsDataLoss(status));
  CHECK_THAT(std::string(status.message()),
             Contains("validation-00001-of-00002: record 1 ") && Contains("more than --skip_bad_records=1 records"));

  Write("validation-00000-of-00002", {Record(2000)});
  Write("validation-00001-of-00002", {Record(2000)});
  const absl::StatusOr<data::DatasetPtr> none =
      GoodRecords(OpenImagenet(directory_, ImagenetPart::kValidation).value(),
                  {.bad = std::make_shared<data::BadRecords>(2)}, num_threads);
  CHECK(absl::IsDataLoss(none.status()));
}

TEST_CASE_METHOD(Fixture, "Where training is not to augment, its images are preprocessed as in evaluation") {
  Write("train-00000-of-00001", {Record(3)});
  Write("validation-00000-of-00001", {Record(3)});
  const data::DatasetPtr train = ImagenetDataset(OpenImagenet(directory_, ImagenetPart::kTrain).value(), {});
  const data::DatasetPtr validation = Open(false);
  const data::Example a = data::MakeExample(ImagenetSpec()), b = data::MakeExample(ImagenetSpec());
  REQUIRE(train->Read(1, 0, a).ok());
  REQUIRE(validation->Read(0, 0, b).ok());
  CHECK(
      std::equal(a.features[0].flat<float>().begin(), a.features[0].flat<float>().end(), b.features[0].data<float>()));
}

TEST_CASE_METHOD(Fixture, "A bad record is named with its file, number, offset and what is wrong") {
  CHECK(ErrorOf(Record(1, [](Features& f) { f.erase("image/encoded"); })) == "feature image/encoded is missing");
  CHECK(ErrorOf(Record(1, [](Features& f) { f.erase("image/class/label"); })) ==
        "feature image/class/label is missing");
  CHECK(ErrorOf(Record(1001)) == "feature image/class/label: expected a label from 0 to 1000, found 1001");
  CHECK(ErrorOf(Record(-1)) == "feature image/class/label: expected a label from 0 to 1000, found -1");
  CHECK(ErrorOf(Record(1, [](Features& f) { f["image/class/label"].mutable_bytes_list(); })) ==
        "feature image/class/label is a list of bytes, expected int64");
  const auto cut = [](Features& features) {
    std::string& image = *features["image/encoded"].mutable_bytes_list()->mutable_value(0);
    image.resize(image.size() - 50);
  };
  CHECK_THAT(ErrorOf(Record(1, cut)), Contains("the JPEG image cannot be decoded"));
  CHECK(ErrorOf(Record(1, [](Features& f) { f["image/encoded"].mutable_bytes_list()->set_value(0, ""); })) ==
        "the image is empty");
  CHECK_THAT(ErrorOf("no protocol buffer"), Contains("the record is not a tf.Example"));
}

TEST_CASE_METHOD(Fixture, "A bad bounding box is named in training, and not read in evaluation") {
  const std::string outside =
      Record(1, [](Features& f) { f["image/object/bbox/xmax"].mutable_float_list()->set_value(0, 1.5f); });
  const std::string missing = Record(1, [](Features& f) { f.erase("image/object/bbox/xmax"); });
  CHECK(ErrorOf(outside, /*training=*/true) ==
        "feature image/object/bbox/xmax: expected values from 0 to 1, found 1.5");
  CHECK(ErrorOf(missing, /*training=*/true) ==
        "feature image/object/bbox/xmax has 0 values, but image/object/bbox/ymin has 1");
  Write("validation-00000-of-00001", {outside, missing});
  const data::DatasetPtr validation = Open(/*training=*/false);
  const data::Example example = data::MakeExample(validation->spec());
  for (int i = 0; i < 2; ++i) CHECK(validation->Read(0, i, example).ok());
}

TEST_CASE_METHOD(Fixture, "An index that was kept gives the same records, and each part has its own") {
  Write("train-00000-of-00002", {Record(1), Record(2)});
  Write("train-00001-of-00002", {Record(3)});
  Write("validation-00000-of-00001", {Record(4)});
  const std::string kept = Path("model");
  std::filesystem::create_directories(kept);
  for (const ImagenetPart part : {ImagenetPart::kTrain, ImagenetPart::kValidation}) {
    const ImagenetRecords without = OpenImagenet(directory_, part).value();
    for (int start = 0; start < 2; ++start) {
      const ImagenetRecords with = OpenImagenet(directory_, part, kept).value();
      REQUIRE(with->num_records() == without->num_records());
      for (int64_t i = 0; i < with->num_records(); ++i) CHECK(with->Describe(i) == without->Describe(i));
    }
  }
  CHECK(std::filesystem::exists(kept + "/records-train.index"));
  CHECK(std::filesystem::exists(kept + "/records-validation.index"));
}

TEST_CASE_METHOD(Fixture, "Data sets that are not there, damaged or empty are refused when they are opened") {
  const auto error = [&] { return OpenImagenet(directory_, ImagenetPart::kValidation).status(); };
  Write("train-00000-of-00001", {Record(1)});
  CHECK(absl::IsNotFound(error()));
  CHECK_THAT(std::string(error().message()), Contains(directory_ + " has no files validation-*-of-*") &&
                                                 Contains("imagenet_to_tfrecords_main --images_dir=IMAGES") &&
                                                 Contains("--use_synthetic_data"));
  Write("validation-00001-of-00001", {Record(1)});  // they are counted from 0
  CHECK(absl::IsDataLoss(error()));
  CHECK_THAT(std::string(error().message()), Contains("is missing validation-00000-of-00001: it has 0 of 1 files"));
  std::filesystem::remove(Path("validation-00001-of-00001"));
  Write("validation-00000-of-00001", {});
  CHECK_THAT(std::string(error().message()), Contains("no records"));
  Write("validation-00000-of-00001", {Record(1)});
  std::filesystem::resize_file(Path("validation-00000-of-00001"), 500);
  CHECK(absl::IsDataLoss(error()));
  CHECK_THAT(std::string(error().message()), Contains("record 0 at offset 0: truncated record"));
}

}  // namespace
}  // namespace official::resnet
