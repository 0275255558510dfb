// TFRecord files: of images for resnet_main, of sentence pairs for transformer_main, of anything else.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "official/data_check/file_checks.h"
#include "official/resnet/imagenet/class_names.h"
#include "official/resnet/imagenet/dataset.h"
#include "official/resnet/imagenet/example_record.h"
#include "official/resnet/imagenet/preprocessing.h"
#include "official/transformer/text/vocabulary.h"
#include "official/transformer/translation_record.h"
#include "utils/compute/core/status.h"
#include "utils/data/records/example.h"
#include "utils/data/records/tf_record.h"
#include "utils/files/files.h"

namespace official::data_check {
namespace {

enum class Kind { kImages, kSentences, kOther };

// By the first of a few records that tells; one that is damaged does not.
absl::StatusOr<Kind> KindOfRecords(const std::string& path, data::Compression compression) {
  constexpr int kRecords = 16;
  ASSIGN_OR_RETURN(const auto reader, data::TFRecordReader::Open(path, compression));
  std::string record;
  for (int i = 0; i < kRecords; ++i) {
    const absl::StatusOr<bool> more = reader->Next(&record);
    if (!more.ok() && !absl::IsDataLoss(more.status())) return more.status();
    if (!more.ok() && reader->can_go_on()) continue;
    if (!more.ok() || !*more) break;
    const absl::StatusOr<data::ExampleView> example = data::ExampleView::Parse(record);
    std::vector<int64_t> ids;
    if (!example.ok()) continue;
    if (example->Bytes("image/encoded").ok()) return Kind::kImages;
    if (example->Int64s("inputs", &ids).ok() || example->Int64s("targets", &ids).ok()) return Kind::kSentences;
  }
  return Kind::kOther;
}

absl::StatusOr<int64_t> NumClasses(const std::string& path, const CheckOptions& options) {
  if (options.num_classes) return *options.num_classes;
  ASSIGN_OR_RETURN(const resnet::ClassNames names, resnet::FindClassNames(files::DirectoryOf(path)));
  return names.empty() ? resnet::kImagenetClasses : static_cast<int64_t>(names.size());
}

// Nothing if it is not known.
absl::StatusOr<std::optional<int64_t>> VocabSize(const std::string& path, const CheckOptions& options) {
  if (options.vocab_size) return options.vocab_size;
  const std::string directory = files::DirectoryOf(path);
  ASSIGN_OR_RETURN(std::vector<std::string> names, files::ListDirectory(directory));
  names.erase(std::remove_if(names.begin(), names.end(),
                             [](const std::string& name) {
                               return !absl::StartsWith(name, "vocab.") || files::FinalNameOf(name).has_value();
                             }),
              names.end());
  if (names.size() != 1) return std::nullopt;
  const auto subtokens = transformer::ReadVocabulary(files::JoinPath(directory, names[0]));
  if (!subtokens.ok()) return std::nullopt;  // it is reported where it is checked itself
  return static_cast<int64_t>(subtokens->size());
}

// What is in one record.
class RecordCheck {
 public:
  virtual ~RecordCheck() = default;
  virtual absl::Status Check(absl::string_view record) = 0;
};

class ImageCheck : public RecordCheck {
 public:
  explicit ImageCheck(int64_t num_classes) : num_classes_(num_classes) {}

  absl::Status Check(absl::string_view record) override {
    ASSIGN_OR_RETURN(const resnet::ImagenetRecord image,
                     resnet::ParseRecord(record, num_classes_, /*with_boxes=*/true));
    return resnet::CheckImage(image.encoded, scratch_).status();
  }

 private:
  const int64_t num_classes_;
  resnet::PreprocessingScratch scratch_;
};

class SentenceCheck : public RecordCheck {
 public:
  explicit SentenceCheck(std::optional<int64_t> vocab_size) : vocab_size_(vocab_size) {}

  absl::Status Check(absl::string_view record) override {
    RETURN_IF_ERROR(transformer::ParseTranslation(record, &inputs_, &targets_));
    RETURN_IF_ERROR(CheckIds("inputs", inputs_));
    return CheckIds("targets", targets_);
  }

 private:
  absl::Status CheckIds(absl::string_view name, const std::vector<int64_t>& ids) const {
    const int64_t largest = *std::max_element(ids.begin(), ids.end());
    if (!vocab_size_ || largest < *vocab_size_) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrFormat("feature %s has the id %d, but the vocabulary has %d entries", name, largest, *vocab_size_));
  }

  const std::optional<int64_t> vocab_size_;
  std::vector<int64_t> inputs_, targets_;
};

absl::StatusOr<std::unique_ptr<RecordCheck>> MakeCheck(Kind kind, const std::string& path,
                                                       const CheckOptions& options) {
  if (kind == Kind::kOther) return nullptr;
  if (kind == Kind::kImages) {
    ASSIGN_OR_RETURN(const int64_t num_classes, NumClasses(path, options));
    return std::make_unique<ImageCheck>(num_classes);
  }
  ASSIGN_OR_RETURN(const std::optional<int64_t> vocab_size, VocabSize(path, options));
  return std::make_unique<SentenceCheck>(vocab_size);
}

std::string Contents(Kind kind, bool compressed) {
  const absl::string_view what = kind == Kind::kImages      ? kImageRecords
                                 : kind == Kind::kSentences ? kSentenceRecords
                                                            : "TFRecord of neither images nor sentence pairs";
  return absl::StrCat(what, compressed ? ", compressed: no training program reads it so" : "");
}

}  // namespace

absl::Status CheckTFRecords(bool compressed, const CheckOptions& options, Findings& findings) {
  const std::string& path = findings.path();
  const data::Compression compression = compressed ? data::Compression::kGzip : data::Compression::kNone;
  ASSIGN_OR_RETURN(const Kind kind, KindOfRecords(path, compression));
  findings.SetContents(Contents(kind, compressed));
  ASSIGN_OR_RETURN(const std::unique_ptr<RecordCheck> check, MakeCheck(kind, path, options));
  ASSIGN_OR_RETURN(const auto reader, data::TFRecordReader::Open(path, compression));
  std::string record;
  int64_t done = 0;
  for (;;) {
    const absl::StatusOr<bool> more = reader->Next(&record);
    if (more.ok() && !*more) return absl::OkStatus();
    if (!more.ok() && !absl::IsDataLoss(more.status())) return more.status();
    const int64_t number = reader->record_number(), offset = reader->record_offset();
    if (!compressed) findings.Progress(offset - std::exchange(done, offset));
    findings.Count(1);
    if (!more.ok()) {
      const bool end = !reader->can_go_on();
      findings.Bad(
          {.record = number,
           .offset = offset,
           .message = absl::StrCat(more.status().message(), end ? "; what follows in the file cannot be read" : "")});
      if (end) return absl::OkStatus();
      continue;
    }
    if (check == nullptr) continue;
    const absl::Status status = check->Check(record);
    if (status.ok()) continue;
    if (!absl::IsDataLoss(status)) return status;
    findings.Bad(
        {.record = number,
         .offset = offset,
         .message = absl::StrFormat("%s: record %d at offset %d: %s", path, number, offset, status.message())});
  }
}

}  // namespace official::data_check
