#include "official/transformer/dataset.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "official/transformer/record_files.h"
#include "official/transformer/translation_record.h"
#include "utils/compute/core/status.h"
#include "utils/data/fingerprint.h"
#include "utils/data/permutation.h"
#include "utils/data/records/tf_record.h"
#include "utils/data/worker_pool.h"
#include "utils/logs/log.h"
#include "utils/logs/task_progress.h"

namespace official::transformer {
namespace {

using compute::DType;
using compute::Tensor;

// Ids are kept in bytes of 7 bits, the lowest first; the highest bit says that more follow.
void AppendId(int32_t id, std::vector<char>* bytes) {
  uint32_t rest = id;
  for (; rest >= 0x80; rest >>= 7) bytes->push_back(static_cast<char>(rest | 0x80));
  bytes->push_back(static_cast<char>(rest));
}

const char* ReadIds(const char* bytes, int32_t count, int32_t* ids) {
  for (int32_t i = 0; i < count; ++i) {
    uint32_t id = 0;
    for (int shift = 0;; shift += 7) {
      const uint8_t byte = *bytes++;
      id |= static_cast<uint32_t>(byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    ids[i] = static_cast<int32_t>(id);
  }
  return bytes;
}

// Of a damaged record whose end is not known.
absl::Status CannotGoOn(const absl::Status& error) {
  return absl::Status(error.code(), absl::StrCat(error.message(), "; what follows in the file cannot be read"));
}

}  // namespace

absl::StatusOr<Translations::File> Translations::ReadFile(const std::string& path, int64_t max_length,
                                                          data::BadRecords& bad) {
  ASSIGN_OR_RETURN(const auto reader, data::TFRecordReader::Open(path));
  File file;
  std::vector<size_t> offsets;
  std::vector<int64_t> inputs, targets;
  std::string record;
  for (int64_t number = 0;; ++number) {
    const auto skip = [&](const absl::Status& error) { return bad.Skip(absl::StrCat(path, ": ", number), error); };
    const absl::StatusOr<bool> more = reader->Next(&record);
    if (!more.ok()) {
      RETURN_IF_ERROR(skip(reader->can_go_on() ? more.status() : CannotGoOn(more.status())));
      if (reader->can_go_on()) continue;
      break;
    }
    if (!*more) break;
    if (const absl::Status status = ParseTranslation(record, &inputs, &targets); !status.ok()) {
      RETURN_IF_ERROR(
          skip(absl::Status(status.code(), absl::StrCat(path, ": record ", number, ": ", status.message()))));
      continue;
    }
    const int64_t length = static_cast<int64_t>(std::max(inputs.size(), targets.size()));
    if (length > max_length) {
      ++file.num_too_long;
      continue;
    }
    file.examples.push_back({nullptr, static_cast<int32_t>(inputs.size()), static_cast<int32_t>(targets.size())});
    offsets.push_back(file.ids.size());
    for (const std::vector<int64_t>* ids : {&inputs, &targets}) {
      for (const int64_t id : *ids) {
        file.max_id = std::max(file.max_id, static_cast<int32_t>(id));
        AppendId(static_cast<int32_t>(id), &file.ids);
      }
    }
  }
  file.ids.shrink_to_fit();
  for (size_t i = 0; i < offsets.size(); ++i) file.examples[i].ids = file.ids.data() + offsets[i];
  return file;
}

absl::StatusOr<TranslationsPtr> Translations::Open(const std::string& data_dir, TranslationPart part,
                                                   int64_t max_length, int num_threads, data::BadRecords* bad) {
  data::BadRecords none;
  ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                   FindRecordFiles(data_dir, part == TranslationPart::kTrain ? "train" : "dev"));
  std::shared_ptr<Translations> translations(new Translations(max_length));
  translations->files_.resize(paths.size());
  std::vector<absl::Status> statuses(paths.size());
  logs::TaskProgress progress({.title = part == TranslationPart::kTrain ? "reading the sentences to train on"
                                                                        : "reading the sentences to evaluate on",
                               .total = static_cast<int64_t>(paths.size()),
                               .unit = "files"});
  data::WorkerPool(num_threads).ForEach(paths.size(), [&](int64_t i) {
    absl::StatusOr<File> file = ReadFile(paths[i], max_length, bad == nullptr ? none : *bad);
    statuses[i] = file.status();
    if (file.ok()) translations->files_[i] = *std::move(file);
    progress.Add(1);
  });
  for (const absl::Status& status : statuses) RETURN_IF_ERROR(status);
  data::Fingerprint fingerprint;
  for (size_t i = 0; i < paths.size(); ++i) {
    File& file = translations->files_[i];
    fingerprint.AddFile(paths[i]);
    fingerprint.AddContent(file.ids.data(), static_cast<int64_t>(file.ids.size()));
    auto& examples = translations->examples_;
    examples.insert(examples.end(), file.examples.begin(), file.examples.end());
    file.examples = {};
    translations->num_too_long_ += file.num_too_long;
    translations->max_id_ = std::max(translations->max_id_, file.max_id);
  }
  if (translations->examples_.empty()) {
    return absl::DataLossError(
        absl::StrFormat("the %d files %s and so on have no records of at most %d ids; %d are longer", paths.size(),
                        paths[0], max_length, translations->num_too_long_));
  }
  translations->fingerprint_ = fingerprint.ToString(translations->num_examples());
  return translations;
}

void Translations::Read(int64_t i, int32_t* inputs, int32_t* targets) const {
  const Example& example = examples_[i];
  ReadIds(ReadIds(example.ids, example.num_inputs, inputs), example.num_targets, targets);
}

// In the last bucket there are pairs of fewer than max_length + 1 ids.
int64_t LeastBatchTokens(int64_t max_length, bool static_batch) { return static_batch ? max_length : max_length + 1; }

absl::StatusOr<std::vector<Bucket>> MakeBuckets(int64_t batch_tokens, int64_t max_length, bool static_batch) {
  std::vector<Bucket> buckets;
  constexpr int64_t kFirst = 8;
  for (int64_t length = kFirst; !static_batch && length < max_length;) {
    buckets.push_back({length, batch_tokens / length});
    length = std::max(length + 1, static_cast<int64_t>(static_cast<double>(length) * 1.1));
  }
  const int64_t least = LeastBatchTokens(max_length, static_batch);
  buckets.push_back({max_length + 1, batch_tokens / least});
  if (buckets.back().batch_size > 0) return buckets;
  return absl::InvalidArgumentError(absl::StrFormat(
      "--batch_size=%d tokens are too few for a pair of sentences of up to %d; it needs to be at least %d",
      batch_tokens, max_length, least));
}

namespace {

class BucketedBatches : public data::BatchSource {
 public:
  BucketedBatches(TranslationsPtr translations, std::vector<Bucket> buckets, const TranslationBatchOptions& options)
      : translations_(std::move(translations)),
        options_(options),
        buckets_(std::move(buckets)),
        waiting_(buckets_.size()) {
    const auto ids = compute::TensorType{DType::kInt32, {translations_->max_length()}};
    const auto length = compute::TensorType{DType::kInt32, {}};
    spec_ = {.features = {{"inputs", ids}, {"input_lengths", length}},
             .labels = {{"targets", ids}, {"target_lengths", length}}};
    const int64_t num_examples = translations_->num_examples();
    num_taken_ = options.static_batch ? num_examples - num_examples % buckets_[0].batch_size : num_examples;
  }
  const data::ElementSpec& spec() const override { return spec_; }
  std::optional<int64_t> num_examples() const override { return num_taken_; }

