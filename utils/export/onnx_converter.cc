#include "utils/export/onnx_converter.h"

#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"
#include "utils/export/onnx_walk.h"

namespace official::exporting {

using compute::DType;
using compute::Tensor;

Tensor ToOnnxFilters(const Tensor& filters) {
  const compute::Shape& shape = filters.shape();
  OFFICIAL_CHECK(shape.rank() == 4 && filters.dtype() == DType::kFloat32) << filters.type().ToString();
  const int64_t window = shape.dim(0) * shape.dim(1), in = shape.dim(2), out = shape.dim(3);
  Tensor result(DType::kFloat32, {out, in, shape.dim(0), shape.dim(1)});
  const float* const from = filters.data<float>();
  float* to = result.data<float>();
  for (int64_t o = 0; o < out; ++o) {
    for (int64_t i = 0; i < in; ++i) {
      for (int64_t p = 0; p < window; ++p) *to++ = from[(p * in + i) * out + o];
    }
  }
  return result;
}

absl::StatusOr<onnx::ModelProto> ConvertToOnnx(const GraphDefBuilder& graph, const Signature& signature,
                                               const std::map<std::string, Tensor>& variables) {
  onnx::ModelProto model;
  model.set_ir_version(7);  // that of ONNX 1.8, which came with this opset
  model.set_producer_name("official-models");
  model.add_opset_import()->set_version(kOnnxOpset);
  ASSIGN_OR_RETURN(*model.mutable_graph(), OnnxWalk(graph.graph_def(), variables).Convert(signature));
  return model;
}

}  // namespace official::exporting
