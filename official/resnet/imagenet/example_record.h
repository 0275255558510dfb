// One record of ImageNet: the contents of a tf.Example.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "official/resnet/imagenet/distorted_box.h"

namespace official::resnet {

struct ImagenetRecord {
  absl::string_view encoded;  // the image file; a part of the serialized record
  int64_t label = 0;
  std::vector<BoundingBox> boxes;
};

// Reads image/encoded, image/class/label and, `with_boxes`, image/object/bbox/*. DataLoss, naming the feature, if one
// of them is missing or of the wrong kind, the label is not in [0, num_classes), the lists of the boxes' edges differ
// in length, or an edge is not in [0, 1].
absl::StatusOr<ImagenetRecord> ParseRecord(absl::string_view serialized, int64_t num_classes, bool with_boxes);

}  // namespace official::resnet
