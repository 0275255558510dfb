#include "utils/data/records/tf_record_dataset.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/data/auto_shard.h"
#include "utils/data/records/tf_record_index.h"

namespace official::data {
namespace {

class RecordsDataset : public FileDataset {
 public:
  RecordsDataset(TFRecordIndex index, ElementSpec spec, ParseRecordFn parse)
      : index_(std::move(index)), spec_(std::move(spec)), parse_(std::move(parse)) {}
  const ElementSpec& spec() const override { return spec_; }
  int64_t num_examples() const override { return index_.num_records(); }
  int num_files() const override { return index_.num_files(); }

  absl::StatusOr<DatasetPtr> ShardFiles(int num_shards, int index) const override {
    return std::make_shared<RecordsDataset>(index_.Shard(num_shards, index), spec_, parse_);
  }

  absl::Status Read(int64_t epoch, int64_t index, const Example& out) const override {
    std::string buffer;
    ASSIGN_OR_RETURN(const absl::string_view record, index_.Read(index, &buffer));
    const absl::Status status = parse_(record, out);
    if (status.ok()) return status;
    return absl::Status(status.code(), absl::StrCat(index_.Describe(index), ": ", status.message()));
  }

 private:
  const TFRecordIndex index_;
  const ElementSpec spec_;
  const ParseRecordFn parse_;
};

}  // namespace

absl::StatusOr<DatasetPtr> TFRecordDataset(const std::vector<std::string>& paths, ElementSpec spec,
                                           ParseRecordFn parse) {
  ASSIGN_OR_RETURN(TFRecordIndex index, TFRecordIndex::Build(paths));
  return std::make_shared<RecordsDataset>(std::move(index), std::move(spec), std::move(parse));
}

}  // namespace official::data