  // Goes to where `start` says.
  absl::Status Start() {
    const data::Position& start = options_.start;
    if (num_taken_ == 0) {
      return absl::DataLossError(absl::StrFormat("%d pairs of sentences do not fill a batch of %d",
                                                 translations_->num_examples(), buckets_[0].batch_size));
    }
    if (start.epoch < 0 || start.index < 0 || start.index > translations_->num_examples()) {
      return absl::DataLossError(absl::StrFormat(
          "Cannot continue at epoch %d, pair %d: there are %d pairs. Is the checkpoint of another data set?",
          start.epoch, start.index, translations_->num_examples()));
    }
    StartEpoch(start.epoch);
    while (position_.index < start.index && position_.epoch == start.epoch) TakeBatch();
    if (position_ == start || (position_.index == 0 && start.index == num_taken_)) return absl::OkStatus();
    LOG(WARNING) << "no batch begins after " << start.index << " pairs of epoch " << start.epoch + 1
                 << ": the data or --batch_size were different then. Training continues after " << position_.index
                 << " pairs of epoch " << position_.epoch + 1;
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<data::Batch>> Next() override {
    if (position_.epoch >= options_.end_epoch) return std::nullopt;
    data::Batch batch;
    batch.first = position_;
    const std::vector<int64_t> examples = TakeBatch();
    batch.next = position_;
    batch.num_examples = static_cast<int64_t>(examples.size());

    int64_t num_inputs = 0, num_targets = 0;
    for (const int64_t example : examples) {
      num_inputs = std::max<int64_t>(num_inputs, translations_->num_inputs(example));
      num_targets = std::max<int64_t>(num_targets, translations_->num_targets(example));
    }
    if (options_.static_batch) num_inputs = num_targets = translations_->max_length();
    const Tensor inputs(DType::kInt32, {batch.num_examples, num_inputs});  // zeros
    const Tensor targets(DType::kInt32, {batch.num_examples, num_targets});
    const Tensor input_lengths(DType::kInt32, {batch.num_examples});
    const Tensor target_lengths(DType::kInt32, {batch.num_examples});
    for (int64_t row = 0; row < batch.num_examples; ++row) {
      input_lengths.data<int32_t>()[row] = translations_->num_inputs(examples[row]);
      target_lengths.data<int32_t>()[row] = translations_->num_targets(examples[row]);
    }
    const auto read = [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        translations_->Read(examples[row], inputs.data<int32_t>() + row * num_inputs,
                            targets.data<int32_t>() + row * num_targets);
      }
    };
    if (options_.rows.HoldsBatch(num_batches_++)) options_.rows.ForRanges(batch.num_examples, read);
    batch.features = {inputs, input_lengths};
    batch.labels = {targets, target_lengths};
    return batch;
  }

