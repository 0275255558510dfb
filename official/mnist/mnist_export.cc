#include "official/mnist/mnist_export.h"

#include "official/mnist/mnist_model.h"
#include "utils/export/export_model.h"

namespace official::mnist {

absl::StatusOr<std::string> ExportSavedModel(train::Estimator& estimator, const std::string& export_dir) {
  const data::ElementSpec spec{.features = {{"", {compute::DType::kFloat32, {kImageSize * kImageSize}}}}, .labels = {}};
  return exporting::ExportModel(
      estimator, spec, {.key = "classify", .inputs = {{"image", "image", {kImageSize, kImageSize}}}}, export_dir);
}

}  // namespace official::mnist
