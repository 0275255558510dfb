#include "official/resnet/resnet_export.h"

#include <map>

#include "utils/export/export_model.h"

namespace official::resnet {

absl::StatusOr<std::string> ExportTrained(train::Estimator& estimator, DatasetName dataset,
                                          const ClassNames& class_names, const exporting::Destination& to) {
  const int64_t size = InfoOf(dataset).image_size;
  const data::ElementSpec spec{.features = {{"", {compute::DType::kFloat32, {size, size, 3}}}}, .labels = {}};
  std::map<std::string, std::string> extra_files;
  if (!class_names.empty()) extra_files[kClassNamesFile] = ClassNamesText(class_names);
  return exporting::ExportModel(
      estimator, spec, {.key = "predict", .inputs = {{"input", "input_tensor", {size, size, 3}}}}, to, extra_files);
}

}  // namespace official::resnet
