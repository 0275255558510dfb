#include "official/resnet/imagenet/dataset.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "official/resnet/imagenet/example_record.h"
#include "official/resnet/imagenet/preprocessing.h"
#include "utils/compute/core/status.h"
#include "utils/data/free_list.h"
#include "utils/data/numbered_files.h"
#include "utils/data/records/tf_record_index.h"
#include "utils/data/worker_pool.h"
#include "utils/files/files.h"
#include "utils/logs/task_progress.h"

namespace official::resnet {
namespace {

using compute::DType;

// Any example is read by its number, from an index of where the records begin. So an epoch's order is a permutation of
// all 1.28 million, not of the 10,000 that a shuffle buffer holds (a gigabyte of JPEG), and a run goes on in the middle
// of an epoch without reading what came before. What it takes:
//   - Building the index: one small read for each record, in parallel over the files. That is half a minute for the 140
//     GB of training data on a solid-state disk, 2 s where the system has these blocks in memory; so a run keeps the
//     index in its --model_dir, and goes on in milliseconds. 8 bytes of memory for each record.
//   - A random read of 110 kB for each example. Solid-state disks read such pieces nearly as fast as whole files, and
//     each decoding thread has its own read under way. A hard disk's 100 seeks a second feed 100 images a second: more
//     than a CPU trains on, less than a GPU does.
class RecordsDataset : public data::Dataset {
 public:
  RecordsDataset(ImagenetRecords records, const ImagenetOptions& options)
      : records_(std::move(records)), options_(options), spec_(ImagenetSpec()) {}
  const data::ElementSpec& spec() const override { return spec_; }
  int64_t num_examples() const override { return records_->num_records(); }

  absl::Status Read(int64_t epoch, int64_t index, const data::Example& out) const override {
    std::unique_ptr<Scratch> scratch = scratch_.Take();
    if (scratch == nullptr) scratch = std::make_unique<Scratch>();
    const absl::Status status = Read(epoch, index, *scratch, out);
    scratch_.GiveBack(std::move(scratch));
    return status;
  }

 private:
  struct Scratch {
    std::string record;
    PreprocessingScratch preprocessing;
  };

  absl::Status Read(int64_t epoch, int64_t index, Scratch& scratch, const data::Example& out) const {
    const data::Random random(options_.seed, epoch, index);
    for (int64_t tried = 0;; ++tried) {
      const int64_t record = (index + tried) % num_examples();
      const absl::Status status = ReadRecord(record, random, scratch, out);
      if (status.ok() || options_.bad == nullptr || tried == num_examples()) return status;
      RETURN_IF_ERROR(options_.bad->Skip(records_->Describe(record), status));
    }
  }

  absl::Status ReadRecord(int64_t number, data::Random random, Scratch& scratch, const data::Example& out) const {
    ASSIGN_OR_RETURN(const absl::string_view record, records_->Read(number, &scratch.record));
    const absl::Status status = Preprocess(record, random, scratch, out);
    if (status.ok()) return status;
    return absl::Status(status.code(), absl::StrCat(records_->Describe(number), ": ", status.message()));
  }

  absl::Status Preprocess(absl::string_view serialized, data::Random random, Scratch& scratch,
                          const data::Example& out) const {
    ASSIGN_OR_RETURN(const ImagenetRecord record,
                     ParseRecord(serialized, options_.num_classes, /*with_boxes=*/options_.augment));
    *out.labels[0].data<int32_t>() = static_cast<int32_t>(record.label);
    float* pixels = out.features[0].data<float>();
    if (!options_.augment) return PreprocessForEvaluation(record.encoded, scratch.preprocessing, pixels);
    return PreprocessForTraining(record.encoded, record.boxes, options_.fast_jpeg, random, scratch.preprocessing,
                                 pixels);
  }

