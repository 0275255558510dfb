#include "official/mnist/mnist_export.h"

#include "official/mnist/mnist_model.h"
#include "utils/export/export_model.h"

namespace official::mnist {

absl::StatusOr<std::string> ExportTrained(train::Estimator& estimator, const exporting::Destination& to) {
  const data::ElementSpec spec{.features = {{"", {compute::DType::kFloat32, {kImageSize * kImageSize}}}}, .labels = {}};
  return exporting::ExportModel(estimator, spec,
                                {.key = "classify", .inputs = {{"image", "image", {kImageSize, kImageSize}}}}, to);
}

}  // namespace official::mnist
