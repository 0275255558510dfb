// A view of a tf.Example (utils/protos/example.proto): nothing of a record is copied, so that a megabyte of image costs
// no more than its name.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace official::data {

class ExampleView {
 public:
  // Finds the features of a serialized tf.Example; `record` must outlive the view. If a name occurs twice the last one
  // counts. DataLoss if the bytes are not such a message.
  static absl::StatusOr<ExampleView> Parse(absl::string_view record);

  // Return a feature's only value. DataLoss, naming the feature, if it is missing, of another kind, or does not have
  // exactly one value.
  absl::StatusOr<absl::string_view> Bytes(absl::string_view name) const;
  absl::StatusOr<int64_t> Int64(absl::string_view name) const;
  // Gets all values of a feature. DataLoss, naming it, if it is missing or of another kind.
  absl::Status Int64s(absl::string_view name, std::vector<int64_t>* values) const;
  // Gets all values of a feature; none if it is missing.
  absl::Status Floats(absl::string_view name, std::vector<float>* values) const;

 private:
  // The field numbers of Feature's lists.
  enum class Kind { kNone = 0, kBytes = 1, kFloat = 2, kInt64 = 3 };
  struct Feature {
    absl::string_view name;
    Kind kind;
    absl::string_view list;  // the serialized BytesList, FloatList or Int64List
  };
  static absl::StatusOr<Feature> ParseFeature(absl::string_view entry);
  absl::Status ParseFeatures(absl::string_view features);
  // Returns the feature; null if there is none, or it has no value of any kind.
  absl::StatusOr<const Feature*> Find(absl::string_view name, Kind kind) const;
  absl::StatusOr<const Feature*> FindRequired(absl::string_view name, Kind kind) const;

  absl::InlinedVector<Feature, 20> features_;  // ImageNet has 16
};

}  // namespace official::data
