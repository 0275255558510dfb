// Data sets of the records of TFRecord files.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/data/dataset.h"

namespace official::data {

// Writes the example of a record into the tensors of `out`, which have the types of the data set's spec. Several
// threads may call it at once.
using ParseRecordFn = std::function<absl::Status(absl::string_view record, const Example& out)>;

// Returns a data set whose example i is record i of all files, counted in their order: tf.data.TFRecordDataset(paths)
// mapped by `parse`. AutoShardPolicy::kFile divides its files among workers. Errors: those of TFRecordIndex::Build; one
// of `parse` gets the file, the record and the offset in front.
absl::StatusOr<DatasetPtr> TFRecordDataset(const std::vector<std::string>& paths, ElementSpec spec,
                                           ParseRecordFn parse);

}  // namespace official::data