 private:
  void StartEpoch(int64_t epoch) {
    position_ = {epoch, 0};
    num_read_ = 0;
    order_ = data::Permutation(translations_->num_examples(), options_.seed, epoch);
    for (std::vector<int64_t>& waiting : waiting_) waiting.clear();
  }

  // The examples of the next batch; moves to what follows it.
  std::vector<int64_t> TakeBatch() {
    std::vector<int64_t> examples = CollectBatch();
    position_.index += static_cast<int64_t>(examples.size());
    if (position_.index == num_taken_) StartEpoch(position_.epoch + 1);
    return examples;
  }

  std::vector<int64_t> CollectBatch() {
    while (num_read_ < translations_->num_examples()) {
      const int64_t example = options_.shuffle ? order_(num_read_) : num_read_;
      ++num_read_;
      const int64_t length = std::max(translations_->num_inputs(example), translations_->num_targets(example));
      const auto bucket = std::upper_bound(buckets_.begin(), buckets_.end(), length,
                                           [](int64_t length, const Bucket& b) { return length < b.max_length; });
      std::vector<int64_t>& waiting = waiting_[bucket - buckets_.begin()];
      waiting.push_back(example);
      if (static_cast<int64_t>(waiting.size()) == bucket->batch_size) return std::exchange(waiting, {});
    }
    const auto left =
        std::find_if(waiting_.begin(), waiting_.end(), [](const auto& waiting) { return !waiting.empty(); });
    return std::exchange(*left, {});
  }

  TranslationsPtr translations_;
  TranslationBatchOptions options_;
  std::vector<Bucket> buckets_;
  data::ElementSpec spec_;
  int64_t num_taken_;  // examples of an epoch that are in batches
  data::Permutation order_ = data::Permutation(1, 0, 0);
  data::Position position_;
  int64_t num_batches_ = 0;                    // that Next() has returned
  int64_t num_read_ = 0;                       // examples of the epoch that are in batches or waiting
  std::vector<std::vector<int64_t>> waiting_;  // of each bucket, the examples that do not make a batch yet
};

}  // namespace

absl::StatusOr<data::BatchSourcePtr> TranslationBatches(TranslationsPtr translations,
                                                        const TranslationBatchOptions& options) {
  const int64_t max_length = translations->max_length();
  ASSIGN_OR_RETURN(std::vector<Bucket> buckets, MakeBuckets(options.batch_tokens, max_length, options.static_batch));
  auto batches = std::make_unique<BucketedBatches>(std::move(translations), std::move(buckets), options);
  RETURN_IF_ERROR(batches->Start());
  return batches;
}

}  // namespace official::transformer
