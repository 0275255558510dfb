#include "utils/export/onnx_model.h"

#include <cstdint>
#include <limits>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"
#include "utils/export/onnx_check.h"
#include "utils/export/onnx_converter.h"
#include "utils/files/files.h"

namespace official::exporting {

absl::Status WriteOnnxModel(const std::string& path, const GraphDefBuilder& graph,
                            const std::map<std::string, compute::Tensor>& variables, const Signature& signature) {
  constexpr int64_t kMaxBytes = std::numeric_limits<int32_t>::max(), kMaxGraphBytes = int64_t{1} << 24;
  int64_t bytes_of_variables = 0;
  for (const GraphDefBuilder::Variable& variable : graph.variables()) bytes_of_variables += variable.type.num_bytes();
  if (bytes_of_variables > kMaxBytes - kMaxGraphBytes) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the model has %.2f GiB of variables, and an ONNX file at most 1.98 GiB; nothing is exported, try "
        "--export_format=saved_model",
        static_cast<double>(bytes_of_variables) / (int64_t{1} << 30)));
  }
  std::map<std::string, compute::Tensor> values;
  for (const GraphDefBuilder::Variable& variable : graph.variables()) {
    const auto value = variables.find(variable.name);
    OFFICIAL_CHECK(value != variables.end() && value->second.type() == variable.type)
        << variable.name << " needs a value of type " << variable.type.ToString();
    values.insert(*value);
  }
  std::string model;
  {
    const absl::StatusOr<onnx::ModelProto> converted = ConvertToOnnx(graph, signature, values);
    if (absl::IsUnimplemented(converted.status())) {
      return absl::UnimplementedError(
          absl::StrCat(converted.status().message(), "; nothing is exported, try --export_format=saved_model"));
    }
    RETURN_IF_ERROR(converted.status());
    const onnx::ModelProto& proto = *converted;
    if (proto.ByteSizeLong() > kMaxBytes || !proto.SerializeToString(&model)) {
      return absl::FailedPreconditionError(
          "the graph has too many constants for an ONNX file; nothing is exported, try --export_format=saved_model");
    }
  }
  RETURN_IF_ERROR(files::WriteFileAtomically(path, model));
  return CheckOnnxFile(path, model, signature, values);
}

}  // namespace official::exporting
