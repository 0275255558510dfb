#include "official/resnet/resnet_export.h"

namespace official::resnet {

absl::StatusOr<exporting::ServingGraph> ResnetServingGraph(const train::Model& model, DatasetName dataset) {
  const int64_t size = InfoOf(dataset).image_size;
  const data::ElementSpec spec{.features = {{"", {compute::DType::kFloat32, {size, size, 3}}}}, .labels = {}};
  return exporting::BuildServingGraph(model, spec,
                                      {.key = "predict", .inputs = {{"input", "input_tensor", {size, size, 3}}}});
}

}  // namespace official::resnet
