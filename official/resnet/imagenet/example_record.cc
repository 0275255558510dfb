#include "official/resnet/imagenet/example_record.h"

#include <array>

#include "absl/strings/str_format.h"
#include "utils/compute/core/status.h"
#include "utils/data/records/example.h"

namespace official::resnet {
namespace {

constexpr char kEncoded[] = "image/encoded";
constexpr char kLabel[] = "image/class/label";
// In the order of BoundingBox.
constexpr std::array<const char*, 4> kEdges = {"image/object/bbox/ymin", "image/object/bbox/xmin",
                                               "image/object/bbox/ymax", "image/object/bbox/xmax"};

absl::Status ReadBoxes(const data::ExampleView& example, std::vector<BoundingBox>* boxes) {
  std::array<std::vector<float>, 4> edges;
  for (size_t i = 0; i < kEdges.size(); ++i) {
    RETURN_IF_ERROR(example.Floats(kEdges[i], &edges[i]));
    if (edges[i].size() != edges[0].size()) {
      return absl::DataLossError(absl::StrFormat("feature %s has %d values, but %s has %d", kEdges[i], edges[i].size(),
                                                 kEdges[0], edges[0].size()));
    }
    for (const float edge : edges[i]) {
      if (edge >= 0 && edge <= 1) continue;
      return absl::DataLossError(absl::StrFormat("feature %s: expected values from 0 to 1, found %g", kEdges[i], edge));
    }
  }
  for (size_t i = 0; i < edges[0].size(); ++i) boxes->push_back({edges[0][i], edges[1][i], edges[2][i], edges[3][i]});
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ImagenetRecord> ParseRecord(absl::string_view serialized, int64_t num_classes, bool with_boxes) {
  ImagenetRecord record;
  ASSIGN_OR_RETURN(const data::ExampleView example, data::ExampleView::Parse(serialized));
  ASSIGN_OR_RETURN(record.encoded, example.Bytes(kEncoded));
  ASSIGN_OR_RETURN(record.label, example.Int64(kLabel));
  if (record.label < 0 || record.label >= num_classes) {
    return absl::DataLossError(
        absl::StrFormat("feature %s: expected a label from 0 to %d, found %d", kLabel, num_classes - 1, record.label));
  }
  if (with_boxes) RETURN_IF_ERROR(ReadBoxes(example, &record.boxes));
  return record;
}

}  // namespace official::resnet