  ImagenetRecords records_;
  ImagenetOptions options_;
  data::ElementSpec spec_;
  mutable data::FreeList<Scratch> scratch_;
};

// The examples of another data set with these indices.
class ChosenExamples : public data::Dataset {
 public:
  ChosenExamples(data::DatasetPtr examples, std::vector<int64_t> indices)
      : examples_(std::move(examples)), indices_(std::move(indices)) {}
  const data::ElementSpec& spec() const override { return examples_->spec(); }
  int64_t num_examples() const override { return static_cast<int64_t>(indices_.size()); }
  absl::Status Read(int64_t epoch, int64_t index, const data::Example& out) const override {
    return examples_->Read(epoch, indices_[index], out);
  }

 private:
  data::DatasetPtr examples_;
  std::vector<int64_t> indices_;
};

}  // namespace

data::ElementSpec ImagenetSpec() {
  return {.features = {{"", {DType::kFloat32, {kImagenetImageSize, kImagenetImageSize, 3}}}},
          .labels = {{"", {DType::kInt32, {}}}}};
}

absl::StatusOr<std::vector<std::string>> FindImagenetFiles(const std::string& data_dir, const std::string& split) {
  ASSIGN_OR_RETURN(std::vector<std::string> paths,
                   data::FindNumberedFiles(data_dir, /*max_begin=*/0, [&](auto set) { return set == split; }));
  if (!paths.empty()) return paths;
  return absl::NotFoundError(absl::StrFormat(
      "%s has no files %s-*-of-*; name their directory with --data_dir, convert images with "
      "`imagenet_to_tfrecords_main --images_dir=IMAGES --output_dir=%s --split=%s`, or train without data with "
      "--use_synthetic_data",
      data_dir, split, data_dir, split));
}

absl::StatusOr<ImagenetRecords> OpenImagenet(const std::string& data_dir, ImagenetPart part,
                                             const std::string& cache_dir, const BadRecordsPtr& bad) {
  const std::string split = part == ImagenetPart::kTrain ? "train" : "validation";
  ASSIGN_OR_RETURN(const std::vector<std::string> paths, FindImagenetFiles(data_dir, split));
  const std::string cache =
      cache_dir.empty() ? "" : files::JoinPath(cache_dir, absl::StrCat("records-", split, ".index"));
  ASSIGN_OR_RETURN(data::TFRecordIndex index, data::TFRecordIndex::Build(paths, cache, bad.get()));
  if (index.num_records() == 0) {
    return absl::DataLossError(absl::StrFormat("the %d files %s and so on have no records", paths.size(), paths[0]));
  }
  return std::make_shared<const data::TFRecordIndex>(std::move(index));
}

data::DatasetPtr ImagenetDataset(ImagenetRecords records, const ImagenetOptions& options) {
  return std::make_shared<RecordsDataset>(std::move(records), options);
}

absl::StatusOr<data::DatasetPtr> GoodRecords(ImagenetRecords records, const ImagenetOptions& options, int num_threads) {
  ImagenetOptions of_all = options;
  of_all.bad = nullptr;
  data::DatasetPtr all = ImagenetDataset(records, of_all);
  const int64_t num_records = all->num_examples();
  std::vector<absl::Status> statuses(num_records);
  data::FreeList<data::Example> examples;
  logs::TaskProgress progress({.title = "looking for damaged records", .total = num_records, .unit = "records"});
  data::WorkerPool(num_threads).ForEach(num_records, [&](int64_t i) {
    std::unique_ptr<data::Example> example = examples.Take();
    if (example == nullptr) example = std::make_unique<data::Example>(data::MakeExample(all->spec()));
    statuses[i] = all->Read(/*epoch=*/0, i, *example);
    examples.GiveBack(std::move(example));
    progress.Add(1);
  });
  std::vector<int64_t> good;
  for (int64_t i = 0; i < num_records; ++i) {
    if (statuses[i].ok()) {
      good.push_back(i);
    } else {
      RETURN_IF_ERROR(options.bad->Skip(records->Describe(i), statuses[i]));
    }
  }
  if (good.empty()) return statuses[0];
  if (static_cast<int64_t>(good.size()) == num_records) return all;
  return std::make_shared<ChosenExamples>(std::move(all), std::move(good));
}

}  // namespace official::resnet
