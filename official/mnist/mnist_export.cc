#include "official/mnist/mnist_export.h"

#include "official/mnist/mnist_model.h"

namespace official::mnist {

absl::StatusOr<exporting::ServingGraph> MnistServingGraph(const train::Model& model) {
  const data::ElementSpec spec{.features = {{"", {compute::DType::kFloat32, {kImageSize * kImageSize}}}}, .labels = {}};
  return exporting::BuildServingGraph(model, spec,
                                      {.key = "classify", .inputs = {{"image", "image", {kImageSize, kImageSize}}}});
}

}  // namespace official::mnist
